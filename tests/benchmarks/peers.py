"""The libraries of the field at equal parameters, whole step with fused AdamW.

What a library adds and our model lacks (attention biases, a position table for vectors) stays in its forward
but is frozen: it is neither trained nor counted. What remains unequal is listed in `gap`.
"""

import torch
from torch import Tensor, nn

from benchmarks.plain import Eager
from benchmarks.shapes import Shape


class Nothing(nn.Module):
    """The MLP of an attention-only layer, for libraries that always add one."""

    def forward(self, x: Tensor) -> float:
        return 0.0


def freeze(weights) -> None:
    for weight in weights:
        weight.requires_grad_(False)


def hugging_face(shape: Shape, batches) -> Eager:
    """GPT-2 with the fused attention kernel; its attention biases are frozen."""
    from transformers import GPT2Config, GPT2Model

    c = shape.model
    torch.manual_seed(0)
    body = GPT2Model(
        GPT2Config(
            vocab_size=c.d_vocab,
            n_positions=c.n_ctx,
            n_embd=c.d_model,
            n_layer=c.n_layers,
            n_head=c.n_heads,
            n_inner=c.d_mlp or None,
            activation_function="relu",
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            attn_implementation="sdpa",
            bos_token_id=None,
            eos_token_id=None,
        )
    )
    for block in body.h:
        freeze([block.attn.c_attn.bias, block.attn.c_proj.bias])
        if not c.d_mlp:
            block.ln_2, block.mlp = nn.Identity(), Nothing()
    if c.embedded:
        freeze([body.wte.weight, body.wpe.weight])
    model = nn.ModuleDict({"body": body, "unembed": nn.Linear(c.d_model, c.d_vocab_out, bias=False)})
    name = "inputs_embeds" if c.embedded else "input_ids"

    def logits(inputs: Tensor) -> Tensor:
        return model["unembed"](body(**{name: inputs}, use_cache=False).last_hidden_state)

    return Eager(model, batches, logits)


def x_transformers(shape: Shape, batches) -> Eager:
    """A `Decoder` with flash attention; its LayerNorms have no bias."""
    from x_transformers import ContinuousTransformerWrapper, Decoder, TransformerWrapper

    c = shape.model
    torch.manual_seed(0)
    layers = Decoder(
        dim=c.d_model,
        depth=c.n_layers,
        heads=c.n_heads,
        attn_dim_head=c.d_head,
        attn_flash=True,
        custom_layers=("a", "f") * c.n_layers if c.d_mlp else ("a",) * c.n_layers,
        **({"ff_mult": c.d_mlp // c.d_model, "ff_custom_activation": nn.ReLU()} if c.d_mlp else {}),
    )
    if c.embedded:
        model = ContinuousTransformerWrapper(dim_out=c.d_vocab_out, max_seq_len=0, attn_layers=layers)
    else:
        model = TransformerWrapper(num_tokens=c.d_vocab, max_seq_len=c.n_ctx, attn_layers=layers)
    return Eager(model, batches)


def transformer_lens(shape: Shape, batches) -> Eager:
    """`HookedTransformer`, hooks idle, nothing folded; its attention and unembedding biases are frozen."""
    from transformer_lens import HookedTransformer, HookedTransformerConfig

    c = shape.model
    model = HookedTransformer(
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
            act_fn="relu" if c.d_mlp else None,
            normalization_type="LN",
            device="cpu",
            seed=0,
        )
    )
    freeze([w for name, w in model.named_parameters() if name.endswith(("b_Q", "b_K", "b_V", "b_O", "b_U"))])
    if c.embedded:
        freeze([model.embed.W_E, model.pos_embed.W_pos])
    return Eager(model, batches, (lambda x: model(x, start_at_layer=0)) if c.embedded else None)


class NoFeedForward(nn.TransformerEncoderLayer):
    """The layer of torch.nn without its MLP."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.linear1 = self.linear2 = None
        self.norm2 = nn.Identity()

    def _ff_block(self, x: Tensor) -> float:
        return 0.0


class TorchEncoder(nn.Module):
    """`torch.nn.TransformerEncoder`, causal, norms first; its attention biases are frozen."""

    def __init__(self, c):
        super().__init__()
        kind = nn.TransformerEncoderLayer if c.d_mlp else NoFeedForward
        layer = kind(c.d_model, c.n_heads, c.d_mlp or 1, dropout=0.0, batch_first=True, norm_first=True)
        self.embed = None if c.embedded else nn.Embedding(c.d_vocab, c.d_model)
        self.place = None if c.embedded else nn.Parameter(torch.randn(c.n_ctx, c.d_model) * c.d_model**-0.5)
        self.body = nn.TransformerEncoder(layer, c.n_layers, nn.LayerNorm(c.d_model), False)
        self.unembed = nn.Linear(c.d_model, c.d_vocab_out, bias=False)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(c.n_ctx))
        for one in self.body.layers:
            freeze([one.self_attn.in_proj_bias, one.self_attn.out_proj.bias])

    def forward(self, inputs: Tensor) -> Tensor:
        x = inputs if self.embed is None else self.embed(inputs) + self.place
        return self.unembed(self.body(x, mask=self.mask, is_causal=True))


def torch_encoder(shape: Shape, batches) -> Eager:
    torch.manual_seed(0)
    return Eager(TorchEncoder(shape.model), batches)


def norm_biases(shape: Shape) -> int:
    """Numbers in the biases of all LayerNorms, which x-transformers' LayerNorm has not."""
    c = shape.model
    return c.d_model * (c.n_layers * (2 if c.d_mlp else 1) + 1)
