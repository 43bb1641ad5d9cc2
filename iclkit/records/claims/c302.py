"""Claims of chapter 302: who knows the answer at the end of training, and how many layers that takes."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from iclkit.records.claims import VERDICTS, Measured, claim
from iclkit.records.recipes.coopetition_301 import EVALUATORS
from iclkit.records.recipes.copiers_302 import PATHS

LOOKS_AT, LOW, HIGH = 0.5, 0.25, 0.75  # a copier's attention; its accuracy looking away, and looking there
CHANCE, HARDLY = 0.55, 0.02
ICL, CIWL = EVALUATORS.index("ICL"), EVALUATORS.index("CIWL")


class Copiers(NamedTuple):
    """Of each seed at the end, on CIWL: attention to the correct label, and accuracy of one head alone."""

    seen: np.ndarray  # [seed layer], mean over heads, at the worse of both places
    away: np.ndarray  # [seed layer head], looking at the other label
    there: np.ndarray  # [seed layer head], looking at the correct one


def copiers(record: Mapping) -> Copiers:
    """What the two-layer models of `copiers_302` do after their last update."""
    seen = record["two layers/attention"][:, -1, 0, ..., 0].astype(float)
    imposed = record["two layers/imposed"][:, -1].astype(float)
    return Copiers(seen.mean(-1).min(-1), imposed[..., 0], imposed[..., -1])


def paths(record: Mapping, evaluator: int = CIWL) -> dict[str, np.ndarray]:
    """Accuracy of the two-layer models at the end without each path, `[seed]`."""
    return dict(zip(PATHS, record["two layers/paths"][:, -1, :, evaluator].astype(float).T))


@claim(
    "C3",
    finding="CIWL is done by skip-trigram copiers: layer 2 attends to the correct label wherever it stands",
    chapter="302",
    theirs="≈ .78 on the correct label; one head alone .1 → .9",
    unit="attention of the last layer to the correct label, CIWL",
    records=["copiers_302"],
)
def c3(record):
    found, without = copiers(record), paths(record)
    seen = found.seen[:, -1]
    copies = ((found.away[:, -1] < LOW) & (found.there[:, -1] > HIGH)).all(1)
    looks = seen > LOOKS_AT
    verdict = VERDICTS[0] if (looks & copies).all() else VERDICTS[1] if copies.all() else VERDICTS[2]
    why = (
        f"each head of layer 1 alone, made to look at the other label or at the correct one, is right in "
        f"at most {found.away[:, -1].max():.2f} and at least {found.there[:, -1].min():.2f} (the rule: below "
        f"{LOW}, above {HIGH}): {copies.sum()} of {len(copies)} seeds copy. Left alone, it has over "
        f"{LOOKS_AT} of its attention on the correct label in {looks.sum()} of {len(looks)} seeds. Layer 0 "
        f"has {found.seen[:, 0].min():.2f} to {found.seen[:, 0].max():.2f} there, and without the output of "
        f"layer 1 CIWL is {without['layer 1'].min():.2f} to {without['layer 1'].max():.2f}"
    )
    return Measured(float(np.median(seen)), float(seen.min()), float(seen.max()), len(seen), verdict, why)


@claim(
    "C4",
    finding="One layer is enough for CIWL, never for ICL; layer 1's direct output hardly matters",
    chapter="302",
    theirs=".987 → .985 without it; one layer: ICL at chance",
    unit="CIWL without the first layer's direct output, minus with it",
    records=["copiers_302", "one_layer_302", "coopetition_301"],
)
def c4(record, one, two):
    same = list(two["steps"]).index(one["steps"][-1])
    alike = two["accuracy"][:, same, CIWL].astype(float)
    learned, icl = one["accuracy"][:, -1, CIWL].astype(float), one["accuracy"][..., ICL].astype(float)
    enough, never = learned >= np.median(alike) - HARDLY, icl.max(1) < CHANCE
    change = paths(record)["direct"] - paths(record)["whole"]
    slight = np.abs(change) <= HARDLY
    layers, direct = (enough & never).all(), slight.all()
    verdict = VERDICTS[0] if layers and direct else VERDICTS[1] if layers or direct else VERDICTS[2]
    why = (
        f"after {one['steps'][-1]:,} updates one layer has CIWL {learned.min():.2f} to {learned.max():.2f} "
        f"where two have {alike.min():.2f} to {alike.max():.2f}, and ICL of one layer is never above "
        f"{icl.max():.2f} (the rule: at most {HARDLY} below their median, below {CHANCE}): "
        f"{(enough & never).sum()} of {len(never)} seeds; the change without layer 0's direct output is "
        f"within {HARDLY} in {slight.sum()} of {len(slight)} seeds"
    )
    return Measured(
        float(np.median(change)), float(change.min()), float(change.max()), len(change), verdict, why
    )
