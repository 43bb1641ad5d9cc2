"""Checks of chapter 401 on right answers, the stubs, and likely mistakes."""

import math

import pytest
import torch
from checking import assert_check, solution, stub

from iclkit.checks import c401
from iclkit.fast.adamw import AdamW
from iclkit.tasks.fewshot import edges
from iclkit.training_config import TrainConfig


def test_how_many_classes_are_left():
    def one_by_one(n, exponent):
        share = [r**-exponent for r in range(1, n + 1)]
        return sum(share) ** 2 / sum(s * s for s in share)

    def turned_over(n, exponent):
        return 1 / one_by_one(n, exponent)

    def not_normalised(n, exponent):
        return 1 / sum(r ** (-2 * exponent) for r in range(1, n + 1))

    def squared_late(n, exponent):
        return 1.0

    def upside_down(n, exponent):
        return one_by_one(n, -exponent)

    def one_less(n, exponent):
        return one_by_one(max(n - 1, 1), exponent)

    def perplexity(n, exponent):
        return math.exp(-sum(p * math.log(p) for p in c401.zipf(n, exponent).tolist()))

    wrong = [
        (turned_over, "turn it over"),
        (not_normalised, "add up to 1"),
        (squared_late, "then add them up"),
        (upside_down, "has a minus"),
        (one_less, "last rank"),
        (perplexity, "entropy"),
    ]
    assert_check(c401.ex1, right=[solution("401", 1), one_by_one], stub=stub("401", 1), wrong=wrong)


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0])
def test_the_task_draws_as_many(exponent):
    ends = edges(1600, exponent, torch.device("cpu"))
    p = ends.diff().double() / ends[-1]
    found = torch.as_tensor(solution("401", 1)(1600, exponent), dtype=torch.float64)
    torch.testing.assert_close(found, 1 / p.square().sum(), rtol=1e-4, atol=0)


def test_what_decay_leaves():
    def one_by_one(updates, warmup, lr, decay, first=1, last=1.0):
        left = 1.0
        for step in range(updates):
            rate = min(last, (step + first) / warmup) if warmup else 1.0
            left *= 1 - lr * rate * decay
        return left

    def smooth(updates, warmup, lr, decay):
        warm = min(updates, warmup)
        learned = updates - warm + (warm * (warm + 1) / (2 * warmup) if warmup else 0)
        return math.exp(-lr * decay * learned)

    def lost(*how):
        return 1 - one_by_one(*how)

    def full_at_once(updates, warmup, lr, decay):
        return (1 - lr * decay) ** updates

    def after_the_warmup(updates, warmup, lr, decay):
        return (1 - lr * decay) ** max(0, updates - warmup)

    def by_the_last(updates, warmup, lr, decay):
        return (1 - lr * decay * min(1, updates / max(warmup, 1))) ** updates

    def without_end(*how):
        return one_by_one(*how, last=math.inf)

    def from_zero(*how):
        return one_by_one(*how, first=0)

    def added_up(*how):
        return 1 + math.log(smooth(*how))

    def without_rate(updates, warmup, lr, decay):
        return one_by_one(updates, warmup, 1.0, decay)

    wrong = [
        (lost, "asked is what is left"),
        (full_at_once, "still grows"),
        (after_the_warmup, "decays too"),
        (by_the_last, "each has its own"),
        (without_end, "warm-up ends"),
        (from_zero, "not 0"),
        (added_up, "multiply"),
        (without_rate, "goes by the rate"),
    ]
    assert_check(c401.ex2, right=[solution("401", 2), one_by_one, smooth], stub=stub("401", 2), wrong=wrong)


@pytest.mark.parametrize(("warmup", "factor"), [(5, 1.0), (5, 0.3), (0, 1.0), (40, 0.3)])
def test_the_optimiser_leaves_as_much(warmup, factor):
    """Of weights without a gradient; where the rate has a factor, decay has it too."""
    config = TrainConfig(steps=30, lr=0.1, weight_decay=0.4, warmup=warmup)
    rows = torch.ones(1, 3, dtype=torch.float64)
    factors = None if factor == 1 else torch.full_like(rows, factor)
    optimiser = AdamW(rows, 2, [config], factors)
    for _ in range(30):
        optimiser.step(torch.zeros_like(rows))
    left = float(solution("401", 2)(30, warmup, 0.1 * factor, 0.4))
    torch.testing.assert_close(
        rows, torch.tensor([[left, left, 1.0]], dtype=torch.float64), rtol=1e-5, atol=0
    )


def test_which_way_every_seed_goes():
    def seed_by_seed(late, plain, gain):
        found = []
        for dose in late.tolist():
            changes = [x - y for x, y in zip(dose, plain.tolist())]
            found.append(int(min(changes) > gain) - int(max(changes) < -gain))
        return torch.tensor(found)

    def mean(late, plain, gain):
        return seed_by_seed(late.mean(1, keepdim=True), plain.mean()[None], gain)

    def median(late, plain, gain):
        return seed_by_seed((late - plain).median(1, keepdim=True).values, torch.zeros(1), gain)

    def unpaired(late, plain, gain):
        up = late.amin(1) > plain.max() + gain
        return up.int() - (late.amax(1) < plain.min() - gain).int()

    def at_least(late, plain, gain):
        return seed_by_seed(late, plain, gain - 1e-9)

    def without_sign(late, plain, gain):
        return ((late - plain).abs() > gain).all(1).int()

    def sign_of_the_mean(late, plain, gain):
        return without_sign(late, plain, gain) * (late - plain).mean(1).sign().int()

    def some(late, plain, gain):
        change = late - plain
        return (change > gain).any(1).int() - (change < -gain).any(1).int()

    def without_gain(late, plain, gain):
        return seed_by_seed(late, plain, 0.0)

    def only_up(late, plain, gain):
        return seed_by_seed(late, plain, gain).clamp(min=0)

    wrong = [
        (mean, "not the mean"),
        (median, "not the median"),
        (unpaired, "paired"),
        (at_least, "not ≥"),
        (without_sign, "has a sign"),
        (sign_of_the_mean, "the same way"),
        (some, "not one of them"),
        (without_gain, "more than the gain"),
        (only_up, "lower Flip too"),
        (lambda late, plain, gain: -seed_by_seed(late, plain, gain), "wrong sign"),
    ]
    assert_check(c401.ex3, right=[solution("401", 3), seed_by_seed], stub=stub("401", 3), wrong=wrong)
