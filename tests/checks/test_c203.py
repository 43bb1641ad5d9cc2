"""Checks of chapter 203 on right answers, the stubs, and likely mistakes."""

import math

import torch
from checking import assert_check, solution, stub

from iclkit.checks import c203
from iclkit.tasks import generator


def match_by_loop(tokens):
    n = len(tokens)
    pattern = torch.zeros(n, n)
    for query in range(n):
        places = [key for key in range(1, query + 1) if tokens[key - 1] == tokens[query]]
        for key in places or [0]:
            pattern[query, key] = 1 / max(1, len(places))
    return pattern


def test_match_pattern():
    def duplicates(tokens):
        earlier = (tokens[:, None] == tokens[None]).tril(-1).float()
        earlier[:, 0] += earlier.sum(1) == 0
        return earlier / earlier.sum(1, keepdim=True)

    def not_divided(tokens):
        return (match_by_loop(tokens) > 0).float()

    def nothing_found(tokens):
        after = (tokens[:, None] == tokens[None]).tril(-1).roll(1, 1).float()
        return after / after.sum(1, keepdim=True).clamp(min=1)

    def ahead(tokens):
        after = (tokens[:, None] == tokens[None]).roll(1, 1).float()
        after[:, 0] = 0
        after[:, 0] += after.sum(1) == 0
        return after / after.sum(1, keepdim=True)

    wrong = [
        (duplicates, "right after them"),
        (not_divided, "sums to one"),
        (nothing_found, "first place"),
        (ahead, "future"),
    ]
    assert_check(c203.ex1, right=[solution("203", 1), match_by_loop], stub=stub("203", 1), wrong=wrong)


def test_entropy():
    def by_loop(pattern):
        shares = []
        for query, row in enumerate(pattern.tolist()):
            if query:
                shares.append(-sum(p * math.log(p) for p in row if p > 0) / math.log(query + 1))
        return sum(shares) / len(shares)

    def one_divisor(pattern):
        return torch.special.entr(pattern)[1:].sum(1).mean() / math.log(len(pattern))

    def with_nan(pattern):
        seen = torch.arange(2, len(pattern) + 1).log()
        return -((pattern * pattern.log())[1:].sum(1) / seen).mean()

    def in_nats(pattern):
        return torch.special.entr(pattern)[1:].sum(1).mean()

    def turned(pattern):
        return -by_loop(pattern)

    wrong = [(one_divisor, "its own log"), (with_nan, "NaN"), (in_nats, "in nats"), (turned, "sign")]
    assert_check(c203.ex2, right=[solution("203", 2), by_loop], stub=stub("203", 2), wrong=wrong)


def test_smallest_subset():
    def by_size(shares):
        edges = (len(shares) - 1).bit_length()
        for size in range(edges + 1):
            if any(shares[n] >= 0.9 for n in range(len(shares)) if bin(n).count("1") == size):
                return size

    def number(shares):
        return int((shares >= 0.9).nonzero()[0])

    def greedy(shares):
        now = len(shares) - 1
        while True:
            cut = [now ^ (1 << bit) for bit in range(now.bit_length()) if now >> bit & 1]
            fine = [subset for subset in cut if shares[subset] >= 0.9]
            if not fine:
                return bin(now).count("1")
            now = fine[0]

    def largest(shares):
        return max(bin(n).count("1") for n in range(len(shares)) if shares[n] >= 0.9)

    wrong = [(number, "subset's number"), (largest, "largest"), (lambda shares: 1, "too small")]
    assert_check(c203.ex3, right=[solution("203", 3), by_size], stub=stub("203", 3), wrong=wrong)


def test_a_telling_sequence():
    def turning():
        return torch.arange(64) * 2 % 5

    def random():
        return torch.randint(5, (64,), generator=generator(0))

    def constant():
        return torch.zeros(64, dtype=torch.long)

    def short():
        return torch.arange(10) % 5

    wrong = [(random, "2-Gen is not sure"), (constant, "1-Gen agrees"), (short, "64 states")]
    assert_check(c203.ex4, right=[solution("203", 4), turning], stub=stub("203", 4), wrong=wrong)
