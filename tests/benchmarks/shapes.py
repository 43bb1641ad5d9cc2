"""What is timed: four shapes of model with their batches, the same for every variant."""

from dataclasses import dataclass, replace
from functools import partial

import torch

from iclkit.model import TransformerConfig
from iclkit.tasks import Batch, Markov, Repeats, Task
from iclkit.tasks.base import generator
from iclkit.training import TrainConfig

TRAINING = TrainConfig(steps=10**6, lr=1e-3)
MANY = 8
MarkovChains = partial(Markov, vocab=10, K=1, length=128)


@dataclass(frozen=True)
class Vectors:
    """Five vectors `[batch 5 d_model]`, standing for two exemplars with labels and a query; random labels."""

    d_model: int = 64
    labels: int = 32
    length: int = 5
    batch_size: int = 32

    def batch(self, seed: int, step: int) -> Batch:
        random, shape = generator(seed, step), (self.batch_size, self.length)
        vectors = torch.randn(*shape, self.d_model, generator=random)
        return Batch(vectors, torch.randint(self.labels, shape, generator=random))


@dataclass(frozen=True)
class Shape:
    """A model, and the task whose batches it takes; every position counts in the loss."""

    name: str
    model: TransformerConfig
    task: Task

    def batches(self, count: int, seed: int = 0) -> list[Batch]:
        return [self.task.batch(seed, step) for step in range(count)]


def markov(length: int = 128, batch_size: int = 64, d_model: int = 64) -> Shape:
    """Two layers with MLPs, four heads, a vocabulary of ten."""
    config = TransformerConfig(
        d_vocab=10, n_ctx=length, d_model=d_model, n_heads=4, d_mlp=4 * d_model, layer_norm=True
    )
    return Shape("Markov", config, MarkovChains(length=length, batch_size=batch_size))


REPEATS = TransformerConfig(d_vocab=64, n_ctx=64, d_model=64, n_heads=4, layer_norm=True)
FEW_SHOT = TransformerConfig(
    n_ctx=5, d_model=64, n_heads=8, layer_norm=True, positions="none", embedded=True, d_vocab_out=32
)
SHAPES = {
    "repeats": Shape("repeats", REPEATS, Repeats()),
    "markov": markov(),
    "markov-long": replace(markov(512, 16), name="Markov long"),
    "few-shot": Shape("few-shot", FEW_SHOT, Vectors()),
}
