"""What a model computes, read from its weights alone (row convention: x @ W).

    QK = W_Q W_Kᵀ     score of query x_q for key x_k: x_q QK x_kᵀ           full: W_E QK W_Eᵀ  query × key
    OV = W_V W_O      what attending to x writes:     x OV                  full: W_E OV W_U   source × output

In a model with LayerNorm every reader sees (x − mean) · w / scale + b. Its linear part, centring and gain, is
folded into the reading matrix here; the scale (positive, one a position) and the constant b are left out.
Positions are left out: full circuits are between tokens. Smeared keys are read before the smear.
Source: Elhage et al. 2021 (https://transformer-circuits.pub/2021/framework/index.html); it writes columns,
W_QK = W_Qᵀ W_K and W_OV = W_O W_V.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from iclkit.circuits.factored import FactoredMatrix
from iclkit.circuits.heads import check_head
from iclkit.model import Transformer
from iclkit.norms import LayerNorm


class Baseline(NamedTuple):
    """What chance gives: mean and standard deviation of a score where nothing was learned."""

    mean: float
    std: float


def through_norm(norm, W: Float[Tensor, "*rest d_model out"]) -> Float[Tensor, "*rest d_model out"]:
    """W as seen from before the norm: (I − 11ᵀ/d_model) diag(w) W; W itself where there is no norm."""
    if not isinstance(norm, LayerNorm):
        return W
    W = norm.w[:, None] * W
    return W - W.mean(-2, keepdim=True)


def unembedding(model: Transformer) -> Float[Tensor, "d_model d_vocab_out"]:
    """W_U with the final norm's linear part folded in."""
    return through_norm(model.ln_final, model.W_U)


def every(model: Transformer, name: str) -> Float[Tensor, "layer head d_model d_head"]:
    """W_Q, W_K or W_V of all heads, norms folded in."""
    return torch.stack([through_norm(block.ln1, getattr(block.attn, name)) for block in model.blocks])


def every_QK(model: Transformer) -> FactoredMatrix:
    """W_Q W_Kᵀ of all heads, `[layer head d_model d_model]`."""
    _needs_layers(model)
    return FactoredMatrix(every(model, "W_Q"), every(model, "W_K").mT)


def every_OV(model: Transformer) -> FactoredMatrix:
    """W_V W_O of all heads, `[layer head d_model d_model]`."""
    _needs_layers(model)
    return FactoredMatrix(every(model, "W_V"), model.W_O)


def QK(model: Transformer, layer: int, head: int) -> FactoredMatrix:
    """Where a head looks: W_Q W_Kᵀ, `[d_model d_model]`; the score is x_q QK x_kᵀ / √d_head."""
    check_head(model, layer, head)
    return every_QK(model)[layer, head]


def OV(model: Transformer, layer: int, head: int) -> FactoredMatrix:
    """What a head moves: W_V W_O, `[d_model d_model]`."""
    check_head(model, layer, head)
    return every_OV(model)[layer, head]


def full_QK(model: Transformer, layer: int, head: int) -> FactoredMatrix:
    """W_E W_Q W_Kᵀ W_Eᵀ, `[query key]` over the vocabulary: which token looks for which."""
    W_E = _embedding(model)
    return W_E @ QK(model, layer, head) @ W_E.T


def full_OV(model: Transformer, layer: int, head: int) -> FactoredMatrix:
    """W_E W_V W_O W_U, `[source output]`: what attending to a token does to every logit."""
    return _embedding(model) @ OV(model, layer, head) @ unembedding(model)


def direct_path(model: Transformer) -> FactoredMatrix:
    """W_E W_U, `[token next]`: what the model says with no layer at all, bigrams at best."""
    return FactoredMatrix(_embedding(model), unembedding(model))


def eigenvalue_score(matrix: FactoredMatrix) -> Tensor:
    """Σ Re λ / Σ |λ|, in [−1, 1], for each matrix of the stack; 0 where all eigenvalues vanish.

    +1: all positive (a token, or a mix of tokens, raises itself). A summary only: the eigenvectors need not
    be orthogonal.
    """
    values = matrix.eigenvalues
    size = values.abs().sum(-1)
    return torch.where(size > 1e-12, values.real.sum(-1) / size.clamp(min=1e-12), 0.0)


@torch.no_grad()
def copying_score(model: Transformer) -> Float[Tensor, "layer head"]:
    """The eigenvalue score of each head's full OV circuit W_E W_V W_O W_U: +1 copies, −1 takes back."""
    check_vocabulary(model)
    return eigenvalue_score(_embedding(model) @ every_OV(model) @ unembedding(model))


