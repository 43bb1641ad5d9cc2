"""Exemplar–label pairs and a query: is the answer in the context, or in the weights?

                                                          x₁ y₁ | x₂ y₂ | x_q →
    mix          trains      evaluates                    (A, B, C classes; a, b, c their own labels)
    bursty       on bursty   Train                        A  a  | B  b  | A   → a
    relabelled   ICL only    -       any two labels       A  7  | B  3  | A   → 7
    numbered     -           ICL     labels 0 and 1       A  1  | B  0  | A   → 1
    swapped      -           Flip    each has the other's A  b  | B  a  | A   → b
    copied       CIWL only   CIWL    two other classes    B  a  | C  c  | A   → a
    absent       -           IWL     two other classes    B  b  | C  c  | A   → a

Pairs stand in random order. The label of a class is its number. Only the query's answer counts.
Source: Singh et al. 2025 (https://arxiv.org/abs/2503.05631), sections 2.1–2.3; Chan et al. 2022
(https://arxiv.org/abs/2205.05055) for bursts and Zipf's law.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from math import isfinite
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from iclkit.tasks.base import Batch, check_whole, generator
from iclkit.tasks.exemplars import Exemplars, ImageLike

SUPPORTED = ("bursty", "relabelled", "numbered", "swapped")
MIXES = (*SUPPORTED, "copied", "absent")
EVALUATORS = {"Train": None, "ICL": "numbered", "Flip": "swapped", "CIWL": "copied", "IWL": "absent"}
TWO_LABELS = ("numbered", "swapped", "copied")
EVALUATION_SEED = 1_000_003


class Episodes(NamedTuple):
    """Sequences before they are vectors: class and exemplar of each pair and (last) of the query, the labels
    that stand in the context, and the answer."""

    classes: Int[Tensor, "batch item"]
    indices: Int[Tensor, "batch item"]
    labels: Int[Tensor, "batch pair"]
    answers: Int[Tensor, " batch"]

    def read(self, row: int) -> str:
        """One sequence in words: `12.3 12 | 40.7 40 | 12.5 → 12`, class.exemplar and label."""
        items = [f"{c}.{i}" for c, i in zip(self.classes[row].tolist(), self.indices[row].tolist())]
        pairs = [f"{item} {label}" for item, label in zip(items, self.labels[row].tolist())]
        return " | ".join([*pairs, f"{items[-1]} → {int(self.answers[row])}"])


@dataclass(frozen=True)
class FewShot:
    """Sequences of `pairs` exemplar–label pairs and a query; `mix` says whose labels stand where.

        x₁ y₁ x₂ y₂ x_q          inputs `[batch 2·pairs+1 d_features+1]`, targets and mask `[batch 2·pairs+1]`

    Inputs hold the exemplar's features, then the label (−1 where there is none). Where the context supports
    the query, `burst` pairs are of its class, as many (or what is left) of one distractor, the rest of other
    classes. That is in a `bursty` share of the sequences; in the rest no pair is of the query's class. Each
    item draws its own exemplar; `matched`, all items of a class share one. Class k is drawn ∝ (k + 1)^−zipf,
    no class twice in a sequence. `classes` and `indices` are (first, stop): draw from these only.
    Raises `ValueError` for what cannot be drawn.
    """

    exemplars: Exemplars = ImageLike()
    mix: str = "bursty"
    pairs: int = 2
    burst: int = 1
    bursty: float = 1.0
    matched: bool = False
    zipf: float = 0.0
    classes: tuple[int, int] | None = None
    indices: tuple[int, int] | None = None
    batch_size: int = 64

    def __post_init__(self):
        if not isinstance(self.exemplars, Exemplars):
            raise ValueError(f"expected a source of exemplars, such as ImageLike(); got {self.exemplars!r}")
        if self.mix not in list(MIXES):
            raise ValueError(f"mix must be one of {', '.join(MIXES)}; got {self.mix!r}")
        for name in ("pairs", "burst", "batch_size"):
            check_whole(name, getattr(self, name), 1)
        if self.burst > self.pairs:
            raise ValueError(f"a burst of {self.burst} needs as many pairs; got pairs={self.pairs}")
        if not all(isinstance(value, (int, float)) for value in (self.bursty, self.zipf)):
            raise ValueError(f"bursty and zipf must be numbers; got {self.bursty!r} and {self.zipf!r}")
        if not 0 <= self.bursty <= 1 or (self.bursty < 1 and self.mix != "bursty"):
            raise ValueError(
                "bursty is a share: 0 … 1 with the mix 'bursty', 1 with others; "
                f"got {self.bursty} with {self.mix!r}"
            )
        if not (isfinite(self.zipf) and self.zipf >= 0):
            raise ValueError(f"the exponent zipf must be finite and at least 0; got {self.zipf}")
        for name, count in (("classes", self.exemplars.n_classes), ("indices", self.exemplars.n_exemplars)):
            span = self.within(name)
            if not isinstance(span, (tuple, list)) or len(span) != 2:
                raise ValueError(f"{name} must be (first, stop) or None; got {span!r}")
            first, stop = span
            check_whole(f"each end of {name}", first), check_whole(f"each end of {name}", stop)
            if not 0 <= first < stop <= count:
                raise ValueError(
                    f"{name} must lie within the {count} there are, (0, {count}); got ({first}, {stop})"
                )
        if self.mix in TWO_LABELS and max(self.slots) < 1 + (self.mix == "copied"):
            raise ValueError(
                f"{self.mix!r} needs two labels in the context; pairs={self.pairs} and burst={self.burst} "
                "leave one: give more pairs"
            )
        first, stop = self.within("classes")
        if (needed := self.n_drawn) > stop - first:
            raise ValueError(
                f"a sequence of {self.pairs} pairs and a query draws {needed} different classes; there are "
                f"{stop - first}: give fewer pairs or more classes"
            )

    def within(self, name: str) -> tuple[int, int]:
        """The classes, or the exemplar `indices`, that are drawn from, as (first, stop)."""
        counts = {"classes": self.exemplars.n_classes, "indices": self.exemplars.n_exemplars}
        return (0, counts[name]) if getattr(self, name) is None else getattr(self, name)

    @property
    def length(self) -> int:
        return 2 * self.pairs + 1

    @property
    def n_labels(self) -> int:
        """How many labels there are: one a class of the source."""
        return self.exemplars.n_classes

    @property
    def slots(self) -> list[int]:
        """Which of the drawn classes each pair is of, before shuffling; 0 is the query's."""
        if self.mix not in SUPPORTED:
            return list(range(1, self.pairs + 1))
        distractors = min(self.burst, self.pairs - self.burst)
        others = range(2, 2 + self.pairs - self.burst - distractors)
        return [0] * self.burst + [1] * distractors + list(others)

    @property
    def n_drawn(self) -> int:
        return self.pairs + 1 if self.bursty < 1 else max(self.slots) + 1

    def draw(self, seed: int, step: int) -> Episodes:
        """The sequences of this step; tasks that differ in `mix` alone draw the same classes."""
        random, size, pairs = generator(seed, step), self.batch_size, self.pairs
        shape = {"generator": random, "dtype": torch.float64}
        chances = torch.rand(size, pairs + 1, **shape)
        order = torch.rand(size, pairs, **shape).argsort(1)
        indices = torch.randint(*self.within("indices"), (size, pairs + 1), generator=random)
        first, stop = self.within("classes")
        drawn = first + distinct(edges(stop - first, self.zipf, chances.device), chances[:, : self.n_drawn])
        slots = torch.tensor(self.slots).expand(size, pairs)
        if self.bursty < 1:
            supported = torch.rand(size, 1, **shape) < self.bursty
            slots = torch.where(supported, slots, torch.arange(1, pairs + 1))
        slots = torch.cat([slots.gather(1, order), torch.zeros(size, 1, dtype=torch.long)], 1)
        names = self.names(drawn, torch.rand(size, pairs + 1, **shape))
        if self.matched:
            indices = indices.gather(1, slots)
        return Episodes(drawn.gather(1, slots), indices, names.gather(1, slots[:, :-1]), names[:, 0])

    def names(
        self, drawn: Int[Tensor, "batch n"], chances: Float[Tensor, "batch m"]
    ) -> Int[Tensor, "batch n"]:
        """The label that each drawn class bears in its sequence, the query's first."""
        if self.mix == "relabelled":
            return distinct(edges(self.n_labels, 0.0, drawn.device), chances[:, : drawn.shape[1]])
        if self.mix == "numbered":
            return chances[:, : drawn.shape[1]].argsort(1)
        if self.mix == "swapped":
            return torch.cat([drawn[:, [1, 0]], drawn[:, 2:]], 1)
        if self.mix == "copied":
            return torch.cat([drawn[:, [0, 0]], drawn[:, 2:]], 1)
        return drawn

    def batch(self, seed: int, step: int) -> Batch:
        """The batch of this step: the same for the same (seed, step), whatever else happens."""
        classes, indices, labels, answers = self.draw(seed, step)
        inputs = torch.zeros(self.batch_size, self.length, self.exemplars.d_features + 1)
        inputs[:, 0::2, :-1] = self.exemplars.vectors(classes, indices)
        inputs[:, 0::2, -1] = -1
        inputs[:, 1::2, -1] = labels.float()
        targets = torch.zeros(self.batch_size, self.length, dtype=torch.long)
        mask = torch.zeros(self.batch_size, self.length, dtype=torch.bool)
        targets[:, -1], mask[:, -1] = answers, True
        return Batch(inputs, targets, mask)


