"""The statistical induction head with two numbers left: δ, the previous state; β, the match.

    x_1 … x_N → p(x_{N+1})
    layer 1   place m attends to places 1 … m alike, to place m−1 e^δ times as much
    s_m       the part of that attention that falls on states equal to x_N
    layer 2   place N attends to place m ∝ e^{β s_m}: the vote for x_m
    p         (1 − w)·layer 2's vote + w·layer 1's vote at place N, then a share ε spread evenly

At β = δ = 0 all places vote alike: 1-Gen without smoothing. For β, δ → ∞ and w = 0 those vote that stand
after x_N: the bigram counts, 2-Gen without smoothing. Permuting the states changes nothing, so these
are all the weights that a symmetric model keeps. The theory is of Gibson, Cui & Reddy 2026
(https://arxiv.org/abs/2604.12151); this concrete model, with w and ε, is our choice.
"""

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import one_hot

from iclkit.predictors import check_tokens, rows_at
from iclkit.tasks import generator
from iclkit.tasks.base import check_whole
from iclkit.tasks.markov import Markov


class Contexts(NamedTuple):
    """Sequences `tokens [batch seq]` and the true probabilities of what follows, `rows [batch vocab]`."""

    tokens: Int[Tensor, "batch seq"]
    rows: Float[Tensor, "batch vocab"]


def contexts(task: Markov, seed: int, step: int = 0) -> Contexts:
    """The batch of (seed, step) with the row of its own chain that each sequence ends in."""
    drawn = task.draw(seed, step)
    return Contexts(drawn.tokens[:, :-1], rows_at(drawn, (-1,))[:, 0].exp())


@dataclass(frozen=True)
class SA:
    """The model at one point (β, δ): tokens `[batch seq]` → log-probabilities `[batch 1 vocab]`, last place.

    `beta` and `delta` are numbers or tensors of one element; `direct` is w, `floor` is ε. Raises `ValueError`
    for w or ε outside their range, for β or e^δ that are not finite, and for sequences of fewer than two
    states.
    """

    vocab: int
    beta: float | Tensor = 0.0
    delta: float | Tensor = 0.0
    direct: float = 0.1
    floor: float = 0.01

    def __post_init__(self):
        check_whole("vocab", self.vocab)
        if self.vocab < 2:
            raise ValueError(f"vocab must be at least 2; got {self.vocab}")
        if not (0 <= self.direct <= 1 and 0 < self.floor < 1):
            raise ValueError(
                f"expected 0 ≤ direct ≤ 1 and 0 < floor < 1 (a state that never came up needs some "
                f"probability); got direct={self.direct}, floor={self.floor}"
            )

    @property
    def more(self) -> Tensor:
        """e^δ − 1: by how much more layer 1 attends to the previous place than to any other."""
        more = torch.as_tensor(self.delta, dtype=torch.float64).exp() - 1
        if not (torch.as_tensor(self.beta, dtype=torch.float64).isfinite().all() and more.isfinite().all()):
            raise ValueError(
                f"expected a finite beta and a delta below 709; got {self.beta} and {self.delta}; "
                "after steps of descent: lower lr"
            )
        return more

    def at(self, beta, delta) -> "SA":
        """The same model at another point."""
        return replace(self, beta=beta, delta=delta)

    def __call__(self, tokens: Int[Tensor, "batch seq"]) -> Float[Tensor, "batch 1 vocab"]:
        check_tokens(tokens, self.vocab)
        votes = (1 - self.direct) * self.pattern(tokens) + self.direct * self.previous(tokens)
        p = votes.new_zeros(len(tokens), self.vocab).scatter_add(1, tokens, votes)
        return ((1 - self.floor) * p + self.floor / self.vocab).log()[:, None]

    def match(self, tokens: Int[Tensor, "batch seq"]) -> Float[Tensor, "batch seq"]:
        """s_m: how much of layer 1's attention at each place falls on states equal to the last one."""
        (same, before, place), more = matches(tokens), self.more
        return (same.cumsum(1) + more * before) / (place + more * (place > 1))

    def pattern(self, tokens: Int[Tensor, "batch seq"]) -> Float[Tensor, "batch seq"]:
        """Layer 2's attention at the last place."""
        return (self.beta * self.match(tokens)).softmax(1)

    def previous(self, tokens: Int[Tensor, "batch seq"]) -> Float[Tensor, "batch seq"]:
        """Layer 1's attention at the last place, alike in all sequences."""
        seq, more = tokens.shape[1], self.more
        last = one_hot(torch.tensor(seq - 2), seq)
        return ((1 + more * last) / (seq + more)).expand(len(tokens), -1)

    def loss(self, contexts: Contexts) -> Float[Tensor, ""]:
        """Expected loss of the next state in nats: mean −Σ_j P[x_N, j] log p_j."""
        check_rows(contexts, self.vocab)
        return -(contexts.rows * self(contexts.tokens)[:, 0]).sum(1).mean()


