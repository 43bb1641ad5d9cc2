"""When a run is in which phase: names over time, first times, crossings, the turning point of a curve.

    looks      0     100   300   600   900   1200
    names      –     1-Gen 1-Gen –     2-Gen 2-Gen      first_time(…, "2-Gen") = 900
    curve      ╲___________                             crossing(…, level) = where it meets the level
                level ─ ─ ─╲─ ─ ─
    fresh loss ╲__          ___╱                        turning(…).step = the bottom
                  ╲________╱

What never happens within a run is NaN: the run is censored, it ended before. No time is made up for it.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Shaped

from iclkit import predictors
from iclkit.circuits.formation import final_value
from iclkit.tasks.base import check_whole


class Turn(NamedTuple):
    """The bottom of a curve that falls and then rises: its step, its value, and the rise up to the end."""

    step: float
    value: float
    rise: float


def names(distances, apart, margin: float = 0.2, alike: float = 0.01) -> Shaped[np.ndarray, "*runs step"]:
    """The phase of every look, by the rule of `predictors.phase`: one of PHASES or UNDECIDED.

    `distances` [… step 2 5] and `apart` [… 2 5 5] as records hold them, any axes for runs in front. Raises
    `ValueError` where these axes differ.
    """
    distances, apart = np.asarray(distances, float), np.asarray(apart, float)
    if distances.shape[-2:] != (2, 5) or distances.shape[:-3] + (2, 5, 5) != apart.shape:
        raise ValueError(
            "expected distances [… step 2 5] and apart [… 2 5 5] of the same runs; "
            f"got {list(distances.shape)} and {list(apart.shape)}"
        )
    runs = zip(distances.reshape(-1, *distances.shape[-3:]), apart.reshape(-1, 2, 5, 5), strict=True)
    found = [[predictors.phase(look, between, margin, alike) for look in run] for run, between in runs]
    return np.array(found).reshape(distances.shape[:-2])


def first_time(steps, held, lasting: int = 1) -> Float[np.ndarray, "*runs"]:
    """The first step of the first `lasting` looks in a row at which `held` [… step] is true; else NaN.

    `first_time(steps, names == "2-Gen", lasting=2)` asks for two looks, so that a flicker does not count.
    Raises `ValueError` for a wrong number of looks.
    """
    held = np.asarray(held)
    steps = _looks(steps, held)
    if held.dtype != bool:
        raise ValueError(f'held says true or false at each look, as names == "2-Gen"; got {held.dtype}')
    check_whole("lasting", lasting)
    if not 1 <= lasting <= len(steps):
        raise ValueError(f"lasting must be 1 to {len(steps)} looks; got {lasting}")
    in_a_row = np.lib.stride_tricks.sliding_window_view(held, lasting, axis=-1).all(-1)
    return np.where(in_a_row.any(-1), steps[in_a_row.argmax(-1)], np.nan)


def crossing(steps, curve, level=0.0, for_good: bool = False) -> Float[np.ndarray, "*runs"]:
    """When a curve [… step] falls to `level`, a number or another curve; NaN where it never does.

    Straight lines join the looks. `for_good` takes the fall after which it stays there to the end, else the
    first. A curve that starts at the level or below has the first step. Raises `ValueError` for curves of
    another length than `steps` and for values that are not finite.
    """
    gap = np.asarray(curve, float) - level
    steps = _looks(steps, gap)
    if not np.isfinite(gap).all():
        raise ValueError("expected finite values and levels; leave out looks that were not measured")
    return np.apply_along_axis(lambda each: _fall(steps, each, for_good), -1, gap)


def _fall(steps: np.ndarray, gap: np.ndarray, for_good: bool) -> float:
    below = gap <= 0
    if for_good:
        below = np.logical_and.accumulate(below[::-1])[::-1]
    if not below.any():
        return np.nan
    at = int(below.argmax())
    if at == 0:
        return float(steps[0])
    part = gap[at - 1] / (gap[at - 1] - gap[at])
    return float(steps[at - 1] + part * (steps[at] - steps[at - 1]))


def turning(steps, curve, least: float, smooth: int = 3) -> Turn:
    """The bottom of one curve [step], if it lies at least `least` below the start and `least` below the end.

    Looks are replaced by the mean of `smooth` neighbours, so that one lucky look is no bottom; the end is
    the mean of the last tenth. Otherwise step and value are NaN, and the rise is what there was. Raises
    `ValueError` for less than `smooth` looks and for an even `smooth`.
    """
    curve = np.asarray(curve, float)
    steps = _looks(steps, curve)
    check_whole("smooth", smooth)
    if curve.ndim != 1 or smooth % 2 == 0 or not 1 <= smooth <= len(curve):
        raise ValueError(
            f"expected one curve of at least {smooth} looks, smooth odd; got {list(curve.shape)}"
        )
    if not (np.isfinite(curve).all() and least >= 0):
        raise ValueError(
            f"expected finite values and least ≥ 0; got {curve.min()} … {curve.max()} and {least}"
        )
    middle = np.lib.stride_tricks.sliding_window_view(curve, smooth).mean(1)
    at = int(middle.argmin())
    rise = final_value(curve) - middle[at]
    if min(rise, curve[0] - middle[at]) < least:
        return Turn(np.nan, np.nan, float(rise))
    return Turn(float(steps[at + smooth // 2]), float(middle[at]), float(rise))


def median_time(times) -> Float[np.ndarray, "*runs"]:
    """The median over seeds [… seed]; a censored run, NaN, is later than all others, and so may it be."""
    times = np.asarray(times, float)
    if times.ndim < 1 or not times.shape[-1]:
        raise ValueError(f"expected times [… seed] of at least one seed; got {list(times.shape)}")
    middle = np.median(np.where(np.isnan(times), np.inf, times), axis=-1)
    return np.where(np.isfinite(middle), middle, np.nan)


def _looks(steps, values: np.ndarray) -> np.ndarray:
    steps = np.asarray(steps, float)
    if steps.ndim != 1 or len(steps) < 1 or not (np.diff(steps) > 0).all():
        raise ValueError(f"expected rising steps [step]; got {list(steps.shape)}: {steps}")
    if values.ndim < 1 or values.shape[-1] != len(steps):
        raise ValueError(
            f"expected a last axis of {len(steps)} looks, as steps has; got {list(values.shape)}"
        )
    return steps
