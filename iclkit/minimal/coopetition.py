"""Two strategies as two products of vectors that share two factors: rise and fall without a network.

    M1 = mean((a*⊗b*⊗c* − a⊗b⊗c)²) / 2      ICL, in-context learning: a is layer 1, b and c are layer 2
    M2 = mean((d*⊗b*⊗c* − d⊗b⊗c)²) / 2      CIWL, context-constrained in-weights learning: d, b and c
    C  = mean((a⊗d)²) / 2                    both want layer 1
    L  = (M1 + μ₁) (M2 + μ₂) + α C

Every gradient is p v − q v*, with p and q made of lengths |v|² and overlaps v·v*: descent never leaves the
plane of v and v*. Turned into that plane a vector is two numbers, however long it is, and moves as before:

    v = (along, across)    v* = (|v*|, 0)    |v|² = along² + across²    v·v* = along |v*|

So 8 numbers a run follow the descent exactly; runs and settings are axes of one array. Source: Singh et al.
2025 (https://arxiv.org/abs/2503.05631), section 6; means and the factor 1/2 as in the authors' code.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Shaped

from iclkit.phases import crossing
from iclkit.tasks import generator
from iclkit.tasks.base import check_whole

NAMES = "abcd"
DIMS = (20, 20, 20, 160)  # of a, b, c, d: the longer d, the slower it is learned
OUTCOMES = ("stuck", "ICL held", "ICL rises and falls", "CIWL alone")


@dataclass(frozen=True)
class Start:
    """Where runs begin: `vectors` [4 2 run] of a, b, c, d, and the `lengths` [4 run] of their targets."""

    vectors: np.ndarray
    lengths: np.ndarray
    dims: tuple[int, ...] = DIMS

    def __post_init__(self):
        check_dims(self.dims)
        if self.vectors.shape != (4, 2, *self.lengths.shape[1:]) or self.lengths.shape[:1] != (4,):
            raise ValueError(
                "expected vectors [4 2 run] and lengths [4 run]; "
                f"got {list(self.vectors.shape)} and {list(self.lengths.shape)}"
            )
        if not (np.isfinite(self.vectors).all() and (self.lengths > 0).all()):
            raise ValueError("expected finite vectors, and targets of a length above 0")

    def put(self, **vectors) -> "Start":
        """The same start with other vectors, each (along, across): `put(a=(0, 0), b=path.end("b"))`."""
        changed = self.vectors.copy()
        for name, pair in vectors.items():
            pair, runs = np.asarray(pair, float), changed.shape[2]
            if pair.shape not in ((2,), (2, runs)):
                raise ValueError(
                    f"expected {name} as (along, across), numbers or [2 {runs}]; got {list(pair.shape)}"
                )
            changed[places(name)] = pair.reshape(2, -1)
        return Start(changed, self.lengths, self.dims)


def draw(seed: int, dims=DIMS) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """The vectors a, b, c, d of one run in full, and their targets: all entries normal, of variance 1."""
    check_dims(dims)
    random = generator(seed)
    vectors, targets = ([torch.randn(n, generator=random).double() for n in dims] for _ in range(2))
    return vectors, targets


def start(seeds: Iterable[int], dims=DIMS) -> Start:
    """The draws of several seeds, each vector turned into the plane of itself and its target."""
    turned = [[plane(v, target) for v, target in zip(*draw(seed, dims))] for seed in seeds]
    if not turned:
        raise ValueError("expected at least one seed; got none")
    along, across, lengths = np.array(turned).T
    return Start(np.stack([along, across], 1), lengths, tuple(dims))


def plane(v: Float[torch.Tensor, " dim"], target: Float[torch.Tensor, " dim"]) -> tuple[float, float, float]:
    """(along, across, |target|): v in the plane of v and its target."""
    length = target.norm()
    along = v @ target / length
    return along.item(), (v - along * target / length).norm().item(), length.item()


class Losses(NamedTuple):
    """M1 and M2, how far each product is from its target, and C, how much both use layer 1."""

    M1: np.ndarray
    M2: np.ndarray
    C: np.ndarray


def sizes(dims) -> tuple[int, int, int]:
    """How many entries M1, M2 and C are means over."""
    a, b, c, d = dims
    return a * b * c, d * b * c, a * d


def losses(norm, overlap, whole, dims) -> Losses:
    """M1, M2 and C from |v|², v·v* and |v*|², each [4 …] for a, b, c, d."""
    (A, B, C, D), (a, b, c, d), (At, Bt, Ct, Dt) = norm, overlap, whole
    n1, n2, n3 = sizes(dims)
    M1 = (At * Bt * Ct - 2 * a * b * c + A * B * C) / (2 * n1)
    M2 = (Dt * Bt * Ct - 2 * d * b * c + D * B * C) / (2 * n2)
    return Losses(M1, M2, A * D / (2 * n3))


def pulls(found: Losses, norm, overlap, dims, alpha, mu1, mu2) -> tuple[list, list]:
    """p and q of the four gradients p v − q v*: each product pulls as hard as the *other* one fails."""
    (A, B, C, D), (a, b, c, d), (n1, n2, n3) = norm, overlap, sizes(dims)
    icl, ciwl, rival = (found.M2 + mu2) / n1, (found.M1 + mu1) / n2, alpha / n3
    shared, wanted = icl * A + ciwl * D, icl * a + ciwl * d  # b and c are pulled by both
    p = [icl * B * C + rival * D, shared * C, shared * B, ciwl * B * C + rival * A]
    q = [icl * b * c, wanted * c, wanted * b, ciwl * b * c]
    return p, q


class Times(NamedTuple):
    """When M1 is down to half of ignorance, when it is back above that for good, when M2 is; NaN: never."""

    icl: np.ndarray
    lost: np.ndarray
    ciwl: np.ndarray


def outcomes(times: Times, until: float = np.inf) -> Shaped[np.ndarray, "*runs"]:
    """One of OUTCOMES a run, of what had happened by step `until`."""
    icl, lost, ciwl = (np.asarray(each) <= until for each in times)
    return np.select([icl & lost, icl, ciwl], [OUTCOMES[2], OUTCOMES[1], OUTCOMES[3]], OUTCOMES[0])


@dataclass(frozen=True)
class Path:
    """Runs on their way down: `vectors` [4 2 … run look] at `steps` [look]; all losses are [… run look]."""

    steps: np.ndarray
    vectors: np.ndarray
    begun: Start

    @property
    def lengths(self) -> np.ndarray:
        """|v*|, as wide as the vectors."""
        given = self.begun.lengths
        return given.reshape(4, *[1] * (self.vectors.ndim - 4), given.shape[1], 1)

    @cached_property
    def losses(self) -> Losses:
        """M1, M2 and C at every look."""
        return losses(*measures(self.vectors, self.lengths), self.lengths**2, self.begun.dims)

    @cached_property
    def shares(self) -> tuple[np.ndarray, np.ndarray]:
        """M1 and M2 over what they are where a⊗b⊗c = d⊗b⊗c = 0: 1 is ignorance, 0 is mastery."""
        nothing = losses(np.zeros(4), np.zeros(4), self.lengths**2, self.begun.dims)
        return self.losses.M1 / nothing.M1, self.losses.M2 / nothing.M2

    @cached_property
    def times(self) -> Times:
        """The three times of every run, [… run]."""
        M1, M2 = self.shares
        icl, ciwl = crossing(self.steps, M1, 0.5), crossing(self.steps, M2, 0.5)
        back = crossing(self.steps, -M1, -0.5, for_good=True)
        return Times(icl, np.where(back > icl, back, np.nan), ciwl)

    def end(self, name: str) -> np.ndarray:
        """A vector at the last look, (along, across)."""
        return self.vectors[places(name)[0], ..., -1]


def measures(vectors, lengths) -> tuple[np.ndarray, np.ndarray]:
    """|v|² and v·v* of vectors [4 2 …]."""
    return vectors[:, 0] ** 2 + vectors[:, 1] ** 2, vectors[:, 0] * lengths


def descend(
    begun: Start,
    alpha: float | np.ndarray = 0.1,
    mu1: float | np.ndarray = 0.1,
    mu2: float | np.ndarray = 0.0,
    lr: float = 1.0,
    steps: int = 16_000,
    every: int = 40,
    hold: str = "",
) -> Path:
    """Gradient descent v ← v − lr (p v − q v*) on L, all runs at once, looked at every `every` steps.

    α, μ₁ and μ₂ are numbers or broadcast against the runs: `alpha=A[:, None]` gives losses [A run look].
    `hold="bc"` leaves b and c as they are. Raises `ValueError` for settings out of range or that do not fit
    the runs, `FloatingPointError` when a run runs away.
    """
    settings = [np.asarray(value, float) for value in (alpha, mu1, mu2)]
    check_whole("steps", steps)
    check_whole("every", every)
    if not all((np.isfinite(value) & (value >= 0)).all() for value in settings):
        raise ValueError(f"expected finite α, μ₁ and μ₂, at least 0; got {', '.join(map(str, settings))}")
    if not 0 < lr < np.inf or not 1 <= every <= steps:
        raise ValueError(f"expected a finite lr > 0 and 1 ≤ every ≤ steps; got {lr}, {every} and {steps}")
    shape = together(settings, begun.lengths.shape[1])
    lengths = begun.lengths.reshape(4, *[1] * (len(shape) - 1), shape[-1])
    vectors = np.empty((4, 2, *shape))
    vectors[:] = begun.vectors.reshape(4, 2, *lengths.shape[1:])
    rate = np.full(lengths.shape, lr)
    rate[places(hold)] = 0
    whole, looks = lengths**2, []
    with np.errstate(over="ignore", invalid="ignore"):
        for step in range(steps + 1):
            if step % every == 0:
                looks.append(vectors.copy())
            norm, overlap = measures(vectors, lengths)
            p, q = pulls(losses(norm, overlap, whole, begun.dims), norm, overlap, begun.dims, *settings)
            vectors *= (1 - rate * np.stack(p))[:, None]
            vectors[:, 0] += rate * lengths * np.stack(q)
    if not np.isfinite(looks[-1]).all():
        raise FloatingPointError(f"a run ran away; lower lr={lr}, α, μ₁ or μ₂")
    return Path(np.arange(0, steps + 1, every), np.stack(looks, -1), begun)


def together(settings, runs: int) -> tuple[int, ...]:
    """The shape [… run] of runs under all settings."""
    try:
        shape = np.broadcast_shapes((runs,), *(value.shape for value in settings))
    except ValueError:
        shape = (0,)
    if shape[-1] != runs:
        given = ", ".join(str(list(value.shape)) for value in settings)
        raise ValueError(
            f"settings are numbers, or end in an axis of 1 or of the {runs} runs, as A[:, None]; got {given}"
        )
    return shape


def places(names: str) -> list[int]:
    """The numbers of the vectors called `names`, such as "bc"; `ValueError` for others than a, b, c, d."""
    if unknown := [name for name in names if name not in NAMES]:
        raise ValueError(f"the vectors are called a, b, c, d; got {unknown[0]!r}")
    return [NAMES.index(name) for name in names]


def check_dims(dims) -> None:
    """`ValueError` unless a, b, c, d have whole lengths of at least 2."""
    for n in dims:
        check_whole("a dimension", n)
    if len(dims) != 4 or min(dims) < 2:
        raise ValueError(f"expected the lengths of a, b, c, d, each at least 2; got {tuple(dims)}")
