"""Claims of chapter 104."""

import numpy as np

from iclkit.circuits.formation import LEAST, formed_at, window
from iclkit.records.claims import Measured, claim

FASTER = 3


@claim(
    "I3",
    finding="Induction heads form abruptly: prefix matching, copying and ICL score move in one window",
    chapter="104",
    theirs="window ≈ 1–2 % of training, > .75 of the ICL score's change in it",
    unit="share of the ICL score's change inside the window of prefix matching",
    records=["part1_models"],
)
def i3(record):
    steps = record["2L/steps"]
    prefix, copying = record["2L/prefix"][:, :, 1, 0], record["2L/copying"][:, :, 1, 0]
    icl, loss, misled = record["2L/icl"], record["2L/loss"], record["2L/by_kind"][:, :, 2]
    share, good, widths = [], [], []
    for seed in range(len(icl)):
        inside = window(steps, prefix[seed])
        scores = prefix[seed], copying[seed], icl[seed]
        share.append(change_inside(steps, icl[seed], inside))
        widths.append(inside.width)
        good.append(
            formed_at(steps, prefix[seed]) is not None
            and all(speed_up(steps, score, inside) > FASTER for score in scores)
            and bulge(steps, loss[seed], inside) > FASTER
            and change_inside(steps, misled[seed], inside, relative=False) > 0
        )
    why = (
        f"inside the window each of the three scores moves more than {FASTER} times as fast as outside it, "
        f"the loss falls more than {FASTER} times as fast as just before it, and tokens that looking up "
        f"misleads get worse; the window is {min(widths):.0f} to {max(widths):.0f} of {steps[-1]:.0f} steps wide and "
        f"holds {min(share):.2f} to {max(share):.2f} of the change of the ICL score, less than theirs: ours drifts "
        "before it and improves after it"
    )
    return Measured.over(share, good, why)


@claim(
    "I4",
    finding="One layer never forms one; one layer with smeared keys does",
    chapter="104",
    theirs="as stated",
    unit="final prefix matching of one layer",
    records=["part1_models"],
)
def i4(record):
    best = {v: record[f"{v}/prefix"].max((2, 3)) for v in ("1L", "1L-smeared", "2L")}
    steps = record["2L/steps"]
    formed = {v: np.array([formed_at(steps, curve) is not None for curve in best[v]]) for v in best}
    end = {v: best[v][:, -1] for v in best}
    return Measured.over(
        end["1L"],
        good=~formed["1L"] & formed["1L-smeared"] & formed["2L"],
        why=(
            f"on the same data, prefix matching of one layer stays below {LEAST} and ends at most at "
            f"{end['1L'].max():.2f}; with smeared keys it ends at {end['1L-smeared'].min():.2f} or more, "
            f"with two layers at {end['2L'].min():.2f} or more"
        ),
    )


def change_inside(steps, score, inside, relative: bool = True) -> float:
    """The change of a score within a window, by default as a share of its change from start to end."""
    begin, end = (np.flatnonzero(steps == step)[0] for step in inside)
    change = score[end] - score[begin]
    return float(change / (score[-1] - score[0]) if relative else change)


def speed_up(steps, score, inside) -> float:
    """How many times as fast a score moves within a window as on average outside it."""
    share = change_inside(steps, score, inside)
    time = inside.width / (steps[-1] - steps[0])
    return (share / time) / max((1 - share) / (1 - time), 1e-9)


def bulge(steps, loss, inside) -> float:
    """The steepest fall of the loss within a window against its fall just before; above 1: not convex."""
    begin, end = (np.flatnonzero(steps == step)[0] for step in inside)
    smooth = np.convolve(loss, np.ones(3) / 3, "valid")  # entry i is centred on measurement i + 1
    fall = -np.diff(smooth)
    return float(fall[begin - 1 : end].max() / fall[max(begin - 6, 0) : begin - 1].mean())
