"""Claims of chapter 401: what makes in-context learning stay, and what makes it go."""

from collections.abc import Mapping

import numpy as np

from iclkit.records.claims import VERDICTS, Measured, by_share, claim
from iclkit.records.claims.c301 import LOW, spread, variant
from iclkit.records.recipes.coopetition_301 import EVALUATORS

STAYS, GAIN, AWAY = 0.7, 0.1, 0.6  # Flip of a run whose ICL stayed; a change that counts; ICL that never was
LATE = 3  # looks that count as late
ICL, FLIP, CIWL, IWL = (EVALUATORS.index(name) for name in ("ICL", "Flip", "CIWL", "IWL"))


def late(accuracy, evaluator: int = FLIP, looks: int = LATE) -> np.ndarray:
    """Accuracy on one evaluator, the mean of the last looks: `[…]` of `[… look 5]`; `ValueError` for others."""
    accuracy = looked(accuracy, evaluator)
    if not 1 <= looks <= accuracy.shape[-2]:
        raise ValueError(f"looks must be 1 … {accuracy.shape[-2]}, as many as there are; got {looks}")
    return accuracy[..., -looks:, evaluator].mean(-1)


def looked(accuracy, evaluator: int) -> np.ndarray:
    """Accuracies as real numbers; `ValueError` unless they are `[… look 5]` and the evaluator one of the 5."""
    accuracy = np.asarray(accuracy, float)
    known = range(len(EVALUATORS))
    if accuracy.ndim < 2 or accuracy.shape[-1] != len(known) or evaluator not in known:
        raise ValueError(
            f"expected accuracies [… look {len(known)}] and an evaluator 0 … {len(known) - 1} "
            f"({', '.join(EVALUATORS)}); got shape {list(accuracy.shape)} and {evaluator!r}"
        )
    return accuracy


def highest(accuracy, evaluator: int = FLIP) -> np.ndarray:
    """The highest accuracy on one evaluator over the looks: `[…]` of `[… look 5]`."""
    return looked(accuracy, evaluator)[..., evaluator].max(-1)


def doses(record, lever: str) -> dict:
    """Accuracies of each dose of a lever, `{dose: [seed look 5]}`, in the order of the configs."""
    found = {
        config["dose"]: record["accuracy"][number]
        for number, config in enumerate(record.meta["config"])
        if config.get("lever") == lever
    }
    if not found:
        known = sorted({config["lever"] for config in record.meta["config"] if "lever" in config})
        raise ValueError(f"expected one of the record's levers, {', '.join(known) or 'none'}; got {lever!r}")
    return found


def counted(said: Mapping[str, bool]) -> tuple[str, str]:
    """A verdict and the words for it: reproduced when all statements hold, partly when half of them do."""
    held = [what for what, good in said.items() if good]
    failed = [what for what, good in said.items() if not good]
    words = [f"{word}: {', '.join(group)}" for word, group in (("holds", held), ("fails", failed)) if group]
    return by_share(len(held) / len(said)), "; ".join(words)


@claim(
    "T1",
    finding="Matched exemplars: ICL stays",
    chapter="401",
    theirs="late Flip .03 → .92 (two layers), .78 → .91 (twelve)",
    unit="late Flip, matched minus unmatched, synthetic exemplars",
    records=["matched_401", "coopetition_301", "omniglot_301", "levers_401"],
)
def t1(matched, plain, drawings, levers):
    """A seed holds when Flip ends above STAYS with matched exemplars and below LOW without; of drawings, and
    with four layers, matched exemplars must leave Flip higher by GAIN in every seed."""
    with_, without = late(matched["accuracy"], looks=5), late(plain["accuracy"], looks=5)
    held = (with_ > STAYS) & (without < LOW)
    also = {
        "Omniglot's characters": [variant(drawings, name) for name in ("characters, matched", "characters")],
        "composites": [variant(drawings, name) for name in ("composites, matched", "composites")],
        "four layers": [variant(levers, name) for name in ("4 layers matched", "4 layers")],
    }
    gains = {where: late(one) - late(other) for where, (one, other) in also.items()}
    everywhere = all((gain > GAIN).all() for gain in gains.values())
    only_there = held.all() and not everywhere  # every seed of the synthetic exemplars, and no more
    verdict = VERDICTS[1] if only_there else by_share(held.mean())
    told = ", ".join(f"{where} {spread(gain)}" for where, gain in gains.items())
    gain = with_ - without
    why = (
        f"late Flip {spread(with_)} with matched exemplars, {spread(without)} without; holds for {held.sum()} "
        f"of {len(held)} seeds (the rule: above {STAYS}, below {LOW}); the gain elsewhere (the rule: above "
        f"{GAIN} in every seed): {told}"
    )
    return Measured(float(np.median(gain)), float(gain.min()), float(gain.max()), len(gain), verdict, why)


