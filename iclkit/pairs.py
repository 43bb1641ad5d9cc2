"""How a transformer reads exemplars and labels: a map for the ones, a table for the others, both trained.

    inputs    x₁          y₁       …    x_q            [batch seq d_features+1]: features, then label or −1
    embed     x₁W_X + b_X  W_L[y₁]  …    x_q W_X + b_X   [batch seq d_model], what an `embedded` model takes

Source: Singh et al. 2025 (https://arxiv.org/abs/2503.05631), section 2.2.
"""

import zlib
from dataclasses import replace

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from iclkit.model import Transformer, TransformerConfig
from iclkit.tasks import Batch
from iclkit.tasks.base import check_whole

LABEL_SCALE = 0.02


class PairInputs(nn.Module):
    """x W_X + b_X for an exemplar, a row of W_L for a label; drawn from `seed`, as the model's weights are.

    Standard deviation: 1 / √d_features for W_X, 0.02 for W_L. `ValueError` for inputs it cannot read.
    """

    def __init__(self, d_features: int, n_labels: int, d_model: int, seed: int = 0):
        super().__init__()
        self.W_X = nn.Parameter(drawn("pairs.W_X", seed, (d_features, d_model)) / d_features**0.5)
        self.b_X = nn.Parameter(torch.zeros(d_model))
        self.W_L = nn.Parameter(drawn("pairs.W_L", seed, (n_labels, d_model)) * LABEL_SCALE)

    def forward(self, inputs: Float[Tensor, "batch seq feature"]) -> Float[Tensor, "batch seq d_model"]:
        self.check(inputs)
        labels = inputs[..., -1].long()
        try:
            rows = F.embedding(labels.clamp(min=0), self.W_L)
        except IndexError:
            top = len(self.W_L) - 1
            raise ValueError(f"labels must lie in 0 … {top}; got {int(labels.max())}") from None
        return torch.where((labels >= 0)[..., None], rows, inputs[..., :-1] @ self.W_X + self.b_X)

    def check(self, inputs: Tensor) -> None:
        """`ValueError` for inputs of another shape or type."""
        d_features = len(self.W_X)
        if inputs.ndim != 3 or inputs.shape[2] != d_features + 1 or inputs.dtype != self.W_X.dtype:
            raise ValueError(
                f"this model takes {self.W_X.dtype} [batch seq {d_features + 1}], {d_features} features and "
                f"a label; got {inputs.dtype} of shape {tuple(inputs.shape)}"
            )


def drawn(name: str, seed: int, shape: tuple[int, int]) -> Tensor:
    """Standard normal numbers that are a function of (name, seed, shape)."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(zlib.crc32(f"{seed} {name}".encode())))


def pair_transformer(
    config: TransformerConfig, d_features: int, seed: int = 0, query_only: bool = False
) -> Transformer:
    """A `Transformer` that reads exemplars and labels through `model.pairs`, a `PairInputs`.

    `d_vocab` counts the labels. Everything else is the model's: hooks, cache, training; `hook_embed` sees
    what was read. With `query_only`, logits are those of the last position, `[batch 1 d_vocab_out]`: with
    many labels most of the time goes into them. Train that with `query_loss`.
    """
    check_whole("d_features", d_features, 1)
    model = Transformer(replace(config, embedded=True), seed)
    model.pairs = PairInputs(d_features, config.d_vocab, config.d_model, seed)
    model.register_forward_pre_hook(read_pairs)
    if query_only:
        model.ln_final.register_forward_hook(keep_last)
    return model


def read_pairs(model: Transformer, args: tuple) -> tuple:
    return (model.pairs(args[0]), *args[1:])


def keep_last(norm: nn.Module, args: tuple, resid: Tensor) -> Tensor:
    return resid[:, -1:]


def reads_as_built(model: Transformer) -> bool:
    """Whether the only hooks on the model are the ones that `pair_transformer` puts there."""
    expected = {(model, read_pairs)} if isinstance(getattr(model, "pairs", None), PairInputs) else set()
    if answers_last(model):
        expected.add((model.ln_final, keep_last))
    found = [
        (m, hook)
        for m in model.modules()
        for hook in (*m._forward_hooks.values(), *m._forward_pre_hooks.values())
    ]
    return len(found) == len(expected) and set(found) == expected


def answers_last(model: Transformer) -> bool:
    """Whether this model's logits are those of the last position alone."""
    return keep_last in model.ln_final._forward_hooks.values()


def query_loss(logits: Float[Tensor, "batch _ label"], batch: Batch) -> Tensor:
    """Mean −log p(the query's answer) in nats, from the last position's logits."""
    return F.cross_entropy(logits[:, -1], batch.targets[:, -1])
