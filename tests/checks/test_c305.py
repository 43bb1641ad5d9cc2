"""Checks of chapter 305 on right answers, the stubs, and likely mistakes."""

import numpy as np
import torch
from checking import assert_check, solution, stub

from iclkit.checks import c305


def test_a_loss_without_its_tensor():
    def with_tensors(vectors, targets):
        mine, true = (torch.einsum("i,j,k->ijk", *three) for three in (vectors, targets))
        return ((true - mine) ** 2).mean() / 2

    def without_half(vectors, targets):
        return 2 * with_tensors(vectors, targets)

    def a_sum(vectors, targets):
        return with_tensors(vectors, targets) * np.prod([len(v) for v in vectors])

    def cross_once(vectors, targets):
        cross = torch.stack([v @ t for v, t in zip(vectors, targets)]).prod()
        return with_tensors(vectors, targets) + cross / (2 * np.prod([len(v) for v in vectors]))

    wrong = [(without_half, "factor 1/2"), (a_sum, "a mean"), (cross_once, "counts twice")]
    assert_check(c305.ex1, right=[solution("305", 1), with_tensors], stub=stub("305", 1), wrong=wrong)


def test_the_pull_on_a():
    def by_autograd(vectors, targets, M2, alpha):
        a, b, c, d = vectors
        a = a.clone().requires_grad_()
        M1 = (torch.einsum("i,j,k", *targets[:3]) - torch.einsum("i,j,k", a, b, c)).square().mean() / 2
        loss = (M1 + 0.1) * M2 + alpha * torch.outer(a, d).square().mean() / 2
        return torch.autograd.grad(loss, a)[0]

    def alone(vectors, targets, M2, alpha):
        return by_autograd(vectors, targets, M2, 0.0)

    def unweighted(vectors, targets, M2, alpha):
        return by_autograd(vectors, targets, 1.0, alpha)

    def downhill(vectors, targets, M2, alpha):
        return -by_autograd(vectors, targets, M2, alpha)

    wrong = [(alone, "competition"), (unweighted, "weighted by"), (downhill, "uphill")]
    assert_check(c305.ex2, right=[solution("305", 2), by_autograd], stub=stub("305", 2), wrong=wrong)


def test_a_lifetime():
    def by_arrays(steps, share):
        low = np.array(share) <= 0.5
        if not low.any():
            return float("nan")
        first = low.argmax()
        after = ~low[first:]
        return float(steps[first + after.argmax()] - steps[first]) if after.any() else float("nan")

    def from_zero(steps, share):
        found = by_arrays(steps, share)
        return found if np.isnan(found) else found + steps[int(np.argmax(np.array(share) <= 0.5))]

    def to_the_end(steps, share):
        found = by_arrays(steps, share)
        return float(steps[-1]) if np.isnan(found) else found

    def looks(steps, share):
        found = by_arrays(steps, share)
        return found if np.isnan(found) else float(sum(s <= 0.5 for s in share))

    wrong = [(from_zero, "not from step 0"), (to_the_end, "float('nan')"), (looks, "number of looks")]
    assert_check(c305.ex3, right=[solution("305", 3), by_arrays], stub=stub("305", 3), wrong=wrong)
