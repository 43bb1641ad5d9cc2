"""Numbers that say what a head does, and how much a model learns in context.

Four of them are shares of attention, pure functions of a pattern and its tokens:

    BOS  a  b  c  a  b  c
                     ^ query i (the second b)
              ^         prefix matching: the position right after an earlier b
           ^            duplicate token: an earlier b
                  ^     previous token: i − 1

Each has a form for a pattern, `[head]`, and one for a model, `[layer head]`; averages run over all queries of
the batch for which the answer exists. Prefix matching, copying and the in-context-learning score come from
Olsson et al. 2022 (https://arxiv.org/abs/2209.11895).
"""

from collections.abc import Callable, Iterable

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from iclkit.circuits.weights import Baseline, check_vocabulary, unembedding
from iclkit.model import Transformer, TransformerConfig


def previous_token_score(
    pattern: Float[Tensor, "batch head query key"], tokens: Int[Tensor, "rows seq"] | None = None
) -> Float[Tensor, " head"]:
    """Mean attention from each position to the one before it."""
    check_pattern(pattern, tokens)
    if pattern.shape[-1] < 2:
        raise ValueError("the previous-token score needs sequences of at least 2 tokens; got 1")
    return pattern.diagonal(-1, 2, 3).mean((0, 2))


def duplicate_token_score(
    pattern: Float[Tensor, "batch head query key"], tokens: Int[Tensor, "rows seq"]
) -> Float[Tensor, " head"]:
    """Mean attention from a token to all its earlier occurrences together."""
    check_pattern(pattern, tokens)
    return _mean_share(pattern, earlier_occurrences(tokens), "an earlier occurrence of its token")


def prefix_matching_score(
    pattern: Float[Tensor, "batch head query key"], tokens: Int[Tensor, "rows seq"]
) -> Float[Tensor, " head"]:
    """Mean attention from a token to all positions right after its earlier occurrences."""
    check_pattern(pattern, tokens)
    after = earlier_occurrences(tokens).roll(1, 2)  # the last key is never earlier: nothing wraps round
    return _mean_share(pattern, after, "an earlier occurrence of its token")


def induction_stripe_score(
    pattern: Float[Tensor, "batch head query key"], tokens: Int[Tensor, "rows seq"], period: int
) -> Float[Tensor, " head"]:
    """Mean attention at offset −(period − 1), from every token that stood `period` places earlier too.

    On strings of distinct tokens and two copies it equals prefix matching.
    """
    check_pattern(pattern, tokens)
    if not 1 <= period < tokens.shape[1]:
        raise ValueError(f"expected 1 ≤ period < {tokens.shape[1]} (the sequence length); got {period}")
    stripe = torch.zeros_like(earlier_occurrences(tokens))
    query = torch.arange(period, tokens.shape[1])
    stripe[:, query, query - period + 1] = tokens[:, period:] == tokens[:, :-period]
    return _mean_share(pattern, stripe, f"the same token {period} places earlier")


def previous_token(model: Transformer, tokens: Int[Tensor, "batch seq"]) -> Float[Tensor, "layer head"]:
    """`previous_token_score` of every head."""
    return over_layers(previous_token_score, model, tokens)


def duplicate_token(model: Transformer, tokens: Int[Tensor, "batch seq"]) -> Float[Tensor, "layer head"]:
    """`duplicate_token_score` of every head."""
    return over_layers(duplicate_token_score, model, tokens)


def prefix_matching(model: Transformer, tokens: Int[Tensor, "batch seq"]) -> Float[Tensor, "layer head"]:
    """`prefix_matching_score` of every head."""
    return over_layers(prefix_matching_score, model, tokens)


def induction_stripe(
    model: Transformer, tokens: Int[Tensor, "batch seq"], period: int
) -> Float[Tensor, "layer head"]:
    """`induction_stripe_score` of every head."""
    return over_layers(induction_stripe_score, model, tokens, period)


@torch.no_grad()
def over_layers(score: Callable[..., Tensor], model: Transformer, tokens: Tensor, *more) -> Tensor:
    """A score of a pattern, `score(pattern, tokens, *more)`, for every layer of one run: `[layer …]`."""
    layers = range(model.config.n_layers)
    if not layers:
        raise ValueError("this model has no attention layer (n_layers=0), so no pattern to score")
    _, cache = model.run_with_cache(tokens, [("pattern", layer) for layer in layers])
    return torch.stack([score(cache["pattern", layer], tokens, *more) for layer in layers])


def earlier_occurrences(tokens: Int[Tensor, "batch seq"]) -> Bool[Tensor, "batch seq seq"]:
    """`[batch query key]`: whether the key holds the query's token and stands before it."""
    return (tokens[:, :, None] == tokens[:, None, :]).tril(-1)


@torch.no_grad()
def copying_score_logits(model: Transformer, tokens: Int[Tensor, "batch seq"]) -> Float[Tensor, "layer head"]:
    """How far a head raises the logit of what it attends to, in [−1, 1].

    What key j writes, v_j W_O W_U, minus its mean over the vocabulary, through ReLU, is the raise r_j(token).
    With attention as weights, a = Σ_j pattern_j r_j(token_j) is the raise of the attended tokens and
    A = Σ_j pattern_j Σ_t r_j(t) that of all distinct tokens t of the sequence; the mean of a / (a + A) over
    queries lies in 0 … ½ and is stretched to −1 … 1. This is our reading of Olsson et al.'s copying test.
    """
    check_vocabulary(model)
    if not tokens.numel():
        raise ValueError(f"expected at least one sequence of one token; got shape {tuple(tokens.shape)}")
    W_U, scores = unembedding(model), []
    layers = range(model.config.n_layers)
    _, cache = model.run_with_cache(tokens, [(name, layer) for name in ("pattern", "v") for layer in layers])
    first = ~earlier_occurrences(tokens).any(2)
    for layer in layers:
        raises = torch.einsum("bkhe,hed,dv->bhkv", cache["v", layer], model.blocks[layer].attn.W_O, W_U)
        raises = (raises - raises.mean(-1, keepdim=True)).relu()
        places = tokens[:, None, None, :].expand(*raises.shape[:3], -1)
        raises = raises.gather(-1, places)
        weight = cache["pattern", layer]
        attended = (weight @ raises.diagonal(0, 2, 3)[..., None])[..., 0]
        everything = (weight @ (raises * first[:, None, None]).sum(-1)[..., None])[..., 0]
        share = attended / (attended + everything).clamp(min=1e-30)
        scores.append(4 * share.mean((0, 2)) - 1)
    return torch.stack(scores) if scores else torch.zeros(0, model.config.n_heads)


