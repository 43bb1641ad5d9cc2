"""Checks of chapter 207 on right answers, the stubs, and likely mistakes."""

import math

import numpy as np
import torch
from checking import assert_check, solution, stub

from iclkit.checks import c207
from iclkit.minimal.sa import SA, Contexts, coefficients
from iclkit.tasks import generator


def matched(tokens, delta):
    return SA(5, delta=delta).match(tokens)


def test_match():
    def lonely_first_place(tokens, delta):
        answer = matched(tokens, delta)
        answer[:, 0] /= math.exp(delta)
        return answer

    def no_delta(tokens, delta):
        return matched(tokens, 0.0)

    def not_normalised(tokens, delta):
        same = (tokens == tokens[:, -1:]).double()
        count = same.cumsum(1)
        count[:, 1:] += (math.exp(delta) - 1) * same[:, :-1]
        return count / torch.arange(1, tokens.shape[1] + 1)

    wrong = [(lonely_first_place, "first place"), (no_delta, "δ changes nothing")]
    wrong += [(not_normalised, "not by m")]
    assert_check(c207.ex1, right=[solution("207", 1), matched], stub=stub("207", 1), wrong=wrong)


def test_slope():
    def c_delta(tokens, rows):
        return tuple(coefficients(Contexts(tokens, rows))["c_delta"])

    def spread(tokens, rows):
        mean, error = c_delta(tokens, rows)
        return mean, error * len(tokens) ** 0.5

    def turned(tokens, rows):
        mean, error = c_delta(tokens, rows)
        return -mean, error

    def whole_sequence(tokens, rows):
        mean, error = c_delta(tokens, rows)
        return tokens.shape[1] * mean, error

    wrong = [(spread, "mean's error"), (turned, "sign"), (whole_sequence, "1/N")]
    wrong += [(lambda *data: 1.0, "two numbers")]
    assert_check(c207.ex2, right=[solution("207", 2), c_delta], stub=stub("207", 2), wrong=wrong)


def test_wait():
    def by_steps(a, b, c):
        beta = delta = time = 0.0
        step = 2e-4 / c
        while beta < 2:
            beta, delta, time = beta + step * (a + c * delta), delta + step * (b + c * beta), time + step
        return time

    def of_delta(a, b, c):
        return by_steps(b, a, c)

    def of_the_sum(a, b, c):
        return math.log(1 + 2 * c / (a + b)) / c

    def alone(a, b, c):
        return 2 / max(a, 1e-12)

    wrong = [(of_delta, "a pushes β"), (of_the_sum, "β + δ"), (alone, "without help")]
    assert_check(c207.ex3, right=[solution("207", 3), by_steps], stub=stub("207", 3), wrong=wrong)


def test_world():
    def one_die(batch, seq, seed):
        rows = torch.tensor([0.4, 0.3, 0.1, 0.1, 0.1]).expand(batch, -1)
        return torch.multinomial(rows, seq, replacement=True, generator=generator(seed)), rows.double()

    def chains(batch, seq, seed):
        drawn = c207.contexts(c207.Markov(vocab=5, K=None, length=seq, batch_size=batch), seed)
        return tuple(drawn)

    def constant(batch, seq, seed):
        rows = torch.tensor(np.random.default_rng(seed).dirichlet(np.ones(5), batch))
        return rows.argmax(1, keepdim=True).expand(-1, seq), rows

    def fair(batch, seq, seed):
        rows = torch.full((batch, 5), 0.2).double()
        return torch.multinomial(rows, seq, replacement=True, generator=generator(seed)), rows

    def one_seed(batch, seq, seed):
        return one_die(batch, seq, 0)

    wrong = [
        (chains, "must not tell what comes after"),
        (constant, "constant"),
        (fair, "equally likely"),
        (one_seed, "same tokens"),
    ]
    assert_check(c207.ex4, right=[solution("207", 4), one_die], stub=stub("207", 4), wrong=wrong)
