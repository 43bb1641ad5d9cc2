"""How a model is trained: AdamW's numbers, their schedule, and which weights learn at their own pace."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from iclkit.tasks.base import check_whole

SCHEDULES = {
    "constant": lambda part: 1.0,
    "linear": lambda part: 1.0 - part,
    "cosine": lambda part: 0.5 * (1 + math.cos(math.pi * part)),
}
PAIRED = ("rates", "decays")


@dataclass(frozen=True)
class TrainConfig:
    """How a model is trained: `steps` of AdamW at `lr`, warmed up linearly over `warmup` steps.

    `seed` names the data; the model's own seed named its first weights. Matrices decay, vectors do not.
    `rates` are pairs (pattern of names, factor): weights whose name matches, as in `fnmatch`, learn and decay
    at `factor` times the learning rate; 0 freezes them, and factors of several patterns multiply.

        rates=(("blocks.0.attn.W_[QK]", 0.1),)     layer 0 learns where to look ten times slower

    `decays` are such pairs too, of factors on `weight_decay`; 0 exempts what matches.
    """

    steps: int = 1000
    lr: float = 1e-3
    betas: tuple | list = (0.9, 0.98)
    weight_decay: float = 0.01
    warmup: int = 0
    schedule: str = "constant"
    clip: float | None = None
    seed: int = 0
    rates: tuple | list = ()
    decays: tuple | list = ()

    def __post_init__(self):
        for name in ("steps", "warmup", "seed"):
            check_whole(name, getattr(self, name))
        real = all(isinstance(x, (int, float)) and math.isfinite(x) for x in (self.lr, self.weight_decay))
        least = self.steps >= 1 and self.warmup >= 0 and self.seed >= 0
        if not (real and least and self.lr > 0 and self.weight_decay >= 0):
            raise ValueError(
                "expected steps ≥ 1, lr > 0, weight_decay ≥ 0, warmup ≥ 0 and seed ≥ 0, Python's numbers "
                f"(axis.tolist() makes such); got {self}"
            )
        if self.clip is not None and not (isinstance(self.clip, (int, float)) and self.clip > 0):
            raise ValueError(f"clip must be None or a positive norm; got {self.clip!r}")
        pair = isinstance(self.betas, (tuple, list)) and len(self.betas) == 2
        if not (pair and all(isinstance(beta, (int, float)) and 0 <= beta < 1 for beta in self.betas)):
            raise ValueError(f"betas must be two numbers in [0, 1), as (0.9, 0.98); got {self.betas!r}")
        if self.schedule not in list(SCHEDULES):
            raise ValueError(f"schedule must be one of {', '.join(SCHEDULES)}; got {self.schedule!r}")
        for name in PAIRED:
            listed = pairs if isinstance(pairs := getattr(self, name), (tuple, list)) else [None]
            if not all(is_rate(rate) for rate in listed):
                raise ValueError(
                    f"{name} are pairs of a pattern of names and a finite factor of at least 0, as in "
                    f'(("blocks.0.attn.*", 0.1),); got {pairs!r}'
                )
            object.__setattr__(self, name, tuple(map(tuple, listed)))

    def lr_at(self, step: int) -> float:
        """The learning rate of update number `step`, counted from 0."""
        warm = min(1.0, (step + 1) / self.warmup) if self.warmup else 1.0
        return self.lr * warm * SCHEDULES[self.schedule](step / self.steps)

    def rate_of(self, name: str) -> float:
        """The factor on the learning rate of the weights of this name."""
        return math.prod(factor for pattern, factor in self.rates if fnmatchcase(name, pattern))

    def decay_of(self, name: str) -> float:
        """The factor on the weight decay of the matrix of this name, beside that of its rate."""
        return math.prod(factor for pattern, factor in self.decays if fnmatchcase(name, pattern))

    def check_rates(self, names: Iterable[str]) -> None:
        """`ValueError` for a pattern in `rates` or `decays` that matches none of a model's weights."""
        names = list(names)
        for field in PAIRED:
            for pattern, _ in getattr(self, field):
                if not any(fnmatchcase(name, pattern) for name in names):
                    raise ValueError(
                        f"{field}: {pattern!r} matches no weight of this model; its weights are "
                        f"{', '.join(names)}"
                    )


def is_rate(rate) -> bool:
    """Whether this is a pair of a pattern and a finite factor of at least 0."""
    if not (isinstance(rate, (tuple, list)) and len(rate) == 2 and isinstance(rate[0], str)):
        return False
    return isinstance(rate[1], (int, float)) and 0 <= rate[1] < math.inf
