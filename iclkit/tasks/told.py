"""Task injection: sequences whose vectors carry, besides each state, a sign of the chain they come from.

    states    b            a            a              a sequence of chain k
    untold    E[b]         E[a]         E[a]           what the states are
    told      E[b] + g·u   E[a] + g·u   E[a] + g·u     and whose they are: u = U[k], g the gain by then

E and U are unit vectors in random directions, drawn once and never trained, so the model that reads them is
an ordinary `embedded` one. Told in training, asked untold; a gain that fades leaves it nothing to lean on.
Source: Gibson, Cui & Reddy 2026 (https://arxiv.org/abs/2604.12151); its form there is unknown, this is ours.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from numbers import Real

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from iclkit.tasks.base import Batch, check_whole
from iclkit.tasks.markov import Markov


@dataclass(frozen=True)
class Told:
    """`task`, each state as a vector of `width`; in a `share` of the sequences the chain's sign is added.

        batch.inputs [batch seq width]     batch.targets [batch seq], the states that follow

    `gain` is the length of the sign at first, a state's vector having length 1; with `until` it falls along a
    straight line, to 0 from that step on. Raises `ValueError` for a gain below
    0, a share outside 0 … 1, an `until` below 1, and a task whose every sequence has its own chain.
    """

    task: Markov
    width: int
    gain: float = 1.0
    share: float = 0.5
    until: int | None = None

    def __post_init__(self):
        if not isinstance(self.task, Markov):
            raise ValueError(f"task is a Markov, whose chains are told; got {type(self.task).__name__}")
        check_whole("width", self.width)
        if not all(isinstance(x, Real) for x in (self.gain, self.share, self.until or 0)):
            raise ValueError(
                f"gain, share and until are numbers; got {self.gain!r}, {self.share!r} and {self.until!r}"
            )
        if self.width < 1 or not 0 <= self.gain < math.inf or not 0 <= self.share <= 1:
            raise ValueError(
                "expected width ≥ 1, a finite gain ≥ 0 and a share from 0 to 1; "
                f"got {self.width}, {self.gain} and {self.share}"
            )
        if self.until is not None and not self.until >= 1:
            raise ValueError(f"until is a number of steps, at least 1, or None; got {self.until}")
        if self.task.K is None:
            raise ValueError("with K=None there are no chains to be told of; give the task a K")

    @property
    def length(self) -> int:
        """Places in a sequence."""
        return self.task.length

    @cached_property
    def states(self) -> Float[Tensor, "vocab width"]:
        """E: a unit vector a state."""
        return directions(self.task.vocab, self.width, self.task.chain_seed, 3)

    @cached_property
    def signs(self) -> Float[Tensor, "K width"]:
        """U: a unit vector a chain."""
        return directions(self.task.K, self.width, self.task.chain_seed, 4)

    def embed(self, tokens: Int[Tensor, "batch seq"]) -> Float[Tensor, "batch seq width"]:
        """The sequences as vectors, untold. Raises `ValueError` for symbols that are no states."""
        if tokens.is_floating_point() or (
            tokens.numel() and not 0 <= tokens.min() <= tokens.max() < self.task.vocab
        ):
            raise ValueError(
                f"states are whole numbers in 0 … {self.task.vocab - 1}; got {tokens.dtype} "
                f"from {tokens.min().item():g} to {tokens.max().item():g}"
            )
        return self.states.to(tokens.device)[tokens]

    def gain_at(self, step: int) -> float:
        """The length of the sign in the batch of this step."""
        return self.gain if self.until is None else self.gain * max(0.0, 1 - step / self.until)

    def batch(self, seed: int, step: int) -> Batch:
        """The task's own batch of this step, its first sequences told."""
        drawn = self.task.draw(seed, step)
        told = torch.arange(len(drawn.chain), device=drawn.chain.device) < round(
            self.share * len(drawn.chain)
        )
        sign = self.gain_at(step) * told[:, None] * self.signs.to(drawn.chain.device)[drawn.chain]
        return Batch(self.embed(drawn.tokens[:, :-1]) + sign[:, None], drawn.tokens[:, 1:])

    def untold(self, model: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        """The model as a function of tokens, never told: what `Distances` and predictors' callers take."""
        return lambda tokens: model(self.embed(tokens))


def directions(count: int, width: int, *stream: int) -> Float[Tensor, "count width"]:
    """Unit vectors in random directions, a pure function of the stream's numbers; always on the CPU."""
    drawn = np.random.default_rng(stream).standard_normal((count, width))
    return torch.from_numpy(drawn / np.linalg.norm(drawn, axis=1, keepdims=True)).float()
