"""Task vectors: one activation of the last position that says which task a sequence follows.

    own       a b a a b … x        chain A, state x        what the model would say:   row x of A
    donor     c c a c b … y        chain B                 φ, read here
    swapped   a b a a b … x        own run, donor's φ      does it say row x of B?

If the model reads φ and its own present state x, and nothing else of the context, the answer follows the
donor. A swap that moves the answer shows that this path is used, not that it is the only one.
Source: Gibson, Cui & Reddy 2026 (https://arxiv.org/abs/2604.12151).
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from iclkit.circuits.patching import same_shape
from iclkit.hooks import Name
from iclkit.model import Transformer
from iclkit.predictors import divergence

POOLED = ("attn_out", 1)  # what the second layer's attention gathers: φ of a two-layer model


class Follows(NamedTuple):
    """Mean KL in nats from the own and from the donor's row to the answer; how often the donor's is nearer."""

    own: float
    donor: float
    share: float


@torch.no_grad()
def task_vector(
    model: Transformer, tokens: Int[Tensor, "batch seq"], at: Name = POOLED
) -> Float[Tensor, "batch d_model"]:
    """The activation `at`, an activation of the form `[batch seq d_model]`, at the last position."""
    _, cache = model.run_with_cache(tokens, [at])
    (found,) = cache.values()
    if found.shape != (*tokens.shape, model.config.d_model):
        raise ValueError(f"a task vector is read where [batch seq d_model] is; {at!r} is {list(found.shape)}")
    return found[:, -1]


@torch.no_grad()
def swap(
    model: Transformer,
    tokens: Int[Tensor, "batch seq"],
    donors: Int[Tensor, "rows places"],
    at: Name = POOLED,
) -> Float[Tensor, "batch vocab"]:
    """Logits of `tokens` at the last position, where the activation `at` comes from `donors`, row by row."""
    same_shape(tokens, donors)
    vectors = task_vector(model, donors, at)

    def replace(tensor, hook):
        return torch.cat([tensor[:, :-1], vectors[:, None]], 1)

    return model.run_with_hooks(tokens, [(at, replace)])[:, -1]


def pick_donors(
    chain: Int[Tensor, " batch"], state: Int[Tensor, " batch"] | None = None, seed: int = 0
) -> Int[Tensor, " batch"]:
    """For each sequence the index of one of another chain, drawn from all; with `state`, of the same state.

    Raises `ValueError` where there is none.
    """
    if chain.dim() != 1 or not len(chain) or (state is not None and state.shape != chain.shape):
        got = f"{list(chain.shape)} and {None if state is None else list(state.shape)}"
        raise ValueError(f"expected the chain, and the state, of each of at least two sequences; got {got}")
    fits = chain[:, None] != chain[None]
    if state is not None:
        fits &= state[:, None] == state[None]
    if not fits.any(1).all():
        row = int((~fits.any(1)).nonzero()[0])
        same = "" if state is None else f" in state {int(state[row])}"
        raise ValueError(
            f"no sequence of another chain than {int(chain[row])}{same} to be a donor; give more"
        )
    return torch.multinomial(fits.float(), 1, generator=torch.Generator().manual_seed(seed))[:, 0]


def follows(
    logits: Float[Tensor, "batch vocab"],
    own: Float[Tensor, "batch vocab"],
    donor: Float[Tensor, "batch vocab"],
) -> Follows:
    """Which of two rows (log-probabilities) the answers follow: KL(row ‖ answer).

    Raises `ValueError` for shapes that differ, rows that do not sum to one, and logits that are not finite.
    """
    if not logits.shape == own.shape == donor.shape or logits.dim() != 2 or not len(logits):
        shapes = ", ".join(str(list(each.shape)) for each in (logits, own, donor))
        raise ValueError(
            f"expected logits, own and donor of one shape [batch vocab], batch ≥ 1; got {shapes}"
        )
    sums = torch.stack([own, donor]).double().exp().sum(-1)
    if not logits.isfinite().all() or not ((sums - 1).abs() < 1e-3).all():
        raise ValueError(
            "expected finite logits and rows of log-probabilities, whose exp sums to 1 (take rows.log()); "
            f"got logits {logits.min():g} … {logits.max():g} and sums {sums.min():g} … {sums.max():g}"
        )
    answer = logits.double().log_softmax(-1)
    apart = torch.stack([divergence(row[:, None, None], answer[:, None, None]) for row in (own, donor)])
    return Follows(*apart.mean(1).tolist(), (apart[1] < apart[0]).double().mean().item())


class LinearProbe:
    """Reads a class off a vector: ridge regression on one-hot classes, the largest output wins.

        W = argmin ‖[x 1] W − onehot(class)‖² + ridge · n · ‖W‖²        x standardised

    LinearProbe(vectors, chain, K)(others)      the classes of other vectors, `[batch]`
    """

    def __init__(
        self, x: Float[Tensor, "batch d"], label: Int[Tensor, " batch"], K: int, ridge: float = 1e-4
    ):
        _check_classes(x, label)
        if len(x) < 2 or not 0 <= label.min() <= label.max() < K or not 0 <= ridge < float("inf"):
            raise ValueError(
                "expected at least 2 vectors, labels in 0 … K − 1 and a finite ridge ≥ 0; got "
                f"{len(x)} vectors, labels {int(label.min())} … {int(label.max())}, K={K}, ridge={ridge}"
            )
        x = x.double()
        self.mean, self.scale = x.mean(0), x.std(0).clamp(min=1e-9)
        x = self._ready(x)
        wanted = torch.nn.functional.one_hot(label, K).double()
        gram = x.T @ x + ridge * len(x) * torch.eye(x.shape[1], dtype=x.dtype)
        self.W = torch.linalg.solve(gram, x.T @ wanted)

    def _ready(self, x: Tensor) -> Tensor:
        x = (x.double() - self.mean) / self.scale
        return torch.cat([x, torch.ones_like(x[:, :1])], 1)

    def __call__(self, x: Float[Tensor, "batch d"]) -> Int[Tensor, " batch"]:
        if x.dim() != 2 or x.shape[1] != len(self.mean):
            raise ValueError(f"this probe reads vectors [batch {len(self.mean)}]; got {list(x.shape)}")
        return (self._ready(x) @ self.W).argmax(1)


def between(x: Float[Tensor, "batch d"], label: Int[Tensor, " batch"]) -> float:
    """The share of the variance of vectors that lies between the means of their classes, in [0, 1]."""
    _check_classes(x, label)
    x = x.double() - x.double().mean(0)
    means = torch.stack([x[label == k].mean(0) for k in label.unique()])
    numbers = label.unique(return_counts=True)[1]
    return float((means.square().sum(1) * numbers).sum() / x.square().sum().clamp(min=1e-30))


def _check_classes(x: Tensor, label: Tensor) -> None:
    if x.dim() != 2 or not len(x) or label.shape != x.shape[:1] or label.dtype != torch.int64:
        raise ValueError(
            "expected vectors [batch d], batch ≥ 1, and a torch.int64 label for each; "
            f"got {list(x.shape)} and {label.dtype} {list(label.shape)}"
        )
    if not x.isfinite().all():
        raise ValueError("the vectors hold NaN or infinity; did the model's training diverge?")
