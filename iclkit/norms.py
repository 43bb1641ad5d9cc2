"""Layer normalisation, or its absence, with named points inside."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from iclkit.hooks import Taps


class LayerNorm(nn.Module):
    """(x − mean) / √(variance + 1e-5) · w + b over the last axis."""

    def __init__(self, name: str, d_model: int):
        super().__init__()
        self.names = (f"{name}.hook_scale", f"{name}.hook_normalized")
        self.w = nn.Parameter(torch.ones(d_model))
        self.b = nn.Parameter(torch.zeros(d_model))

    def forward(self, x: Float[Tensor, "*batch d_model"], taps: Taps) -> Float[Tensor, "*batch d_model"]:
        if not taps.wants(*self.names):
            return F.layer_norm(x, self.w.shape, self.w, self.b)
        x = x - x.mean(-1, keepdim=True)
        scale = taps(self.names[0], (x.square().mean(-1, keepdim=True) + 1e-5).sqrt())
        return taps(self.names[1], x / scale * self.w + self.b)


class NoNorm(nn.Module):
    """x, unchanged."""

    def forward(self, x, taps: Taps):
        return x
