"""How many chains a model can hold: the second threshold K*₂, read from waits or from what is reached.

    Δτ_K = τ(2-Mem) − τ(2-Gen)                       the wait of a run on K chains; NaN: not over at its end
    Δτ = A (K*₂ − K)^−γ                              it diverges at K*₂
    γ = 2:  Δτ^(−1/2) = s (K*₂ − K)                  a straight line, whose zero is K*₂

or, for models trained to the end: the K at which the distance from 2-Mem, in units of the distance between
2-Mem and 2-Gen, rises over a level. Source: Gibson, Cui & Reddy 2026 (https://arxiv.org/abs/2604.12151).
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from iclkit.phases import crossing, median_time
from iclkit.race import asked

RATIO = 0.5
NEARER = 1 / 1.2  # the margin by which a phase is named
FURTHEST = 100.0  # K*₂ is looked for up to this many times the largest K


class Waits(NamedTuple):
    """When each run had reached 2-Gen (or, off the plateau, 2-Mem) and 2-Mem; NaN for one that had not."""

    generalised: np.ndarray
    memorised: np.ndarray

    @property
    def wait(self) -> np.ndarray:
        """Δτ: from the one to the other, NaN for censored runs."""
        return np.asarray(self.memorised - self.generalised)


def waits(steps, distances, ratio: float = NEARER) -> Waits:
    """Both times of each run of `distances` [… step 2 5], on training chains.

    Generalised: off the plateau, as `race.asked` has it, whichever of 2-Gen and 2-Mem is nearer.
    Memorised: the distance from 2-Mem is `ratio` times that from 2-Gen or less, and stays so. Raises
    `ValueError` for other axes and for distances or a ratio that are not above 0.
    """
    distances = np.asarray(distances, float)
    if distances.shape[-2:] != (2, 5) or not (distances[..., 0, :4] > 0).all() or not ratio > 0:
        raise ValueError(
            "expected distances [… step 2 5] and a ratio, above 0; "
            f"got {list(distances.shape)}, least {distances.min(initial=np.inf):g}, and {ratio}"
        )
    two_gen, two_mem = distances[..., 0, 1], distances[..., 0, 3]
    memorised = crossing(steps, np.log(two_mem / two_gen), np.log(ratio), for_good=True)
    return Waits(asked(steps, distances).step, memorised)


def medians(K, wait) -> tuple[np.ndarray, np.ndarray]:
    """Each K once, and the median wait of its runs, where that is known and positive.

    A censored run, NaN, waits longer than any other; a K at which half of the runs are censored is left out,
    and so is one at which the median run memorises at once. Raises `ValueError` where K and waits do not fit.
    """
    K, wait = _runs(K, wait)
    each = np.unique(K)
    middle = np.array([median_time(wait[K == k]) for k in each])
    there = np.nan_to_num(middle, nan=-1) > 0
    return each[there], middle[there]


def _runs(K, wait) -> tuple[np.ndarray, np.ndarray]:
    """K and wait of each run, as two lists of one length."""
    K, wait = np.asarray(K, float), np.asarray(wait, float)
    try:
        K, wait = (np.ravel(each) for each in np.broadcast_arrays(K, wait))
    except ValueError:
        raise ValueError(
            f"expected K and a wait for each run; got {list(K.shape)} and {list(wait.shape)}"
        ) from None
    if not ((K > 0) & np.isfinite(K)).all():
        raise ValueError(f"K are numbers of chains, above 0; got {K}")
    return K, wait


def by_line(K, wait) -> tuple[float, float]:
    """K*₂ and s of the least-squares line Δτ^(−1/2) = s (K*₂ − K) through the `medians`.

    (NaN, NaN) with fewer than three K, or for a line that does not fall.
    """
    K, wait = medians(K, wait)
    if len(K) < 3:
        return np.nan, np.nan
    slope, at_zero = np.polyfit(K, wait**-0.5, 1)
    return (float(-at_zero / slope), float(-slope)) if slope < 0 else (np.nan, np.nan)


class Law(NamedTuple):
    """Δτ = A (K*₂ − K)^−γ: exponent, threshold, and the mean squared error of log Δτ."""

    gamma: float
    threshold: float
    error: float


def by_power(K, wait) -> Law:
    """The power law of least squares in log Δτ through the `medians`.

    K*₂ lies above every K with a wait, at most FURTHEST times the largest. At the far end the law
    is an exponential in K, and γ says nothing. NaN with fewer than four K.
    """
    K, wait = medians(K, wait)
    if len(K) < 4:
        return Law(np.nan, np.nan, np.nan)
    found, y = [], np.log(wait)
    for threshold in K.max() * (1 + np.geomspace(0.01, FURTHEST - 1, 200)):
        x = np.log(threshold - K)
        slope, offset = np.polyfit(x, y, 1)
        found.append(Law(float(-slope), float(threshold), float(((y - slope * x - offset) ** 2).mean())))
    return min(found, key=lambda law: law.error)


def bootstrap(fit, K, wait, draws: int = 500, seed: int = 0) -> np.ndarray:
    """`fit(K, wait)` of `draws` samples: runs drawn anew, with replacement, among those of the same K."""
    (K, wait), random = _runs(K, wait), np.random.default_rng(seed)
    if draws < 1 or not len(K):
        raise ValueError(f"expected draws ≥ 1 of at least one run; got {draws} of {len(K)}")
    groups = [np.flatnonzero(K == each) for each in np.unique(K)]
    samples = [np.concatenate([random.choice(g, len(g)) for g in groups]) for _ in range(draws)]
    return np.array([fit(K[sample], wait[sample]) for sample in samples])


def reached(K, distances, apart, ratio: float = RATIO) -> Float[np.ndarray, "*sizes"]:
    """K*₂ of trained models, `distances` [… K 2 5] and `apart` [… K 2 5 5]: where 2-Mem is no longer reached.

    The first K at which KL(2-Mem ‖ model) > `ratio` · KL(2-Mem ‖ 2-Gen) on training chains, between two K on
    a straight line over log K; NaN where that never happens, the smallest K where it happens at once.
    """
    share, (K, _) = memory_gap(distances, apart), _runs(K, 0)
    return np.exp(crossing(np.log(K), -share, -ratio))


def memory_gap(distances, apart) -> np.ndarray:
    """KL(2-Mem ‖ model) / KL(2-Mem ‖ 2-Gen) on training chains: 0 holds all chains, 1 is as far as 2-Gen."""
    distances, apart = np.asarray(distances), np.asarray(apart)
    if distances.shape[-2:] != (2, 5) or apart.shape[-3:] != (2, 5, 5):
        raise ValueError(
            "expected distances [… 2 5] and apart [… 2 5 5], as Distances give them; "
            f"got {list(distances.shape)} and {list(apart.shape)}"
        )
    if not (apart[..., 0, 3, 1] > 0).all():
        raise ValueError("2-Mem and 2-Gen must be apart on training chains; got a distance of 0 or NaN")
    return distances[..., 0, 3] / apart[..., 0, 3, 1]
