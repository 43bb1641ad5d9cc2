"""Claims of chapter 202."""

import numpy as np

from iclkit import phases, race
from iclkit.predictors import PHASES, UNDECIDED
from iclkit.records.claims import Measured, claim

FEW, MOST = 4, 64  # chains: up to FEW a network memorises at once, from MOST on it generalises first
LEAST = 0.005  # nats by which a loss must rise again to have turned


@claim(
    "M2",
    finding="Four phases over data diversity K and training time t",
    chapter="202",
    theirs="K*1 ≈ 94, K*2 ≈ 7,000 (C = 10, width 64)",
    unit="K*1: 2-Gen and 2-Mem equally near when a run leaves the plateau",
    records=["phases_202", "phases_paper"],
)
def m2(record, paper):
    """The verdict rests on the map alone; the reason also says where the runs at their size end."""
    K, steps = record["K"], record["steps"]
    names = phases.names(record["distances"], record["apart"])  # [K seed step]
    few, most = names[K <= FEW], names[K >= MOST]
    memorise = (few[..., -1] == "2-Mem").all(0) & ~(few == "2-Gen").any((0, 2))
    start = [phases.first_time(steps, most == name, lasting=2) for name in ("1-Gen", "2-Gen")]
    generalise = (start[0] < start[1]).all(0) & ~(most == "2-Mem").any((0, 2))
    first = np.isfinite(phases.first_time(steps, names == "1-Mem", lasting=2)).any(0)
    lean = race.asked(steps, record["distances"]).lean  # [K seed]
    threshold = np.exp(phases.crossing(np.log(K), lean.T, for_good=True))
    why = (
        f"up to {FEW} chains every run ends in 2-Mem without 2-Gen; from {MOST} on every run is 1-Gen, then "
        f"2-Gen, and never 2-Mem in {steps[-1]:.0f} updates, so K*2 is beyond this map: censored; 1-Mem is "
        f"named in {(names == '1-Mem').sum()} of {names.size} looks, early and at small K, and "
        f"for two looks in a row in {first.sum()} of {len(first)} seeds; "
        f"{(names == UNDECIDED).mean():.0%} of the looks are undecided; K*1 is smaller than theirs with our "
        f"smaller task and network; {at_their_size(paper)}"
    )
    return Measured.over(threshold, memorise & generalise & first & np.isfinite(threshold), why)


def at_their_size(record) -> str:
    """Which K end in which phase at the size of the paper, and how many K of the recipe are missing."""
    ends = phases.names(record["distances"], record["apart"])[:, 0, -1]  # of the one seed
    K = {name: ", ".join(map(str, record["K"][ends == name])) for name in (*PHASES, UNDECIDED)}
    told = "; ".join(f"{name} for K = {many}" for name, many in K.items() if many)
    return (
        f"at their size, one seed, after {record['steps'][-1]:.0f} updates: {told} "
        f"({record.meta.get('missing', 0)} of the recipe's K not run)"
    )


@claim(
    "M11",
    finding="2-Gen is transient between the thresholds: the loss on fresh chains gets worse again",
    chapter="202",
    theirs="as stated",
    unit="rise of the loss on fresh chains after its bottom, nats",
    records=["thresholds_205"],
)
def m11(record):
    steps, training = record["steps"], record["distances"][:, :, 0]
    lean = race.asked(steps, record["distances"]).lean
    change = phases.crossing(steps, training[..., 3] - training[..., 1], for_good=True)
    passed = (np.array(race.outcomes(lean)) == "2-Gen") & np.isfinite(change)
    turns = [phases.turning(steps, loss, LEAST, smooth=5) for loss in record["losses"][..., 1]]
    bottom, rise = (np.array([getattr(turn, part) for turn in turns]) for part in ("step", "rise"))
    if not passed.any():
        why = "no run passed through 2-Gen to 2-Mem within its length"
        return Measured.over(rise, np.zeros(len(rise), bool), why)
    turned, K = np.isfinite(bottom) & passed, record["K"]
    median = np.median(bottom[turned]) if turned.any() else np.nan
    why = (
        f"runs, not seeds: those of K = {K[passed].min()} to {K[passed].max()} that left the plateau clearly "
        f"nearer to 2-Gen and ended nearer to 2-Mem on training chains; the loss on fresh chains has a "
        f"bottom, at step {median:.0f} in the median, from which it rises by at least {LEAST} nats"
    )
    return Measured.over(rise[passed], turned[passed], why)
