"""Claims of chapter 301: how the evaluators are made, and how in-context learning rises and fades."""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch

from iclkit.phases import crossing
from iclkit.records.claims import Measured, claim
from iclkit.records.recipes.coopetition_301 import task_of
from iclkit.tasks import FewShot, Given, evaluators, generator

SEEDS, SEQUENCES = 5, 400  # that C1 reads, of each evaluator
HIGH, LOW, HARDLY = 0.7, 0.2, 0.02
LAST = 5  # looks that count as the end


def as_stated(name: str, context: list, query: int, labels: list, answer: int) -> bool:
    """Whether one sequence of two pairs is what its evaluator promises."""
    own = labels == context
    if name in ("CIWL", "IWL"):
        apart = len({*context, query}) == 3 and answer == query
        if name == "IWL":
            return apart and own and query not in labels
        place = labels.index(query) if query in labels else 0
        return apart and labels[place] == query and labels[1 - place] == context[1 - place]
    there = context.count(query) == 1 and len(set(context)) == 2
    kept = {"Train": own, "ICL": sorted(labels) == [0, 1], "Flip": labels == context[::-1]}[name]
    return there and kept and answer == labels[context.index(query)]


def faithful(task: FewShot, seed: int) -> np.ndarray:
    """Of each sequence: does its batch hold what was drawn, exemplar by exemplar, and the answer last?"""
    drawn, (inputs, targets, mask) = task.draw(seed, 0), task.batch(seed, 0)
    vectors = task.exemplars.vectors(drawn.classes, drawn.indices)
    good = (inputs[:, 0::2, :-1] == vectors).flatten(1).all(1) & (inputs[:, 0::2, -1] == -1).all(1)
    good &= (inputs[:, 1::2, -1] == drawn.labels).all(1) & (targets[:, -1] == drawn.answers)
    return (good & mask[:, -1] & (mask.sum(1) == 1)).numpy()


def built(task: FewShot, seed: int) -> dict[str, np.ndarray]:
    """For each evaluator, which of its sequences are as stated: `{name: [sequence]}`, one by one."""
    found = {}
    for name, each in evaluators(task).items():
        drawn = each.draw(seed, 0)
        rows = zip(drawn.classes.tolist(), drawn.labels.tolist(), drawn.answers.tolist())
        stated = [as_stated(name, items[:-1], items[-1], labels, answer) for items, labels, answer in rows]
        found[name] = np.array(stated) & faithful(each, seed)
    return found


def with_other_pictures(task: FewShot) -> FewShot:
    """The task with exemplars that are given as a table, which is how Omniglot's come."""
    shape = (task.exemplars.n_classes, task.exemplars.n_exemplars, 3)
    return replace(task, exemplars=Given(torch.randn(shape, generator=generator(301))))


def same_sequences(one: FewShot, other: FewShot, seed: int) -> bool:
    """Whether two tasks draw the same classes, exemplars, labels and answers, in every evaluator."""
    pairs = zip(evaluators(one).values(), evaluators(other).values())
    return all(a.equal(b) for x, y in pairs for a, b in zip(x.draw(seed, 0), y.draw(seed, 0)))


@claim(
    "C1",
    finding="Task and evaluators: Train, ICL, Flip, CIWL and IWL put the answer where they say",
    chapter="301",
    theirs="constructions",
    unit="share of sequences built as stated, the worst evaluator",
    records=["coopetition_301"],
)
def c1(record):
    """Reproduced when every sequence of every evaluator is as stated; nothing here was trained: of the record
    only the setting is read."""
    task = replace(task_of(record.meta["config"][0]), batch_size=SEQUENCES)
    other = with_other_pictures(task)
    shares = [{name: good.mean() for name, good in built(task, seed).items()} for seed in range(SEEDS)]
    alike = np.array([same_sequences(task, other, seed) for seed in range(SEEDS)])
    worst = np.array([min(each.values()) for each in shares])
    why = (
        f"{len(shares[0])} evaluators of {SEQUENCES} sequences a draw, each read by itself: classes, labels, "
        "answer, and the vectors in the batch; with exemplars given as a table, as Omniglot's are, the "
        f"sequences are the same in {alike.sum()} of {SEEDS} draws"
    )
    return Measured.over(worst, (worst == 1) & alike, why)


class Course(NamedTuple):
    """How each run went, all [seed]: highest Flip and ICL and the update of each; the end [seed evaluator];
    the highest IWL; the update from which CIWL is above ICL for good."""

    flip: np.ndarray
    flip_at: np.ndarray
    icl: np.ndarray
    icl_at: np.ndarray
    end: np.ndarray
    iwl: np.ndarray
    crossing: np.ndarray


def course(record: Mapping) -> Course:
    """The course of every run of a record with `steps` and `accuracy` [seed step 5]."""
    steps, accuracy = record["steps"], np.asarray(record["accuracy"], float)
    _, icl, flip, ciwl, iwl = np.moveaxis(accuracy, 2, 0)
    return Course(
        flip.max(1),
        steps[flip.argmax(1)],
        icl.max(1),
        steps[icl.argmax(1)],
        accuracy[:, -LAST:].mean(1),
        iwl.max(1),
        crossing(steps, icl, ciwl, for_good=True),
    )


def spread(values, digits: int = 2) -> str:
    """The range of some values, in words."""
    known = np.asarray(values, float)[np.isfinite(values)]
    return f"{known.min():,.{digits}f} to {known.max():,.{digits}f}" if len(known) else "none"


def variant(record, name: str) -> np.ndarray:
    """Accuracies of one variant of a record of variants, `[seed look 5]`; `ValueError` for one not there."""
    names = [config["variant"] for config in record.meta["config"]]
    if name not in names:
        raise ValueError(f"expected one of the variants {', '.join(names)}; got {name!r}")
    return record["accuracy"][names.index(name)]


@claim(
    "C2",
    finding="ICL emerges and fades; CIWL takes over; pure IWL hardly appears",
    chapter="301",
    theirs="Flip .71 at 4.3 M sequences, .015 at 64 M; ICL .90 at 7.75 M; CIWL .99; IWL .0008",
    unit="highest accuracy on Flip",
    records=["coopetition_301", "omniglot_301"],
)
def c2(record, drawings):
    """A seed holds when Flip rises above HIGH and ends below LOW, CIWL ends above ICL and crosses it for good
    after the peak of Flip, and IWL stays below HARDLY. The end is the mean of the LAST looks. Real drawings,
    trained half as long, stand beside it in words."""
    found = course(record)
    real = course({"steps": drawings["steps"], "accuracy": variant(drawings, "characters")})
    _, icl, flip, ciwl, _ = found.end.T
    rises, fades = found.flip > HIGH, flip < LOW
    over, alone = (ciwl > icl) & (found.crossing > found.flip_at), found.iwl < HARDLY
    why = (
        f"Flip peaks at updates {spread(found.flip_at, 0)} and ends at {spread(flip)}: above {HIGH} in "
        f"{rises.sum()}, then below {LOW} in {fades.sum()} of {len(flip)} seeds; ICL peaks at "
        f"{spread(found.icl)} and ends at {spread(icl)}; CIWL ends at {spread(ciwl)}, above ICL for good "
        f"from updates {spread(found.crossing, 0)} on, after the peak of Flip in {over.sum()}; IWL is never "
        f"above {found.iwl.max():.4f}; Omniglot's characters, {len(real.flip)} seeds of half the length: Flip "
        f"peaks at {spread(real.flip)} and ends at {spread(real.end[:, 2])}"
    )
    return Measured.over(found.flip, rises & fades & over & alone, why)
