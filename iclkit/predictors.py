"""Ideal observers of a Markov mixture: called like a model, they answer with exact log-probabilities.

    n_j    times state j has come up to here            i      the state now, x_n
    n_ij   times j has come right after i               C, α   number of states, concentration of the rows

    1-Gen  p_j = (n_j + a) / (n + C a)                  a = Cα + 1 − 1/C: as spread out as π is
    2-Gen  p_j = (n_ij + α) / (Σ_j n_ij + C α)
    1-Mem  p_j = Σ_k u_k π^k_j                          u_k ∝ p_k exp Σ_j n_j log π^k_j
    2-Mem  p_j = Σ_k w_k P^k_ij                         w_k ∝ p_k p^k(x_1) exp Σ_ij n_ij log P^k_ij

Gen knows how chains are drawn and sees the context alone; Mem knows the K training chains and how often each
is used (p_k). 1 counts states, 2 counts transitions. `Distances` say how far a model is from each, `phase`
names the nearest. Source: Gibson, Cui & Reddy 2026 (https://arxiv.org/abs/2604.12151); a matches the
variance of π for Dirichlet(α) rows.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from iclkit.tasks.base import check_whole
from iclkit.tasks.markov import Chains, Drawn, Markov

PHASES = ("1-Gen", "2-Gen", "1-Mem", "2-Mem")
TEST = 2**31  # the seed of test sequences, apart from training's
UNDECIDED = "undecided"
CELLS = 2**20  # numbers held at a time: sequences are worked through in parts


class Predictor:
    """Tokens `[batch seq]` → log-probabilities of the next state `[batch seq vocab]`, float64.

    `positions` asks for some places of the sequence only: `(-1,)` is the whole sequence's prediction. Raises
    `ValueError` for sequences of fewer than two tokens and for symbols that are no states.
    """

    order: int
    vocab: int
    width = 1  # numbers held a place, beyond counts

    def __call__(
        self, tokens: Int[Tensor, "batch seq"], positions: Sequence[int] | None = None
    ) -> Float[Tensor, "batch places vocab"]:
        return self._in_parts(self._predict, tokens, positions)

    def _in_parts(self, answer: Callable, tokens: Tensor, positions: Sequence[int] | None) -> Tensor:
        check_tokens(tokens, self.vocab)
        places = torch.arange(tokens.shape[1], device=tokens.device)
        places = places if positions is None else places[check_positions(positions, len(places))]
        cells = max(tokens.shape[1], len(places) * max(self.vocab**self.order, self.width))
        parts = tokens.split(max(1, CELLS // cells))
        return torch.cat([answer(part, places) for part in parts])


@dataclass(frozen=True)
class Gen(Predictor):
    """1-Gen or 2-Gen (`order`): the context's counts, smoothed as chains with Dirichlet(`alpha`) rows ask."""

    order: int
    vocab: int
    alpha: float = 1.0

    def __post_init__(self):
        check_order(self.order)
        check_whole("vocab", self.vocab)
        if self.vocab < 2 or not 0 < self.alpha < float("inf"):
            raise ValueError(f"expected vocab ≥ 2 and a positive alpha; got {self.vocab} and {self.alpha}")

    @property
    def smoothing(self) -> float:
        """What is added to each count: α for transitions, Cα + 1 − 1/C for states."""
        return self.alpha if self.order == 2 else self.vocab * self.alpha + 1 - 1 / self.vocab

    def _predict(self, tokens: Tensor, places: Tensor) -> Tensor:
        seen = counts(tokens, self.order, self.vocab, places)
        if self.order == 2:
            now = tokens[:, places, None, None].expand(-1, -1, 1, self.vocab)
            seen = seen.unflatten(2, (self.vocab, self.vocab)).gather(2, now)[:, :, 0]
        seen = seen + self.smoothing
        return (seen / seen.sum(-1, keepdim=True)).log()


