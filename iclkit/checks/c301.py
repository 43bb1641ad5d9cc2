"""Checks of chapter 301: an evaluator made from another, two strategies and a preference, a rank."""

import torch

from iclkit.checks import exercise, same
from iclkit.tasks import generator


@exercise(seconds=5)
def ex1(answer):
    """`answer(labels, answers, place)`: the labels of CIWL [batch 2] from those of IWL."""
    for seed, size in enumerate((1, 5, 40)):
        random = generator(301, 1, seed)
        labels = torch.stack([torch.randperm(90, generator=random)[:3] for _ in range(size)])
        place = torch.randint(2, (size,), generator=random)
        labels, answers = labels[:, :2].contiguous(), labels[:, 2]
        want = torch.where(torch.arange(2) == place[:, None], answers[:, None], labels)
        given = answer(labels, answers, place)
        mistakes = {
            "the answer went to the other place: place 0 is the first pair": torch.where(
                torch.arange(2) != place[:, None], answers[:, None], labels
            ),
            "both labels are the answer now; one keeps its own": answers[:, None].expand(-1, 2),
            "these are the labels of IWL still: the answer stands nowhere": labels,
        }
        same(given, want, name="the labels", mistakes=mistakes)
    return "the answer stands once, where it should"


def accuracies(i: float, c: float, p: float) -> tuple[float, float, float]:
    """Flip, ICL and CIWL of who can use the context with chance i, its weights with c, and where both would
    do, follows the context with p."""
    return i * (1 - c) + i * c * p + (1 - i) * (1 - c) / 2, (1 + i) / 2, (1 + c) / 2


@exercise(seconds=5)
def ex2(answer):
    """`answer(flip, icl, ciwl)`: how often the context is preferred where both strategies can be used."""
    for i, c, p in ((0.5, 0.6, 0.5), (0.9, 0.4, 0.8), (0.3, 0.9, 0.1), (1.0, 1.0, 0.7)):
        flip, icl, ciwl = accuracies(i, c, p)
        both = i * c
        mistakes = {
            "ICL's accuracy is not how often it can be used: half of the rest is guessed right": (
                flip - icl * (1 - ciwl) - (1 - icl) * (1 - ciwl) / 2
            )
            / (icl * ciwl),
            "where neither can be used, half is guessed right: subtract that too": (flip - i * (1 - c))
            / both,
            "a guess is right half of the time: subtract half of where neither can be used": (
                flip - i * (1 - c) - (1 - i) * (1 - c)
            )
            / both,
            "divide by how often both can be used": both * p,
            "that is how often the weights are preferred": 1 - p,
        }
        mistakes = {name: torch.tensor(float(value)) for name, value in mistakes.items()}
        same(answer(flip, icl, ciwl), torch.tensor(p), rtol=1e-3, name="the preference", mistakes=mistakes)
    return "availability taken out, preference left"


@exercise(seconds=5)
def ex3(answer):
    """`answer(logits, labels, answers)`: how many labels outside the context have a larger logit."""
    for seed, size in enumerate((6, 1, 30)):
        random = generator(301, 3, seed)
        logits = torch.randn(size, 20, generator=random)
        drawn = torch.stack([torch.randperm(20, generator=random)[:3] for _ in range(size)])
        labels, answers = drawn[:, :2], drawn[:, 2]
        logits = logits.scatter_add(1, labels, torch.full((size, 2), 1.5))
        own = logits.gather(1, answers[:, None])
        outside = torch.ones_like(logits, dtype=torch.bool).scatter(1, labels, False)
        want = ((logits > own) & outside).sum(1)
        mistakes = {
            "the two labels of the context do not count": (logits > own).sum(1),
            "count larger logits, not smaller ones": ((logits < own) & outside).sum(1),
            "count larger logits, not smaller ones, −∞ among them": ((logits < own) | ~outside).sum(1),
            "give the rank of the answer, not the label that stands at this rank": (
                logits.masked_fill(~outside, -torch.inf).argsort(1, descending=True)
            )
            .gather(1, answers[:, None])
            .squeeze(1),
            "the best has rank 0: do not count the answer itself": want + 1,
        }
        same(answer(logits, labels, answers), want, name="the rank", mistakes=mistakes)
    return "0 is the top, and the context does not count"
