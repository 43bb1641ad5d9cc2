"""Checks of chapter 205: times of a race, the threshold they give, and an update at a pace of its own."""

import math

import numpy as np
import torch

from iclkit.checks import Wrong, exercise, same
from iclkit.phases import first_time
from iclkit.tasks import generator


@exercise(seconds=5)
def ex1(answer):
    """`answer(steps, names, phase)`: the first step of two looks in a row in that phase, NaN without."""
    steps = [0, 10, 25, 40, 80, 100]
    for text in ("ABABBA", "BBAAAA", "AABAAB", "ABAAAA", "AAAABB", "AAAAAB"):
        names = ["2-Gen" if letter == "B" else "undecided" for letter in text]
        held = np.array(names) == "2-Gen"
        want, flicker = float(first_time(steps, held, 2)), float(first_time(steps, held))
        second = want if math.isnan(want) else float(steps[steps.index(int(want)) + 1])
        places = want if math.isnan(want) else float(steps.index(int(want)))
        never = [value for value in (0.0, -1.0, float(steps[-1])) if math.isnan(want)]
        given = answer(list(steps), list(names), "2-Gen")
        if any(given == value for value in never):
            raise Wrong(f"a phase that never lasts two looks has no time: float('nan'), not {given}")
        same(
            torch.tensor(float("nan")) if given is None and math.isnan(want) else given,
            torch.tensor(want),
            name="the time",
            mistakes={
                "one look is a flicker: the next look must be in the phase too": torch.tensor(flicker),
                "the time is the first of the two looks, not the second": torch.tensor(second),
                "give the step, steps[i], not the number of the look": torch.tensor(places),
            },
        )
    return "the first of two looks in a row, and NaN where it never lasts"


@exercise(seconds=5)
def ex2(answer):
    """`answer(K, share)`: where the share of runs that generalise first passes one half, K on a log axis."""
    for K, share in (
        ([8, 16, 32], [0.0, 0.25, 1.0]),
        ([4, 8, 10, 64], [0.0, 0.2, 0.4, 0.9]),
        ([2, 50], [0.1, 0.6]),
    ):
        want, straight = crossing(np.log(K), share), crossing(K, share)
        after = next(k for k, s in zip(K, share) if s > 0.5)
        before = K[K.index(after) - 1]
        same(
            answer(list(K), list(share)),
            torch.tensor(math.exp(want)),
            rtol=1e-3,
            name="the threshold",
            mistakes={
                "interpolate in log K, not in K: K is spaced by factors": torch.tensor(float(straight)),
                "that is log K; take the exponential": torch.tensor(want),
                "that is the first K above one half; it lies between this K and the one before": torch.tensor(
                    float(after)
                ),
                "that is the last K below one half; it lies between this K and the next": torch.tensor(
                    float(before)
                ),
                "that is the middle of the two K; use how far the shares are from one half": torch.tensor(
                    math.sqrt(before * after)
                ),
            },
        )
    return "one half, between the two K around it, on a log axis"


def crossing(x, share) -> float:
    """Where a line through (x, share) first passes one half."""
    at = next(i for i, s in enumerate(share) if s > 0.5)
    part = (0.5 - share[at - 1]) / (share[at] - share[at - 1])
    return float(x[at - 1] + part * (x[at] - x[at - 1]))


@exercise(seconds=10)
def ex3(answer):
    """`answer(w, grads, lr, factor)`: w after these gradients by Adam, its update times `factor`."""
    for seed, factor in enumerate((1.0, 0.1, 0.5, 0.0)):
        random = generator(205, 3, seed)
        w, grads = torch.randn(6, generator=random), torch.randn(12, 6, generator=random)
        want = adam(w, grads, 0.02 * factor)
        mistakes = {
            "the weight moves at the full rate: Adam does not feel a scaled gradient; scale its update": adam(
                w, grads, 0.02
            ),
            "the corrections 1 − β^t of m and v are missing": adam(w, grads, 0.02 * factor, corrected=False),
            "the update is subtracted: w − lr · …": 2 * w - want,
        }
        same(answer(w.clone(), grads.clone(), 0.02, factor), want, name="the weight", mistakes=mistakes)
    return "the update is scaled, and Adam's memory is left alone"


def adam(w, grads, lr, corrected: bool = True, beta1: float = 0.9, beta2: float = 0.98):
    """Adam without decay, one gradient after the other."""
    w, m, v = w.clone(), torch.zeros_like(w), torch.zeros_like(w)
    for t, grad in enumerate(grads, 1):
        m, v = beta1 * m + (1 - beta1) * grad, beta2 * v + (1 - beta2) * grad**2
        b1, b2 = (1 - beta1**t, 1 - beta2**t) if corrected else (1, 1)
        w = w - lr * (m / b1) / ((v / b2).sqrt() + 1e-8)
    return w
