"""The checks of chapter 101 accept right answers and name the mistakes of wrong ones."""

import torch
import torch.nn.functional as F
from checking import assert_check, solution, stub

from iclkit import checks
from iclkit.checks.c101 import looked_up


def test_causal_pattern():
    def by_exponents(scores):
        shares = scores.exp().tril()
        return shares / shares.sum(-1, keepdim=True)

    def looks_ahead(scores):
        return scores.softmax(-1)

    def cuts_after(scores):
        return scores.softmax(-1).tril()

    def over_queries(scores):
        return scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -torch.inf).softmax(-2)

    def not_itself(scores):
        return scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(0), -torch.inf).softmax(-1)

    def zeros(scores):
        return scores.tril().softmax(-1)

    assert_check(
        checks.c101.ex1,
        right=[solution("101", 1), by_exponents],
        stub=stub("101", 1),
        wrong=[
            (looks_ahead, "into the future"),
            (cuts_after, "do not sum to one"),
            (over_queries, "over the queries"),
            (not_itself, "may look at itself"),
            (zeros, "still a share"),
        ],
    )


def test_mean_loss_by_position():
    def library(logits, targets):
        return F.cross_entropy(logits.mT, targets, reduction="none").mean(0)

    def one_number(logits, targets):
        return library(logits, targets).mean()

    def by_sequence(logits, targets):
        return F.cross_entropy(logits.mT, targets, reduction="none").mean(1)

    def unnormalised(logits, targets):
        return -logits.gather(2, targets[..., None])[..., 0].mean(0)

    def gains(logits, targets):
        return -library(logits, targets)

    def chances(logits, targets):
        return logits.softmax(-1).gather(2, targets[..., None])[..., 0].mean(0)

    assert_check(
        checks.c101.ex2,
        right=[solution("101", 2), library],
        stub=stub("101", 2),
        wrong=[
            (one_number, "keep the positions apart"),
            (by_sequence, "average over the sequences"),
            (unnormalised, "logsumexp"),
            (gains, "wrong sign"),
            (lambda logits, targets: -chances(logits, targets), "logarithm of each"),
            (lambda logits, targets: -chances(logits, targets).log(), "mean of the logarithms"),
        ],
    )


def test_lookup():
    def first(tokens):
        return looked_up(tokens, latest=False)

    def itself(tokens):
        return looked_up(tokens, 0)

    def one_before(tokens):
        return looked_up(tokens, -1)

    def from_itself(tokens):
        return torch.cat([tokens[:, 1:], tokens[:, -1:]], 1)

    assert_check(
        checks.c101.ex3,
        right=[solution("101", 3), looked_up],
        stub=stub("101", 3),
        wrong=[
            (first, "take the latest"),
            (itself, "the symbol found"),
            (one_before, "before the one found"),
            (from_itself, "occurrence of itself"),
        ],
    )


def test_few_symbols():
    def loop(size, batch, length, random):
        rows = []
        for _ in range(batch):
            kinds = torch.randperm(63, generator=random)[:size] + 1
            rows.append([0, *kinds[torch.randint(size, (length,), generator=random)].tolist()])
        return torch.tensor(rows)

    def shared(size, batch, length, random):
        return F.pad(torch.randint(1, size + 1, (batch, length), generator=random), (1, 0))

    def all_symbols(size, batch, length, random):
        return F.pad(torch.randint(1, 64, (batch, length), generator=random), (1, 0))

    def without_bos(size, batch, length, random):
        return loop(size, batch, length + 1, random)[:, 1:]

    def impure(size, batch, length, random):
        kinds = torch.rand(batch, 63).argsort(1)[:, :size] + 1
        return F.pad(kinds.gather(1, torch.randint(size, (batch, length))), (1, 0))

    def in_order(size, batch, length, random):
        kinds = torch.rand(batch, 63, generator=random).argsort(1)[:, :size] + 1
        return F.pad(kinds.repeat(1, length // size), (1, 0))

    def own(size, batch, length, random, which):
        kinds = torch.rand(batch, 63, generator=random).argsort(1)[:, :size] + 1
        return F.pad(kinds.gather(1, which), (1, 0))

    def sorted_places(size, batch, length, random):
        which = torch.randint(size, (batch, length), generator=random).sort(1).values
        return own(size, batch, length, random, which)

    def one_order(size, batch, length, random):
        which = torch.randint(size, (length,), generator=random).repeat(batch, 1)
        return own(size, batch, length, random, which)

    def uneven(size, batch, length, random):
        places = torch.multinomial(torch.tensor([7.0, 1, 1, 1]), batch * length, True, generator=random)
        return own(size, batch, length, random, places.view(batch, length))

    def put_back(size, batch, length, random):
        kinds = torch.randint(1, 64, (batch, size), generator=random)
        return F.pad(kinds.gather(1, torch.randint(size, (batch, length), generator=random)), (1, 0))

    assert_check(
        checks.c101.ex4,
        right=[solution("101", 4), loop],
        stub=stub("101", 4),
        wrong=[
            (shared, "share their symbols"),
            (all_symbols, "at most 4"),
            (without_bos, "begin with BOS"),
            (impure, "two results"),
            (in_order, "fixed order"),
            (sorted_places, "repeat the one before"),
            (one_order, "same order"),
            (uneven, "equally likely"),
            (put_back, "without repeats"),
        ],
    )
