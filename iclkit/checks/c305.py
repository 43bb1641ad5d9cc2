"""Checks of chapter 305: a loss without its tensor, the pull on a vector, and how long a curve stays low."""

import math

import torch

from iclkit.checks import Wrong, exercise, same
from iclkit.tasks import generator


@exercise(seconds=5)
def ex1(answer):
    """`answer(vectors, targets)`: mean((x*⊗y*⊗z* − x⊗y⊗z)²) / 2 of three vectors and their three targets."""
    for seed, dims in enumerate(((2, 3, 4), (5, 5, 5), (2, 7, 3))):
        vectors, targets = drawn(seed, dims), drawn(seed + 10, dims)
        whole, cross, own = (
            math.prod((u @ v).item() for u, v in zip(one, two))
            for one, two in ((targets, targets), (vectors, targets), (vectors, vectors))
        )
        n = math.prod(dims)
        want = (whole - 2 * cross + own) / (2 * n)
        mistakes = {
            "(s − t)² = s² − 2 s t + t²: the middle term counts twice": (whole - cross + own) / (2 * n),
            "(s − t)² = s² − 2 s t + t²: the middle term is subtracted": (whole + 2 * cross + own) / (2 * n),
            "the factor 1/2 is missing": 2 * want,
            "a mean, not a sum: divide by the number of entries": n * want,
            "divide by the number of entries, the product of the three lengths": n * want / sum(dims),
        }
        mistakes = {words: torch.tensor(value) for words, value in mistakes.items()}
        same(answer(list(vectors), list(targets)), torch.tensor(want), name="the loss", mistakes=mistakes)
    return "the loss of three products, and no tensor built"


@exercise(seconds=5)
def ex2(answer):
    """`answer(vectors, targets, M2, alpha)`: the gradient of L = (M1 + 0.1) M2 + α C by a, a vector."""
    for seed, (dims, M2, alpha) in enumerate((((3, 4, 5, 6), 0.7, 0.3), ((4, 2, 3, 5), 0.05, 0.0))):
        vectors, targets = drawn(seed, dims), drawn(seed + 10, dims)
        (a, b, c, d), (at, bt, ct, _) = vectors, targets
        n1, n3 = len(a) * len(b) * len(c), len(a) * len(d)
        own = (a * (b @ b) * (c @ c) - at * (b @ bt) * (c @ ct)) / n1
        rival = a * (d @ d) / n3
        want = M2 * own + alpha * rival
        mistakes = {
            "M1's gradient is weighted by how far the other product is: by M2": own + alpha * rival,
            "the competition α C pulls at a too": M2 * own,
            "C is a mean over the entries of a⊗d": M2 * own + alpha * n3 * rival,
            "M1 is a mean over the entries of a⊗b⊗c": n1 * M2 * own + alpha * rival,
            "that is the direction of descent; the gradient points uphill": -want,
            "C has a factor 1/2, which the derivative of a square cancels": M2 * own + alpha * rival / 2,
        }
        same(answer(list(vectors), list(targets), M2, alpha), want, name="the gradient", mistakes=mistakes)
    return "weighted by the other's failure, and pushed by the competition"


@exercise(seconds=5)
def ex3(answer):
    """`answer(steps, share)`: steps from the first look at or below ½ to the next one above; NaN without."""
    nan, steps = float("nan"), [0, 10, 30, 70, 150, 310]
    for share, want, from_start in (
        ([1.5, 1.0, 0.4, 0.1, 0.6, 1.0], 120.0, 150.0),
        ([0.9, 0.3, 0.2, 0.8, 0.9, 1.0], 60.0, 70.0),
        ([1.2, 0.5, 0.6, 0.9, 1.0, 1.0], 20.0, 30.0),
        ([1.5, 1.2, 0.9, 0.8, 0.3, 0.1], nan, 310.0),
        ([1.5, 1.2, 1.0, 1.0, 1.0, 1.0], nan, 0.0),
    ):
        given = answer(list(steps), list(share))
        if math.isnan(want) and given is not None and not math.isnan(float(given)):
            raise Wrong(
                "a run that never learns, or has not lost it by its end, has no lifetime: float('nan')"
            )
        low = [s <= 0.5 for s in share]
        mistakes = {
            "count from the moment it is learned, not from step 0": from_start,
            "give steps, not the number of looks": float(sum(low)),
        }
        mistakes = {words: torch.tensor(value) for words, value in mistakes.items()}
        same(nan if given is None else given, torch.tensor(want), name="the lifetime", mistakes=mistakes)
    return "learned, held, lost; and NaN where the run ends before"


def drawn(seed: int, dims) -> list[torch.Tensor]:
    """Vectors of these lengths."""
    random = generator(305, seed)
    return [torch.randn(n, generator=random) for n in dims]