@dataclass(frozen=True, eq=False)
class Mem(Predictor):
    """1-Mem or 2-Mem (`order`): which of these chains is it, given the context, and what comes next there.

    Raises `ValueError` for a sequence that none of the chains can make. A probability below 1e-308 comes out
    as 0.
    """

    order: int
    chains: Chains

    def __post_init__(self):
        check_order(self.order)
        if not isinstance(self.chains, Chains):
            raise ValueError(
                f"expected Chains, as task.chains() or chains_of; got {type(self.chains).__name__}"
            )

    @property
    def vocab(self) -> int:
        return self.chains.log_pi.shape[1]

    @property
    def width(self) -> int:
        return len(self.chains)

    def log_posterior(
        self, tokens: Int[Tensor, "batch seq"], positions: Sequence[int] | None = None
    ) -> Float[Tensor, "batch places K"]:
        """Log-probability of each chain after each prefix."""
        return self._in_parts(self._posterior, tokens, positions)

    def _posterior(self, tokens: Tensor, places: Tensor) -> Tensor:
        return self._joint(tokens, places).log_softmax(2)

    def _predict(self, tokens: Tensor, places: Tensor) -> Tensor:
        weights = self._joint(tokens, places)
        weights = weights.sub_(weights.amax(2, keepdim=True)).exp_()
        if self.order == 1:
            return (weights @ self.chains.pi / weights.sum(2, keepdim=True)).log()
        now, answer = tokens[:, places], weights.new_empty(*weights.shape[:2], self.vocab)
        for state in range(self.vocab):
            answer[now == state] = weights[now == state] @ self.chains.P[:, state]
        return (answer / weights.sum(2, keepdim=True)).log()

    def _joint(self, tokens: Tensor, places: Tensor) -> Tensor:
        """Log p_k + log p(prefix given chain k), `[batch places K]`."""
        c, seen = self.chains, counts(tokens, self.order, self.vocab, places)
        table = c.log_pi if self.order == 1 else c.log_P.flatten(1)
        impossible = torch.isneginf(table)
        joint = seen @ table.masked_fill(impossible, 0).T
        if impossible.any():
            joint.masked_fill_(seen @ impossible.double().T > 0, -torch.inf)
        joint += c.log_weights if self.order == 1 else c.log_weights + c.log_start.T[tokens[:, :1]]
        if (lost := torch.isneginf(joint.amax(2))).any():
            row, place = lost.nonzero()[0].tolist()
            raise ValueError(
                f"none of the K={len(c)} chains can make the first {int(places[place]) + 1} states of "
                f"{tokens[row].tolist()}; give every transition some probability, or leave such sequences out"
            )
        return joint


def counts(
    tokens: Int[Tensor, "batch seq"], order: int, vocab: int, places: Int[Tensor, " places"]
) -> Float[Tensor, "batch places symbols"]:
    """How often each state (order 1), or each transition C i + j (order 2), has come up to each place."""
    symbols = tokens if order == 1 else vocab * tokens[:, :-1] + tokens[:, 1:]
    ends, number = places.unique(return_inverse=True)
    stretch = torch.searchsorted(ends, torch.arange(order - 1, tokens.shape[1], device=tokens.device))
    cells = (stretch * vocab**order + symbols)[:, stretch < len(ends)]
    seen = torch.zeros(len(tokens), len(ends) * vocab**order, dtype=torch.float64, device=tokens.device)
    seen.scatter_add_(1, cells, torch.ones_like(cells, dtype=torch.float64))
    return seen.unflatten(1, (len(ends), vocab**order)).cumsum(1)[:, number]


def predictors(task: Markov) -> dict[str, Predictor]:
    """The four ideal observers of a task, by name; `ValueError` where there is no set of chains to know."""
    gens = {f"{order}-Gen": Gen(order, task.vocab, task.alpha) for order in (1, 2)}
    return gens | {f"{order}-Mem": Mem(order, task.chains()) for order in (1, 2)}


def check_order(order: int) -> None:
    """`ValueError` unless 1 (states) or 2 (transitions)."""
    if order not in (1, 2):
        raise ValueError(f"order is 1 (counts states) or 2 (counts transitions); got {order!r}")


def check_tokens(tokens: Tensor, vocab: int) -> None:
    """`ValueError` unless `[batch seq]` of at least one sequence of at least two states below `vocab`."""
    if not isinstance(tokens, Tensor) or tokens.dtype != torch.int64 or tokens.dim() != 2:
        got = f"{tokens.dtype} {list(tokens.shape)}" if isinstance(tokens, Tensor) else type(tokens).__name__
        raise ValueError(f"a predictor takes tokens [batch seq] in torch.int64; got {got}")
    if tokens.shape[0] < 1 or tokens.shape[1] < 2:
        raise ValueError(f"expected sequences of at least two states; got {list(tokens.shape)}")
    low, high = tokens.min().item(), tokens.max().item()
    if low < 0 or high >= vocab:
        raise ValueError(f"states are 0 … {vocab - 1}; got tokens from {low} to {high}")


def check_positions(positions: Sequence[int], seq: int) -> list[int]:
    """The positions as a list; `ValueError` unless they are whole numbers within `seq` places."""
    listed = positions.tolist() if isinstance(positions, (Tensor, np.ndarray)) else positions
    whole = isinstance(listed, Sequence) and all(
        isinstance(at, (int, np.integer)) and not isinstance(at, bool) and -seq <= at < seq for at in listed
    )
    if not whole:
        raise ValueError(
            f"positions lists places of a sequence of {seq}, {-seq} … {seq - 1}, as in (-1,); "
            f"got {positions!r}"
        )
    return list(listed)


