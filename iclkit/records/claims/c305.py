"""Claims of chapter 305: a toy of two products rises and falls like the network."""

import numpy as np

from iclkit.minimal.coopetition import Times, outcomes
from iclkit.phases import crossing
from iclkit.records.claims import VERDICTS, Measured, claim

FALLS = "ICL rises and falls"
SURE = 0.03  # α and μ₁ from here on act well within the long runs
ONSET = 0.6  # accuracy between two labels at which ICL has started


def times_of(record, what: str) -> Times:
    """The times of a sweep, `map`, `mu2` or `dims`, seed first."""
    return Times(*(record[f"{what}/{name}"] for name in Times._fields))


def default(record) -> Times:
    """The times of the default run, [seed]: α = μ₁ = 0.1."""
    at = [int(np.abs(record[name] - 0.1).argmin()) for name in ("alpha", "mu1")]
    return Times(*(each[:, at[0], at[1]] for each in times_of(record, "map")))


def fates(record, alpha, mu1) -> tuple[int, int]:
    """How many runs, with α and μ₁ in these masks, learned ICL within half of the time, and then lost it."""
    icl, lost, _ = times_of(record, "map")
    early = (icl <= record["long"] / 2) & alpha[:, None] & mu1
    return int(early.sum()), int((early & np.isfinite(lost)).sum())


def interval(k: int, n: int, z: float = 1.96) -> tuple[float, float]:
    """Wilson's 95 % interval for a share of k in n, times n."""
    middle, half = k / n + z**2 / (2 * n), z * np.sqrt(k / n * (1 - k / n) / n + z**2 / (4 * n**2))
    return tuple(float(n * (middle + side * half) / (1 + z**2 / n)) for side in (-1, 1))


@claim(
    "C8",
    finding="A toy model of two tensor products reproduces emergence and transience; μ₁ and α decide",
    chapter="305",
    theirs="10 of 12 seeds",
    unit="seeds of 12 in which ICL rises and falls within 16,000 steps",
    records=["coopetition_305"],
)
def c8(record):
    """Reproduced when at least half of the seeds rise and fall, M1 is always halved before M2, no run loses
    ICL where α or μ₁ is 0, and at least nine in ten lose it where both are SURE or more. Partly when some
    seeds rise and fall, in that order."""
    times, budget = default(record), int(record["steps"][-1])
    said = outcomes(times, budget)
    fell, seeds = int((said == FALLS).sum()), len(said)
    lead = (times.ciwl - times.icl)[np.isfinite(times.ciwl - times.icl) & (times.icl <= budget)]
    alpha, mu1 = record["alpha"], record["mu1"]
    without = [fates(record, alpha == 0, mu1 >= 0), fates(record, alpha > 0, mu1 == 0)]
    learned, lost = fates(record, alpha >= SURE, mu1 >= SURE)
    first = bool(len(lead)) and bool((lead > 0).all())
    decide = all(kept and not gone for kept, gone in without) and lost >= 0.9 * learned > 0
    good = fell >= seeds / 2 and first and decide
    verdict = VERDICTS[0] if good else VERDICTS[1] if fell and first else VERDICTS[2]
    why = (
        f"{fell} of {seeds} seeds rise and fall, {(said == 'stuck').sum()} are still on the plateau, "
        f"{(said == 'ICL held').sum()} have risen too late to fall; M1 is halved before M2 in "
        f"{(lead > 0).sum()} of {len(lead)}, by {np.median(lead) if len(lead) else np.nan:.0f} steps; "
        f"of the runs that learn ICL, {without[0][1]} of {without[0][0]} lose it with α = 0, {without[1][1]} "
        f"of {without[1][0]} with μ₁ = 0, and {lost} of {learned} with both at least {SURE}"
    )
    return Measured(float(fell), *interval(fell, seeds), seeds, verdict, why)


def shape(steps, icl, ciwl) -> dict[str, np.ndarray]:
    """How two losses go, shares of ignorance [seed step]: when each is halved, and the CIWL loss's bump.

    `icl` is the first time; `lost` when it is back for good, at least for the last tenth of the run; `ciwl`
    the time from which it stays low; NaN for never. `bump` is CIWL's highest share from the look before ICL's
    time on, over its share at that look.
    """
    first, low = crossing(steps, icl, 0.5), crossing(steps, ciwl, 0.5, for_good=True)
    back = crossing(steps, -icl, -0.5, for_good=True)
    before = np.maximum(np.searchsorted(steps, np.nan_to_num(first)) - 1, 0)
    at = np.take_along_axis(ciwl, before[:, None], 1)
    high = np.where(np.arange(len(steps)) >= before[:, None], ciwl, 0).max(1)
    return {
        "icl": first,
        "lost": np.where((back > first) & (back <= 0.9 * steps[-1]), back, np.nan),
        "ciwl": low,
        "bump": high / at[:, 0],
    }


def from_onset(network) -> tuple[np.ndarray, np.ndarray]:
    """The losses on ICL and CIWL [seed step] over their values when ICL starts.

    That is the look before the accuracy on ICL, among the labels shown, is first ONSET; the toy's plateau.
    """
    started = network["accuracy"][..., 1] >= ONSET
    at = np.where(started.any(1), np.maximum(started.argmax(1) - 1, 0), -1)
    loss = network["loss"][..., [1, 3]].astype(float)
    shares = loss / loss[np.arange(len(loss)), at][:, None]
    return shares[..., 0], shares[..., 1]


def alike(found) -> np.ndarray:
    """In which seeds ICL is learned, then CIWL, and ICL is lost: the order of the toy model."""
    return (found["icl"] < found["ciwl"]) & np.isfinite(found["lost"])


@claim(
    "C9",
    finding="Toy and transformer side by side: ICL's loss falls first and rises again, CIWL's falls for good",
    chapter="305",
    theirs="figure 5, one run of each",
    unit="share of the transformer's seeds whose two losses go in the toy model's order",
    records=["coopetition_301", "coopetition_305"],
)
def c9(network, toy):
    """Reproduced when both losses of every transformer go in the toy's order, partly when half of them do;
    a loss is low when it is below half of what it was when ICL started, or half of the toy's ignorance."""
    found = shape(network["steps"], *from_onset(network))
    shares = (toy[name] / toy["nothing"][:, [k]] for k, name in enumerate(("M1", "M2")))
    model = shape(toy["steps"], *(share.astype(float) for share in shares))
    held, learned, bumps = alike(found), np.isfinite(model["icl"]), (found["bump"], model["bump"])
    fallen, lost, later = np.isfinite(found["icl"]), np.isfinite(found["lost"]), found["icl"] < found["ciwl"]
    why = (
        f"ICL's loss is halved from its start in {fallen.sum()} of {len(held)} transformers, and above half "
        f"again for good in {lost.sum()}; CIWL's is halved for good later in {later.sum()}, and on the way "
        f"goes up to {np.median(bumps[0]):.2f} times what it was (median); the toy goes in this order in "
        f"{alike(model).sum()} of {learned.sum()} seeds that learn ICL, up to "
        f"{np.median(bumps[1][learned]):.2f} times"
    )
    return Measured.over(held.astype(float), good=held, why=why)
