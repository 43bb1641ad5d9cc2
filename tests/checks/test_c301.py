"""Checks of chapter 301 on right answers, the stubs, and likely mistakes."""

import torch
from checking import assert_check, solution, stub

from iclkit.checks import c301


def test_ciwl_from_iwl():
    def by_rows(labels, answers, place):
        rows = labels.tolist()
        for row, answer, at in zip(rows, answers.tolist(), place.tolist()):
            row[at] = answer
        return torch.tensor(rows)

    def other_place(labels, answers, place):
        return by_rows(labels, answers, 1 - place)

    def both(labels, answers, place):
        return answers[:, None].repeat(1, 2)

    def in_place(labels, answers, place):
        labels[torch.arange(len(labels)), place] = answers
        return labels

    wrong = [(other_place, "other place"), (both, "both labels"), (in_place, "in place; work on a copy")]
    assert_check(c301.ex1, right=[solution("301", 1), by_rows], stub=stub("301", 1), wrong=wrong)


def test_preference():
    def solved(flip, icl, ciwl):
        low, high = 0.0, 1.0
        for _ in range(60):  # Flip grows with the preference: halve the interval
            middle = (low + high) / 2
            above = c301.accuracies(2 * icl - 1, 2 * ciwl - 1, middle)[0] > flip
            low, high = (low, middle) if above else (middle, high)
        return low

    def unlucky(flip, icl, ciwl):
        i, c = 2 * icl - 1, 2 * ciwl - 1
        return (flip - i * (1 - c)) / (i * c)

    def accuracies_as_chances(flip, icl, ciwl):
        return (flip - icl * (1 - ciwl) - (1 - icl) * (1 - ciwl) / 2) / (icl * ciwl)

    def a_share_of_all(flip, icl, ciwl):
        return solved(flip, icl, ciwl) * (2 * icl - 1) * (2 * ciwl - 1)

    def guesses_right(flip, icl, ciwl):
        i, c = 2 * icl - 1, 2 * ciwl - 1
        return (flip - i * (1 - c) - (1 - i) * (1 - c)) / (i * c)

    wrong = [
        (unlucky, "neither"),
        (guesses_right, "half of the time"),
        (accuracies_as_chances, "guessed right"),
        (a_share_of_all, "divide"),
    ]
    assert_check(c301.ex2, right=[solution("301", 2), solved], stub=stub("301", 2), wrong=wrong)


def test_rank_outside_the_context():
    def by_sorting(logits, labels, answers):
        ranks = []
        for row, shown, answer in zip(logits, labels.tolist(), answers.tolist()):
            order = [label for label in row.argsort(descending=True).tolist() if label not in shown]
            ranks.append(order.index(answer))
        return torch.tensor(ranks)

    def of_all(logits, labels, answers):
        return (logits > logits.gather(1, answers[:, None])).sum(1)

    def from_one(logits, labels, answers):
        return by_sorting(logits, labels, answers) + 1

    def from_below(logits, labels, answers):
        return by_sorting(-logits, labels, answers)

    def from_below_with_the_context(logits, labels, answers):
        hidden = logits.scatter(1, labels, -torch.inf)
        return (hidden < logits.gather(1, answers[:, None])).sum(1)

    def who_stands_there(logits, labels, answers):
        order = logits.scatter(1, labels, -torch.inf).argsort(1, descending=True)
        return order.gather(1, answers[:, None])[:, 0]

    wrong = [
        (of_all, "do not count"),
        (from_one, "rank 0"),
        (from_below, "larger logits"),
        (from_below_with_the_context, "−∞"),
        (who_stands_there, "stands at this rank"),
    ]
    assert_check(c301.ex3, right=[solution("301", 3), by_sorting], stub=stub("301", 3), wrong=wrong)
