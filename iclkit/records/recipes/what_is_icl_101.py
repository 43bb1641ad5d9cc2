"""Two ways to learn, told apart (chapter 101): strings that repeat, and walks on a secret ring."""

import numpy as np
import torch
import torch.nn.functional as F

from iclkit.model import Transformer, TransformerConfig
from iclkit.records.recipes import Piece, Probe
from iclkit.tasks import Batch, Repeats, generator, repeated_tokens
from iclkit.training import TrainConfig, train

NAME = "what_is_icl_101"
COST = "5 seeds × 20 s on one core"
SEEDS = (0, 1, 2, 3, 4)
MODEL = TransformerConfig(
    d_vocab=64, n_ctx=64, n_layers=2, d_model=64, n_heads=1, positions="shortformer", layer_norm=True
)
STRINGS = Repeats(vocab=64, length=64, min_period=12, max_period=31, batch_size=32)
PERIOD = 24


class Ring:
    """BOS, then a walk of 1, 2, 3 or 4 places at a time on a ring whose order depends on `world` alone."""

    vocab, length = 64, 64

    def __init__(self, world: int = 0, batch_size: int = 32):
        self.order = torch.randperm(63, generator=generator(world)) + 1
        self.batch_size = batch_size

    def batch(self, seed: int, step: int) -> Batch:
        random, shape = generator(seed, step), (self.batch_size, 64)
        walk = torch.tensor([1, 1, 1, 1, 2, 2, 3, 4])[torch.randint(8, shape, generator=random)]
        walk[:, 0] = torch.randint(63, shape[:1], generator=random)
        tokens = F.pad(self.order[walk.cumsum(1) % 63], (1, 0))
        return Batch(tokens[:, :-1], tokens[:, 1:])


@torch.no_grad()
def by_position(model: Transformer, batch: Batch) -> np.ndarray:
    """Mean loss at each position, in nats."""
    return F.cross_entropy(model(batch.inputs).mT, batch.targets, reduction="none").mean(0).numpy()


def configs(scale: str) -> list[dict]:
    times = 10 if scale == "paper" else 1
    return [{"task": "strings", "steps": 400 * times}, {"task": "ring", "steps": 120 * times}]


def unit(config: dict, seed: int) -> dict:
    strings = config["task"] == "strings"
    twice = repeated_tokens(64, PERIOD, 2, batch=256, seed=1)
    probe = Batch(twice[:, :-1], twice[:, 1:]) if strings else Ring(batch_size=512).batch(1, 0)
    names = F.pad(torch.randperm(63, generator=generator(5)) + 1, (1, 0))
    moved = Batch(names[probe.inputs], names[probe.targets]) if strings else Ring(1, 512).batch(1, 0)
    fresh = Repeats(64, 64, 12, 31, batch_size=512).batch(9, 0) if strings else Ring(0, 512).batch(9, 0)
    model = Transformer(MODEL, seed)
    before = by_position(model, probe)
    task = STRINGS if strings else Ring()
    train(model, task, TrainConfig(steps=config["steps"], lr=3e-3, seed=seed), progress=False)
    return {
        "before": before,
        "after": by_position(model, probe),
        "moved": by_position(model, moved),
        "fresh": by_position(model, fresh),
    }


def assemble(pieces: list[Piece]) -> dict:
    """`strings_after [seed position]` and so on: before and after training, in a changed world, on fresh data."""
    arrays = {}
    for task in ("strings", "ring"):
        found = [piece.arrays for piece in pieces if piece.config["task"] == task]
        arrays |= {f"{task}_{key}": np.stack([each[key] for each in found]) for key in found[0]}
    return arrays


def probe(record) -> Probe:
    after = unit({"task": "ring", "steps": 120}, 0)["after"][1:].mean()
    over = record["ring_after"][:, 1:].mean(1)
    return Probe("loss on the ring after training", float(after), over.min() - 0.05, over.max() + 0.05)
