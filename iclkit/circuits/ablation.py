"""Taking heads away, and seeing what is lost.

    zero       z ← 0                                      the head writes nothing
    mean       z ← its mean over `reference`, by place    the head writes what it always writes
    resample   z ← its value on a row of `reference`      the head answers another sequence

With `keep_patterns`, every pattern of the model is forced to what it was before the ablation, so that only
the path through values is cut; without, later heads may look elsewhere. These are two different experiments.
Source: Olsson et al. 2022 (https://arxiv.org/abs/2209.11895), pattern-preserving ablation.
"""

from collections.abc import Callable, Iterable

import torch
from jaxtyping import Float
from torch import Tensor

from iclkit.circuits.heads import check_head
from iclkit.circuits.patching import number
from iclkit.model import Transformer

HOW = ("zero", "mean", "resample")


def ablate(
    model: Transformer,
    heads: Iterable[tuple[int, int]],
    how: str = "zero",
    keep_patterns: bool = False,
    reference: Tensor | None = None,
) -> Callable[[Tensor], Tensor]:
    """A function with the model's signature, `tokens → logits`, in which these heads are taken away.

    `heads` are pairs (layer, head). The model itself is untouched. `mean` and `resample` need `reference`
    tokens, at least as long as what will be given; `resample` pairs row i with reference row i, over and
    over when those run out.
    """
    if how not in HOW:
        raise ValueError(f"how must be one of {', '.join(HOW)}; got {how!r}")
    if how != "zero" and reference is None:
        raise ValueError(f"how={how!r} needs reference tokens [batch seq] to take the head's values from")
    if reference is not None and not len(reference):
        raise ValueError("reference holds no sequence; give tokens [batch seq] with batch ≥ 1")
    by_layer: dict[int, list[int]] = {}
    for pair in heads:
        if isinstance(pair, str) or not hasattr(pair, "__len__") or len(pair) != 2:
            raise ValueError(f"heads are pairs (layer, head), such as [(1, 4)]; got {pair!r}")
        layer, head = pair
        check_head(model, layer, head)
        by_layer.setdefault(layer, []).append(head)
    wanted = [("z", layer) for layer in by_layer]
    with torch.no_grad():
        known = {} if how == "zero" else dict(model.run_with_cache(reference, wanted)[1])

    def replace(z, hook):
        z, gone = z.clone(), by_layer[hook.layer()]
        z[:, :, gone] = 0.0 if how == "zero" else _stand_in(known[hook.name], z, how)[:, :, gone]
        return z

    hooks = [(name, replace) for name in wanted]

    def ablated(tokens: Tensor) -> Tensor:
        kept = frozen_patterns(model, tokens) if keep_patterns else []
        return model.run_with_hooks(tokens, [*kept, *hooks])

    return ablated


def frozen_patterns(model: Transformer, tokens: Tensor) -> list[tuple]:
    """Hooks that force every attention pattern to its value on these tokens."""
    names = [("pattern", layer) for layer in range(model.config.n_layers)]
    _, cache = model.run_with_cache(tokens, names)
    return [(name, lambda pattern, hook: cache[hook.name]) for name in names]


@torch.no_grad()
def ablate_each_head(
    model: Transformer,
    tokens: Tensor,
    metric: Callable[[Tensor], Tensor | float],
    how: str = "zero",
    keep_patterns: bool = False,
    reference: Tensor | None = None,
) -> Float[Tensor, "layer head"]:
    """The change of `metric(logits)` when each head alone is ablated: `[layer head]`, 0 = nothing lost."""
    c, whole = model.config, number(metric, model(tokens))
    change = torch.zeros(c.n_layers, c.n_heads)
    for layer in range(c.n_layers):
        for head in range(c.n_heads):
            logits = ablate(model, [(layer, head)], how, keep_patterns, reference)(tokens)
            change[layer, head] = number(metric, logits) - whole
    return change


def _stand_in(known: Tensor, z: Float[Tensor, "batch seq head d_head"], how: str) -> Tensor:
    batch, seq = z.shape[:2]
    if known.shape[1] < seq:
        raise ValueError(
            f"the reference sequences ({known.shape[1]} tokens) are shorter than the input ({seq}); "
            "give longer reference tokens"
        )
    known = known[:, :seq]
    if how == "mean":
        return known.mean(0, keepdim=True).expand_as(z)
    return known[torch.arange(batch, device=known.device) % len(known)]
