"""Claims of chapter 206: the wait for 2-Mem and where it ends; what sets the capacity of a minimal head."""

import numpy as np

from iclkit.minimal.capacity import bootstrap, by_line, by_power, medians, memory_gap, reached, waits
from iclkit.records.claims import VERDICTS, Measured, claim

INTERVAL = (0.05, 0.95)
AROUND_TWO = (1.0, 3.0)
GENERAL = 0.02


@claim(
    "M8",
    finding="K*₂ is capacity: the wait from 2-Gen to 2-Mem diverges as (K*₂ − K)^−γ",
    chapter="206",
    theirs="γ ≈ 2, K*₂ ≈ 7000 at C = 10, D = 64",
    unit="K*₂: zero of the line through Δτ^(−1/2), median runs; 90 % interval over runs",
    records=["thresholds_205"],
)
def m8(record):
    """Reproduced when the exponent's interval lies within AROUND_TWO; partly when it does not, but the median
    wait rises with K, the line has a zero, and above the interval of that zero every run is censored."""
    K, found = record["K"], waits(record["steps"], record["distances"])
    zero, _ = by_line(K, found.wait)
    low, high = np.nanquantile(bootstrap(by_line, K, found.wait)[:, 0], INTERVAL)
    law = by_power(K, found.wait)
    gammas = bootstrap(by_power, K, found.wait, draws=200)[:, 0]
    least, most = np.nanquantile(gammas, INTERVAL) if np.isfinite(gammas).any() else (np.nan, np.nan)
    known, middle = medians(K, found.wait)
    censored = np.isnan(found.wait)
    rises = bool((np.diff(middle) > 0).all()) and np.isfinite(zero)
    beyond = bool(censored[high < K].all() and (high < K).any())
    identified = AROUND_TWO[0] <= least and most <= AROUND_TWO[1]
    verdict = VERDICTS[0] if identified and rises else VERDICTS[1] if rises and beyond else VERDICTS[2]
    larger = K > K.min()
    further, _ = by_line(K[larger], found.wait[larger])
    listed = ", ".join(f"{m:.0f} at K = {k:.0f}" for k, m in zip(known, middle))
    why = (
        f"the median wait is {listed} updates; {censored[high < K].sum()} of {(high < K).sum()} runs above "
        f"K = {high:.0f} are censored at {record['steps'][-1]}; the exponent is not identified "
        f"(best {law.gamma:.0f}, {least:.1f} to {most:.0f}: a power law and an exponential fit alike), "
        f"because waits of one K differ between seeds as much as the medians of neighbouring K; at the smallest "
        f"K no run is clearly in 2-Gen first, and without it the line's zero is at {further:.0f}"
    )
    if identified:
        why = f"γ = {law.gamma:.1f} ({least:.1f} to {most:.1f}); the median wait is {listed} updates"
    return Measured(zero, float(low), float(high), seeds_of(record), verdict, why)


def seeds_of(record) -> int:
    """The fewest runs that a K has."""
    return int(min((record["K"] == K).sum() for K in np.unique(record["K"])))


@claim(
    "M9",
    finding="A minimal task-recognition head: K*₂ set by D_φ and the decoder; with room it generalises",
    chapter="206",
    theirs="as stated",
    unit="K*₂ of the largest head over K*₂ of the smallest",
    records=["recognition_206"],
)
def m9(record):
    """Holds for a seed when K*₂ rises with D_φ at the widest decoder and with the decoder at the largest D_φ,
    and the largest head, on the most chains, is within GENERAL nats of 2-Gen on fresh chains. Without the
    last, or with one of the two alone, it does not count for that seed."""
    distances, apart = record["distances"], record["apart"]
    limits = limits_of(record)
    by_phi = limits[:, -1, -1] > limits[:, 0, -1]
    by_decoder = limits[:, -1, -1] > limits[:, -1, 0]
    fresh = distances[:, -1, -1, -1, 1, 1]
    few = np.nanmedian(memory_gap(distances, apart[:, None, None])[:, -1, -1, 0])
    gain = limits[:, -1, -1] / limits[:, 0, 0]
    why = (
        f"K*₂, where the gap to 2-Mem passes ½: smallest head {spread(limits[:, 0, 0])}, D_φ alone "
        f"{spread(limits[:, -1, 0])}, decoder alone {spread(limits[:, 0, -1])}, both "
        f"{spread(limits[:, -1, -1])}; the largest head on {record['K'][0]} chains leaves a gap of "
        f"{few:.2f}; on {record['K'][-1]} chains it is {spread(fresh, 3)} nats from 2-Gen on fresh ones; "
        f"K*₂ against d_model in the transformer was not run"
    )
    return Measured.over(gain, by_phi & by_decoder & (fresh < GENERAL), why)


def limits_of(record):
    """K*₂ [seed d_phi d_mlp]; a head that holds all chains that were tried has the largest K."""
    apart = np.broadcast_to(record["apart"][:, None, None], (*record["distances"].shape[:4], 2, 5, 5))
    found = reached(record["K"], record["distances"], apart)
    return np.where(np.isnan(found), record["K"][-1], found)


def spread(values, digits: int = 0) -> str:
    """Lowest to highest, as text."""
    return f"{values.min():.{digits}f} to {values.max():.{digits}f}"
