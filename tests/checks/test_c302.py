"""Checks of chapter 302 on right answers, the stubs, and likely mistakes."""

import torch
from checking import assert_check, solution, stub

from iclkit.checks import c302


def test_a_row_of_attention():
    def by_loop(labels, correct, s):
        row = torch.zeros(len(labels), 2 * labels.shape[1] + 1)
        for i, label in enumerate(correct.tolist()):
            for pair, other in enumerate(labels[i].tolist()):
                row[i, 2 * pair + 1] = s if other == label else (1 - s) / (labels.shape[1] - 1)
        return row

    def on_exemplars(labels, correct, s):
        return by_loop(labels, correct, s).roll(-1, 1)

    def too_much(labels, correct, s):
        row = by_loop(labels, correct, s)
        row[:, 1::2] = torch.where(labels == correct[:, None], s, 1 - s)
        return row

    def no_query(labels, correct, s):
        return by_loop(labels, correct, s)[:, :-1]

    def one_too_many(labels, correct, s):
        row = by_loop(labels, correct, s)
        row[:, 1::2] = torch.where(labels == correct[:, None], s, (1 - s) / labels.shape[1])
        return row

    wrong = [(on_exemplars, "on the exemplars"), (too_much, "sums to 1"), (no_query, "stands last")]
    wrong += [(one_too_many, "one fewer")]
    assert_check(c302.ex1, right=[solution("302", 1), by_loop], stub=stub("302", 1), wrong=wrong)


def test_a_preference():
    def by_loop(scores):
        n = len(scores)
        wins = [scores[i, i] > scores[i, j] for i in range(n) for j in range(n) if i != j]
        return torch.tensor(wins).float().mean()

    def by_column(scores):
        return by_loop(scores.T)

    def with_itself(scores):
        return by_loop(scores) * (len(scores) - 1) / len(scores)

    def best_only(scores):
        return (scores.argmax(1) == torch.arange(len(scores))).float().mean()

    def or_equal(scores):
        return (scores.diagonal()[:, None] >= scores).sum() / (len(scores) * (len(scores) - 1))

    wrong = [(by_column, "within a row"), (with_itself, "n − 1"), (best_only, "count pairs")]
    wrong += [(or_equal, "own against own")]
    assert_check(c302.ex2, right=[solution("302", 2), by_loop], stub=stub("302", 2), wrong=wrong)


def test_a_head_alone():
    def by_loop(attention, labels, spoken):
        said = []
        for weights, shown in zip(attention, labels.tolist()):
            logits = sum(weight * spoken[label] for weight, label in zip(weights, shown))
            said.append(max(shown, key=lambda label: logits[label].item()))
        return torch.tensor(said)

    def any_label(attention, labels, spoken):
        return (attention[..., None] * spoken[labels]).sum(1).argmax(1)

    def place(attention, labels, spoken):
        return (by_loop(attention, labels, spoken)[:, None] == labels).int().argmax(1)

    def looks_only(attention, labels, spoken):
        return labels.gather(1, attention.argmax(1, keepdim=True))[:, 0]

    wrong = [
        (any_label, "stand in the context"),
        (place, "give its label"),
        (looks_only, "not yet what it says"),
    ]
    assert_check(c302.ex3, right=[solution("302", 3), by_loop], stub=stub("302", 3), wrong=wrong)
