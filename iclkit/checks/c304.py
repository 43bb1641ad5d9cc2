"""Checks of chapter 304: labels that only the context knows, learning counted by its rate, who was sooner."""

import math

import torch

from iclkit.checks import Wrong, exercise, same
from iclkit.tasks import generator


@exercise(seconds=5)
def ex1(answer):
    """`answer(place, chances, n_labels)`: the labels of the two pairs, `[batch 2]`, and the answers."""
    for seed, n in enumerate((7, 2, 40)):
        random = generator(304, 1, seed)
        chances = torch.rand(50, 2, generator=random, dtype=torch.float64)
        place = torch.randint(2, (50,), generator=random)
        given = answer(place.clone(), chances.clone(), n)
        if not isinstance(given, tuple) or len(given) != 2:
            raise Wrong("return two things: the labels, [batch 2], and the answers, [batch]")
        labels, answers = map(torch.as_tensor, given)
        want = two_labels(chances, n)
        if labels.shape == want.shape and (labels[:, 0] == labels[:, 1]).any():
            raise Wrong("two labels of a sequence are the same in places; the second steps over the first")
        low = torch.stack([want[:, 0], (chances[:, 1] * (n - 1)).long()], 1)
        mistakes = {
            "the second label never comes above n − 2: where it would be the first or more, add 1": low,
            "labels are whole numbers 0 … n − 1, so begin at 0": want + 1,
        }
        same(labels, want, name="the labels", mistakes=mistakes)
        right = want.gather(1, place[:, None])[:, 0]
        mistakes = {
            "that is the label of the other pair": want.gather(1, 1 - place[:, None])[:, 0],
            "the answer is a label, not the place where it stands": place,
            "the answer is one number a sequence, [batch], not [batch 1]": right[:, None],
        }
        same(answers, right, name="the answers", mistakes=mistakes)
    return "two different labels that say nothing about the classes"


def two_labels(chances, n: int):
    """An ordered pair of different labels from two chances, each pair as likely as any other."""
    first, second = (chances[:, 0] * n).long(), (chances[:, 1] * (n - 1)).long()
    return torch.stack([first, second + (second >= first)], 1)


@exercise(seconds=5)
def ex2(answer):
    """`answer(updates, warmup)`: updates counted by their rate, the sum of min(1, (s + 1) / warmup)."""
    for updates, warmup in ((9000, 4000), (1000, 4000), (4000, 4000), (7, 3), (50, 1)):
        want = sum(min(1.0, (s + 1) / warmup) for s in range(updates))
        warm = min(updates, warmup)
        mistakes = {
            "every update counts fully: those of the warm-up count less": float(updates),
            "that is the rate at the end; add up the rates of all updates": min(1.0, updates / warmup),
            "the warm-up ends: no update counts more than 1": updates * (updates + 1) / (2 * warmup),
            "the warm-up counts too, by half of its updates": float(updates - warm),
            "half a warm-up is taken off, but some updates lie within it": updates - warmup / 2,
        }
        given = answer(updates, warmup)
        mistakes = {words: torch.tensor(value, dtype=torch.float64) for words, value in mistakes.items()}
        far = {w: v for w, v in mistakes.items() if abs(v.item() - want) > 1 + 0.01 * want}
        exact = torch.tensor(want, dtype=torch.float64)
        same(
            given, exact, rtol=0, atol=0.6, name="the learning", mistakes=far
        )  # t² / 2w is as good as the sum
    return "an update of the warm-up counts by its rate"


CURVES = (  # accuracy on ICL at looks 0, 500 … 3,000
    ("scratch", (0.5, 0.5, 0.5, 0.5, 0.6, 0.8, 0.9), 2500.0),
    ("sooner", (0.5, 0.5, 0.8, 0.9, 0.9, 0.9, 0.9), 1000.0),
    ("a flicker", (0.5, 0.8, 0.5, 0.5, 0.8, 0.9, 0.9), 2000.0),
    ("never", (0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5), math.inf),
    ("at the last look alone", (0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.8), math.inf),
    ("exactly the level", (0.5, 0.5, 0.5, 0.75, 0.75, 0.75, 0.75), 1500.0),
)


@exercise(seconds=5)
def ex3(answer):
    """`answer(steps, icl, level)`: for each row of `icl` the first of two looks in a row at the level."""
    steps = torch.arange(0, 3001, 500)
    icl = torch.tensor([curve for _, curve, _ in CURVES], dtype=torch.float64)
    want = torch.tensor([when for *_, when in CURVES], dtype=torch.float64)
    once = torch.where((icl >= 0.75).any(1), steps[(icl >= 0.75).int().argmax(1)].double(), math.inf)
    above = want.clone()
    above[-1] = math.inf
    never = {"an end that was not reached is no time": 3000.0, "what never comes is infinite, not 0": 0.0}
    mistakes = {
        "one look may be a flicker: ask for two in a row": once,
        "the first of the two looks is the time, not the second": want + 500,
        "a time, not a number of looks: use `steps`": want / 500,
        "at the level counts: ≥, not >": above,
        "what never comes is infinite; nan cannot be compared": torch.where(want.isinf(), math.nan, want),
    } | {words: torch.where(want.isinf(), value, want) for words, value in never.items()}
    given = answer(steps, icl, 0.75)
    if given is not None:
        given = torch.as_tensor(given, dtype=torch.float64)
    same(given, want, name="the times", mistakes=mistakes)
    return "two looks in a row, and never is infinite"
