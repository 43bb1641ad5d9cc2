"""Reading exemplars and labels, written out: forward and backward of `iclkit.pairs.PairInputs`."""

import torch
from torch import Tensor

LABELS = "pairs.W_L"


class Pairs:
    """x W_X + b_X where the last number of an input is −1, else the row of W_L that it names, for M models."""

    def __init__(self, weights: dict[str, Tensor], grads: dict[str, Tensor]):
        self.w, self.d = (
            {part: of[f"pairs.{part}"] for part in ("W_X", "b_X", "W_L")} for of in (weights, grads)
        )

    def forward(self, inputs: Tensor) -> tuple[Tensor, tuple]:
        """`[model, batch, seq, feature + 1]` to `[model, tokens, d_model]`; `IndexError` for no such label."""
        tokens = inputs.flatten(1, 2)
        labels, features = tokens[..., -1].long(), tokens[..., :-1]
        models, n_labels = self.w["W_L"].shape[:2]
        if not labels.is_cuda and int(labels.max()) >= n_labels:
            raise IndexError(f"label {int(labels.max())} of {n_labels}")
        where, rows = (labels >= 0)[..., None], labels.clamp(min=0)
        table = self.w["W_L"][torch.arange(models, device=rows.device)[:, None], rows]
        read = torch.baddbmm(self.w["b_X"][:, None], features, self.w["W_X"])
        return torch.where(where, table, read), (features, where, rows)

    def backward(self, d: Tensor, kept: tuple) -> None:
        """Add to the gradients of the weights what `d`, the gradient of what was read, asks for."""
        features, where, rows = kept
        for table, each, part in zip(self.d["W_L"], rows, d * where):
            table.index_add_(0, each, part)
        d = d.masked_fill(where, 0)
        self.d["W_X"].baddbmm_(features.transpose(1, 2), d)
        self.d["b_X"].add_(d.sum(1))
