"""Claims of chapter 205."""

import numpy as np

from iclkit.phases import crossing, median_time
from iclkit.race import CLOSE, asked, outcomes, threshold
from iclkit.records.claims import VERDICTS, Measured, claim

HARDLY, STEADILY = 0.5, 1.0  # exponents of K in the two times
FALLING = 24  # up to here the lean falls with log K; beyond, it levels off
EMPTY = 0.25  # two groups leave at most this share of the runs near the border undecided


def times(record) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of each run: when it left the plateau, its lean there, and when 2-Mem was the nearer for good."""
    steps, d = record["steps"], record["distances"][..., 0, :].astype(float)
    when, lean = asked(steps, record["distances"])
    return when, lean, np.maximum(crossing(steps, d[..., 3], d[..., 1], for_good=True), when)


def by_K(K, values) -> tuple[np.ndarray, np.ndarray]:
    """Each K with the median of its runs, censored runs being later than all others."""
    many = np.unique(K)
    return many, np.array([median_time(values[K == k]) for k in many])


def exponent(many, medians) -> float:
    """The p of τ ~ K^p by least squares, over the K whose median is known."""
    there = np.isfinite(medians)
    return float(np.polyfit(np.log(many[there]), np.log(medians[there]), 1)[0])


@claim(
    "M6",
    finding="K*₁ is a race: τ(2-Gen) hardly depends on K, memorising slows with K, seeds are bimodal at K*₁",
    chapter="205",
    theirs="as stated; K*₁ ≈ 94 (C=10, D=64)",
    unit="K*₁ (C=3, width 16), read as a run leaves the plateau",
    records=["thresholds_205"],
)
def m6(record):
    K, seed = record["K"], record["seed"]
    when, lean, memorised = times(record)
    falling = K <= FALLING
    border = float(threshold(K[falling], lean[falling]))
    mine = [falling & (seed == s) for s in range(4)]
    each = np.array([threshold(K[runs], lean[runs]) for runs in mine])
    first = np.where(lean < 0, when, np.nan)
    enough = [k for k in np.unique(K) if (lean[K == k] < 0).sum() >= 3]
    gen = exponent(np.array(enough), np.array([np.nanmedian(first[K == k]) for k in enough]))
    mem = exponent(*by_K(K, memorised))
    near = np.isin(K, [k for k in np.unique(K) if abs(np.log(k / border)) < 0.25])
    said = outcomes(lean[near])
    undecided = said.count("undecided") / len(said)
    race, two_groups = gen < HARDLY and mem > STEADILY, undecided <= EMPTY
    verdict = VERDICTS[0] if race and two_groups else VERDICTS[1] if race else VERDICTS[2]
    why = (
        f"τ(2-Gen) ~ K^{gen:.1f} and τ(2-Mem) ~ K^{mem:.1f} (the rule asks for exponents below {HARDLY} and "
        f"above {STEADILY}); of {len(said)} runs near the border {said.count('2-Gen')} generalise first, "
        f"{said.count('2-Mem')} memorise first and {said.count('undecided')} are within {CLOSE} of even: "
        f"{'two groups' if two_groups else 'one group, not two'}"
    )
    return Measured(border, float(np.nanmin(each)), float(np.nanmax(each)), len(set(seed)), verdict, why)


MOVED = 1.25  # K*₁ has moved when it changed by this factor


def moved(slowed, plain, variant: str) -> tuple[np.ndarray, np.ndarray, float]:
    """Each seed's K*₁ without and with the intervention, from the same K, and how much later runs are."""
    many, K, seed = slowed[f"{variant}/K"], plain["K"], plain["seed"]
    found, before = (
        asked(slowed["steps"], slowed[f"{variant}/distances"]),
        asked(plain["steps"], plain["distances"]),
    )
    rows = [[int(((K == k) & (seed == s)).argmax()) for k in many] for s in range(len(found.lean))]
    later = float(np.nanmedian(found.step / before.step[rows]))
    return threshold(many, before.lean[rows]), threshold(many, found.lean), later


@claim(
    "M7",
    finding="The race can be fixed: K*₁ moves up when 2-Gen is slowed, and when the task is told",
    chapter="205",
    theirs="up in both",
    unit="K*₁ with the step back slowed / K*₁ without",
    records=["slowed_205", "thresholds_205"],
)
def m7(slowed, plain):
    before, after, later = moved(slowed, plain, "slow-0.5")
    ratio = after / before
    up = ratio > MOVED
    why = (
        "with layer 0's W_Q, W_K and W_pos at half the rate all runs, memorising ones too, leave the plateau "
        f"{later:.1f} times as late; K*₁ moves up by a factor of {MOVED} or more in {up.sum()} of {len(up)} "
        "seeds. One dose, few seeds; task injection is not measured"
    )
    verdict = VERDICTS[1] if up.all() else VERDICTS[2]
    return Measured(float(np.median(ratio)), float(ratio.min()), float(ratio.max()), len(ratio), verdict, why)
