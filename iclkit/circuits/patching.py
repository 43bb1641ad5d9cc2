"""Activation patching: put one activation of one run into another, and see how much of the answer moves.

0 = the corrupted run's metric      1 = the clean run's
denoise   the run is corrupted, the patch is clean:    what is sufficient?
noise     the run is clean, the patch is corrupted:    what is necessary?
"""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from iclkit.model import Transformer

BY_POSITION = ("resid_pre", "resid_mid", "resid_post", "attn_out", "mlp_out")
BY_HEAD = ("q", "k", "v", "z", "pattern", "result")
Metric = Callable[[Tensor], Tensor | float]


@torch.no_grad()
def activation_patch(
    model: Transformer,
    clean: Tensor,
    corrupted: Tensor,
    metric: Metric,
    at: str = "resid_pre",
    direction: str = "denoise",
) -> Float[Tensor, "layer place"]:
    """The metric after patching each place in turn, scaled so that 0 = corrupted and 1 = clean.

    `at` resid_pre, resid_mid, resid_post, attn_out, mlp_out: `[layer seq]`, one position at a time.
    `at` q, k, v, z, pattern, result: `[layer head]`, one head at all positions.
    `metric` takes logits; `clean` and `corrupted` have one shape.
    """
    if at not in BY_POSITION + BY_HEAD:
        raise ValueError(f"at must be one of {', '.join(BY_POSITION + BY_HEAD)}; got {at!r}")
    if direction not in ("denoise", "noise"):
        raise ValueError(f'direction must be "denoise" or "noise"; got {direction!r}')
    same_shape(clean, corrupted)
    scaled = normalised(metric, model(clean), model(corrupted))
    run, source = (corrupted, clean) if direction == "denoise" else (clean, corrupted)
    names = [(at, layer) for layer in range(model.config.n_layers)]
    _, cache = model.run_with_cache(source, names)
    axis = 1 if at in BY_POSITION or at == "pattern" else 2
    places = run.shape[1] if at in BY_POSITION else model.config.n_heads
    effect = torch.zeros(len(names), places)
    for layer, name in enumerate(names):
        for place in range(places):

            def patch(tensor, hook, place=place):
                tensor = tensor.clone()
                tensor.select(axis, place).copy_(cache[hook.name].select(axis, place))
                return tensor

            effect[layer, place] = scaled(model.run_with_hooks(run, [(name, patch)]))
    return effect


def normalised(metric: Metric, clean_logits: Tensor, corrupted_logits: Tensor) -> Callable[[Tensor], float]:
    """(metric − metric(corrupted)) / (metric(clean) − metric(corrupted)), as a function of logits."""
    high, low = number(metric, clean_logits), number(metric, corrupted_logits)
    if not (math.isfinite(high) and math.isfinite(low)):
        raise ValueError(
            f"the metric is {high:.6g} on the clean and {low:.6g} on the corrupted run; "
            "expected finite numbers: are there sequences, and are the weights finite?"
        )
    if abs(high - low) < 1e-6:
        raise ValueError(
            f"the metric is {high:.6g} on the clean and on the corrupted run: no effect to share out; "
            "corrupt what the metric depends on"
        )
    return lambda logits: (number(metric, logits) - low) / (high - low)


def number(metric: Metric, logits: Tensor) -> float:
    """`metric(logits)` as a number; `ValueError` when it is none."""
    value = metric(logits)
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError):
        got = f"a tensor of {tuple(value.shape)}" if isinstance(value, Tensor) else repr(value)
        raise ValueError(f"metric must return one number, such as a mean; got {got}") from None


def same_shape(clean: Tensor, corrupted: Tensor) -> None:
    """`ValueError` unless the two runs can be laid over each other."""
    if clean.shape != corrupted.shape:
        raise ValueError(
            "clean and corrupted inputs must have one shape, position by position; "
            f"got {tuple(clean.shape)} and {tuple(corrupted.shape)}"
        )
