"""Plain PyTorch as a practitioner writes it: one product for q, k, v, fused attention, fused AdamW.

The fair baseline. A nanoGPT-like model is this one, so nanoGPT, which is no package, has no row of its own.
"""

import itertools
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.shapes import TRAINING, Shape
from iclkit.model import TransformerConfig


class Layer(nn.Module):
    """x + attention(norm(x)), then, with an MLP, x + mlp(norm(x))."""

    def __init__(self, c: TransformerConfig, fused: bool):
        super().__init__()
        self.heads, self.fused = c.n_heads, fused
        self.ln1 = nn.LayerNorm(c.d_model)
        self.qkv = nn.Linear(c.d_model, 3 * c.d_model, bias=False)
        self.out = nn.Linear(c.d_model, c.d_model, bias=False)
        self.mlp = None
        if c.d_mlp:
            self.ln2 = nn.LayerNorm(c.d_model)
            self.mlp = nn.Sequential(nn.Linear(c.d_model, c.d_mlp), nn.ReLU(), nn.Linear(c.d_mlp, c.d_model))

    def forward(self, x: Tensor) -> Tensor:
        batch, seq, d_model = x.shape
        qkv = self.qkv(self.ln1(x)).view(batch, seq, 3, self.heads, d_model // self.heads)
        q, k, v = (part.transpose(1, 2) for part in qkv.unbind(2))
        z = self.attend(q, k, v).transpose(1, 2).reshape(batch, seq, d_model)
        x = x + self.out(z)
        return x if self.mlp is None else x + self.mlp(self.ln2(x))

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        if self.fused:
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)
        future = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool, device=q.device).triu(1)
        scores = (q @ k.transpose(2, 3) / math.sqrt(q.shape[3])).masked_fill(future, -torch.inf)
        return scores.softmax(-1) @ v


class Plain(nn.Module):
    """Embedding, layers, final norm, unembedding; `fused=False` writes the softmax out."""

    def __init__(self, c: TransformerConfig, fused: bool = True):
        super().__init__()
        self.embed = None if c.embedded else nn.Embedding(c.d_vocab, c.d_model)
        self.place = None if c.embedded else nn.Parameter(torch.randn(c.n_ctx, c.d_model) * c.d_model**-0.5)
        self.layers = nn.ModuleList(Layer(c, fused) for _ in range(c.n_layers))
        self.norm = nn.LayerNorm(c.d_model)
        self.unembed = nn.Linear(c.d_model, c.d_vocab_out, bias=False)

    def forward(self, inputs: Tensor) -> Tensor:
        x = inputs if self.embed is None else self.embed(inputs) + self.place
        for layer in self.layers:
            x = layer(x)
        return self.unembed(self.norm(x))


def adamw(weights, least: int = 2) -> torch.optim.AdamW:
    """Fused AdamW as iclkit's default: matrices decay, vectors (fewer than `least` axes) do not."""
    weights, t = list(weights), TRAINING
    groups = [
        {"params": [w for w in weights if w.ndim >= least], "weight_decay": t.weight_decay},
        {"params": [w for w in weights if w.ndim < least], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=t.lr, betas=t.betas, fused=True)


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


class Eager:
    """The whole step of a PyTorch model: forward, loss, backward, AdamW, on the batches in turn."""

    stride = 1

    def __init__(self, model: nn.Module, batches, logits=None, compiled: bool = False):
        self.model, self.batches, self.logits = model.train(), itertools.cycle(batches), logits or model
        trained = [weight for weight in model.parameters() if weight.requires_grad]
        self.parameters, self.optimiser = sum(w.numel() for w in trained), adamw(trained)
        self.loss = torch.compile(self._loss) if compiled else self._loss

    def _loss(self, inputs: Tensor, targets: Tensor) -> Tensor:
        return cross_entropy(self.logits(inputs), targets)

    def advance(self) -> Tensor:
        """One step; the loss before it."""
        inputs, targets, _ = next(self.batches)
        loss = self.loss(inputs, targets)
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        self.optimiser.step()
        return loss.detach()


def build(shape: Shape, batches, fused: bool = True, compiled: bool = False, seed: int = 0) -> Eager:
    torch.manual_seed(seed)
    return Eager(Plain(shape.model, fused), batches, compiled=compiled)
