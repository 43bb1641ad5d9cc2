"""Claims of chapter 303."""

from typing import NamedTuple

import numpy as np

from iclkit.records.claims import VERDICTS, Measured, claim
from iclkit.records.recipes.grafts_303 import EVALUATORS, PATHS, PEAK

FLIP, ICL = EVALUATORS.index("Flip"), EVALUATORS.index("ICL")
BEFORE = 2000  # updates: little more is learned than "one of the two labels"
RISEN, LOST = 0.2, 0.75  # induction rises above the one, and ends below this share of its maximum
HALF = 0.5  # of the seeds, as in `Measured.over`, for a claim that holds partly
CLOSE = 0.15  # a graft follows the run: Flip within this of the run's own, wherever the first half is from
FLAT = 0.25  # a frozen first half: Flip moves by at most this share of what the run itself loses
LETS_GO = 0.75  # previous-token attention ends below this share of its maximum


class Strength(NamedTuple):
    """Layer 1's induction strength, mean over heads: its maximum over training and its end, `[seed]`."""

    top: np.ndarray
    end: np.ndarray


class Grafts(NamedTuple):
    """`follows` [seed]: the largest distance in Flip from the run itself, its last second half on all first
    halves; `moves` [seed]: how far Flip goes with the peak's first half on later second halves, as a share of
    the run's own loss."""

    follows: np.ndarray
    moves: np.ndarray


def strength(induction) -> Strength:
    """From `induction` [seed step head]; the end is the mean of the last three looks."""
    mean = induction.mean(2)
    return Strength(mean.max(1), mean[:, -3:].mean(1))


def grafted(stages, accuracy) -> Grafts:
    """From `accuracy` [seed first second evaluator], first halves on later second halves."""
    flip, peak = accuracy[..., FLIP], list(stages).index(PEAK)
    own = flip.diagonal(axis1=1, axis2=2)
    frozen = np.abs(flip[:, peak, peak:] - flip[:, peak, [peak]]).max(1)
    lost = np.maximum(own[:, peak] - own[:, -1], 1e-9)
    return Grafts(np.abs(flip[:, :, -1] - own).max(1), frozen / lost)


@claim(
    "C5",
    finding="Induction strength rises, then turns negative; layer 2 stays, layer 1 switches",
    chapter="303",
    theirs="+.3 → −.5; grafts reproduce the curves",
    unit="induction strength of layer 1 on Flip at the end, mean over heads",
    records=["coopetition_301", "grafts_303"],
)
def c5(record, grafts):
    top, end = strength(record["induction"])
    follows, moves = grafted(grafts["stages"], grafts["accuracy"])
    wave, negative = (top > RISEN) & (end < LOST * top), end < 0
    held = (follows < CLOSE) & (moves < FLAT)
    full = bool((wave & negative).all() and held.all())
    verdict = VERDICTS[0] if full else VERDICTS[1] if held.all() and (top > RISEN).mean() >= HALF else VERDICTS[2]
    why = (
        f"induction strength rises to {top.min():+.2f} … {top.max():+.2f} and ends at {end.min():+.2f} … "
        f"{end.max():+.2f}: falls by a quarter in {wave.sum()}, below zero in {negative.sum()} of {len(top)} "
        f"seeds. Flip of all first halves on the last second half is within {follows.max():.2f} of the run's "
        f"own; with the peak's first half it moves by at most {moves.max():.0%} of the run's loss: grafts "
        f"hold in {held.sum()} of {len(held)} seeds"
    )
    return Measured(float(np.median(end)), float(end.min()), float(end.max()), len(top), verdict, why)


class Previous(NamedTuple):
    """Of the strongest previous-token head of layer 0, `[seed]`: its attention to the exemplar before at 2000
    updates, at its maximum from there on and at the end; and to the label itself at the two last."""

    begin: np.ndarray
    top: np.ndarray
    end: np.ndarray
    self_top: np.ndarray
    self_end: np.ndarray


def strongest(steps, previous, itself) -> Previous:
    """From `previous` and `itself` [seed step head]."""
    seeds, begin = np.arange(len(previous)), int((np.asarray(steps) >= BEFORE).argmax())
    previous, itself = previous[:, begin:], itself[:, begin:]
    head = previous.max(1).argmax(1)
    before, alone = previous[seeds, :, head], itself[seeds, :, head]
    top, ends = before.argmax(1), [values[:, -3:].mean(1) for values in (before, alone)]
    return Previous(before[:, 0], before.max(1), ends[0], alone[seeds, top], ends[1])


@claim(
    "C6",
    finding="Layer 1 moves from the previous token to itself",
    chapter="303",
    theirs=".09 → .23 → .10 in one head: mild",
    unit="previous-token attention of the strongest head, end / maximum",
    records=["coopetition_301", "grafts_303"],
)
def c6(record, grafts):
    found = strongest(record["steps"], record["previous"], record["itself"])
    share = found.end / found.top
    icl = dict(zip(PATHS, grafts["paths"][:, -1, :, ICL].mean(0)))  # at the end
    why = (
        f"previous-token attention rises from {found.begin.min():.2f} … {found.begin.max():.2f} to "
        f"{found.top.min():.2f} … {found.top.max():.2f} and ends at {found.end.min():.2f} … "
        f"{found.end.max():.2f}; letting go means an end below {LETS_GO:.0%} of the maximum and more "
        f"attention to itself. At the end ICL falls from {icl['whole']:.2f} to "
        f"{icl['L0 → K']:.2f} without layer 0 in layer 1's keys"
    )
    return Measured.over(share, good=(share < LETS_GO) & (found.self_end > found.self_top), why=why)
