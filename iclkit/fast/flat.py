"""All weights of M models of one shape in one buffer, a row each; gradients and moments lie the same way."""

from math import prod

import torch
from jaxtyping import Float
from torch import Tensor

from iclkit.model import Transformer, TransformerConfig


class Flat:
    """Named views into rows of numbers: `views[name]` is `[model, ...]`, shaped for products.

        row    W_E | W_pos | W_QKV₀ W_O₀ W_in₀ W_out₀ | … | W_U ‖ b_in₀ b_out₀ ln1_w₀ …
               matrices, which decay                            vectors, which do not

    Queries, keys and values of a layer share one matrix, `[d_model, 3 · heads · d_head]`.
    """

    def __init__(self, model: Transformer, count: int):
        self.config, self.count = model.config, count
        self.shapes = shapes(model)
        self.decaying = sum(prod(shape) for shape in self.shapes.values() if len(shape) > 1)
        self.size = sum(prod(shape) for shape in self.shapes.values())
        first = next(model.parameters())
        self.rows = torch.zeros(count, self.size, dtype=first.dtype, device=first.device)
        self.views = self.split(self.rows)

    def split(self, rows: Float[Tensor, "model size"]) -> dict[str, Tensor]:
        """The views of other rows of the same layout."""
        views, start = {}, 0
        for name, shape in sorted(self.shapes.items(), key=lambda item: len(item[1]) == 1):
            size = prod(shape)
            views[name] = rows[:, start : start + size].view(-1, *shape)
            start += size
        return views

    def named(self, rows: Float[Tensor, "model size"], index: int) -> dict[str, Tensor]:
        """One model's part under the names and shapes of `model.named_parameters()`, sharing memory."""
        c, found = self.config, {}
        heads = (c.n_heads, c.d_head)
        for name, view in self.split(rows).items():
            view = view[index]
            if name.endswith("W_QKV"):
                parts = view.view(c.d_model, 3, *heads).permute(1, 2, 0, 3)
                found |= {name.replace("W_QKV", f"W_{part}"): parts[i] for i, part in enumerate("QKV")}
            else:
                found[name] = view.view(*heads, c.d_model) if name.endswith("W_O") else view
        return found


def shapes(model: Transformer) -> dict[str, tuple[int, ...]]:
    """The shapes of the views, queries, keys and values joined and heads merged."""
    c: TransformerConfig = model.config
    width, found = c.n_heads * c.d_head, {}
    for name, weight in model.named_parameters():
        if name.endswith("W_Q"):
            found[name.replace("W_Q", "W_QKV")] = (c.d_model, 3 * width)
        elif name.endswith("W_O"):
            found[name] = (width, c.d_model)
        elif not name.endswith(("W_K", "W_V")):
            found[name] = tuple(weight.shape)
    return found