def matches(tokens: Int[Tensor, "batch seq"]) -> tuple[Tensor, Tensor, Tensor]:
    """Which places equal the last one, which stand right after such a place, and m = 1 … seq."""
    if tokens.shape[1] < 2:
        raise ValueError(f"expected sequences of at least two states; got {list(tokens.shape)}")
    same = (tokens == tokens[:, -1:]).double()
    before = torch.cat([torch.zeros_like(same[:, :1]), same[:, :-1]], 1)
    return same, before, torch.arange(1, tokens.shape[1] + 1, dtype=torch.float64)


def check_rows(contexts: Contexts, vocab: int) -> None:
    """`ValueError` unless each sequence has a row over the `vocab` states."""
    if not isinstance(contexts, Contexts) or contexts.rows.shape != (len(contexts.tokens), vocab):
        got = list(contexts.rows.shape) if isinstance(contexts, Contexts) else type(contexts).__name__
        raise ValueError(f"expected Contexts of sequences and their rows [batch {vocab}]; got {got}")


class Estimate(NamedTuple):
    """A mean over sequences and its standard error."""

    mean: float
    error: float


def coefficients(contexts: Contexts, floor: float = 0.01) -> dict[str, Estimate]:
    """How the loss tilts at β = δ = 0, from data alone, with errors.

        L = L_1-Gen − (1 − w) c_β β − w c_δ δ − c_βδ βδ + …          the last for w = 0

        c_β    E Σ_j P_j/f_j · mean_m (s_m − s̄) 1[x_m = j]         s_m = count_m(x_N) / m
        c_βδ   the same of ∂s_m/∂δ = (1[x_{m−1} = x_N] − s_m) / m    (0 for m = 1)
        c_δ    E Σ_j P_j/f_j · (1[x_{N−1} = j] − n_j/N) / N

    P is the true row after x_N, n_j/N the share of state j in the sequence, f_j = (1 − ε) n_j/N + ε/C.
    Raises `ValueError` for ε outside (0, 1), and for fewer than two sequences, which give no error.
    """
    tokens, rows = contexts
    check_rows(contexts, rows.shape[-1])
    check_tokens(tokens, rows.shape[-1])
    if not 0 < floor < 1:
        raise ValueError(f"expected 0 < floor < 1, as SA has it; got {floor}")
    same, before, place = matches(tokens)
    states = one_hot(tokens, rows.shape[1]).double()
    share = states.mean(1)
    match = same.cumsum(1) / place
    tilt = (before - match) / place * (place > 1)
    votes = {
        "c_beta": torch.einsum("bm,bmj->bj", match - match.mean(1, keepdim=True), states) / tokens.shape[1],
        "c_delta": (states[:, -2] - share) / tokens.shape[1],
        "mixed": torch.einsum("bm,bmj->bj", tilt - tilt.mean(1, keepdim=True), states) / tokens.shape[1],
    }
    weight = (1 - floor) * rows / ((1 - floor) * share + floor / rows.shape[1])
    return {name: estimate((weight * vote).sum(1)) for name, vote in votes.items()}


