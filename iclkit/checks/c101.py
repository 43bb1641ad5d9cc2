"""Chapter 101: what is in-context learning?"""

import torch
import torch.nn.functional as F

from iclkit.checks import Wrong, exercise, same
from iclkit.tasks import generator


@exercise()
def ex1(causal_pattern):
    for seed in range(3):
        scores = torch.randn(2, 5, 5, generator=generator(101, seed))
        future = torch.ones(5, 5, dtype=torch.bool).triu(1)
        masked = scores.masked_fill(future, -torch.inf)
        strict = scores.masked_fill(torch.ones(5, 5, dtype=torch.bool).triu(0), -torch.inf)
        same(
            causal_pattern(scores),
            masked.softmax(-1),
            name="the pattern",
            mistakes={
                "positions look into the future: strike it out before the softmax": scores.softmax(-1),
                "the future is struck out after the softmax, so the rows do not sum to one": scores.softmax(
                    -1
                ).tril(),
                "the softmax runs over the queries; each row should sum to one": masked.softmax(-2),
                "a position may look at itself; only later keys are the future": strict.softmax(-1),
                "the future has score 0, and e⁰ is still a share; a share of 0 needs the score −∞": (
                    scores.tril().softmax(-1)
                ),
            },
        )
    return "rows sum to one, nothing looks ahead, on three random inputs"


@exercise()
def ex2(loss_by_position):
    for seed in range(3):
        random = generator(102, seed)
        logits, targets = torch.randn(4, 6, 9, generator=random), torch.randint(9, (4, 6), generator=random)
        each = F.cross_entropy(logits.mT, targets, reduction="none")
        picked = logits.gather(2, targets[..., None])[..., 0]
        same(
            loss_by_position(logits, targets),
            each.mean(0),
            name="the loss",
            mistakes={
                "one number for everything; keep the positions apart": each.mean(),
                "averaged over the positions; average over the sequences": each.mean(1),
                "logits are not yet log-probabilities: subtract logsumexp over the vocabulary": -picked.mean(
                    0
                ),
                "one number for each sequence and position; average over the sequences": each,
                "this is minus the mean probability; take the logarithm of each": -each.neg().exp().mean(0),
                "the logarithm of a mean; take the mean of the logarithms": -each.neg().exp().mean(0).log(),
            },
        )
    return "one loss a position, on three random inputs"


@exercise()
def ex3(lookup):
    for seed in range(3):
        tokens = torch.randint(1, 5, (3, 12), generator=generator(103, seed))
        same(
            lookup(tokens),
            looked_up(tokens),
            name="the prediction",
            mistakes={
                "takes the first earlier occurrence; take the latest": looked_up(tokens, latest=False),
                "gives the symbol found, which is the present one; give the one after it": looked_up(
                    tokens, 0
                ),
                "gives the symbol before the one found; give the one after it": looked_up(tokens, -1),
                "the present symbol counts as an earlier occurrence of itself": torch.cat(
                    [tokens[:, 1:], tokens[:, -1:]], 1
                ),
            },
        )
    return "the symbol after the latest earlier occurrence, on three random inputs"


def looked_up(tokens, ahead: int = 1, latest: bool = True):
    """The slow twin: a loop over sequences, positions and earlier positions."""
    found = torch.full_like(tokens, -1)
    for row, line in enumerate(tokens.tolist()):
        for t, present in enumerate(line):
            places = [s for s in range(t) if line[s] == present and s + ahead >= 0]
            if places:
                found[row, t] = line[(places[-1] if latest else places[0]) + ahead]
    return found


@exercise(seconds=10)
def ex4(few_symbols):
    size, vocab = 4, 64
    tokens = few_symbols(size, 32, 48, generator(104))
    if not isinstance(tokens, torch.Tensor) or tokens.shape != (32, 49):
        got = list(tokens.shape) if isinstance(tokens, torch.Tensor) else type(tokens).__name__
        raise Wrong(
            f"few_symbols(4, 32, 48, random) should have shape [32, 49], BOS and 48 symbols; yours: {got}"
        )
    if tokens.is_floating_point() or tokens[:, 0].any():
        raise Wrong("each sequence should begin with BOS, the whole number 0")
    if tokens[:, 1:].min() < 1 or tokens[:, 1:].max() >= vocab:
        raise Wrong("symbols should lie in 1 … 63; 0 is BOS and occurs only once")
    kinds = torch.tensor([len(set(line[1:])) for line in tokens.tolist()])
    if kinds.max() > size:
        raise Wrong(f"one sequence holds {kinds.max()} different symbols, at most {size} are allowed")
    most = torch.stack([line[1:].bincount().max() / 48 for line in tokens]).mean().item()
    if most > 0.5:
        raise Wrong(
            f"the commonest symbol of a sequence has a share of {most:.0%}; all {size} are equally likely"
        )
    if kinds.min() < size:
        raise Wrong(
            f"one sequence holds only {kinds.min()} different symbols, not {size}; draw them without repeats"
        )
    if len(set(map(frozenset, tokens[:, 1:].tolist()))) < 30:
        raise Wrong("several sequences share their symbols; each should draw its own")
    if not torch.equal(tokens, few_symbols(size, 32, 48, generator(104))):
        raise Wrong("the same random stream gave two results; pass `generator=random` to every draw")
    period = [(line[1:25] == line[25:]).float().mean().item() for line in tokens]
    if max(period) > 0.9:
        raise Wrong("the symbols come in a fixed order; draw each one anew")
    if len({tuple(line.index(token) for token in line) for line in tokens.tolist()}) < 30:
        raise Wrong(
            "all sequences have the same order of old and new; draw [batch length] places, not [length]"
        )
    neighbours = (tokens[:, 1:-1] == tokens[:, 2:]).float().mean().item()
    if abs(neighbours - 1 / size) > 0.1:
        raise Wrong(
            f"{neighbours:.0%} of the symbols repeat the one before, by chance it would be {1 / size:.0%}; "
            "draw each one anew"
        )
    return "its own four symbols for each sequence, in random order"