@claim(
    "T2",
    finding="Weight decay makes ICL stay, but not decay of the attention alone",
    chapter="401",
    theirs="a small dose removes the fade, on attention alone it does not (Singh 2023); "
    "regularisation causes it (Nguyen & Reddy 2024)",
    unit="late Flip at the best dose of decay everywhere, minus without decay",
    records=["levers_401"],
)
def t2(record):
    plain = late(variant(record, "default"))
    gains = {
        where: {dose: late(runs) - plain for dose, runs in doses(record, f"decay {where}").items()}
        for where in ("everywhere", "tables", "attention")
    }
    best = max(gains["everywhere"].values(), key=np.median)
    said = {
        "some dose everywhere keeps Flip higher in every seed": bool((best > GAIN).all()),
        "none on attention alone does": not any((g > GAIN).all() for g in gains["attention"].values()),
    }
    verdict, words = counted(said)
    told = "; ".join(
        f"{where} " + ", ".join(f"{dose}: {spread(gain)}" for dose, gain in by_dose.items())
        for where, by_dose in gains.items()
    )
    each = [(f"{where} {dose}", gain) for where, by in gains.items() for dose, gain in by.items()]
    harms = [what for what, gain in each if (gain < -GAIN).all()]
    why = (
        f"{words}; change of late Flip by place and dose: {told}; decay makes Flip fall further in every seed "
        f"at {', '.join(harms) or 'no place and dose'}"
    )
    return Measured(float(np.median(best)), float(best.min()), float(best.max()), len(best), verdict, why)


@claim(
    "T3",
    finding="Data: many classes, few exemplars a class, bursts, and Zipf's law keep ICL",
    chapter="401",
    theirs="ICL .90 with 12,800 classes, .63 with 1,600; slower decay with 5 exemplars; bursts needed; "
    "exponent 1 best",
    unit="of four statements, those that hold in every seed",
    records=["levers_401"],
)
def t3(record):
    plain = variant(record, "default")
    levers = ("classes", "exemplars", "bursty", "zipf")
    classes, exemplars, bursty, zipf = (doses(record, name) for name in levers)
    said = {
        "ICL rises higher with twice the classes than with half": bool(
            (highest(classes[3200], ICL) > highest(classes[800], ICL)).all()
        ),
        "late Flip is higher with 5 exemplars than with 20": bool((late(exemplars[5]) > late(plain)).all()),
        "ICL rises higher when all sequences are bursty than when half are": bool(
            (highest(plain, ICL) > highest(bursty[0.5], ICL)).all()
        ),
        "late Flip is higher with the exponent 1 than with 0": bool((late(zipf[1.0]) > late(plain)).all()),
    }
    verdict, words = counted(said)
    return Measured(float(sum(said.values())), None, None, plain.shape[0], verdict, words)


@claim(
    "T4",
    finding="A short CIWL-only start and exact copies keep ICL; no previous-token attention, no ICL",
    chapter="401",
    theirs="start of 4 M: Flip .89 for .71, from 8 M on none; without previous-token attention Flip ≤ .48, "
    "CIWL learned",
    unit="of three statements, those that hold in every seed",
    records=["starts_304", "levers_401"],
)
def t4(starts, levers):
    flip = highest(starts["start_accuracy"])  # [age seed]
    plain, forbidden, copies = (variant(levers, name) for name in ("default", "forbidden", "matched"))
    said = {
        "some start of CIWL alone lifts Flip's peak, the longest blocks ICL": bool(
            (flip[1:] > flip[0]).all(1).any() and (flip[-1] < AWAY).all()
        ),
        "without previous-token attention there is no ICL, and CIWL is learned": bool(
            (highest(forbidden, ICL) < AWAY).all()
            and (late(forbidden, CIWL) > late(plain, CIWL) - GAIN).all()
        ),
        "exact copies keep Flip higher": bool((late(copies) > late(plain) + GAIN).all()),
    }
    verdict, words = counted(said)
    why = (
        f"{words}; Flip's peak by age of the start, median: "
        + ", ".join(f"{age:,}: {peak:.2f}" for age, peak in zip(starts["age"], np.median(flip, 1)))
        + f"; without previous-token attention ICL is at most {highest(forbidden, ICL).max():.2f}, CIWL ends "
        f"at {spread(late(forbidden, CIWL))}"
    )
    return Measured(float(sum(said.values())), None, None, flip.shape[1], verdict, why)


def lean(record) -> np.ndarray:
    """How much nearer to 2-Gen than to 2-Mem models are on fresh chains, late: `[variant seed]`, −1 … 1."""
    fresh = np.asarray(record["distances"], float)[:, :, -LATE:, 1].mean(2)
    return (fresh[..., 3] - fresh[..., 1]) / np.asarray(record["apart"], float)[:, :, 1, 1, 3]


@claim(
    "T5",
    finding="For Markov chains, K, width and weight decay decide whether 2-Gen stays",
    chapter="401",
    theirs="not asked there",
    unit="late lean to 2-Gen on fresh chains at K = 16 (−1 2-Mem, 1 2-Gen)",
    records=["markov_401"],
)
def t5(record):
    """A lever counts when its strongest dose moves the lean by GAIN, in one direction, in every seed."""
    leans = lean(record)
    at = {config["variant"]: leans[number] for number, config in enumerate(record.meta["config"])}
    plain = at["default K=16"]
    changes = {
        "K, 64 for 16": at["default K=64"] - plain,
        "width, 32 for 8": at["width 32 K=16"] - at["width 8 K=16"],
    }
    changes |= {f"decay {dose}": at[f"decay {dose} K=16"] - plain for dose in (0.1, 0.3, 1.0, 3.0)}
    moved = {what: bool((c > GAIN).all() or (c < -GAIN).all()) for what, c in changes.items()}
    said = {
        "K": moved["K, 64 for 16"],
        "width": moved["width, 32 for 8"],
        "weight decay": any(good for what, good in moved.items() if what.startswith("decay")),
    }
    verdict, words = counted(said)
    told = ", ".join(f"{what} {spread(change)}" for what, change in changes.items())
    why = f"{words} (moves the lean by more than {GAIN} in every seed); changes: {told}"
    return Measured(float(np.median(plain)), float(plain.min()), float(plain.max()), len(plain), verdict, why)