def wait(a: float, b: float, c: float, level: float = 2.0) -> float:
    """How long the plateau lasts near the origin: when β reaches `level` on its way from β = δ = 0.

        dβ/dt = a + c δ,  dδ/dt = b + c β        β(t) = ((a + b)(e^{ct} − 1) + (a − b)(1 − e^{−ct})) / 2c

    a = (1 − w) c_β, b = w c_δ, c = c_βδ. Raises `ValueError` unless a and b are at least 0, not both,
    c > 0 and level > 0, all finite.
    """
    real = all(map(math.isfinite, (a, b, c, level)))
    if not real or min(a, b) < 0 or a + b <= 0 or c <= 0 or level <= 0:
        raise ValueError(
            "expected finite pushes a, b ≥ 0, not both 0, c > 0 and level > 0; "
            f"got {a:g}, {b:g}, {c:g}, {level:g}"
        )

    def beta(t: float) -> float:
        return ((a + b) * math.expm1(c * t) - (a - b) * math.expm1(-c * t)) / (2 * c)

    low, high = 0.0, math.log1p(4 * c * level / (a + b)) / c + 2 / c
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if beta(middle) < level else (low, middle)
    return high


def estimate(values: Float[Tensor, " batch"]) -> Estimate:
    """Mean and standard error of one value a sequence, of at least two."""
    if len(values) < 2:
        raise ValueError(f"a standard error takes values of at least two sequences; got {len(values)}")
    return Estimate(values.mean().item(), (values.std() / len(values) ** 0.5).item())


@torch.no_grad()
def landscape(sa: SA, contexts: Contexts, betas, deltas) -> Float[np.ndarray, "beta delta"]:
    """The loss over a grid, in nats."""
    return np.array([[sa.at(beta, delta).loss(contexts).item() for delta in deltas] for beta in betas])


class Path(NamedTuple):
    """A way down: time t = lr·steps, the loss of each step's sequences, and both parameters."""

    times: np.ndarray
    losses: np.ndarray
    beta: np.ndarray
    delta: np.ndarray


def descend(
    sa: SA, contexts: Contexts, lr: float, steps: int, batch: int | None = None, seed: int = 0
) -> Path:
    """Gradient descent on β and δ from where `sa` is: on all contexts, or on `batch` drawn anew a step.

    All contexts and a small `lr` make it the gradient flow; a batch makes it SGD. Raises `ValueError` for an
    `lr`, `steps` or `batch` out of range, and when β or δ runs away.
    """
    check_whole("steps", steps)
    check_whole("batch", 1 if batch is None else batch)
    if not 0 < lr < math.inf or steps < 0 or (batch is not None and batch < 1):
        raise ValueError(f"expected a finite lr > 0, steps ≥ 0 and batch ≥ 1; got {lr}, {steps} and {batch}")
    random, tokens = generator(seed), contexts.tokens
    point = torch.tensor([float(sa.beta), float(sa.delta)], dtype=torch.float64, requires_grad=True)
    seen = []
    for _ in range(steps + 1):
        chosen = slice(None) if batch is None else torch.randint(len(tokens), (batch,), generator=random)
        loss = sa.at(*point).loss(Contexts(tokens[chosen], contexts.rows[chosen]))
        seen.append((loss.item(), *point.tolist()))
        (gradient,) = torch.autograd.grad(loss, point)
        with torch.no_grad():
            point -= lr * gradient
    return Path(lr * np.arange(steps + 1), *np.array(seen).T)


def fallen(times, losses, share: float = 0.5) -> float:
    """When a share of the whole fall of `losses`, from the first to the least, is made; linear in between.

    Raises `ValueError` for losses that never fall, and for a share outside (0, 1].
    """
    times, losses = np.asarray(times, float), np.asarray(losses, float)
    whole = losses.ndim == 1 and times.shape == losses.shape and np.isfinite(losses).all()
    if not whole or not len(losses) or not losses.min() < losses[0] or not 0 < share <= 1:
        raise ValueError(
            "expected one finite curve that falls below its first value, a time for each, and 0 < share ≤ 1; "
            f"got {list(losses.shape)}: {losses}, times {list(times.shape)} and {share}"
        )
    done = (losses[0] - losses) / (losses[0] - losses.min())
    after = max(1, int(np.argmax(done >= share)))
    part = (share - done[after - 1]) / (done[after] - done[after - 1])
    return float(times[after - 1] + part * (times[after] - times[after - 1]))
