"""The same model in TransformerLens, for readers who live there and for tests that hold the two together."""

import torch
from torch import Tensor

from iclkit.model import Transformer, smeared

SCHEMES = {
    "absolute": "standard",
    "shortformer": "shortformer",
    "rotary": "rotary",
    "none": "standard",
    "relative": "standard",
}


def to_transformer_lens(model: Transformer):
    """A `HookedTransformer` with the same weights and logits.

    Nothing is folded or centred. What TransformerLens has no field for (relative bias, smeared keys) becomes
    a permanent hook; a scheme without positions becomes a zero position table. Raises `ImportError` without
    TransformerLens 3.x and `ValueError` for an embedded model.
    Source: https://github.com/TransformerLensOrg/TransformerLens.
    """
    try:
        from transformer_lens import HookedTransformer, HookedTransformerConfig
    except ImportError:
        raise ImportError(
            "to_transformer_lens needs TransformerLens 3.x, which has HookedTransformer: "
            "pip install 'transformer-lens>=3.9,<4'"
        ) from None
    c = model.config
    if c.embedded:
        raise ValueError(
            "TransformerLens takes tokens; this model is built with embedded=True and takes vectors"
        )
    lens = HookedTransformer(
        HookedTransformerConfig(
            n_layers=c.n_layers,
            d_model=c.d_model,
            n_ctx=c.n_ctx,
            d_head=c.d_head,
            n_heads=c.n_heads,
            d_vocab=c.d_vocab,
            d_vocab_out=c.d_vocab_out,
            d_mlp=c.d_mlp or None,
            attn_only=not c.d_mlp,
            act_fn=c.act if c.d_mlp else None,
            normalization_type="LN" if c.layer_norm else None,
            positional_embedding_type=SCHEMES[c.positions],
            rotary_dim=c.d_head if c.positions == "rotary" else None,
            device="cpu",
            seed=0,
        )
    )
    lens.load_state_dict({**zeroed(lens), **translated(model)})
    add_missing_parts(lens, model)
    return lens


def zeroed(lens) -> dict[str, Tensor]:
    """The lens's own state with every parameter zero, so that what we lack (attention biases) is absent."""
    parameters = dict(lens.named_parameters())
    return {k: torch.zeros_like(v) if k in parameters else v for k, v in lens.state_dict().items()}


def translated(model: Transformer) -> dict[str, Tensor]:
    """Our parameters under TransformerLens's names."""
    state = {"embed.W_E": model.W_E, "unembed.W_U": model.W_U}
    if model.W_pos is not None:
        state["pos_embed.W_pos"] = model.W_pos
    for name, weight in model.named_parameters():
        if name.startswith(("blocks", "ln_final")) and not name.endswith("smear"):
            state[name] = weight
    return {name: weight.detach().clone() for name, weight in state.items()}


def add_missing_parts(lens, model: Transformer) -> None:
    """Relative bias and smeared keys, as permanent hooks."""
    for layer, block in enumerate(model.blocks):
        if block.attn.smear is not None:
            smear = block.attn.smear.detach().clone()
            lens.blocks[layer].attn.hook_k.add_perma_hook(lambda k, hook, smear=smear: smeared(k, smear))
        if model.config.positions == "relative":
            bias = model.positions.bias(layer, model.config.n_ctx).detach().clone()

            def add(scores, hook, bias=bias):
                seq = scores.shape[-1]
                return scores + bias[:, :seq, :seq]

            lens.blocks[layer].attn.hook_attn_scores.add_perma_hook(add)
