"""Checks of chapter 303: induction strength from attention, two dictionaries spliced, whose fall it is."""

from collections.abc import Mapping

import torch

from iclkit.checks import Wrong, exercise, same
from iclkit.tasks import generator


@exercise(seconds=5)
def ex1(answer):
    """`answer(row, place)`: attention of the query to the correct label minus that to the other, per head."""
    for seed in range(3):
        random = generator(303, 1, seed)
        row = torch.randn(12, 4, 5, generator=random).softmax(-1)
        place = torch.randint(2, (12,), generator=random)
        want = strength(row, place, 1)
        mistakes = {
            "sign: the correct label minus the other, not the other minus the correct": -want,
            "labels stand at 1 and 3; those are the exemplars, at 0 and 2": strength(row, place, 0),
            "each sequence has its own correct place: use `place`": (row[..., 3] - row[..., 1]).mean(0),
            "the first label is not always the correct one: use `place`": (row[..., 1] - row[..., 3]).mean(0),
            "one number a head: take the mean over the sequences alone": want.mean(),
        }
        same(answer(row, place), want, name="the strength", mistakes=mistakes)
    return "correct minus other, in every head"


def strength(row, place, start: int):
    """Attention to the item of the correct pair at `start` of it, minus that of the other pair: `[head]`."""
    items = row[..., [start, start + 2]]
    which = place[:, None, None].expand(-1, row.shape[1], 1)
    return (items.gather(2, which) - items.gather(2, 1 - which)).mean((0, 2))


@exercise(seconds=5)
def ex2(answer):
    """`answer(first, second, boundary)`: weights by name, below the boundary from `first`, above `second`."""
    names = ["pairs.W_X", "pairs.W_L", "positions.W_pos"]
    names += [f"blocks.{layer}.attn.W_{kind}" for layer in range(11) for kind in "QKVO"]
    names += ["ln_final.w", "_W_U"]
    for boundary in (1, 0, 2, 3, 10):
        random = generator(303, 2, boundary)
        first, second = ({name: torch.randn(2, generator=random) for name in names} for _ in range(2))
        want = spliced(first, second, boundary)

        def pack(weights):
            return torch.stack([torch.as_tensor(weights[name]) for name in names])

        before = pack(first), pack(second)
        given = answer(dict(first), dict(second), boundary)
        if not all(map(torch.equal, before, (pack(first), pack(second)))):
            raise Wrong("changes the weights of a given model in place; take them over, write no numbers")
        if given is not None and not isinstance(given, Mapping):
            raise Wrong(f"the graft should be a dictionary, yours is of type {type(given).__name__}")
        if given is not None and given.keys() != second.keys():
            odd = next(name for name in (*names, *given) if (name in given) != (name in second))
            raise Wrong(f"the graft has every name of its halves and no other; look at {odd!r}")

        mistakes = {
            "the halves are exchanged: what lies below the boundary is of `first`": pack(
                spliced(second, first, boundary)
            ),
            "the boundary counts layers: with 1, only layer 0 is of `first`": pack(
                spliced(first, second, boundary + 1)
            ),
            "embeddings and positions lie below every layer: they are of `first`": pack(
                second | {name: want[name] for name in names if name.startswith("blocks")}
            ),
            "compare the layer as a number, not as a text: 10 is above 9": pack(
                {name: (first if layer_text(name) < str(boundary) else second)[name] for name in names}
            ),
        }
        same(None if given is None else pack(given), pack(want), name="the graft", mistakes=mistakes)
    return "spliced at five boundaries"


def layer_text(name: str) -> str:
    """The layer of a weight as text, before every digit for what lies below, after every one for the rest."""
    if name.startswith(("pairs", "positions")):
        return ""
    return name.split(".")[1] if name.startswith("blocks") else "~"


def spliced(first: dict, second: dict, boundary: int) -> dict:
    """Weights of two models, by name."""
    below = ("pairs.", "positions.", *(f"blocks.{layer}." for layer in range(boundary)))
    return {name: (first if name.startswith(below) else second)[name] for name in second}


@exercise(seconds=5)
def ex3(answer):
    """`answer(flip)`: what Flip loses from its peak on by the first half alone, and by the second."""
    for seed in range(3):
        flip = torch.rand(6, 6, generator=generator(303, 3, seed)) / 2
        peak = 1 + seed
        flip[peak, peak], flip[0, 4] = 0.8, 0.9
        own = flip[peak, peak]
        want = torch.stack([own - flip[-1, peak], own - flip[peak, -1]])
        top = 0.9 - torch.stack([flip[-1, 4], flip[0, -1]])
        mistakes = {
            "exchanged: the first half's change is along the rows": want.flip(0),
            "a loss is positive: the peak minus what is left": -want,
            "the peak of the run itself lies on the diagonal, where both halves are of one time": top,
            "change one half alone: the other stays that of the peak": (own - flip[-1, -1]).expand(2),
        }
        same(answer(flip), want, name="the two losses", mistakes=mistakes)
    return "the peak is the diagonal's, and one half changes at a time"
