"""When something forms: one rule for every curve over training.

score                              ▁▂▇██████      formed: first above half the final value and above .3
  final ┤            ╭──────────                  window: from 10 % to 90 % of the rise
        │           ╱|
  start ┤──────────╯ |
        └──────────┴─┴──────────→ step
                 10 % 90 %
"""

from typing import NamedTuple

import numpy as np

LEAST = 0.3


class Window(NamedTuple):
    """The steps at which a score has made 10 % and 90 % of its way from start to final value."""

    begin: float
    end: float

    @property
    def width(self) -> float:
        return self.end - self.begin


def final_value(score) -> float:
    """The mean over the last tenth of the measurements, at least one."""
    score = np.asarray(score, float)
    return float(score[-max(1, len(score) // 10) :].mean())


def formed_at(steps, score, least: float = LEAST) -> float | None:
    """The first step at which `score` exceeds half its final value and `least`; None when it never does."""
    score = np.asarray(score, float)
    _check(steps, score)
    above = score > max(final_value(score) / 2, least)
    return float(np.asarray(steps)[above.argmax()]) if above.any() else None


def window(steps, score, low: float = 0.1, high: float = 0.9) -> Window:
    """From the last step below `low` of the rise, before `high` is first reached, to that first step.

    Works for scores that fall, too. Raises ValueError when the curve does not change.
    """
    score = np.asarray(score, float)
    _check(steps, score)
    rise = final_value(score) - score[0]
    if rise == 0:
        raise ValueError("this curve ends where it began, so there is no rise to locate")
    part = (score - score[0]) / rise
    end = int((part >= high).argmax())
    begin = int(np.flatnonzero(part[: end + 1] < low).max(initial=0))
    return Window(float(np.asarray(steps)[begin]), float(np.asarray(steps)[end]))


def _check(steps, score) -> None:
    if score.ndim != 1 or not np.isfinite(score).all():
        raise ValueError(f"expected one curve of finite values, [step]; got shape {score.shape}: {score}")
    if len(steps) != len(score) or len(score) < 2:
        raise ValueError(f"expected as many steps as values, at least 2; got {len(steps)} and {len(score)}")
