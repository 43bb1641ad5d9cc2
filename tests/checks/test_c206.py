"""Checks of chapter 206 on right answers, the stubs, and likely mistakes."""

import numpy as np
import torch
from checking import assert_check, solution, stub

from iclkit.checks import c206
from iclkit.minimal.capacity import by_line
from iclkit.minimal.recognition import features


def test_pooled_code():
    def by_shares(tokens, W_enc):
        return features(tokens, 3)[0][:, -1] @ W_enc

    def summed(tokens, W_enc):
        return (tokens.shape[1] - 1) * by_shares(tokens, W_enc)

    def turned(tokens, W_enc):
        return by_shares(tokens.flip(1), W_enc)

    def last(tokens, W_enc):
        return W_enc[3 * tokens[:, -2] + tokens[:, -1]]

    wrong = [(summed, "not a sum"), (turned, "earlier state counts"), (last, "not the last one alone")]
    assert_check(c206.ex1, right=[solution("206", 1), by_shares], stub=stub("206", 1), wrong=wrong)


def test_zero_of_the_line():
    def zero(K, wait):
        return by_line(K, wait)[0]

    def slope(K, wait):
        known = np.isfinite(wait)
        return np.polyfit(K[known], wait[known] ** -0.5, 1)[0]

    def of_the_wait(K, wait):
        known = np.isfinite(wait)
        a, b = np.polyfit(K[known], wait[known], 1)
        return -b / a

    def filled(K, wait):
        return zero(K, np.nan_to_num(wait, nan=np.nanmax(wait)))

    wrong = [(slope, "slope"), (of_the_wait, "not Δτ"), (filled, "leave censored runs out")]
    assert_check(c206.ex2, right=[solution("206", 2), zero], stub=stub("206", 2), wrong=wrong)


def test_counting_from_phi():
    def by_loops(seen, now, n):
        answer = torch.ones(len(seen), 3)
        for b in range(len(seen)):
            state = int(now[b].argmax())
            answer[b] += (n - 1) * seen[b, 3 * state : 3 * state + 3]
        return answer / answer.sum(1, keepdim=True)

    def column(seen, now, n):
        return by_loops(seen.unflatten(1, (3, 3)).mT.flatten(1), now, n)

    def one_too_many(seen, now, n):
        return by_loops(seen, now, n + 1)

    def shares(seen, now, n):
        return by_loops(seen, now, 2)

    wrong = [(column, "begin with it"), (one_too_many, "n − 1 pairs"), (shares, "not counts")]
    assert_check(c206.ex3, right=[solution("206", 3), by_loops], stub=stub("206", 3), wrong=wrong)


def test_twins():
    uniform, lazy = torch.full((3, 3), 1 / 3), 0.4 * torch.eye(3) + 0.2

    def different_means(W_enc):
        return uniform, torch.tensor([0.8, 0.1, 0.1]).expand(3, -1)

    def same_chain(W_enc):
        return lazy, lazy

    def not_stochastic(W_enc):
        return uniform, 2 * lazy

    wrong = [(different_means, "equal within"), (same_chain, "differ by"), (not_stochastic, "sum to one")]
    assert_check(
        c206.ex4, right=[solution("206", 4), lambda W_enc: (uniform, lazy)], stub=stub("206", 4), wrong=wrong
    )
