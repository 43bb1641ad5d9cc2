"""Eight models of one shape at once, each with its own first weights and its own batches.

One `advance` is one step of every model. `batches_of_each` is `[model][step]`.
"""

import itertools

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap

from benchmarks.plain import Plain, adamw, build, cross_entropy
from benchmarks.shapes import Shape


class Loop:
    """One model after the other."""

    stride = 1

    def __init__(self, trainers: list):
        self.trainers, self.parameters = trainers, sum(one.parameters for one in trainers)

    def advance(self):
        return sum(one.advance() for one in self.trainers) / len(self.trainers)


def loop(shape: Shape, batches_of_each) -> Loop:
    return Loop([build(shape, batches, seed=seed) for seed, batches in enumerate(batches_of_each)])


class Vmapped:
    """torch.func: weights stacked, the forward mapped, losses summed, one backward, one fused AdamW.

    The softmax is written out: the fused kernel has no batching rule on CPU and would run model by model.
    """

    stride = 1

    def __init__(self, shape: Shape, batches_of_each):
        models = []
        for seed in range(len(batches_of_each)):
            torch.manual_seed(seed)
            models.append(Plain(shape.model, fused=False))
        weights, buffers = stack_module_state(models)
        self.weights = {name: nn.Parameter(w.detach()) for name, w in weights.items()}
        bare = models[0].to("meta")

        def loss(weights: dict, inputs: Tensor, targets: Tensor) -> Tensor:
            return cross_entropy(functional_call(bare, (weights, buffers), (inputs,)), targets)

        self.losses, self.optimiser = vmap(loss), adamw(self.weights.values(), least=3)
        self.parameters = sum(w.numel() for w in self.weights.values())
        together = zip(*batches_of_each)
        stacked = [[torch.stack(part) for part in zip(*(b[:2] for b in few))] for few in together]
        self.batches = itertools.cycle(stacked)

    def advance(self) -> Tensor:
        losses = self.losses(self.weights, *next(self.batches))
        self.optimiser.zero_grad(set_to_none=True)
        losses.sum().backward()
        self.optimiser.step()
        return losses.detach().mean()
