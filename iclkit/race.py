"""Who comes first in a run, 2-Gen or 2-Mem, and at which K the answer turns: the first threshold, K*₁.

    distance from    1-Gen 1-Mem  ‾‾‾‾‾‾‾‾‾‾‾‾╱      both far: the run has left the plateau, and is asked
                     2-Gen 2-Mem  ‾‾‾‾╲___________    which of the two is nearer
                                          ↑
    lean = log d(2-Gen) − log d(2-Mem) there         below 0: generalises first; above: memorises first

All distances are those on training chains, where a memoriser is at home.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from iclkit.phases import first_time

SHARE, LASTING = 0.5, 2
CLOSE = 0.1


class Asked(NamedTuple):
    """When each run had left the plateau (`step`), and its `lean` there; NaN for one that never did."""

    step: np.ndarray
    lean: np.ndarray


def asked(steps, distances, share: float = SHARE) -> Asked:
    """Each run of `distances` [… step 2 5], asked at its first `LASTING` looks in a row off the plateau.

    Off the plateau: the nearer of 2-Gen and 2-Mem is within `share` of the distance from the nearer of 1-Gen
    and 1-Mem. The lean is the mean over those looks. Raises `ValueError` for axes that do not fit.
    """
    distances = np.asarray(distances, float)
    if distances.shape[-2:] != (2, 5) or not 0 < share <= 1:
        raise ValueError(
            f"expected distances [… step 2 5] and a share in (0, 1]; got {list(distances.shape)} and {share}"
        )
    one, two = distances[..., 0, [0, 2]].min(-1), distances[..., 0, [1, 3]]
    step = first_time(steps, two.min(-1) < share * one, LASTING)
    lean = np.log(two[..., 0]) - np.log(two[..., 1])
    mean = np.lib.stride_tricks.sliding_window_view(lean, LASTING, axis=-1).mean(-1)
    at = np.searchsorted(np.asarray(steps, float), np.nan_to_num(step)).clip(max=mean.shape[-1] - 1)
    there = np.take_along_axis(mean, at[..., None], -1)[..., 0]
    return Asked(step, np.where(np.isnan(step), np.nan, there))


def outcomes(lean, close: float = CLOSE) -> list[str]:
    """One word a run: 2-Gen, 2-Mem, or undecided: |lean| ≤ `close`, or never asked."""
    words = {True: "2-Gen", False: "2-Mem"}
    return [words[bool(x < 0)] if abs(x) > close else "undecided" for x in np.ravel(lean)]


def threshold(K, lean) -> Float[np.ndarray, "*seeds"]:
    """K*₁ of each seed: where the straight line through its lean [… K] against log K is 0.

        lean ≈ s (log K*₁ − log K),  s > 0       least squares, runs that were never asked left out

    NaN with runs asked at fewer than two K, or where the lean does not fall with K. Far outside the K that
    were run, the number says only in which direction it lies.
    """
    K, lean = np.asarray(K, float), np.asarray(lean, float)
    if K.ndim != 1 or lean.shape[-1:] != K.shape:
        raise ValueError(f"expected one lean a K, [… K]; got {list(lean.shape)} for K {list(K.shape)}")
    if not ((K > 0) & np.isfinite(K)).all():
        raise ValueError(f"K are numbers of chains, above 0; got {K}")
    log_K = np.log(K)
    return np.asarray(np.exp(np.apply_along_axis(lambda each: _root(log_K, each), -1, lean)))


def _root(x: np.ndarray, y: np.ndarray) -> float:
    there = np.isfinite(y)
    if len(np.unique(x[there])) < 2:
        return np.nan
    slope, offset = np.polyfit(x[there], y[there], 1)
    return -offset / slope if slope < 0 else np.nan