@lru_cache(maxsize=16)
def edges(count: int, zipf: float, device: torch.device) -> Int[Tensor, " edge"]:
    """Where each class begins on a line of whole numbers, its stretch ∝ (k + 1)^−zipf; last, the end."""
    if zipf == 0:
        return torch.arange(count + 1, device=device)
    share = torch.arange(1, count + 1, dtype=torch.float64, device=device) ** -zipf
    stretch = (share / share.sum() * 2**40).round().long().clamp(min=1)
    return torch.cat([stretch.new_zeros(1), stretch.cumsum(0)])


def distinct(edges: Int[Tensor, " edge"], chances: Float[Tensor, "batch n"]) -> Int[Tensor, "batch n"]:
    """Numbers 0 … count − 1, drawn one after another ∝ their stretches, none twice in a row of the result.

    edges  0│ 0 │1│  2  │3│     a chance is a point on what is left: stretches already drawn are stepped over
    """
    drawn = []
    for column in chances.unbind(1):
        taken = torch.stack(drawn).sort(0).values if len(drawn) > 1 else drawn
        stretches = [(edges[one], edges[one + 1] - edges[one]) for one in taken]
        point = (column * (edges[-1] - sum(width for _, width in stretches))).long()
        for start, width in stretches:
            point = point + width * (point >= start)
        drawn.append(torch.searchsorted(edges, point, right=True) - 1)
    return torch.stack(drawn, 1)


