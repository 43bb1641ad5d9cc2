"""Exemplars: vectors that stand for pictures, several of each class, wherever they come from.

    class 0    x₀₀ x₀₁ x₀₂ …        alike: one centre, a little spread
    class 1    x₁₀ x₁₁ x₁₂ …

A source gives `vectors(classes, indices)`, and the counts `n_classes`, `n_exemplars`, `d_features`.
"""

import zlib
from dataclasses import dataclass
from functools import lru_cache
from math import isfinite, pi
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from iclkit.tasks.base import check_whole, generator


@runtime_checkable
class Exemplars(Protocol):
    """Anything with these three counts and `vectors`; its `repr` names its content."""

    n_classes: int
    n_exemplars: int
    d_features: int

    def vectors(self, classes: Tensor, indices: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class ImageLike:
    """Synthetic exemplars of low intrinsic dimension, as the features of pictures are:

        x = scale · ReLU(R z),    z = (centre + spread · noise) / √(1 + spread²)

    with centre and noise standard normal in `rank` dimensions and R a fixed random matrix. `scale` makes the
    root mean square length `norm`, in the mean over all z (closed form: √(‖R‖²/2)). Without `centred`, all
    classes share a large common direction, as ResNet features do; with it, the mean over z is taken away.
    The same on every device. With the default, in-context learning rose and faded in a first trial of one seed;
    seeds differ in whether it rises at all, most with narrow heads.
    """

    n_classes: int = 6400
    n_exemplars: int = 20
    d_features: int = 128
    rank: int = 24
    spread: float = 0.6
    norm: float = 4.0
    centred: bool = False
    seed: int = 0

    def __post_init__(self):
        for name in ("n_classes", "n_exemplars", "d_features", "rank", "seed"):
            check_whole(name, getattr(self, name), int(name != "seed"))
        real = all(isinstance(x, (int, float)) and isfinite(x) for x in (self.spread, self.norm))
        if not (real and self.spread >= 0 and self.norm > 0):
            raise ValueError(f"expected spread ≥ 0 and norm > 0; got {self.spread!r} and {self.norm!r}")

    def vectors(
        self, classes: Int[Tensor, "*shape"], indices: Int[Tensor, "*shape"]
    ) -> Float[Tensor, "*shape d"]:
        """The exemplar of each class at each index; `ValueError` for one that is not there."""
        check_within(self, classes, indices)
        centres, noise, R, mean = drawn(self, classes.device)
        return torch.relu((centres[classes] + noise[classes, indices]) @ R) - mean


@lru_cache(maxsize=4)
def drawn(source: ImageLike, device: torch.device) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Centres `[class rank]`, their spread `[class exemplar rank]`, R `[rank d_features]` with every scale in
    it, and what centring takes away `[d_features]`; drawn on the CPU."""
    s = source
    with torch.device("cpu"):
        centres = torch.randn(s.n_classes, s.rank, generator=generator(s.seed, 0))
        noise = torch.randn(s.n_classes, s.n_exemplars, s.rank, generator=generator(s.seed, 1))
        R = torch.randn(s.rank, s.d_features, generator=generator(s.seed, 2))
    deviation = R.norm(dim=0)  # of each entry g of R z, which is normal: E ReLU(g)² = σ²/2, E ReLU(g) = σ/√2π
    share = 1 / 2 - 1 / (2 * pi) * s.centred
    scale = s.norm / (deviation.square().sum() * share).sqrt()
    mean = scale * deviation / (2 * pi) ** 0.5 * s.centred
    R = R * scale / (1 + s.spread**2) ** 0.5
    return tuple(part.to(device) for part in (centres, s.spread * noise, R, mean))


@dataclass(frozen=True, eq=False, repr=False)
class Given:
    """Exemplars that lie in a tensor `[class exemplar feature]`, of float32."""

    table: Tensor

    def __post_init__(self):
        table = self.table
        if (
            not isinstance(table, Tensor)
            or table.ndim != 3
            or table.dtype != torch.float32
            or not table.numel()
        ):
            got = f"{table.dtype} {list(table.shape)}" if isinstance(table, Tensor) else type(table).__name__
            raise ValueError(f"expected a float32 tensor [class exemplar feature]; got {got}")
        if not table.isfinite().all():
            raise ValueError("exemplars must be finite; this table holds NaN or infinite values")

    n_classes, n_exemplars, d_features = (property(lambda self, i=i: self.table.shape[i]) for i in range(3))

    def vectors(
        self, classes: Int[Tensor, "*shape"], indices: Int[Tensor, "*shape"]
    ) -> Float[Tensor, "*shape d"]:
        """The exemplar of each class at each index; `ValueError` for one that is not there."""
        check_within(self, classes, indices)
        return on(self, classes.device)[classes, indices]

    def __repr__(self) -> str:
        return f"Given({list(self.table.shape)}, crc32={zlib.crc32(self.table.cpu().contiguous().numpy())})"


@lru_cache(maxsize=4)
def on(source: Given, device: torch.device) -> Tensor:
    return source.table.to(device)


def check_within(source: Exemplars, classes: Tensor, indices: Tensor) -> None:
    """`ValueError` for a class or an index outside the source (unasked on a GPU, which would wait)."""
    for name, given, count in (
        ("classes", classes, source.n_classes),
        ("indices", indices, source.n_exemplars),
    ):
        if given.is_cuda or not given.numel():
            continue
        low, high = (int(value) for value in given.aminmax())
        if low < 0 or high >= count:
            raise ValueError(f"{name} of exemplars must lie in 0 … {count - 1}; got {low} … {high}")
