"""The smallest task-recognition head: code each pair of neighbours, pool the codes, decode.

    x_1 x_2 … x_n   →   z_m = W_enc[x_{m−1}, x_m]          the pair's code, D_φ numbers
                        φ = mean of z_2 … z_n               what is known of the chain
                        logits = relu(φ W_phi + W_now[x_n] + b_in) W_out + b_out

φ has to carry the chain through D_φ numbers, and the decoder has to look its row up in `d_mlp` hidden units:
two bottlenecks. With D_φ = C² nothing is lost: φ can be the table of pair counts itself. Heads of several
tasks are trained as one stack (`train_heads`), with a `model` axis in front of all weights. Source: Gibson,
Cui & Reddy 2026 (https://arxiv.org/abs/2604.12151); widths, loss and optimiser are our choice.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from iclkit.environment import progress_bar
from iclkit.tasks import generator
from iclkit.tasks.base import check_whole
from iclkit.tasks.markov import Markov


@dataclass(frozen=True)
class HeadConfig:
    """Sizes of a head: `vocab` states, `d_phi` numbers for the chain, `d_mlp` hidden units of the decoder."""

    vocab: int = 3
    d_phi: int = 4
    d_mlp: int = 32

    def __post_init__(self):
        for name, least in (("vocab", 2), ("d_phi", 1), ("d_mlp", 1)):
            value = getattr(self, name)
            check_whole(name, value)
            if value < least:
                raise ValueError(f"expected {name} ≥ {least}; got {value}")


class RecognitionHead:
    """One head: tokens `[batch seq]` → logits `[batch seq vocab]` of the next state; `weights` by name."""

    def __init__(self, config: HeadConfig, weights: dict[str, Tensor]):
        wanted = {name: weight.shape for name, weight in init(config, 0).items()}
        if (got := {name: weight.shape for name, weight in weights.items()}) != wanted:
            shapes = ["  ".join(f"{n} {list(s)}" for n, s in each.items()) for each in (wanted, got)]
            raise ValueError(f"{config} has the weights {shapes[0]}; got {shapes[1] or 'none'}")
        self.config, self.weights = config, weights

    def __call__(self, tokens: Int[Tensor, "batch seq"]) -> Float[Tensor, "batch seq vocab"]:
        return logits(self.weights, *features(tokens, self.config.vocab))

    def phi(self, tokens: Int[Tensor, "batch seq"]) -> Float[Tensor, "batch seq d_phi"]:
        """The pooled code after each place; 0 at the first, which ends no pair."""
        return features(tokens, self.config.vocab)[0] @ self.weights["W_enc"]


def init(config: HeadConfig, seed: int) -> dict[str, Tensor]:
    """First weights: normal, of variance 1 / inputs (`W_enc`: 1, as a pair is one of C²); biases 0."""
    C, D, H, random = config.vocab, config.d_phi, config.d_mlp, generator(seed)
    shapes = {"W_enc": (C * C, D), "W_phi": (D, H), "W_now": (C, H), "W_out": (H, C)}
    spread = {"W_enc": 1.0, "W_phi": D**-0.5, "W_now": 1.0, "W_out": H**-0.5}
    weights = {name: spread[name] * torch.randn(shape, generator=random) for name, shape in shapes.items()}
    return weights | {"b_in": torch.zeros(1, H), "b_out": torch.zeros(1, C)}


def features(tokens: Int[Tensor, "batch seq"], vocab: int) -> tuple[Tensor, Tensor]:
    """What a head reads at each place: shares of the C² pairs so far, and the state now, one-hot.

    The mean of codes is linear in the shares of pairs: φ = shares W_enc. Raises `ValueError` for symbols that
    are no states.
    """
    if tokens.dtype != torch.int64 or tokens.dim() != 2 or not tokens.numel():
        raise ValueError(
            "expected tokens [batch seq] in torch.int64, at least one; "
            f"got {tokens.dtype} {list(tokens.shape)}"
        )
    if tokens.min() < 0 or tokens.max() >= vocab:
        raise ValueError(
            f"states are 0 … {vocab - 1}; got tokens from {int(tokens.min())} to {int(tokens.max())}"
        )
    pairs = F.one_hot(vocab * tokens[:, :-1] + tokens[:, 1:], vocab**2).float().cumsum(1)
    seen = pairs / torch.arange(1, tokens.shape[1])[:, None]
    return F.pad(seen, (0, 0, 1, 0)), F.one_hot(tokens, vocab).float()


def logits(weights: dict[str, Tensor], seen: Tensor, now: Tensor) -> Tensor:
    """Encoder, pool and decoder of one head, or of a stack with the model axis in front of everything."""
    code = weights["W_enc"] @ weights["W_phi"]
    hidden = torch.relu(seen @ code + now @ weights["W_now"] + weights["b_in"])
    return hidden @ weights["W_out"] + weights["b_out"]


def train_heads(
    configs: Sequence[HeadConfig],
    tasks: Sequence[Markov],
    seed: int,
    steps: int,
    lr: float = 1e-2,
    first: int = 0,
    progress: bool = False,
) -> list[list[RecognitionHead]]:
    """Train a head of each config on each task: `heads[config][task]`.

    Adam, loss on all places from `first` on, a learning rate that falls to 0 over the last half. All configs
    of a task see the same batches, and each head learns as it would alone: the loss is a sum over heads.
    Raises `ValueError` for tasks that do not share length and batch size, and for steps, lr or `first` out of
    range; `FloatingPointError` when the loss is no longer a number.
    """
    check_whole("steps", steps)
    check_whole("first", first)
    if not tasks or len({(task.length, task.batch_size) for task in tasks}) != 1:
        raise ValueError(
            "expected at least one task, all of one length and batch_size; got " + str(list(tasks))
        )
    if steps < 1 or not 0 < lr < float("inf") or not 0 <= first < tasks[0].length:
        raise ValueError(
            f"expected steps ≥ 1, a finite lr > 0 and first in 0 … {tasks[0].length - 1}; "
            f"got {steps}, {lr} and {first}"
        )
    if {task.vocab for task in tasks} != {config.vocab for config in configs}:
        raise ValueError(
            f"tasks and configs must share one vocab; got tasks of {[task.vocab for task in tasks]} "
            f"and configs of {[config.vocab for config in configs]}"
        )
    stacks = [{name: torch.stack([w] * len(tasks)) for name, w in init(c, seed).items()} for c in configs]
    weights = [weight.requires_grad_() for stack in stacks for weight in stack.values()]
    optimiser = torch.optim.Adam(weights, lr, betas=(0.9, 0.98), fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: min(1.0, 2 - 2 * step / steps))
    for step in progress_bar(range(steps), progress):
        batches = [task.batch(seed, step) for task in tasks]
        parts = [features(batch.inputs, task.vocab) for batch, task in zip(batches, tasks)]
        seen, now = (torch.stack(part)[:, :, first:].flatten(1, 2) for part in zip(*parts))
        targets = torch.stack([batch.targets for batch in batches])[:, :, first:].flatten()
        optimiser.zero_grad()
        loss = sum(F.cross_entropy(logits(stack, seen, now).flatten(0, 1), targets) for stack in stacks)
        (loss * len(tasks)).backward()
        optimiser.step()
        schedule.step()
    if not loss.isfinite():
        raise FloatingPointError(f"the loss of the heads at the end is {loss.item()}; lower lr={lr}")
    return [
        [
            RecognitionHead(config, {n: w[at].detach().clone() for n, w in stack.items()})
            for at in range(len(tasks))
        ]
        for config, stack in zip(configs, stacks)
    ]
