"""Claims of chapter 205."""

from typing import NamedTuple

import numpy as np

from iclkit.phases import crossing, median_time
from iclkit.race import CLOSE, Asked, asked, outcomes, threshold
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
    """The p of τ ~ K^p by least squares, over the K whose median is known; NaN with fewer than two."""
    there = np.isfinite(medians)
    if there.sum() < 2:
        return np.nan
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
    undecided = said.count("undecided") / max(len(said), 1)
    race, two_groups = gen < HARDLY and mem > STEADILY, bool(said) and undecided <= EMPTY
    verdict = VERDICTS[0] if race and two_groups else VERDICTS[1] if race else VERDICTS[2]
    why = (
        f"τ(2-Gen) ~ K^{gen:.1f} and τ(2-Mem) ~ K^{mem:.1f} (the rule asks for exponents below {HARDLY} and "
        f"above {STEADILY}); of {len(said)} runs near the border {said.count('2-Gen')} generalise first, "
        f"{said.count('2-Mem')} memorise first and {said.count('undecided')} are within {CLOSE} of even: "
        f"{'two groups' if two_groups else 'one group, not two'}"
    )
    return Measured(border, float(np.nanmin(each)), float(np.nanmax(each)), len(set(seed)), verdict, why)


MOVED = 1.25  # K*₁ has moved when it changed by this factor


class Moved(NamedTuple):
    """What an intervention does: K*₁ without and with it [seed], and how much later runs are asked."""

    before: np.ndarray
    after: np.ndarray
    later: float

    @property
    def ratio(self) -> np.ndarray:
        """K*₁ with the intervention over K*₁ without, of the seeds that have both."""
        ratio = self.after / self.before
        return ratio[np.isfinite(ratio)]

    def told(self) -> str:
        """The outcome in words."""
        ratio, lost = self.ratio, int(np.isnan(self.after / self.before).sum())
        low, high = (ratio.min(), ratio.max()) if len(ratio) else (np.nan, np.nan)
        return f"K*₁ changes by factors of {low:.2f} to {high:.2f}" + (
            f" ({lost} of {len(self.before)} seeds have no border to compare)" if lost else ""
        )


def slowed_by(slowed, plain, variant: str = "slow-0.5") -> Moved:
    """The race with layer 0's step back slowed, against the same runs without, from the same K."""
    many, K, seed = slowed[f"{variant}/K"], plain["K"], plain["seed"]
    found = asked(slowed["steps"], slowed[f"{variant}/distances"])
    before = asked(plain["steps"], plain["distances"])
    rows = [[int(((K == k) & (seed == s)).argmax()) for k in many] for s in range(len(found.lean))]
    return moved(many, Asked(before.step[rows], before.lean[rows]), found)


def told_by(record, variant: str = "told-2") -> Moved:
    """The race with the task told in training, against its control, both asked untold."""
    found, control = (asked(record["steps"], record[f"{name}/distances"]) for name in (variant, "told-0"))
    return moved(record[f"{variant}/K"], control, found)


def moved(many, before: Asked, after: Asked) -> Moved:
    """Borders of each seed, and the median of how much later its runs leave the plateau."""
    later = float(np.nanmedian(after.step / before.step))
    return Moved(threshold(many, before.lean), threshold(many, after.lean), later)


@claim(
    "M7",
    finding="The race can be fixed: K*₁ moves up when 2-Gen is slowed, and when the task is told",
    chapter="205",
    theirs="up in both",
    unit="K*₁ with the step back slowed / K*₁ without",
    records=["slowed_205", "thresholds_205", "told_205"],
)
def m7(slowed, plain, told):
    slow, tell = slowed_by(slowed, plain), told_by(told)
    up = [len(each.ratio) > 0 and bool((each.ratio > MOVED).all()) for each in (slow, tell)]
    why = (
        "with layer 0's W_Q, W_K and W_pos at half the rate all runs, memorising ones too, leave the plateau "
        f"{slow.later:.1f} times as late; {slow.told()}. Told the task, with a gain that fades, and asked "
        f"untold, they leave it {tell.later:.1f} times as late; {tell.told()}. Up means by a factor of "
        f"{MOVED} or more in every seed with a border. One dose of each"
    )
    ratio = slow.ratio
    verdict = VERDICTS[0] if all(up) else VERDICTS[1] if any(up) else VERDICTS[2]
    return Measured(
        float(np.median(ratio)), float(ratio.min()), float(ratio.max()), len(slow.before), verdict, why
    )
