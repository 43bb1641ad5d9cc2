"""An attention-only transformer is a sum of paths, once its attention patterns are held fixed.

    logits = ( Id + Σ_h A^h ⊗ OV^h + Σ_{h₁ before h₂} A^{h₂} A^{h₁} ⊗ OV^{h₁} OV^{h₂} + … ) embed · W_U

    "direct"        token → logits
    "L0H1"          token → L0H1 → logits
    "L0H1→L1H3"     token → L0H1 → values of L1H3 → logits: a virtual head

Only models without LayerNorm and without MLP are such a sum; others are refused. Any position scheme will do:
it acts inside the patterns, or (absolute) belongs to the embedding that every path starts from.
Source: Elhage et al. 2021 (https://transformer-circuits.pub/2021/framework/index.html).
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from iclkit.circuits.heads import label
from iclkit.circuits.scores import token_losses
from iclkit.model import Transformer

MOST_PATHS = 4096


@torch.no_grad()
def path_expansion(model: Transformer, tokens: Tensor) -> dict[str, Float[Tensor, "batch seq d_vocab_out"]]:
    """What each path adds to the logits; the values sum to the logits (to 1e-5).

    `ValueError` for models with LayerNorm or MLP, and where there are more than 4,096 paths.
    """
    _check(model)
    count = (1 + model.config.n_heads) ** model.config.n_layers
    if count > MOST_PATHS:
        raise ValueError(
            f"this model has {count} paths, more than {MOST_PATHS}; use term_importance, which groups them"
        )
    embed, patterns = _frozen(model, tokens)
    paths = {(): embed}
    for layer, pattern in enumerate(patterns):
        for path, x in list(paths.items()):
            written = _heads(model, layer, pattern, x)
            paths |= {(*path, label(layer, h)): written[:, :, h] for h in range(model.config.n_heads)}
    return {"→".join(path) or "direct": x @ model.W_U for path, x in paths.items()}


@torch.no_grad()
def term_importance(model: Transformer, tokens: Int[Tensor, "batch seq"]) -> Float[Tensor, " order"]:
    """The mean next-token loss (nats) with all paths through at most 0, 1, … n_layers heads.

    The last entry is the model's own loss. Patterns stay frozen at their values in the whole model.
    """
    _check(model)
    embed, patterns = _frozen(model, tokens)
    terms = [embed]
    for layer, pattern in enumerate(patterns):
        written = [_heads(model, layer, pattern, term).sum(2) for term in terms]
        longer = [*terms[1:], torch.zeros_like(embed)]
        terms = [embed] + [old + new for old, new in zip(longer, written)]
    logits = torch.stack(terms).cumsum(0) @ model.W_U
    return torch.stack([token_losses(upto, tokens).mean() for upto in logits])


def _heads(
    model: Transformer, layer: int, pattern: Float[Tensor, "batch head query key"], x: Tensor
) -> Float[Tensor, "batch seq head d_model"]:
    """What each head writes when the stream holds x alone: pattern · x · W_V W_O."""
    attn = model.blocks[layer].attn
    return torch.einsum("bhqk,bkd,hde,hef->bqhf", pattern, x, attn.W_V, attn.W_O)


def _frozen(model: Transformer, tokens: Tensor) -> tuple[Tensor, list[Tensor]]:
    layers = range(model.config.n_layers)
    names = (
        [("resid_pre", 0)] if layers else ["embed", *["pos_embed"] * (model.config.positions == "absolute")]
    )
    _, cache = model.run_with_cache(tokens, [*names, *(("pattern", layer) for layer in layers)])
    embed = sum(cache[name] for name in names)
    return embed, [cache["pattern", layer] for layer in layers]


def _check(model: Transformer) -> None:
    c = model.config
    for present, name, field in (
        (c.layer_norm, "LayerNorm", "layer_norm=False"),
        (c.d_mlp, "MLPs", "d_mlp=0"),
    ):
        if present:
            raise ValueError(
                f"path expansion needs a model that is linear once its patterns are fixed; this one has "
                f"{name}, expected {field}. For such models use direct_logit_attribution or path_patch"
            )
