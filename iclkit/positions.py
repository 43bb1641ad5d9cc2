"""How a transformer knows where a token stands: five schemes behind one interface.

A scheme may act in four places: it adds to the residual stream (`into_residual`), it adds to what queries and
keys read (`into_qk`), it turns queries and keys (`rotate`), it adds to the attention scores (`bias`). What a
scheme does not use, it leaves alone.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn


class NoPositions(nn.Module):
    """The causal mask alone."""

    def __init__(self, config):
        super().__init__()

    def into_residual(
        self, embed: Float[Tensor, "batch seq d_model"], taps
    ) -> Float[Tensor, "batch seq d_model"]:
        return embed

    def into_qk(self, x: Tensor) -> Tensor:
        return x

    def rotate(self, x: Float[Tensor, "batch seq head d_head"]) -> Float[Tensor, "batch seq head d_head"]:
        return x

    def bias(self, layer: int, seq: int) -> Float[Tensor, "head query key"] | None:
        return None


class Absolute(NoPositions):
    """resid_t = W_E[token_t] + W_pos[t]: positions can be read, moved and composed like tokens."""

    def __init__(self, config):
        super().__init__(config)
        self.W_pos = nn.Parameter(torch.empty(config.n_ctx, config.d_model))

    def into_residual(self, embed, taps):
        seq = embed.shape[1]
        return embed + taps("hook_pos_embed", self.W_pos[:seq].expand(embed.shape[0], -1, -1))


class Shortformer(NoPositions):
    """W_pos[t] is added to what queries and keys read, never to the stream: values carry no position."""

    def __init__(self, config):
        super().__init__(config)
        self.W_pos = nn.Parameter(torch.empty(config.n_ctx, config.d_model))

    def into_qk(self, x):
        W_pos = self.W_pos[: x.shape[1]]
        return x + (W_pos if x.ndim == 3 else W_pos[:, None])


class Relative(NoPositions):
    """scores[query, key] += b_rel[layer, head, query − key], learned, zero at the start."""

    def __init__(self, config):
        super().__init__(config)
        self.b_rel = nn.Parameter(torch.zeros(config.n_layers, config.n_heads, config.n_ctx))
        place = torch.arange(config.n_ctx)
        self.register_buffer("distance", (place[:, None] - place[None]).clamp(min=0), persistent=False)

    def bias(self, layer, seq):
        return self.b_rel[layer][:, self.distance[:seq, :seq]]


class Rotary(NoPositions):
    """Dimension i of the first half is turned with dimension i of the second by t · 10000^(−2i/d_head)."""

    def __init__(self, config):
        super().__init__(config)
        half = config.d_head // 2
        angle = torch.outer(torch.arange(config.n_ctx), 10000.0 ** (-torch.arange(half) / half))
        self.register_buffer("cos", angle.cos()[:, None], persistent=False)
        self.register_buffer("sin", angle.sin()[:, None], persistent=False)

    def rotate(self, x):
        seq = x.shape[1]
        first, second = x.chunk(2, -1)
        cos, sin = self.cos[:seq], self.sin[:seq]
        return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


SCHEMES = {
    "absolute": Absolute,
    "shortformer": Shortformer,
    "relative": Relative,
    "rotary": Rotary,
    "none": NoPositions,
}
