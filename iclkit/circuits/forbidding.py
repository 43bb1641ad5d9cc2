"""Forbidding a head to look somewhere, while it runs and while it trains.

    keys      x₁  y₁  x₂  y₂  x_q
    y₂ sees   e   e   p   i                p previous    i itself    e earlier

What is forbidden gets a score of −∞ before the softmax, so that the rest of the row still sums to 1.
Source: Singh et al. 2025 (https://arxiv.org/abs/2503.05631), section 5.2: without previous-token attention of
labels in layer 0 there is no in-context learning.
"""

from collections.abc import Iterable

import torch
from jaxtyping import Bool
from torch import Tensor

from iclkit.hooks import HookFn, Name

KINDS = ("previous", "itself", "earlier")


def forbid_attention(*kinds: str, layer: int = 0, heads: Iterable[int] | None = None) -> tuple[Name, HookFn]:
    """A hook under which label positions of this layer (of these heads; None: all) cannot attend so.

    `previous`: the label's own exemplar; `itself`: the label; `earlier`: all before its pair. Any number of
    pairs. Labels must keep something to see, so `previous` and `itself` do not go together.

        train(model, task, fwd_hooks=[forbid_attention("previous")])
    """
    if not kinds or set(kinds) - set(KINDS):
        raise ValueError(
            f"forbid one or more of {', '.join(KINDS)}; got {', '.join(map(repr, kinds)) or 'none'}"
        )
    if {"previous", "itself"} <= set(kinds):
        raise ValueError("the first label sees its exemplar and itself alone; forbid one of them")
    chosen = None if heads is None else sorted(set(heads))

    def forbid(scores, hook):
        n_heads, seq = scores.shape[1], scores.shape[-1]
        mask = torch.zeros(n_heads, seq, seq, dtype=torch.bool, device=scores.device)
        if chosen is not None and not all(0 <= head < n_heads for head in chosen):
            raise ValueError(f"layer {layer} has heads 0 … {n_heads - 1}; got {chosen}")
        mask[slice(None) if chosen is None else chosen] = places(kinds, seq).to(scores.device)
        return scores.masked_fill(mask, -torch.inf)

    return ("attn_scores", layer), forbid


def places(kinds: Iterable[str], seq: int) -> Bool[Tensor, "query key"]:
    """Which keys are forbidden to which queries in x₁ y₁ x₂ y₂ … x_q."""
    query, key = torch.arange(seq)[:, None], torch.arange(seq)
    found = {"previous": key == query - 1, "itself": key == query, "earlier": key < query - 1}
    return sum(found[kind] for kind in set(kinds)).bool() & (query % 2 == 1)
