"""Naming heads: `(1, 4)` in code, `L1H4` in pictures and paths."""

import numpy as np

from iclkit.model import Transformer


def label(layer: int, head: int) -> str:
    """`label(1, 4)` is `"L1H4"`."""
    return f"L{layer}H{head}"


def check_head(model: Transformer, layer: int, head: int) -> None:
    """`ValueError` when the model has no such head."""
    c = model.config
    if not all(isinstance(n, (int, np.integer)) and not isinstance(n, bool) for n in (layer, head)):
        raise ValueError(f"a head is two whole numbers (layer, head), such as (1, 4); got {(layer, head)!r}")
    if not (0 <= layer < c.n_layers and 0 <= head < c.n_heads):
        has = f"L0H0 … {label(c.n_layers - 1, c.n_heads - 1)}" if c.n_layers else "no attention layer"
        raise ValueError(f"there is no head {label(layer, head)}; this model has {has}, counted from 0")
