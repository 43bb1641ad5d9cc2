"""A mixture of Markov chains: K transition matrices, drawn once; each sequence follows one of them.

    chain 1   b a b a a b …        rows of P    P[i, j] = p(next = j | now = i), each Dirichlet(α, …, α)
    chain 2   c c a c c c …        start        x_1 ~ π (stationary, π P = π) or uniform
    …                              then         x_{t+1} ~ P[x_t]

Few chains can be known by heart; with many, or with a new chain for every sequence (`K=None`), only the
context tells what comes next. Source: Gibson, Cui & Reddy 2026 (https://arxiv.org/abs/2604.12151).
"""

import math
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from iclkit.tasks.base import Batch, check_whole, generator

STARTS = ("stationary", "uniform")
RESTART = -1000.0  # log-probability at which chains with exact zeros start anew, so that π is unique


@dataclass(frozen=True, eq=False)
class Chains:
    """K chains over C states, all as log-probabilities in float64: rows, first states, π, mixture weights."""

    log_P: Float[Tensor, "K C C"]
    log_start: Float[Tensor, "K C"]
    log_pi: Float[Tensor, "K C"]
    log_weights: Float[Tensor, " K"]

    @cached_property
    def P(self) -> Float[Tensor, "K C C"]:
        """The transition matrices: `P[k, i, j]` = p(next = j | now = i) in chain k."""
        return self.log_P.exp()

    @property
    def pi(self) -> Float[Tensor, "K C"]:
        """The stationary distributions."""
        return self.log_pi.exp()

    @cached_property
    def cdfs(self) -> tuple[Tensor, Tensor, Tensor]:
        """Cumulative weights `[K]`, first states `[K C]` and rows `[K C C]`."""
        return cdf(self.log_weights), cdf(self.log_start), cdf(self.log_P)

    def __len__(self) -> int:
        return len(self.log_P)

    def to(self, device: str | torch.device) -> "Chains":
        return Chains(*(getattr(self, field.name).to(device) for field in fields(self)))


class Drawn(NamedTuple):
    """Sequences `[batch length + 1]`, the chain each one follows `[batch]`, and the chains that counts."""

    tokens: Tensor
    chain: Tensor
    chains: Chains


@dataclass(frozen=True)
class Markov:
    """Sequences of `length` + 1 states out of `vocab`, each from one of `K` chains with Dirichlet(α) rows.

        x_1 x_2 … x_N → x_2 x_3 … x_{N+1}        inputs and targets `[batch_size length]`, N = `length`

    `chain_seed` names the chains, apart from the data's seed; a smaller K has the first of the same chains.
    `K=None` draws a new chain for every sequence. `start` is stationary or uniform; `weights`, relative and
    one a chain, say how often each is used (None: equally).
    """

    vocab: int = 5
    K: int | None = 64
    alpha: float = 1.0
    length: int = 64
    batch_size: int = 64
    start: str = "stationary"
    weights: tuple[float, ...] | None = None
    chain_seed: int = 0

    def __post_init__(self):
        for name, least in (("vocab", 2), ("K", 1), ("length", 2), ("batch_size", 1), ("chain_seed", 0)):
            if name == "K" and self.K is None:
                continue
            check_whole(name, getattr(self, name))
            if getattr(self, name) < least:
                hint = "; K=None draws a new chain for every sequence" if name == "K" else ""
                raise ValueError(f"{name} must be at least {least}; got {getattr(self, name)}{hint}")
        if not (isinstance(self.alpha, (int, float)) and 0 < self.alpha < math.inf):
            raise ValueError(f"alpha, the concentration of the rows, must be positive; got {self.alpha!r}")
        if self.start not in STARTS:
            raise ValueError(f"start must be one of {', '.join(STARTS)}; got {self.start!r}")
        if self.weights is not None:
            if not isinstance(self.weights, (tuple, list, np.ndarray)):
                raise ValueError(f"weights are relative numbers, one a chain, or None; got {self.weights!r}")
            object.__setattr__(self, "weights", tuple(map(float, self.weights)))
            log_weights(self.weights, self.K or 0)

    def fresh(self) -> "Markov":
        """The same task with a new chain for every sequence."""
        return replace(self, K=None, weights=None)

    def chains(self) -> Chains:
        """The K chains, on PyTorch's default device. Raises `ValueError` where every sequence has its own."""
        if self.K is None:
            raise ValueError("with K=None every sequence has its own chain; draw(seed, step) returns them")
        device = torch.get_default_device()
        if device not in self._placed:
            rows = dirichlet_rows(self.K, self.vocab, self.alpha, self.chain_seed, 0, 1)
            self._placed[device] = _assemble(rows, self.start, self.weights).to(device)
        return self._placed[device]

    @cached_property
    def _placed(self) -> dict[torch.device, Chains]:
        return {}

    def draw(self, seed: int, step: int) -> Drawn:
        """The batch of this step with the chain of each sequence: `chains.P[chain]` are its rows."""
        random, size = generator(seed, step), self.batch_size
        if self.K is None:
            rows = dirichlet_rows(size, self.vocab, self.alpha, seed, step, 2)
            chains = _assemble(rows, self.start).to(torch.get_default_device())
            chain = torch.arange(size)
        else:
            chains = self.chains()
            chain = pick(chains.cdfs[0], torch.rand(size, generator=random, dtype=torch.float64))
        return Drawn(sample(chains, chain, self.length + 1, random), chain, chains)

    def batch(self, seed: int, step: int) -> Batch:
        """The batch of this step: the same for the same (seed, step), whatever else happens."""
        tokens = self.draw(seed, step).tokens
        return Batch(tokens[:, :-1], tokens[:, 1:])


