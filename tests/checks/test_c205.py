"""Checks of chapter 205 on right answers, the stubs, and likely mistakes."""

import numpy as np
import torch
from checking import assert_check, solution, stub

from iclkit.checks import c205


def test_a_time_that_does_not_flicker():
    def by_index(steps, names, phase):
        held = [name == phase for name in names]
        both = [i for i in range(len(held) - 1) if held[i] and held[i + 1]]
        return steps[both[0]] if both else float("nan")

    def flicker(steps, names, phase):
        return steps[names.index(phase)] if phase in names else float("nan")

    def second(steps, names, phase):
        both = [i for i in range(1, len(names)) if names[i - 1] == names[i] == phase]
        return steps[both[0]] if both else float("nan")

    def at_the_end(steps, names, phase):
        found = by_index(steps, names, phase)
        return steps[-1] if np.isnan(found) else found

    wrong = [(flicker, "flicker"), (second, "first of the two looks"), (at_the_end, "float('nan')")]
    assert_check(c205.ex1, right=[solution("205", 1), by_index], stub=stub("205", 1), wrong=wrong)


def test_the_border_from_outcomes():
    def interpolated(K, share):
        right = next(i for i, s in enumerate(share) if s > 0.5)
        return float(np.exp(np.interp(0.5, share[right - 1 : right + 1], np.log(K[right - 1 : right + 1]))))

    def straight(K, share):
        right = next(i for i, s in enumerate(share) if s > 0.5)
        return float(np.interp(0.5, share[right - 1 : right + 1], K[right - 1 : right + 1]))

    def first_above(K, share):
        return float(next(k for k, s in zip(K, share) if s > 0.5))

    def in_logs(K, share):
        return float(np.log(interpolated(K, share)))

    wrong = [(straight, "in log K"), (first_above, "first K above"), (in_logs, "exponential")]
    assert_check(c205.ex2, right=[solution("205", 2), interpolated], stub=stub("205", 2), wrong=wrong)


def test_adam_with_a_brake():
    def by_element(w, grads, lr, factor):
        """Each weight alone, in plain numbers; m and v as weighted sums over all gradients up to now."""
        found = []
        for start, each in zip(w.tolist(), grads.T.tolist()):
            for t in range(1, len(each) + 1):
                m = sum(0.1 * 0.9 ** (t - 1 - i) * each[i] for i in range(t)) / (1 - 0.9**t)
                v = sum(0.02 * 0.98 ** (t - 1 - i) * each[i] ** 2 for i in range(t)) / (1 - 0.98**t)
                start -= factor * lr * m / (v**0.5 + 1e-8)
            found.append(start)
        return torch.tensor(found)

    def on_gradients(w, grads, lr, factor):
        return by_element(w, factor * grads, lr, 1.0)

    def unbraked(w, grads, lr, factor):
        return by_element(w, grads, lr, 1.0)

    def uphill(w, grads, lr, factor):
        return 2 * w - by_element(w, grads, lr, factor)

    wrong = [(on_gradients, "scaled gradient"), (unbraked, "full rate"), (uphill, "subtracted")]
    assert_check(c205.ex3, right=[solution("205", 3), by_element], stub=stub("205", 3), wrong=wrong)
