"""Random strings that come back: the task that makes, and tests, induction heads.

    fill     BOS  q f a z | q f a z | q f a z | q f        the string again and again
    burst    BOS  k x | q f a z | q f a z | u b e          `copies` in a row, at a random place in noise
    spread   BOS  k | q f a z | x u | q f a z | b          `copies` with random gaps

Symbols are uniform and carry no statistics across sequences: to predict a repeat is to look it up.
Source: Olsson et al. 2022 (https://arxiv.org/abs/2209.11895), repeated random tokens.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from iclkit.tasks.base import Batch, check_whole, generator

BOS = 0
PLACEMENTS = ("fill", "burst", "spread")


@dataclass(frozen=True)
class Repeats:
    """Sequences of `BOS` and `length` symbols out of 1 … `vocab` − 1: a random string that repeats.

    Each sequence draws its own string and its own period, uniform in `min_period … max_period`. Inputs are
    all tokens but the last, targets all but the first, `[batch_size length]`. With `repeats_only`, the mask
    leaves only targets that an earlier copy settles.
    """

    vocab: int = 64
    length: int = 64
    min_period: int = 8
    max_period: int = 24
    batch_size: int = 64
    placement: str = "fill"
    copies: int = 2
    repeats_only: bool = False

    def __post_init__(self):
        for name in ("vocab", "length", "min_period", "max_period", "batch_size", "copies"):
            check_whole(name, getattr(self, name))
        if self.vocab < 3:
            raise ValueError(
                f"vocab counts BOS and at least two symbols: expected 3 or more; got {self.vocab}"
            )
        if not 1 <= self.min_period <= self.max_period:
            raise ValueError(
                f"expected 1 ≤ min_period ≤ max_period; got {self.min_period} and {self.max_period}"
            )
        if self.placement not in PLACEMENTS:
            raise ValueError(f"placement must be one of {', '.join(PLACEMENTS)}; got {self.placement!r}")
        if self.batch_size < 1 or self.copies < 2:
            raise ValueError(
                f"expected batch_size ≥ 1 and copies ≥ 2; got {self.batch_size} and {self.copies}"
            )
        needed = self.max_period * (1 if self.placement == "fill" else self.copies)
        if needed > self.length or (self.placement == "fill" and needed == self.length):
            raise ValueError(
                f"max_period={self.max_period} leaves no room for a repeat within length={self.length} "
                f"({self.placement}); lengthen the sequence or shorten the period"
            )

    def batch(self, seed: int, step: int) -> Batch:
        """The batch of this step: the same for the same (seed, step), whatever else happens."""
        random, size = generator(seed, step), self.batch_size
        noise = torch.randint(1, self.vocab, (size, self.length), generator=random)
        string = torch.randint(1, self.vocab, (size, self.max_period), generator=random)
        period = torch.randint(self.min_period, self.max_period + 1, (size,), generator=random)
        gaps = torch.rand(size, self.copies, generator=random, dtype=torch.float64)
        place, copy = lay_out(period, self.starts(period, gaps), self.length)
        symbols = torch.where(copy >= 0, string.gather(1, place), noise)
        tokens = torch.cat([torch.full((size, 1), BOS), symbols], 1)
        return Batch(tokens[:, :-1], tokens[:, 1:], copy > 0 if self.repeats_only else None)

    def starts(self, period: Int[Tensor, " batch"], gaps: Tensor) -> Int[Tensor, "batch copies"]:
        """Where each copy begins, counted from the first symbol."""
        if self.placement == "fill":
            count = -(-self.length // self.min_period)
            return torch.arange(count)[None] * period[:, None]
        copies = torch.arange(self.copies)[None]
        slack = self.length - self.copies * period[:, None]
        if self.placement == "burst":
            gaps = gaps[:, :1].expand(-1, self.copies)
        return (gaps.sort(1).values * (slack + 1)).long() + copies * period[:, None]


def lay_out(
    period: Int[Tensor, " batch"], starts: Int[Tensor, "batch copies"], length: int
) -> tuple[Int[Tensor, "batch length"], Int[Tensor, "batch length"]]:
    """For each place, its index within the string and the number of its copy (−1 where there is noise)."""
    since = torch.arange(length)[None, None] - starts[:, :, None]
    inside = (since >= 0) & (since < period[:, None, None])
    place = (since * inside).sum(1)
    number = torch.arange(starts.shape[1])[None, :, None]
    copy = torch.where(inside.any(1), (number * inside).sum(1), -1)
    return place, copy


def repeated_tokens(
    vocab: int, period: int, copies: int = 2, batch: int = 64, seed: int = 0, distinct: bool = True
) -> Int[Tensor, "batch seq"]:
    """The standard probe: `BOS`, then one random string of `period` symbols, `copies` times.

        BOS  q f a z | q f a z            [batch 1 + period · copies]

    With `distinct`, no symbol occurs twice within the string: every repeat has one right continuation.
    """
    for name, value in (("vocab", vocab), ("period", period), ("copies", copies), ("batch", batch)):
        check_whole(name, value)
    if vocab < 2:
        raise ValueError(f"vocab counts BOS and at least one symbol: expected 2 or more; got {vocab}")
    if distinct and period > vocab - 1:
        raise ValueError(
            f"a string of {period} distinct symbols needs vocab ≥ {period + 1} (one is BOS); got {vocab}; "
            "enlarge vocab, shorten period, or pass distinct=False"
        )
    if period < 1 or copies < 1 or batch < 1:
        raise ValueError(f"expected period, copies and batch ≥ 1; got {period}, {copies}, {batch}")
    random = generator(seed, period, copies)
    if distinct:
        string = torch.rand(batch, vocab - 1, generator=random).argsort(1)[:, :period] + 1
    else:
        string = torch.randint(1, vocab, (batch, period), generator=random)
    return torch.cat([torch.full((batch, 1), BOS), string.repeat(1, copies)], 1)


def later_copies(period: int, copies: int) -> Bool[Tensor, " seq"]:
    """Which positions of `repeated_tokens(...)[:, :-1]` predict a symbol that an earlier copy settles."""
    position = torch.arange(period * copies)
    return position > period