def evaluators(task: FewShot, *names: str) -> dict[str, FewShot]:
    """The evaluators of `task` by name, all five unless named: its classes, exemplars, pairs and burst.

    Train keeps the task's mix. None is matched, all are bursty. `ValueError` for one that cannot be.
    """
    if unknown := set(names) - set(EVALUATORS):
        raise ValueError(f"evaluators are {', '.join(EVALUATORS)}; got {', '.join(sorted(unknown))}")
    plain = replace(task, matched=False, bursty=1.0)
    return {name: replace(plain, mix=EVALUATORS[name] or task.mix) for name in names or EVALUATORS}


def in_context_accuracy(logits: Float[Tensor, "batch seq label"], batch: Batch) -> float:
    """How often the query's answer has the largest logit among the labels that stand in its context."""
    shown = batch.inputs[:, 1::2, -1].long()
    best = logits[:, -1].gather(1, shown).argmax(1, keepdim=True)
    return (shown.gather(1, best)[:, 0] == batch.targets[:, -1]).float().mean().item()


def accuracy(logits: Float[Tensor, "batch seq label"], batch: Batch) -> float:
    """How often the query's answer has the largest logit of all labels."""
    return (logits[:, -1].argmax(1) == batch.targets[:, -1]).float().mean().item()


@torch.no_grad()
def evaluate(
    predict: Callable[[Tensor], Tensor],
    tasks: Mapping[str, FewShot],
    sequences: int = 2000,
    seed: int = EVALUATION_SEED,
) -> dict[str, float]:
    """Accuracy on each evaluator, among the labels in the context; among all where it lacks the answer."""
    found = {}
    for name, task in tasks.items():
        metric = accuracy if task.mix == "absent" else in_context_accuracy
        batches = [task.batch(seed, step) for step in range(-(-sequences // task.batch_size))]
        found[name] = sum(metric(predict(batch.inputs), batch) for batch in batches) / len(batches)
    return found
