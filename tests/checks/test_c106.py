"""Checks of chapter 106 on right answers, the stubs, and likely mistakes."""

from collections import Counter

import torch
from checking import assert_check, solution, stub

from iclkit.checks import c106
from iclkit.tasks import Repeats


def followers(tokens):
    symbols = tokens.tolist()
    return [b for a, b in zip(symbols, symbols[1:]) if a == symbols[-1]]


def test_votes():
    def by_counter(tokens, vocab=64):
        counts = Counter(followers(tokens))
        return torch.tensor([counts[s] / max(1, sum(counts.values())) for s in range(vocab)])

    def not_divided(tokens, vocab=64):
        return by_counter(tokens, vocab) * max(1, len(followers(tokens)))

    def the_last(tokens, vocab=64):
        shares = torch.zeros(vocab)
        shares[followers(tokens)[-1:]] = 1.0
        return shares

    def before(tokens, vocab=64):
        turned = tokens.flip(0).tolist()
        found = [b for a, b in zip(turned[1:], turned[2:]) if a == turned[0]]
        return torch.bincount(torch.tensor(found, dtype=torch.long), minlength=vocab) / max(1, len(found))

    wrong = [(not_divided, "not counts"), (the_last, "not the last alone"), (before, "stood before")]
    assert_check(c106.ex1, right=[solution("106", 1), by_counter], stub=stub("106", 1), wrong=wrong)


def test_longest_match():
    def by_suffix(tokens):
        symbols = tokens.tolist()
        for length in range(len(symbols) - 1, 0, -1):
            suffix = symbols[-length:]
            for key in range(len(symbols) - 1, length - 1, -1):
                if symbols[key - length : key] == suffix:
                    return symbols[key]
        return 0

    def first_of_equals(tokens):
        symbols = tokens.tolist()
        for length in range(len(symbols) - 1, 0, -1):
            for key in range(length, len(symbols)):
                if symbols[key - length : key] == symbols[-length:]:
                    return symbols[key]
        return 0

    def last_occurrence(tokens):
        return (followers(tokens) or [0])[-1]

    def one_early(tokens):
        return tokens[-1].item() if followers(tokens) else 0

    wrong = [
        (first_of_equals, "not the first"),
        (last_occurrence, "more than one"),
        (one_early, "stands at the key"),
    ]
    assert_check(c106.ex2, right=[solution("106", 2), by_suffix], stub=stub("106", 2), wrong=wrong)


def test_share_of_last():
    def by_hand(first, last, gain):
        return (gain * last).exp() / ((gain * first).exp() + (gain * last).exp())

    def exchanged(first, last, gain):
        return 1 - by_hand(first, last, gain)

    def no_softmax(first, last, gain):
        return gain * last / (gain * first + gain * last)

    def no_gain(first, last, gain):
        return by_hand(first, last, 1)

    wrong = [
        (exchanged, "share of the first"),
        (no_softmax, "share of attention"),
        (no_gain, "gain is missing"),
    ]
    assert_check(c106.ex3, right=[solution("106", 3), by_hand], stub=stub("106", 3), wrong=wrong)


def test_a_task_without_holes():
    def spread():
        return Repeats(vocab=64, length=64, min_period=3, max_period=20, placement="spread", copies=2)

    def as_trained():
        return Repeats(vocab=64, length=64, min_period=12, max_period=31)

    def short_alone():
        return Repeats(vocab=64, length=64, min_period=4, max_period=12)

    def another_size():
        return Repeats(vocab=64, length=96, min_period=4, max_period=31, placement="burst")

    wrong = [(as_trained, "shorten periods"), (short_alone, "move the strings"), (another_size, "length 64")]
    assert_check(c106.ex4, right=[solution("106", 4), spread], stub=stub("106", 4), wrong=wrong)
