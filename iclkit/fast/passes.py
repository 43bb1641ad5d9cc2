"""Forward and backward of M transformers, written out; the mathematics is `iclkit.model`'s.

Every activation is `[model, tokens, width]`. A `forward` returns what its `backward` needs; a `backward`
takes the gradient of its output, adds to the gradients of its weights and returns that of its input.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from iclkit.fast.attention import Attention
from iclkit.fast.flat import Flat
from iclkit.fast.pairs import LABELS, Pairs
from iclkit.model import TransformerConfig

aten = torch.ops.aten


class Norm:
    """Layer normalisation with its own gain and shift for each model."""

    def __init__(self, weights: dict[str, Tensor], grads: dict[str, Tensor], name: str):
        self.w, self.b = weights[f"{name}.w"], weights[f"{name}.b"]
        self.dw, self.db = grads[f"{name}.w"], grads[f"{name}.b"]
        self.width, self.one = [self.w.shape[1]], self.w.shape[0] == 1

    def forward(self, x: Tensor) -> tuple[Tensor, tuple]:
        gain = (self.w[0], self.b[0]) if self.one else (None, None)
        y, mean, rstd = torch.native_layer_norm(x, self.width, *gain, 1e-5)
        kept = (x, mean, rstd, y)
        return (y if self.one else torch.addcmul(self.b[:, None], y, self.w[:, None])), kept

    def backward(self, dy: Tensor, kept: tuple) -> Tensor:
        x, mean, rstd, y = kept
        if self.one:
            gain = (self.w[0], self.b[0])
            dx, dw, db = aten.native_layer_norm_backward(dy, x, self.width, mean, rstd, *gain, [True] * 3)
            self.dw.add_(dw), self.db.add_(db)
            return dx
        self.dw.add_((dy * y).sum(1)), self.db.add_(dy.sum(1))
        dy = dy * self.w[:, None]
        return aten.native_layer_norm_backward(
            dy, x, self.width, mean, rstd, None, None, [True, False, False]
        )[0]


class NoNorm:
    """x, unchanged."""

    def forward(self, x: Tensor) -> tuple[Tensor, None]:
        return x, None

    def backward(self, dy: Tensor, kept: None) -> Tensor:
        return dy


class Layer:
    """Attention, then (with `d_mlp`) the MLP, each reading the residual stream and adding to it."""

    def __init__(self, config: TransformerConfig, weights, grads, layer: int, W_pos=None, dW_pos=None):
        self.config, self.W_pos, self.dW_pos = config, W_pos, dW_pos
        block = f"blocks.{layer}"
        names = ("attn.W_QKV", "attn.W_O") + ("mlp.W_in", "mlp.b_in", "mlp.W_out", "mlp.b_out") * bool(
            config.d_mlp
        )
        self.w = {name.split(".")[1]: weights[f"{block}.{name}"] for name in names}
        self.d = {name.split(".")[1]: grads[f"{block}.{name}"] for name in names}
        norm = (
            (lambda name: Norm(weights, grads, f"{block}.{name}"))
            if config.layer_norm
            else lambda _: NoNorm()
        )
        self.ln1, self.ln2 = norm("ln1"), norm("ln2") if config.d_mlp else None

    def forward(self, resid: Tensor, attention: Attention) -> tuple[Tensor, list]:
        x, norm = self.ln1.forward(resid)
        z, mixed = attention.forward(self.project(x, attention.length))
        resid = torch.baddbmm(resid, z, self.w["W_O"])
        kept = [x, norm, mixed, z]
        if self.ln2 is None:
            return resid, kept
        x, norm = self.ln2.forward(resid)
        pre = torch.baddbmm(self.w["b_in"][:, None], x, self.w["W_in"])
        post = pre.relu_() if self.config.act == "relu" else F.gelu(pre)
        resid = torch.baddbmm(resid, post, self.w["W_out"]).add_(self.w["b_out"][:, None])
        return resid, kept + [x, norm, pre, post]

    def backward(self, d: Tensor, kept: list, attention: Attention) -> Tensor:
        """Overwrites `d`, the gradient of the layer's output, with that of its input."""
        x, norm, mixed, z, *mlp = kept
        if mlp:
            d = self.backward_mlp(d, *mlp)
        self.d["W_O"].baddbmm_(z.transpose(1, 2), d)
        dqkv = attention.backward(torch.bmm(d, self.w["W_O"].transpose(1, 2)), mixed)
        return d.add_(self.ln1.backward(self.backward_project(dqkv, x, attention.length), norm))

    def backward_mlp(self, d: Tensor, x, norm, pre, post) -> Tensor:
        self.d["b_out"].add_(d.sum(1))
        self.d["W_out"].baddbmm_(post.transpose(1, 2), d)
        dpre = torch.bmm(d, self.w["W_out"].transpose(1, 2))
        if self.config.act == "relu":
            aten.threshold_backward.grad_input(dpre, post, 0, grad_input=dpre)
        else:
            dpre = aten.gelu_backward(dpre, pre)
        self.d["b_in"].add_(dpre.sum(1))
        self.d["W_in"].baddbmm_(x.transpose(1, 2), dpre)
        return d.add_(self.ln2.backward(torch.bmm(dpre, self.w["W_in"].transpose(1, 2)), norm))

    def project(self, x: Tensor, length: int) -> Tensor:
        """Queries, keys and values; with positions of their own, queries and keys read x + W_pos."""
        if self.W_pos is None:
            return torch.bmm(x, self.w["W_QKV"])
        qk = self.w["W_QKV"].shape[2] // 3 * 2
        qkv = x.new_empty(*x.shape[:2], self.w["W_QKV"].shape[2])
        qkv[..., :qk].baddbmm_(self.placed(x, length), self.w["W_QKV"][..., :qk], beta=0)
        qkv[..., qk:].baddbmm_(x, self.w["W_QKV"][..., qk:], beta=0)
        return qkv

    def backward_project(self, dqkv: Tensor, x: Tensor, length: int) -> Tensor:
        W, dW = self.w["W_QKV"], self.d["W_QKV"]
        if self.W_pos is None:
            dW.baddbmm_(x.transpose(1, 2), dqkv)
            return torch.bmm(dqkv, W.transpose(1, 2))
        qk = W.shape[2] // 3 * 2
        dW[..., :qk].baddbmm_(self.placed(x, length).transpose(1, 2), dqkv[..., :qk])
        dW[..., qk:].baddbmm_(x.transpose(1, 2), dqkv[..., qk:])
        dx = torch.bmm(dqkv[..., :qk], W[..., :qk].transpose(1, 2))
        self.dW_pos[:, :length].add_(per_position(dx, length))
        return dx.baddbmm_(dqkv[..., qk:], W[..., qk:].transpose(1, 2))

    def placed(self, x: Tensor, length: int) -> Tensor:
        return (x.unflatten(1, (-1, length)) + self.W_pos[:, None, :length]).flatten(1, 2)


