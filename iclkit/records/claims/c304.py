"""Claim of chapter 304: what CIWL leaves behind makes ICL easier to learn, if it is not too old."""

from typing import NamedTuple

import numpy as np

from iclkit.phases import first_time
from iclkit.records.claims import VERDICTS, Measured, claim

LEARNED = 0.75  # accuracy on ICL, at two looks in a row
SOONER = 0.5  # given: at most this share of the learning that ICL takes from scratch
LATER = 2.0  # age matters: another donor needs at least this many times as much as the best
HIGHER = 0.05  # start: highest Flip above that of the ordinary run by so much
NEVER = 0.5  # blocked: Flip does not rise above chance at any look


def learning(updates, warmup: int):
    """Updates counted by their rate, while it warms up and after: t² / (2 warmup), then t − warmup / 2."""
    warm = np.minimum(updates, warmup)
    return updates - warm + (warm**2 / (2 * warmup) if warmup else 0.0)


def needed(record, warmup: int) -> np.ndarray:
    """The learning until ICL is there, [age seed]; infinite where it never is."""
    icl = np.asarray(record["given_accuracy"], float)[..., 1]
    when = first_time(record["given_steps"], icl >= LEARNED, lasting=2)
    return learning(np.nan_to_num(when, nan=np.inf), warmup)


class Found(NamedTuple):
    """Per seed: whether ICL comes from scratch, and with the best donor's half; the share of the learning from
    scratch that this half leaves (runs without ICL count as their length); whether each part of the claim
    holds. The best donor's age and the best start's are one for all seeds."""

    scratch: np.ndarray
    comes: np.ndarray
    share: np.ndarray
    given: np.ndarray
    age: np.ndarray
    short: np.ndarray
    long: np.ndarray
    best: int
    start: int


def found(record) -> Found:
    """What `starts_304` says of each part. The best donor has the smallest median, and of equal ones the most
    seeds with ICL; the best start has the highest median of the highest Flip."""
    (warmup,) = {config["training"]["warmup"] for config in record.meta["config"]}
    ages, took = np.asarray(record["age"]), needed(record, warmup)
    order = [(np.median(row), np.isinf(row).sum()) for row in took[1:]]
    best = 1 + order.index(min(order))
    scratch, given = np.minimum(took[[0, best]], learning(float(record["given_steps"][-1]), warmup))
    worst = np.delete(took[1:], best - 1, 0).max(0)
    flip = np.asarray(record["start_accuracy"], float)[..., 2].max(2)
    start = 1 + int(np.argmax(np.median(flip[1:], 1)))
    return Found(
        np.isfinite(took[0]),
        np.isfinite(took[best]),
        given / scratch,
        took[best] <= SOONER * scratch,
        np.isfinite(took[best]) & (worst >= LATER * took[best]),
        flip[start] >= flip[0] + HIGHER,
        flip[-1] <= NEVER,
        int(ages[best]),
        int(ages[start]),
    )


@claim(
    "C7",
    finding="Cooperation: given CIWL's second half, ICL is learned at once; a short CIWL-only start helps, a "
    "long one blocks",
    chapter="304",
    theirs="from scratch stuck at ≈ .8; donors of 9.8–31.5 M sequences work; a start of ≤ 6 M helps",
    unit="learning until ICL with the best donor's half, share of that from scratch (at most)",
    records=["starts_304"],
)
def c7(record):
    """Four parts, each counted by seeds: the best donor's half brings ICL with SOONER of the learning from
    scratch; some other donor's needs LATER times as much or fails; the best start lifts the highest Flip by
    HIGHER; the longest keeps Flip at chance or below. Reproduced when all hold in all seeds; partly when
    one of the two that are cooperation, the first or the third, holds in most."""
    parts = found(record)
    counts = {name: int(getattr(parts, name).sum()) for name in ("given", "age", "short", "long")}
    seeds, helps = len(parts.share), max(counts["given"], counts["short"])
    whole = all(count == seeds for count in counts.values())
    verdict = VERDICTS[0] if whole else VERDICTS[1] if 2 * helps > seeds else VERDICTS[2]
    why = (
        f"of {seeds} seeds: from scratch ICL comes in {parts.scratch.sum()}; with the half of a donor of "
        f"{parts.best:,} updates in {parts.comes.sum()}, and within {SOONER:g} of the learning from scratch "
        f"in {counts['given']}; with another donor's it needs {LATER:g} times "
        f"as much or never comes in {counts['age']}; a start of {parts.start:,} updates lifts the highest "
        f"Flip by {HIGHER:g} in {counts['short']}; after the longest, Flip is never above {NEVER:g} in "
        f"{counts['long']}"
    )
    ours, low, high = (float(of(parts.share)) for of in (np.median, np.min, np.max))
    return Measured(ours, low, high, seeds, verdict, why)