def token_losses(
    logits: Float[Tensor, "batch seq vocab"], tokens: Int[Tensor, "rows places"]
) -> Float[Tensor, "batch seq-1"]:
    """−log p(next token), nats: entry t is the loss of predicting token t + 1 from tokens 0 … t."""
    if logits.shape[:2] != tokens.shape or tokens.shape[1] < 2:
        raise ValueError(
            "expected logits [batch seq vocab] for tokens [batch seq] with seq ≥ 2; "
            f"got {tuple(logits.shape)} and {tuple(tokens.shape)}"
        )
    check_tokens("tokens", tokens, logits.shape[2])
    return F.cross_entropy(logits[:, :-1].mT, tokens[:, 1:].long(), reduction="none")


def check_tokens(name: str, tokens: Tensor, vocab: int) -> None:
    """`ValueError` unless these are whole numbers in 0 … vocab − 1."""
    whole = not (tokens.is_floating_point() or tokens.is_complex() or tokens.dtype == torch.bool)
    if not whole or (tokens.numel() and not 0 <= tokens.min() <= tokens.max() < vocab):
        got = f"{tokens.min()} … {tokens.max()}" if whole else tokens.dtype
        raise ValueError(
            f"{name} must be whole numbers in 0 … {vocab - 1}, which the model predicts; got {got}"
        )


@torch.no_grad()
def per_token_loss(model: Callable[[Tensor], Tensor], tokens: Int[Tensor, "batch seq"]):
    """`token_losses` of anything with the model's signature (a model, an ablated one): `[batch seq-1]`."""
    return token_losses(model(tokens), tokens)


def icl_score(losses: Float[Tensor, "*batch seq"]) -> float:
    """Mean loss over the last eighth of positions minus mean loss over positions n/8 … n/4, nats.

    More negative: later tokens are predicted better, the context helps more.
    """
    n = losses.shape[-1] if losses.ndim else 0
    if n < 8:
        raise ValueError(f"the in-context-learning score needs losses at 8 positions or more; got {n}")
    return (losses[..., n - n // 8 :].mean() - losses[..., n // 8 : n // 4].mean()).item()


def random_baseline(
    score: Callable[[Transformer, Tensor | None], Tensor | float],
    config: TransformerConfig,
    tokens: Tensor | None,
    seeds: Iterable[int] = range(5),
) -> Baseline:
    """Mean and standard deviation of `score(model, tokens)` over untrained models, all heads pooled.

    Scores of weights alone may ignore the tokens (None).

    random_baseline(prefix_matching, config, tokens) → Baseline(mean=.03, std=.002)
    """
    values = [torch.as_tensor(score(Transformer(config, seed), tokens)).flatten() for seed in seeds]
    if not values:
        raise ValueError("a baseline needs at least one seed; got none")
    pooled = torch.cat(values).double()
    return Baseline(pooled.mean().item(), pooled.std(correction=0).item())


def _mean_share(pattern: Tensor, wanted: Bool[Tensor, "batch seq seq"], what: str) -> Float[Tensor, " head"]:
    """Mean over the queries that have a wanted key of the attention all their wanted keys receive."""
    has = wanted.any(2)
    if not has.any():
        raise ValueError(
            f"no position of these tokens has {what}: nothing to score. Give repeated tokens, "
            "for instance iclkit.tasks.repeated_tokens(vocab=64, period=16)"
        )
    share = torch.einsum("bhqk,bqk->bhq", pattern, wanted.to(pattern.dtype))
    return (share * has[:, None]).sum((0, 2)) / has.sum()


def check_pattern(pattern: Tensor, tokens: Tensor | None) -> None:
    if pattern.ndim != 4 or pattern.shape[2] != pattern.shape[3]:
        raise ValueError(
            f"expected a pattern [batch head query key], query = key; got {tuple(pattern.shape)}"
        )
    if tokens is not None and tokens.shape != (pattern.shape[0], pattern.shape[2]):
        wanted = (pattern.shape[0], pattern.shape[2])
        raise ValueError(f"this pattern needs tokens of shape {wanted}; got {tuple(tokens.shape)}")
    if not pattern.numel():
        raise ValueError(f"expected at least one sequence of one token; got a pattern {tuple(pattern.shape)}")
    if pattern.isnan().any():
        raise ValueError("this pattern holds NaN, so the weights or inputs do: did the training diverge?")
    if not torch.allclose(pattern.sum(-1), torch.ones(()).to(pattern), atol=1e-3) or pattern.min() < -1e-6:
        raise ValueError(
            "each row of a pattern must be shares that sum to 1 (softmaxed attention); "
            f"got row sums {pattern.sum(-1).min():.3g} … {pattern.sum(-1).max():.3g}: pass hook_pattern, "
            "not hook_attn_scores"
        )
