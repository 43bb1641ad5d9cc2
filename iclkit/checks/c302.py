"""Checks of chapter 302: a row of attention, a preference read from scores, and a head that answers alone."""

import torch

from iclkit.checks import exercise, same
from iclkit.tasks import generator


@exercise(seconds=5)
def ex1(answer):
    """`answer(labels, correct, s)`: the query's attention `[batch 2·pairs+1]`, s on the correct label."""
    for seed, (pairs, s) in enumerate(((2, 0.3), (3, 0.8), (4, 0.0), (2, 1.0))):
        labels, correct = drawn(seed, pairs, batch=6)
        want, exemplars, each = (torch.zeros(6, 2 * pairs + 1) for _ in range(3))
        right = labels == correct[:, None]
        share = torch.where(right, s, (1 - s) / (pairs - 1))
        want[:, 1::2], exemplars[:, 0:-1:2] = share, share
        each[:, 1::2] = torch.where(right, s, 1 - s)
        among_all = want.clone()
        among_all[:, 1::2] = torch.where(right, s, (1 - s) / pairs)
        away = want.clone()
        away[:, 1::2] = torch.where(right, 1 - s, s / (pairs - 1))
        mistakes = {
            "that is on the exemplars; labels stand at 1, 3, …": exemplars,
            "the other labels share what is left: a row of attention sums to 1": each,
            "the others are one fewer than the labels": among_all,
            "s is for the correct label, the rest for the others": away,
            "the query itself stands last: there is one key more than exemplars and labels": want[:, :-1],
        }
        same(answer(labels.clone(), correct.clone(), s), want, name="the attention", mistakes=mistakes)
    return "s on the correct label, wherever it stands, and rows that sum to 1"


@exercise(seconds=5)
def ex2(answer):
    """`answer(scores)`: how often the diagonal is larger than another entry of its row."""
    for seed, size in enumerate((3, 8, 20)):
        scores = torch.randn(size, size, generator=generator(302, 2, seed))
        scores += torch.eye(size) + torch.randn(size, generator=generator(302, 3, seed))
        own, pairs = scores.diagonal(), size * (size - 1)
        wins = own[:, None] > scores
        mistakes = {
            "compare within a row: one query, different labels": (own > scores).sum() / pairs,
            "there are n − 1 others in a row, not n": wins.sum() / size**2,
            "own against own is no comparison: it is never larger than itself": (own[:, None] >= scores).sum()
            / pairs,
            "count pairs: being second best is better than being last": (
                scores.argmax(1) == torch.arange(size)
            )
            .float()
            .mean(),
            "that is how often the own label loses": 1 - wins.sum() / pairs,
        }
        same(answer(scores.clone()), wins.sum() / pairs, name="the share", mistakes=mistakes)
    return "own label against every other, row by row"


@exercise(seconds=5)
def ex3(answer):
    """`answer(attention, labels, spoken)`: the label `[batch]` that a head alone answers with."""
    for seed, pairs in enumerate((2, 2, 3)):
        labels, _ = drawn(seed + 20, pairs, batch=40)
        attention = torch.rand(40, pairs, generator=generator(302, 4, seed))
        attention = attention / attention.sum(1, keepdim=True)
        spoken = torch.randn(9, 9, generator=generator(302, 5, seed)) + torch.eye(9)
        logits, across = attended(attention, labels, spoken), attended(attention, labels, spoken.T)
        even = attended(torch.ones_like(attention), labels, spoken)
        want = among(logits, labels)
        mistakes = {
            "only labels that stand in the context count": logits.argmax(1),
            "that is the place of the pair; give its label": logits.gather(1, labels).argmax(1),
            "spoken[a, b] is what a's value says of b: rows are attended, columns are said": among(
                across, labels
            ),
            "what a label says is weighted by the attention it gets": among(even, labels),
            "where it looks is not yet what it says: multiply by spoken": labels.gather(
                1, attention.argmax(1, keepdim=True)
            )[:, 0],
        }
        same(
            answer(attention.clone(), labels.clone(), spoken.clone()),
            want,
            name="the answer",
            mistakes=mistakes,
        )
    return "look, sum what is said, choose among the labels that are there"


def attended(attention, labels, spoken):
    """Logits `[batch label]`: what the labels of the context say, weighted by attention."""
    return (attention[..., None] * spoken[labels]).sum(1)


def among(logits, labels):
    """The label of the context with the largest logit."""
    return labels.gather(1, logits.gather(1, labels).argmax(1, keepdim=True))[:, 0]


def drawn(seed: int, pairs: int, batch: int):
    """Different labels `[batch pair]` out of nine, and one of each row as the correct one."""
    random = generator(302, 1, seed)
    labels = torch.rand(batch, 9, generator=random).argsort(1)[:, :pairs]
    return labels, labels.gather(1, torch.randint(pairs, (batch, 1), generator=random))[:, 0]