def per_position(d: Tensor, length: int) -> Tensor:
    """Sum over sequences: `[model, tokens, width]` → `[model, length, width]`."""
    return d.unflatten(1, (-1, length)).sum(1)


class Passes:
    """From inputs to logits and from their gradient to the gradients of all weights.

    With `last`, logits and their gradient are those of the last position alone.
    """

    def __init__(self, flat: Flat, grads: dict[str, Tensor], last: bool = False):
        c = self.config = flat.config
        self.last = last
        w = self.weights = flat.views
        self.grads = grads
        inside = (w["positions.W_pos"], grads["positions.W_pos"]) if c.positions == "shortformer" else ()
        self.pairs = Pairs(w, grads) if LABELS in w else None
        self.layers = [Layer(c, w, grads, layer, *inside) for layer in range(c.n_layers)]
        self.ln_final = Norm(w, grads, "ln_final") if c.layer_norm else NoNorm()
        self.W_U = w["W_E"].transpose(1, 2) if c.tied else w["_W_U"]
        self.dW_U = grads["W_E"].transpose(1, 2) if c.tied else grads["_W_U"]
        self.attentions: dict[int, Attention] = {}

    def attention(self, length: int) -> Attention:
        c = self.config
        if length not in self.attentions:
            self.attentions[length] = Attention(length, c.n_heads, c.d_head, self.W_U)
        return self.attentions[length]

    def forward(self, inputs: Tensor) -> tuple[Tensor, tuple]:
        """Logits `[model, tokens, d_vocab_out]` of inputs `[model, batch, seq]`, embedded `[…, d_model]`."""
        models, length = inputs.shape[0], inputs.shape[2]
        attention, rows = self.attention(length), None
        if self.pairs:
            resid, rows = self.pairs.forward(inputs)
            resid = resid.view(*inputs.shape[:3], -1)
        elif self.config.embedded:
            resid = inputs
        else:
            rows, W_E = self.rows_of(inputs), self.weights["W_E"]
            table = W_E.reshape(-1, W_E.shape[2])
            resid = F.embedding(rows, table).view(*inputs.shape, -1)
        if self.config.positions == "absolute":
            resid = resid + self.weights["positions.W_pos"][:, None, :length]
        resid, kept = resid.reshape(models, -1, resid.shape[-1]), []
        for layer in self.layers:
            resid, needed = layer.forward(resid, attention)
            kept.append(needed)
        if self.last:
            resid = resid[:, length - 1 :: length].contiguous()
        x, norm = self.ln_final.forward(resid)
        return torch.bmm(x, self.W_U), (rows, attention, kept, x, norm)

    def rows_of(self, inputs: Tensor) -> Tensor:
        """Which row of all models' tables, one below the other, each token is."""
        if inputs.shape[0] == 1:
            return inputs.reshape(-1)
        first = torch.arange(inputs.shape[0], device=inputs.device) * self.config.d_vocab
        return (inputs.flatten(1) + first[:, None]).flatten()

    def backward(self, dlogits: Tensor, kept: tuple) -> None:
        """Add to the gradients what `dlogits` `[model, tokens, d_vocab_out]` asks for."""
        rows, attention, layers, x, norm = kept
        self.dW_U.baddbmm_(x.transpose(1, 2), dlogits)
        d = self.ln_final.backward(torch.bmm(dlogits, self.W_U.transpose(1, 2)), norm)
        if self.last:
            every = d.new_zeros(d.shape[0], d.shape[1] * attention.length, d.shape[2])
            every[:, attention.length - 1 :: attention.length] = d
            d = every
        for layer, needed in zip(reversed(self.layers), reversed(layers)):
            d = layer.backward(d, needed, attention)
        if self.config.positions == "absolute":
            self.grads["positions.W_pos"][:, : attention.length].add_(per_position(d, attention.length))
        if self.pairs:
            self.pairs.backward(d, rows)
        elif rows is not None:
            dW_E = self.grads["W_E"]
            table = d.new_zeros(dW_E.shape).flatten(0, 1).index_add_(0, rows, d.flatten(0, 1))
            dW_E.add_(table.view(dW_E.shape))
