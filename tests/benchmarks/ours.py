"""The one file that knows how iclkit makes a training step."""

import itertools

from torch import Tensor

from benchmarks.many import Loop
from benchmarks.shapes import TRAINING, Shape
from iclkit.model import Transformer
from iclkit.stepping import build_stepper


class Ours:
    """The steps of `iclkit.training`, of one model or of several in one stack."""

    stride = 1

    def __init__(self, shape: Shape, batches_of_each: list[list], **options):
        models = [Transformer(shape.model, seed) for seed in range(len(batches_of_each))]
        self.stepper = build_stepper(models, [TRAINING] * len(models), **options)
        self.batches, self.done = itertools.cycle(zip(*batches_of_each)), 0
        self.parameters = sum(weight.numel() for model in models for weight in model.parameters())

    def advance(self) -> Tensor:
        """One step of every model; their mean loss before it."""
        losses = self.stepper.step(next(self.batches), self.done)
        self.done += 1
        return losses.mean()


def one(shape: Shape, batches: list, **options) -> Ours:
    return Ours(shape, [batches], **options)


def loop(shape: Shape, batches_of_each: list[list]) -> Loop:
    return Loop([Ours(shape, [batches]) for batches in batches_of_each])