def sample(
    chains: Chains, chain: Int[Tensor, " batch"], length: int, random: torch.Generator
) -> Int[Tensor, "batch length"]:
    """One sequence of each listed chain: u_t ~ U(0, 1) a token, x_t = #{j : P[x_{t−1}, ≤ j] ≤ u_t}.

    Each u_t makes a map from any state to the next, and all maps are made at once. Composed with their
    neighbours, then with neighbours' neighbours, they lead from the first state to every place in log₂ length
    rounds. Raises `ValueError` for a length below 1 and for numbers of chains that are not there.
    """
    if length < 1 or (len(chain) and not 0 <= chain.min() <= chain.max() < len(chains)):
        raise ValueError(f"expected length ≥ 1 and chains 0 … {len(chains) - 1}; got {length} and {chain}")
    u = torch.rand(len(chain), length, generator=random, dtype=torch.float64)
    first, rows = (part[chain] for part in chains.cdfs[1:])
    start, maps = pick(first, u[:, :1]), pick(rows, u[:, None, 1:].expand(-1, rows.shape[1], -1))
    reach = 1
    while reach < length - 1:
        further = maps[:, :, reach:].gather(1, maps[:, :, :-reach])
        maps, reach = torch.cat([maps[:, :, :reach], further], 2), 2 * reach
    return torch.cat([start, maps.gather(1, start[:, :, None].expand(-1, -1, length - 1))[:, 0]], 1)


def pick(cumulative: Tensor, u: Tensor) -> Tensor:
    """How many cumulative probabilities lie at or below u: the symbol that u falls on."""
    return torch.searchsorted(cumulative, u.contiguous(), right=True)


def cdf(log_p: Tensor) -> Tensor:
    """Cumulative probabilities over the last axis, ending in exactly 1: no u < 1 falls on an impossible."""
    total = log_p.exp().cumsum(-1)
    return total / total[..., -1:]


def dirichlet_rows(K: int, vocab: int, alpha: float, *stream: int) -> Float[Tensor, "K vocab vocab"]:
    """Log-probabilities of K matrices of Dirichlet(α) rows, finite for any α: log Γ_α = log Γ_{α+1} − E/α.

    Γ_a is a gamma variable, E an exponential one; `stream` names the random stream. Always on the CPU.
    """
    shape = (K, vocab, vocab)
    gamma = np.random.default_rng(stream).standard_gamma(alpha + 1, shape)
    exponential = np.random.default_rng((*stream, 1)).standard_exponential(shape)
    return torch.from_numpy(np.log(gamma) - exponential / alpha).log_softmax(-1)


