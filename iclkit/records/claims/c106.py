"""Claim of chapter 106."""

import numpy as np

from iclkit.records.claims import VERDICTS, Measured, claim

DROP = 0.1


@claim(
    "I7",
    finding="Where it breaks: two continuations, repeats inside a period, periods never trained",
    chapter="106",
    theirs="as stated",
    unit="accuracy with two continuations, either one right by a coin",
    records=["breaks_106"],
)
def i7(record):
    periods, sweep = record["periods"], record["varied.period_sweep"][:, 0, :, 0]
    inside = (periods >= 12) & (periods <= 31)
    level = sweep[:, inside].mean(1)
    once, two = record["varied.two_once"], record["varied.two_accuracy"]
    run, bigram = record["varied.run_exit"], record["varied.bigram_after_b"].mean(1)
    short, long = sweep[:, periods < 8].mean(1), sweep[:, periods > 31].mean(1)
    single, multiple = record["fixed.period_sweep"][:, 0, :, 0], periods % 21 == 0
    broken = {
        f"two continuations ({two.mean():.2f} against {once.mean():.2f} with one)": two < once - DROP,
        f"a bigram twice ({bigram.mean():.2f})": bigram < record["varied.bigram_after_a"].mean(1) - DROP,
        f"a run of 5 ({run[:, -1].mean():.2f})": run[:, -1] < run[:, 0] - DROP,
        f"periods 2 to 6 ({short.mean():.2f} against {level.mean():.2f})": short < level - DROP,
        f"periods 34 to 58 ({long.mean():.2f})": long < level - DROP,
        f"other periods after training on 21 alone ({single[:, ~multiple].mean():.2f})": single[
            :, ~multiple
        ].max(1)
        < single[:, periods == 21].min(1) - DROP,
    }
    holds = {what: bool(np.all(seeds)) for what, seeds in broken.items()}
    verdict = VERDICTS[0] if all(holds.values()) else VERDICTS[1] if any(holds.values()) else VERDICTS[2]
    repaired = min(record[f"varied.{name}_sweep"][:, 3, :, 0].min() for name in ("period", "start"))
    why = f"in every seed accuracy drops by more than {DROP} for " + ", ".join(
        w for w, h in holds.items() if h
    )
    if kept := [what for what, held in holds.items() if not held]:
        why += "; not for " + ", ".join(kept) + ": in a window of 64 they need early keys alone"
    why += f"; with positions repaired, no period and no start falls below {repaired:.2f}"
    return Measured(float(np.median(two)), float(two.min()), float(two.max()), len(two), verdict, why)
