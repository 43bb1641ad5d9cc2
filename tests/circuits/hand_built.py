"""Models whose weights are written down, so that the right value of every score is known.

The residual stream is cut into blocks of one-hot vectors: token | place | previous token | copied token.
"""

import torch

from iclkit.model import Transformer, TransformerConfig

SHARP = 60.0  # attention scores of a match; exp(−60) is nothing


def blank(d_vocab: int, n_ctx: int, n_layers: int, d_head: int) -> tuple[Transformer, dict[str, slice]]:
    """One head a layer, all zero; tokens and places one-hot; W_U reads the copied token."""
    d_model = 3 * d_vocab + n_ctx
    config = TransformerConfig(d_vocab, n_ctx, n_layers, d_model, n_heads=1, d_head=d_head)
    sizes = {"token": d_vocab, "place": n_ctx, "previous": d_vocab, "copied": d_vocab}
    blocks, start = {}, 0
    for name, size in sizes.items():
        blocks[name] = slice(start, start + size)
        start += size
    model = Transformer(config)
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
        model.W_E[:, blocks["token"]] = torch.eye(d_vocab)
        model.W_pos[:, blocks["place"]] = torch.eye(n_ctx)
        model.W_U[blocks["copied"]] = SHARP * torch.eye(d_vocab)
    return model, blocks


@torch.no_grad()
def induction_model(d_vocab: int = 12, n_ctx: int = 24) -> Transformer:
    """L0H0 writes the previous token; L1H0 looks for a place that follows the present token, and copies it.

    query  place t  →  key  place t − 1        L0H0
    query  token    →  key  previous token     L1H0
    """
    d_head = max(d_vocab, n_ctx)
    model, at = blank(d_vocab, n_ctx, 2, d_head)
    first, second, sharp = model.blocks[0].attn, model.blocks[1].attn, SHARP * d_head**0.5
    first.W_Q[0, at["place"], :n_ctx] = sharp * torch.eye(n_ctx).roll(-1, 1)  # row t has its 1 at t − 1
    first.W_K[0, at["place"], :n_ctx] = torch.eye(n_ctx)
    first.W_V[0, at["token"], :d_vocab] = torch.eye(d_vocab)
    first.W_O[0, :d_vocab, at["previous"]] = torch.eye(d_vocab)
    second.W_Q[0, at["token"], :d_vocab] = sharp * torch.eye(d_vocab)
    second.W_K[0, at["previous"], :d_vocab] = torch.eye(d_vocab)
    second.W_V[0, at["token"], :d_vocab] = torch.eye(d_vocab)
    second.W_O[0, :d_vocab, at["copied"]] = torch.eye(d_vocab)
    return model


@torch.no_grad()
def duplicate_model(d_vocab: int = 12, n_ctx: int = 24) -> Transformer:
    """L0H0 looks for its own token, and among equals for the earliest: itself only if there is no other."""
    d_head = d_vocab + 1
    model, at = blank(d_vocab, n_ctx, 1, d_head)
    head, sharp = model.blocks[0].attn, SHARP * d_head**0.5
    head.W_Q[0, at["token"], :d_vocab] = 2 * n_ctx * sharp * torch.eye(d_vocab)
    head.W_K[0, at["token"], :d_vocab] = torch.eye(d_vocab)
    head.W_Q[0, at["token"], d_vocab] = -sharp
    head.W_K[0, at["place"], d_vocab] = torch.arange(n_ctx).float()
    head.W_V[0, at["token"], :d_vocab] = torch.eye(d_vocab)
    head.W_O[0, :d_vocab, at["copied"]] = torch.eye(d_vocab)
    return model
