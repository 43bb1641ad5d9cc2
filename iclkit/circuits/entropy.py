"""How evenly a head spreads its attention: the entropy of each row of the pattern, against an even look."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from iclkit.circuits.scores import check_pattern
from iclkit.circuits.scores import over_layers
from iclkit.model import Transformer


def attention_entropy_score(
    pattern: Float[Tensor, "batch head query key"], tokens: Int[Tensor, "rows seq"] | None = None
) -> Float[Tensor, " head"]:
    """Mean over queries i ≥ 1 of −Σ_j A_ij log A_ij / log(i + 1): 1 = evenly over all seen, 0 = one place."""
    check_pattern(pattern, tokens)
    if pattern.shape[-1] < 2:
        raise ValueError("the entropy of attention needs sequences of at least 2 tokens; got 1")
    entropy = torch.special.entr(pattern.clamp(min=0)).sum(-1)[..., 1:]
    even = torch.arange(2, pattern.shape[-1] + 1, device=pattern.device).log()
    return (entropy / even).mean((0, 2))


def attention_entropy(model: Transformer, tokens: Int[Tensor, "batch seq"]) -> Float[Tensor, "layer head"]:
    """`attention_entropy_score` of every head."""
    return over_layers(attention_entropy_score, model, tokens)
