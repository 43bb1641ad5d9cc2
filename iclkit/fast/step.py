"""One training step of M models of one shape: batches in, losses out, weights updated."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext

import torch
from jaxtyping import Float
from torch import Tensor

from iclkit.environment import one_thread
from iclkit.fast.adamw import AdamW
from iclkit.fast.flat import Flat
from iclkit.fast.memory import keep_freed_memory, return_freed_memory
from iclkit.fast.passes import Passes
from iclkit.pairs import answers_last
from iclkit.tasks import Batch

LIGHT = 0.5e9  # FLOP of an update, about, that one thread does sooner than two
TOKENS = 1024  # a thread's share of one part: what a layer makes of them fits its cache


class Step:
    """The step of `models`, whose weights become views into one buffer while they train.

    `loss` is a function of (logits, batch) or None for the mean cross entropy over the targets that count.
    """

    def __init__(self, models: list, configs: list, loss: Callable[[Tensor, Batch], Tensor] | None = None):
        self.models, self.configs, self.loss = models, configs, loss
        keep_freed_memory()
        self.flat = Flat(models[0], len(models))
        self.grads = torch.zeros_like(self.flat.rows)
        self.passes = Passes(self.flat, self.flat.split(self.grads), answers_last(models[0]))
        decaying = self.flat.decaying
        rates, decays = (factors(self.flat, configs, which) for which in ("rate", "decay"))
        shrink = None if decays is None else decays[:, :decaying]
        self.optimiser = AdamW(self.flat.rows, decaying, configs, rates, shrink)
        for index, model in enumerate(models):
            views = self.flat.named(self.flat.rows, index)
            for name, weight in model.named_parameters():
                views[name].copy_(weight.data)
                weight.data = views[name]

    def release(self) -> None:
        """Give every model weights of its own again."""
        for model in self.models:
            for weight in model.parameters():
                weight.data = weight.data.clone(memory_format=torch.contiguous_format)
        return_freed_memory()

    def moments(self) -> Iterator[tuple[str, Tensor]]:
        """The optimiser's memory as views, named by model, moment and weight."""
        for index in range(len(self.models)):
            for moment, rows in (("exp_avg", self.optimiser.m), ("exp_avg_sq", self.optimiser.v)):
                for name, view in self.flat.named(rows, index).items():
                    yield f"{index}/{moment}/{name}", view

    def optimiser_state(self) -> dict[str, Tensor]:
        """`moments` and the number of updates, under the names `torch.optim.AdamW` uses."""
        state = dict(self.moments())
        for name in [name for name in state if "/exp_avg/" in name]:
            state[name.replace("/exp_avg/", "/step/")] = torch.tensor(float(self.optimiser.steps))
        return state

    def load_optimiser_state(self, state: dict[str, Tensor]) -> None:
        for name, view in self.moments():
            view.copy_(state[name])
        self.optimiser.resume(int(next(value for name, value in state.items() if "/step/" in name)))

    @torch.no_grad()
    def __call__(self, batches: list[Batch]) -> Float[Tensor, " model"]:
        """Losses before the update; a light one on one thread, where starting others costs more."""
        light = 6 * self.flat.size * places(batches) < LIGHT
        with one_thread() if light else nullcontext():
            self.grads.zero_()
            inputs = stack([batch.inputs for batch in batches])
            losses = self.whole(inputs, batches) if self.loss else self.in_parts(inputs, batches)
            self.optimiser.step(self.grads)
        return losses

    def whole(self, inputs: Tensor, batches: list[Batch]) -> Tensor:
        """Loss and gradients by any loss function, over the whole batch at once."""
        logits, kept = self.passes.forward(inputs)
        with torch.enable_grad():
            logits.requires_grad_()
            each = logits.unflatten(1, (inputs.shape[1], -1))
            losses = torch.stack([self.loss(each[i], batch) for i, batch in enumerate(batches)])
            (grad,) = torch.autograd.grad(losses.sum(), logits)
        self.passes.backward(grad, kept)
        return losses.detach()

    def in_parts(self, inputs: Tensor, batches: list[Batch]) -> Tensor:
        """Cross entropy, a few sequences at a time, so that activations stay in cache."""
        targets = stack([batch.targets for batch in batches])
        weights = stack([share(batch, self.grads.dtype) for batch in batches])
        models, size, length = targets.shape
        tokens = TOKENS * torch.get_num_threads()
        part = size if inputs.is_cuda else max(1, tokens // (models * length))
        losses = self.grads.new_zeros(models)
        for start in range(0, size, part):
            rows = slice(start, start + part)
            logits, kept = self.passes.forward(inputs[:, rows])
            wanted = targets[:, rows].flatten(1)[..., None]
            weight = weights[:, rows].flatten(1)[..., None]
            logp = torch.log_softmax(logits, 2)
            losses -= (logp.gather(2, wanted) * weight).sum((1, 2))
            grad = logp.exp_().scatter_add_(2, wanted, logp.new_full((), -1.0).expand(wanted.shape))
            self.passes.backward(grad.mul_(weight), kept)
        return losses


def factors(flat: Flat, configs: list, which: str) -> Float[Tensor, "model size"] | None:
    """What multiplies the `rate` or `decay` of each weight; None where no config says so."""
    if not any(getattr(config, f"{which}s") for config in configs):
        return None
    rows = torch.ones_like(flat.rows)
    for index, config in enumerate(configs):
        for name, view in flat.named(rows, index).items():
            view.mul_(getattr(config, f"{which}_of")(name))
    return rows


def share(batch: Batch, dtype: torch.dtype) -> Tensor:
    """What each target's loss weighs in the mean, `[batch seq]`."""
    if batch.mask is None:
        return torch.full(
            batch.targets.shape, 1 / batch.targets.numel(), dtype=dtype, device=batch.targets.device
        )
    if batch.mask.dtype != torch.bool:
        raise ValueError(f"a batch's mask must be bool, True where a target counts; got {batch.mask.dtype}")
    return batch.mask.to(dtype) / batch.mask.sum()


def places(batches: list[Batch]) -> int:
    """Positions of all sequences of all models."""
    return sum(batch.inputs.shape[:2].numel() for batch in batches)


def stack(tensors: list[Tensor]) -> Tensor:
    """`[model, …]`, without a copy for one model."""
    return tensors[0][None] if len(tensors) == 1 else torch.stack(tensors)
