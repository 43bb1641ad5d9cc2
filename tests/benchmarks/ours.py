"""The one file that knows how iclkit makes a training step."""

import itertools

from benchmarks.many import Loop
from benchmarks.shapes import TRAINING, Shape
from iclkit.hooks import NO_TAPS
from iclkit.model import Transformer
from iclkit.training import build_optimiser, cross_entropy, update


class Ours:
    """One model, one step at a time, as `iclkit.training.train` makes them."""

    stride = 1

    def __init__(self, shape: Shape, batches, seed: int = 0):
        self.model, self.batches = Transformer(shape.model, seed), itertools.cycle(batches)
        self.optimiser, self.done = build_optimiser(self.model, TRAINING), 0
        self.parameters = sum(weight.numel() for weight in self.model.parameters())

    def advance(self):
        loss = update(
            self.model, NO_TAPS, self.optimiser, cross_entropy, next(self.batches), TRAINING, self.done
        )
        self.done += 1
        return loss


def one(shape: Shape, batches, seed: int = 0):
    return Ours(shape, batches, seed)


def many(shape: Shape, batches_of_each):
    return Loop([Ours(shape, batches, seed) for seed, batches in enumerate(batches_of_each)])