def chains_of(
    P: Float[Tensor, "K C C"], start: str = "stationary", weights: tuple[float, ...] | None = None
) -> Chains:
    """Chains with the given transition matrices; zeros are allowed.

    Raises `ValueError` for matrices that are not `[K C C]`, hold negative numbers, or whose rows do not sum
    to one.
    """
    P = torch.as_tensor(P)
    if P.dim() != 3 or P.shape[1] != P.shape[2] or len(P) < 1 or P.shape[1] < 2:
        raise ValueError(f"expected K ≥ 1 square matrices of at least 2 states, [K C C]; got {list(P.shape)}")
    if start not in STARTS:
        raise ValueError(f"start must be one of {', '.join(STARTS)}; got {start!r}")
    P = P.double()
    wrong = ~(((P.sum(-1) - 1).abs() < 1e-5) & (P >= 0).all(-1))
    if wrong.any():
        k, row = wrong.nonzero()[0].tolist()
        raise ValueError(
            f"each row holds probabilities that sum to one; row {row} of chain {k} is {P[k, row].tolist()}, "
            f"sum {P[k, row].sum():.6g}; divide each row by its sum"
        )
    return _assemble((P / P.sum(-1, keepdim=True)).log(), start, weights)


def _assemble(log_P: Tensor, start: str, weights=None) -> Chains:
    log_pi = log_stationary(log_P)
    log_start = log_pi if start == "stationary" else torch.full_like(log_pi, -math.log(log_pi.shape[1]))
    return Chains(log_P, log_start, log_pi, log_weights(weights, len(log_P)).to(log_P.device))


def log_weights(weights: tuple[float, ...] | None, K: int) -> Float[Tensor, " K"]:
    """Log of the mixture weights, made to sum to one. Raises `ValueError` for impossible ones."""
    weights = np.ones(K) if weights is None else np.array(weights, float)
    if weights.shape != (K,) or not (np.isfinite(weights).all() and (weights >= 0).all() and weights.any()):
        raise ValueError(
            f"weights are K={K} finite numbers of at least 0, not all 0; got {weights.size} in "
            f"{weights.min(initial=np.inf):.3g} … {weights.max(initial=-np.inf):.3g}"
        )
    return torch.from_numpy(weights / weights.sum()).log()


def log_stationary(log_P: Float[Tensor, "K C C"]) -> Float[Tensor, "K C"]:
    """Log of π with π P = π, by eliminating states one after the other; nothing is ever subtracted.

        for n = C … 2:  P[i, n] ← P[i, n] / Σ_{j<n} P[n, j],  P[i, j] ← P[i, j] + P[i, n] P[n, j]   (i, j < n)
        π_1 = 1,  π_n = Σ_{i<n} π_i P[i, n],  then divide by the sum

    A chain with several stationary distributions gets the one that a uniform start leads to, on average over
    time. Source: Grassmann, Taksar & Heyman 1985 (https://doi.org/10.1287/opre.33.5.1107).
    """
    C, zeros = log_P.shape[1], torch.isinf(log_P).flatten(1).any(1)
    log_P = torch.where(zeros[:, None, None], log_P.clamp(min=RESTART), log_P).clone()
    for n in range(C - 1, 0, -1):
        leave = log_P[:, n, :n].logsumexp(-1)
        log_P[:, :n, n] -= leave[:, None]
        around = log_P[:, :n, n, None] + log_P[:, n, None, :n]
        log_P[:, :n, :n] = torch.logaddexp(log_P[:, :n, :n], around)
    log_pi = torch.zeros_like(log_P[:, 0])
    for n in range(1, C):
        log_pi[:, n] = (log_pi[:, :n] + log_P[:, :n, n]).logsumexp(-1)
    log_pi = log_pi.log_softmax(-1)
    return torch.where(zeros[:, None] & (log_pi < RESTART / 2), -torch.inf, log_pi)
