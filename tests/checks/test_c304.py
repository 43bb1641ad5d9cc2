"""Checks of chapter 304 on right answers, the stubs, and likely mistakes."""

import math

import torch
from checking import assert_check, solution, stub

from iclkit.checks import c304


def test_labels_that_only_the_context_knows():
    def one_by_one(place, chances, n_labels):
        rows = []
        for a, b in chances.tolist():
            first = int(a * n_labels)
            rest = [label for label in range(n_labels) if label != first]
            rows.append((first, rest[int(b * len(rest))]))
        return torch.tensor(rows), torch.tensor([row[p] for row, p in zip(rows, place.tolist())])

    def may_be_the_same(place, chances, n_labels):
        labels = (chances * n_labels).long()
        return labels, labels.gather(1, place[:, None])[:, 0]

    def the_other(place, chances, n_labels):
        return one_by_one(1 - place, chances, n_labels)

    def a_place(place, chances, n_labels):
        return one_by_one(place, chances, n_labels)[0], place

    def a_column(place, chances, n_labels):
        labels, answers = one_by_one(place, chances, n_labels)
        return labels, answers[:, None]

    def labels_alone(place, chances, n_labels):
        return one_by_one(place, chances, n_labels)[0]

    wrong = [
        (may_be_the_same, "steps over"),
        (the_other, "other pair"),
        (a_place, "not the place"),
        (a_column, "[batch 1]"),
        (labels_alone, "two things"),
    ]
    assert_check(c304.ex1, right=[solution("304", 1), one_by_one], stub=stub("304", 1), wrong=wrong)


def test_every_pair_of_labels_is_as_likely():
    grid = (torch.arange(60) + 0.5) / 60
    chances = torch.cartesian_prod(grid, grid).double()
    labels = c304.two_labels(chances, 5)
    counts = (labels[:, 0] * 5 + labels[:, 1]).bincount(minlength=25).view(5, 5)
    assert (counts.diagonal() == 0).all() and (counts + torch.eye(5).long() * 180 == 180).all()


def test_learning_counted_by_its_rate():
    def summed(updates, warmup):
        return sum(min(1.0, (step + 1) / warmup) for step in range(updates))

    def closed(updates, warmup):
        warm = min(updates, warmup)
        return warm**2 / (2 * warmup) + updates - warm

    def all_alike(updates, warmup):
        return float(updates)

    def the_rate(updates, warmup):
        return min(1.0, updates / warmup)

    def without_end(updates, warmup):
        return updates * (updates + 1) / (2 * warmup)

    def without_warmup(updates, warmup):
        return max(0.0, updates - warmup)

    wrong = [
        (all_alike, "count less"),
        (the_rate, "add up"),
        (without_end, "no update counts more than 1"),
        (without_warmup, "by half"),
    ]
    assert_check(c304.ex2, right=[solution("304", 2), summed, closed], stub=stub("304", 2), wrong=wrong)


def test_who_was_sooner():
    def by_rows(steps, icl, level, lasting=2):
        found = []
        for row in icl.tolist():
            high = [value >= level for value in row]
            looks = [i for i in range(len(row) - lasting + 1) if all(high[i : i + lasting])]
            found.append(float(steps[looks[0]]) if looks else math.inf)
        return torch.tensor(found, dtype=torch.float64)

    def a_flicker(steps, icl, level):
        return by_rows(steps, icl, level, lasting=1)

    def at_0_if_never(steps, icl, level):
        high = (icl[:, 1:] >= level) & (icl[:, :-1] >= level)
        return steps[high.int().argmax(1)]

    def at_the_end_if_never(steps, icl, level):
        return by_rows(steps, icl, level).clamp(max=float(steps[-1]))

    def second_look(steps, icl, level):
        return by_rows(steps, icl, level) + 500

    def above(steps, icl, level):
        return by_rows(steps, icl, level + 1e-9)

    wrong = [
        (a_flicker, "flicker"),
        (at_0_if_never, "not 0"),
        (at_the_end_if_never, "not reached"),
        (second_look, "not the second"),
        (above, "≥, not >"),
    ]
    assert_check(c304.ex3, right=[solution("304", 3), by_rows], stub=stub("304", 3), wrong=wrong)