@torch.no_grad()
def matching_score(model: Transformer) -> Float[Tensor, "layer head later_layer later_head"]:
    """The eigenvalue score of W_E · W_Q W_Kᵀ (later head) · (W_V W_O)ᵀ (earlier head) · W_Eᵀ.

    The matrix is the score a present token gives to a key into which the earlier head wrote another token;
    +1: the two match when they are the same token. `score[0, 1, 1, 2]` is L0H1 into the keys of L1H2; 0 where
    the first head is not in an earlier layer.
    """
    earlier, later = _pairs(every_OV(model), every_QK(model))
    W_E = _embedding(model)
    return _only_earlier(eigenvalue_score(W_E @ (later @ earlier.T) @ W_E.T))


@torch.no_grad()
def composition_scores(model: Transformer, kind: str) -> Float[Tensor, "layer head later_layer later_head"]:
    """How much of what an earlier head writes a later head reads, against two unrelated matrices.

        Q   ‖OV₁ QK₂‖  / (‖OV₁‖ ‖QK₂‖)      the later head's queries are built from x OV₁
        K   ‖OV₁ QK₂ᵀ‖ / (‖OV₁‖ ‖QK₂‖)      its keys
        V   ‖OV₁ OV₂‖  / (‖OV₁‖ ‖OV₂‖)      its values

    Frobenius norms, which do not allow factors to be turned round: the order is the order of reading.
    0 where the first head is not in an earlier layer. Compare with `composition_baseline`.
    """
    if kind not in ("Q", "K", "V"):
        raise ValueError(f'kind must be "Q", "K" or "V"; got {kind!r}')
    reads = every_OV(model) if kind == "V" else every_QK(model)
    earlier, later = _pairs(every_OV(model), reads.T if kind == "K" else reads)
    return _only_earlier(_ratio(earlier, later))


def composition_baseline(model: Transformer, samples: int = 200, seed: int = 0) -> Baseline:
    """The composition score of two random matrices of this model's shape, rank d_head each.

    One value serves Q, K and V: all three compare products of Gaussian factors of the same shapes.
    """
    if samples < 2:
        raise ValueError(f"a mean and its spread need at least 2 samples; got {samples}")
    c, random = model.config, torch.Generator().manual_seed(seed)
    A, C = (torch.randn(samples, c.d_model, c.d_head, generator=random) for _ in range(2))
    B, D = (torch.randn(samples, c.d_head, c.d_model, generator=random) for _ in range(2))
    scores = _ratio(FactoredMatrix(A, B), FactoredMatrix(C, D))
    return Baseline(scores.mean().item(), scores.std().item())


def check_vocabulary(model: Transformer) -> None:
    """`ValueError` unless inputs and outputs are the same tokens, so that copying means something."""
    c = model.config
    if c.embedded or c.d_vocab_out != c.d_vocab:
        got = "vectors" if c.embedded else f"{c.d_vocab} tokens"
        raise ValueError(
            "copying needs one vocabulary for inputs and outputs; "
            f"this model reads {got} and predicts {c.d_vocab_out}"
        )


def _ratio(first: FactoredMatrix, second: FactoredMatrix) -> Tensor:
    size = first.norm() * second.norm()
    if not size.isfinite().all():
        raise ValueError("a circuit holds NaN or infinity; are the weights finite?")
    return torch.where(size > 0, (first @ second).norm() / size.clamp(min=1e-30), 0.0)


def _pairs(earlier: FactoredMatrix, later: FactoredMatrix) -> tuple[FactoredMatrix, FactoredMatrix]:
    """Two stacks `[layer head …]`, each with room for the other's axes."""
    return earlier[:, :, None, None], later[None, None]


def _only_earlier(scores: Float[Tensor, "layer head later_layer later_head"]) -> Tensor:
    layer = torch.arange(scores.shape[0], device=scores.device)
    return torch.where((layer[:, None] < layer[None])[:, None, :, None], scores, 0.0)


def _embedding(model: Transformer) -> Float[Tensor, "d_vocab d_model"]:
    if model.W_E is None:
        raise ValueError(
            "this model takes vectors (embedded=True) and has no W_E; full circuits need tokens, "
            "use QK and OV instead"
        )
    return model.W_E


def _needs_layers(model: Transformer) -> None:
    if not model.config.n_layers:
        raise ValueError("this model has no attention layer (n_layers=0), so no QK or OV circuit")
