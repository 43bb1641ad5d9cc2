"""Checks of chapter 203: the match pattern, entropy of attention, smallest subset, a telling sequence."""

import torch

from iclkit.checks import Wrong, exercise, same
from iclkit.predictors import Gen
from iclkit.tasks import generator

LEAST = 0.7


@exercise(seconds=5)
def ex1(answer):
    """The match pattern of states `[seq]`: evenly to what followed the present state, `[query key]`."""
    for seed in range(3):
        tokens = torch.randint(4, (12,), generator=generator(203, 1, seed))
        earlier = (tokens[:, None] == tokens[None]).tril(-1)
        after = earlier.roll(1, 1).float()
        ahead = (tokens[:, None] == tokens[None]).roll(1, 1).float()
        ahead[:, 0] = 0
        same(
            answer(tokens),
            shared(after),
            name="the pattern",
            mistakes={
                "these are the earlier occurrences themselves; look at the places right after them": shared(
                    earlier.float()
                ),
                "this looks into the future: a query sees keys up to its own place": shared(ahead),
                "each row sums to one: divide by the number of places": with_first(after),
                "a row with no match attends to the first place": after
                / after.sum(1, keepdim=True).clamp(min=1),
            },
        )
    return "right after every earlier occurrence, evenly, on three sequences"


def with_first(after):
    """Rows without a place get the first one."""
    first = torch.zeros_like(after)
    first[:, 0] = after.sum(1) == 0
    return after + first


def shared(after):
    """Rows that sum to one."""
    after = with_first(after)
    return after / after.sum(1, keepdim=True)


@exercise(seconds=5)
def ex2(answer):
    """Entropy of a pattern `[query key]` against an even look, mean over queries 1, 2, …"""
    patterns = []
    for seed in range(3):
        scores = torch.randn(8, 8, generator=generator(203, 2, seed)) * (1 + 2 * seed)
        patterns.append(scores.masked_fill(torch.ones(8, 8).triu(1) > 0, -torch.inf).softmax(1))
    patterns.append(torch.eye(8))
    for pattern in patterns:
        entropy, seen = torch.special.entr(pattern).sum(1), torch.arange(1, 9).log()
        with_nan = pattern[1:] * pattern[1:].log()
        same(
            answer(pattern),
            (entropy[1:] / seen[1:]).mean(),
            name="the entropy",
            mistakes={
                "0 · log 0 counts as 0; yours is NaN": -(with_nan.sum(1) / seen[1:]).mean(),
                "the sign is turned: entropy is −Σ p log p": -(entropy[1:] / seen[1:]).mean(),
                "query i sees i + 1 places: divide each row by its own log(i + 1)": (
                    entropy[1:] / seen[-1]
                ).mean(),
                "this is in nats; divide by the entropy of an even look, log(i + 1)": entropy[1:].mean(),
                "leave query 0 out: it has one place to look, and log 1 = 0": torch.where(
                    seen > 0, entropy / seen.clamp(min=1e-9), 0.0
                ).mean(),
            },
        )
    return "1 for an even look, 0 for a single place, and right in between"


@exercise(seconds=5)
def ex3(answer):
    """How few edges suffice: `shares [2 ** edges]` by the subset's number → the smallest number of edges."""
    for edges in (4, 7):
        shares = torch.rand(2**edges, generator=generator(203, 3, edges), dtype=torch.double) * 0.8
        shares[-1], shares[0] = 1.0, 0.0
        for extra in range(edges):  # a path of cutting one edge at a time that ends at all but two
            shares[2**edges - 1 - (1 << extra)] = 0.91
        shares[0b101] = 0.9
        size = [bin(subset).count("1") for subset in range(2**edges)]
        first = next(subset for subset in range(2**edges) if shares[subset] >= 0.9)
        same(
            answer(shares),
            torch.tensor(2),
            name="the number of edges",
            mistakes={
                "this is a subset's number; count the ones of its binary form": torch.tensor(first),
                "a share of exactly 0.9 suffices too": torch.tensor(edges - 1),
                "every subset counts, not only those reached by cutting one edge after the other": (
                    torch.tensor(edges - 1)
                ),
                "this is the largest sufficient subset; look for the smallest": torch.tensor(max(size)),
            },
        )
    return "the fewest edges, over all subsets"


@exercise(seconds=5)
def ex4(answer):
    """A sequence `[64]` of states 0 … 4 on which 1-Gen and 2-Gen disagree by at least 0.7 nats at its end."""
    tokens = answer()
    if not isinstance(tokens, torch.Tensor) or tokens.is_floating_point() or tokens.ndim != 1:
        raise Wrong("the sequence should be a tensor of whole numbers, [64]")
    if tokens.shape != (64,) or tokens.min() < 0 or tokens.max() > 4:
        raise Wrong(f"expected 64 states in 0 … 4; got {len(tokens)} in {tokens.min()} … {tokens.max()}")
    one, two = (Gen(order, 5)(tokens[None].long(), (-1,))[0, 0] for order in (1, 2))
    apart = (two.exp() * (two - one)).sum().item()
    if apart < LEAST:
        sure = two.exp().max().item()
        hint = (
            "2-Gen is not sure enough: let each state be followed by one and the same state"
            if sure < 0.7
            else "1-Gen agrees too much: let every state come up equally often"
        )
        raise Wrong(f"KL(2-Gen ‖ 1-Gen) is {apart:.2f} nats, at least {LEAST:g} is asked; {hint}")
    return f"the two observers are {apart:.1f} nats apart"
