"""Two models in one: the first half of this one, the second half of that one.

    W_X W_L W_pos │ L0 │ L1 │ ln_final W_U            boundary 1
    └──── first ───────┘ └─── second ────┘

A graft is a model like any other: it can be run, opened and trained, and one of its halves can stay frozen.

    model = graft(fresh, donor)
    train(model, task, TrainConfig(rates=frozen(model, "second")), loss=query_loss)

Source: Singh et al. 2025 (https://arxiv.org/abs/2503.05631), section 5.
"""

import copy
from dataclasses import asdict

import torch

from iclkit.model import Transformer
from iclkit.tasks.base import check_whole

HALVES = ("first", "second")
ONE_HALF = ("absolute", "rotary", "none")


@torch.no_grad()
def graft(first: Transformer, second: Transformer, boundary: int = 1) -> Transformer:
    """A new model: embeddings and the first `boundary` layers of `first`, all above them of `second`.

    Neither model changes. `ValueError` for models of different shape, whose halves share weights (tied, or
    positions that act in every layer), or a boundary that is none.
    """
    check_alike(first, second)
    taken, _ = weight_halves(second, boundary)
    model, given = copy.deepcopy(second), dict(first.named_parameters())
    for name in taken:
        model.get_parameter(name).copy_(given[name])
    return model


def frozen(model: Transformer, half: str, boundary: int = 1) -> tuple[tuple[str, float], ...]:
    """`TrainConfig.rates` that keep the "first" or "second" half of this model as it is.

    frozen(model, "second")     (("_W_U", 0.0), ("blocks.1.*", 0.0), ("ln_final.*", 0.0))
    """
    if half not in HALVES:
        raise ValueError(f"half must be one of {', '.join(HALVES)}; got {half!r}")
    names = weight_halves(model, boundary)[HALVES.index(half)]
    return tuple((pattern, 0.0) for pattern in dict.fromkeys(map(family, names)))


def weight_halves(model: Transformer, boundary: int = 1) -> tuple[list[str], list[str]]:
    """The names of the weights below and above a boundary: 0 is the embeddings alone."""
    c = model.config
    check_whole("boundary", boundary)
    if not 0 <= boundary <= c.n_layers:
        raise ValueError(
            f"boundary counts the layers of the first half, 0 … {c.n_layers} in this model; got {boundary}"
        )
    if c.tied or c.positions not in ONE_HALF:
        shared = "W_E, which is W_U too" if c.tied else f"positions={c.positions!r}, which act in every layer"
        raise ValueError(
            f"the halves of this model share weights: {shared}; untie them, or use absolute positions"
        )
    above = ("_W_U", "ln_final.", *(f"blocks.{layer}." for layer in range(boundary, c.n_layers)))
    names = [name for name, _ in model.named_parameters()]
    return [n for n in names if not n.startswith(above)], [n for n in names if n.startswith(above)]


def family(name: str) -> str:
    """A pattern for a weight and its neighbours: `blocks.1.*`, `pairs.*`, or a lone weight's name."""
    parts = name.split(".")
    kept = parts[: 2 if parts[0] == "blocks" else 1]
    return ".".join(kept) + (".*" if len(parts) > len(kept) else "")


def check_alike(first: Transformer, second: Transformer) -> None:
    """`ValueError` unless every weight of one model fits the other."""
    ours, theirs = asdict(first.config), asdict(second.config)
    if differ := [f"{name} ({ours[name]} and {theirs[name]})" for name in ours if ours[name] != theirs[name]]:
        raise ValueError(f"models are grafted that have one config; these differ in {', '.join(differ)}")
    ours, theirs = ({n: tuple(w.shape) for n, w in m.named_parameters()} for m in (first, second))
    if differ := [n for n in dict.fromkeys([*ours, *theirs]) if ours.get(n) != theirs.get(n)]:
        name = differ[0]
        raise ValueError(
            f"models are grafted whose weights have one shape; {name} is {ours.get(name, 'absent')} in the "
            f"first and {theirs.get(name, 'absent')} in the second"
        )
