"""Checks of chapter 201 on right answers, the stubs, and likely mistakes."""

import torch
from checking import assert_check, solution, stub

from iclkit.checks import c201


def test_two_gen():
    def by_loop(x, C, alpha):
        seen = torch.full((C,), float(alpha))
        for now, following in zip(x[:-1], x[1:]):
            seen[following] += now == x[-1]
        return seen / seen.sum()

    def states(x, C, alpha):
        seen = torch.bincount(x, minlength=C) + alpha
        return seen / seen.sum()

    def seen_before(x, C, alpha):
        seen = torch.bincount(x[:-1][x[1:] == x[-1]], minlength=C) + alpha
        return seen / seen.sum()

    def not_divided(x, C, alpha):
        return by_loop(x, C, alpha) * (C * alpha + (x[:-1] == x[-1]).sum())

    wrong = [(states, "1-Gen"), (seen_before, "before"), (not_divided, "divide by the sum")]
    assert_check(c201.ex1, right=[solution("201", 1), by_loop], stub=stub("201", 1), wrong=wrong)


def test_posterior():
    def by_loop(x, P, pi):
        joint = pi[:, x[0]].log()
        for now, following in zip(x[:-1], x[1:]):
            joint = joint + P[:, now, following].log()
        return (joint - joint.logsumexp(0)).exp()

    def product(x, P, pi):
        joint = pi[:, x[0]] * P[:, x[:-1], x[1:]].prod(1)
        return joint / joint.sum()

    def without_first(x, P, pi):
        return P[:, x[:-1], x[1:]].log().sum(1).softmax(0)

    def of_states(x, P, pi):
        return pi[:, x].log().sum(1).softmax(0)

    wrong = [(product, "NaN"), (without_first, "first state"), (of_states, "1-Mem")]
    assert_check(c201.ex2, right=[solution("201", 2), by_loop], stub=stub("201", 2), wrong=wrong)


def test_a_chain_that_fools_the_memory():
    def unlikeliest(P):
        """Each state goes where the mean log-probability over chains is least."""
        chain = torch.full((5, 5), 0.01, dtype=P.dtype)
        chain[torch.arange(5), P.log().mean(0).argmin(1)] = 0.96
        return chain

    def known(P):
        return P[0]

    def certain_but_known(P):
        chain = torch.full((5, 5), 0.01, dtype=P.dtype)
        chain[torch.arange(5), P[0].argmax(1)] = 0.96
        return chain

    def not_summed(P):
        return torch.ones(5, 5)

    def zeros(P):
        return torch.eye(5).roll(1, 1)

    wrong = [
        (known, "more certain"),
        (certain_but_known, "find unlikely"),
        (not_summed, "sum to one"),
        (zeros, "positive"),
    ]
    assert_check(c201.ex3, right=[solution("201", 3), unlikeliest], stub=stub("201", 3), wrong=wrong)
