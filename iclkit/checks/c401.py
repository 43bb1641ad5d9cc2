"""Checks of chapter 401: how many classes Zipf's law leaves, what decay leaves, which way every seed goes."""

import math

import torch

from iclkit.checks import exercise, same


@exercise(seconds=5)
def ex1(answer):
    """`answer(n, exponent)`: 1 / Σ p² of n classes with p ∝ r^−exponent, r = 1 … n."""
    for n, exponent in ((1600, 1.0), (1600, 0.5), (7, 2.0), (1600, 0.0), (1, 1.0)):
        p = zipf(n, exponent)
        want = effective(p)
        share = torch.arange(1, n + 1, dtype=torch.float64) ** -exponent
        mistakes = {
            "that is the chance that two draws are of one class; turn it over": 1 / want,
            "probabilities add up to 1: divide by their sum first": 1 / share.square().sum(),
            "square each p, then add them up; 1 is the square of their sum": torch.ones_like(want),
            "rank 1 is the most frequent class: the exponent has a minus": effective(zipf(n, -exponent)),
            "the last rank is n": effective(zipf(max(n - 1, 1), exponent)),
            "that is the exponential of the entropy, another count of classes": torch.special.entr(p)
            .sum()
            .exp(),
        }
        same(answer(n, exponent), want, name="the effective number", mistakes=mistakes)
    return "from 1,600 classes at the exponent 0 to a few dozen at 1"


def zipf(n: int, exponent: float) -> torch.Tensor:
    """Probabilities of the ranks 1 … n, ∝ rank^−exponent."""
    share = torch.arange(1, n + 1, dtype=torch.float64) ** -exponent
    return share / share.sum()


def effective(p: torch.Tensor) -> torch.Tensor:
    """One over the chance that two draws are of one class."""
    return 1 / p.square().sum()


@exercise(seconds=5)
def ex2(answer):
    """`answer(updates, warmup, lr, decay)`: the product of 1 − lr_t·decay; exp(−Σ) is as good."""
    cases = ((3000, 4000, 1e-3, 0.5), (12_000, 4000, 1e-3, 0.1), (6, 4, 0.1, 0.5), (100, 0, 0.01, 1.0))
    for updates, warmup, lr, decay in cases:
        rates, dose = warmed(updates, warmup), lr * decay
        want = (1 - dose * rates).prod()
        steps = torch.arange(updates, dtype=torch.float64)
        unending = (steps + 1) / warmup if warmup else rates
        from_zero = (steps / warmup).clamp(max=1) if warmup else rates
        mistakes = {
            "that is what is lost; asked is what is left": 1 - want,
            "in the warm-up the rate still grows, and decay with it": (1 - dose) ** updates,
            "the warm-up decays too, at its own rates": (1 - dose) ** max(updates - warmup, 0),
            "that is the rate at the end for all updates; each has its own": (1 - dose * rates[-1])
            ** updates,
            "the warm-up ends: from then on the rate is lr": (1 - dose * unending).prod(),
            "the first update has the rate lr/warmup, not 0; or is one update missing?": (
                1 - dose * from_zero
            ).prod(),
            "an update takes its share of what is left: multiply, do not add up": 1 - dose * rates.sum(),
            "decoupled decay goes by the rate: 1 − lr_t·decay": (1 - decay * rates).prod(),
        }
        given = answer(updates, warmup, lr, decay)
        same(given, want, rtol=0.01, name="what is left", mistakes=mistakes)
    return "each update takes its share of what is left"


def warmed(updates: int, warmup: int) -> torch.Tensor:
    """The rate of each update, as a share of the full one: min(1, (s + 1) / warmup)."""
    steps = torch.arange(1, updates + 1, dtype=torch.float64)
    return (steps / warmup).clamp(max=1) if warmup else torch.ones_like(steps)


PLAIN, GAIN = (0.25, 0.5, 0.75), 0.125  # binary fractions: differences are exact
CHANGES = (  # of each dose, seed by seed, and where it points
    ("all up", (0.25, 0.1875, 0.25), 1),
    ("all far up", (0.6875, 0.4375, 0.1875), 1),
    ("all down", (-0.25, -0.1875, -0.5), -1),
    ("two up", (0.5, 0.5, 0.0), 0),
    ("two down", (-0.25, -0.5, 0.0), 0),
    ("one up alone", (0.1875, 0.0, 0.0), 0),
    ("one down", (0.25, -0.25, 0.25), 0),
    ("up by the gain alone", (0.125, 0.25, 0.125), 0),
    ("down by the gain alone", (-0.125, -0.25, -0.25), 0),
    ("a little up", (0.0625, 0.0625, 0.125), 0),
)


@exercise(seconds=5)
def ex3(answer):
    """`answer(late, plain, gain)`: +1, −1 or 0 for each row of `late`, as every seed goes."""
    plain = torch.tensor(PLAIN, dtype=torch.float64)
    change = torch.tensor([by for _, by, _ in CHANGES], dtype=torch.float64)
    want = torch.tensor([way for *_, way in CHANGES])
    late = change + plain
    moved, median = (change.abs() > GAIN).all(1).int(), change.median(1).values
    apart = (late.amin(1) - plain.max() > GAIN).int() - (late.amax(1) - plain.min() < -GAIN).int()
    mistakes = {
        "one seed may go the other way or stand still: ask each, not the mean": sign(change.mean(1)),
        "one seed may go the other way or stand still: ask each, not the median": sign(median),
        "seeds are paired: take the difference seed by seed, not lowest against highest": apart,
        "a change of exactly the gain is not more than it: >, not ≥": every(change, math.nextafter(GAIN, 0)),
        "a change has a sign: |change| makes a loss of Flip a gain": moved,
        "all seeds move by more than the gain, but do all move the same way?": moved * change.mean(1).sign(),
        "every seed, not one of them": (change > GAIN).any(1).int() - (change < -GAIN).any(1).int(),
        "a change counts when it is more than the gain": every(change, 0.0),
        "a lever can lower Flip too: −1": want.clamp(min=0),
    }
    same(answer(late, plain, GAIN), want, name="the directions", mistakes=mistakes)
    return "a lever counts when every seed goes its way"


def every(change: torch.Tensor, gain: float) -> torch.Tensor:
    """+1 where a whole row is above the gain, −1 where it is below −gain."""
    return (change > gain).all(1).int() - (change < -gain).all(1).int()


def sign(change: torch.Tensor) -> torch.Tensor:
    """+1 above the gain, −1 below −gain."""
    return every(change[:, None], GAIN)