class Distances:
    """How far a model is from each ideal observer of `task`: a function model → `[2, 5]`, in nats.

    Rows are the two test sets: `sequences` from the training chains, then as many from a new chain each.
    Columns are PHASES, then a uniform guess. An entry is mean KL(predictor ‖ model) over sequences and
    `positions`, by default the last. Test sequences are named by `seed` and never meet those of training;
    observers answer them once (`answers`), and `truth` holds what the chains themselves
    say. Raises `ValueError` for a model that answers over other symbols.
    """

    def __init__(self, task: Markov, sequences: int = 2000, positions: Sequence[int] = (-1,), seed: int = 0):
        check_whole("sequences", sequences)
        check_whole("seed", seed)
        if not len(positions := check_positions(positions, task.length)):
            raise ValueError("positions lists at least one place to measure at, as in (-1,); got none")
        tasks = [replace(t, batch_size=sequences) for t in (task, task.fresh())]
        self.positions, self.vocab = positions, task.vocab
        drawn = [t.draw(TEST, seed) for t in tasks]
        self.tokens = torch.stack([d.tokens[:, :-1] for d in drawn])
        self.truth = torch.stack([rows_at(d, positions) for d in drawn])
        observers = predictors(task).values()
        answers = [torch.stack([observer(x, positions) for observer in observers]) for x in self.tokens]
        guess = torch.full_like(answers[0][:1], -math.log(task.vocab))
        self.answers = torch.stack([torch.cat([answer, guess]) for answer in answers])

    @cached_property
    def apart(self) -> Float[Tensor, "2 5 5"]:
        """KL(row ‖ column) between the observers themselves, on both test sets."""
        return torch.stack([divergence(self.answers, q[:, None]) for q in self.answers.unbind(1)], 2)

    @torch.no_grad()
    def __call__(self, model: Callable[[Tensor], Tensor]) -> Float[Tensor, "2 5"]:
        return divergence(self.answers, self.answer(model)[:, None])

    def phase(self, distances, margin: float = 0.2, alike: float = 0.01) -> str:
        """The phase that these distances name: `phase` with this task's `apart`."""
        return phase(distances, self.apart, margin, alike)

    def answer(self, model: Callable[[Tensor], Tensor]) -> Float[Tensor, "2 sequences places vocab"]:
        """The model's log-probabilities on the test sequences."""
        device = next((w.device for w in getattr(model, "parameters", list)()), self.tokens.device)
        logits = [model(part.to(device))[:, self.positions] for part in self.tokens.flatten(0, 1).split(250)]
        if logits[0].shape[-1] != self.vocab:
            raise ValueError(
                f"the model answers over {logits[0].shape[-1]} symbols, the task has {self.vocab} states"
            )
        answer = torch.cat(logits).double().log_softmax(-1).to(self.tokens.device)
        return answer.unflatten(0, self.tokens.shape[:2])


def rows_at(drawn: Drawn, positions: Sequence[int]) -> Float[Tensor, "sequences places vocab"]:
    """Log-probabilities of the chains themselves for the state after each of these places of the inputs."""
    states = drawn.tokens[:, :-1][:, list(positions)]
    return drawn.chains.log_P[drawn.chain[:, None], states]


def expected_loss(log_p: Tensor, log_q: Tensor) -> Tensor:
    """Mean −Σ_j p_j log q_j in nats: the loss of q where p is true, without the noise of one next state."""
    return -(log_p.exp() * log_q.masked_fill(torch.isneginf(log_p), 0)).sum(-1).mean((-1, -2))


def divergence(log_p: Tensor, log_q: Tensor) -> Tensor:
    """Mean KL(p ‖ q) in nats over sequences and places, of log-probabilities `[… sequences places vocab]`."""
    gap = (log_p - log_q).masked_fill(torch.isneginf(log_p), 0)
    return (log_p.exp() * gap).sum(-1).mean((-1, -2))


def phase(distances, apart, margin: float = 0.2, alike: float = 0.01) -> str:
    """The phase that `Distances` name, one of PHASES or UNDECIDED.

        2-Mem or 1-Mem    when it is nearest on training chains
        2-Gen or 1-Gen    when it is nearest on fresh chains, and on training chains too
        undecided         otherwise

    Nearest means that the next one, a uniform guess included, is more than `margin` (a share) further away;
    for Gen, on fresh chains. A Mem whose KL to the Gen of its order is below `alike` nats on training chains,
    as 1-Mem's is when there are many, says nothing of its own and takes no part. `apart`: `Distances.apart`.
    """
    distances, apart = torch.as_tensor(distances).double(), torch.as_tensor(apart).double()
    if distances.shape != (2, 5) or apart.shape != (2, 5, 5):
        raise ValueError(
            "expected distances [2, 5] and apart [2, 5, 5], as Distances(task) gives them; "
            f"got {list(distances.shape)} and {list(apart.shape)}"
        )
    if not (margin >= 0 and alike >= 0):
        raise ValueError(f"margin and alike are at least 0; got {margin} and {alike}")
    twins = apart[0, (2, 3), (0, 1)] < alike
    distances = distances.clone()
    distances[:, 2:4][:, twins] = torch.inf
    nearest = distances.argmin(1).tolist()
    best, second = distances.topk(2, largest=False).values.unbind(1)
    clear = (second > (1 + margin) * best).tolist()  # false where a distance is not a number
    if nearest[0] in (2, 3) and clear[0]:
        return PHASES[nearest[0]]
    if nearest[1] in (0, 1) and clear[1] and nearest[0] == nearest[1]:
        return PHASES[nearest[1]]
    return UNDECIDED
