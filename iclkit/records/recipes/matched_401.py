"""Matched exemplars: all items of a class in a sequence are one drawing; the runs beside `coopetition_301` (401).

    x₁ y₁ x₂ y₂ x₁ →       the query is one of the exemplars, bit for bit

The same seeds, model and evaluators (these are not matched). Arrays as in `coopetition_301`, without weights.
"""

import numpy as np

from iclkit.records.recipes import Piece, Probe, coopetition_301
from iclkit.records.recipes.coopetition_301 import Look, fit, looked_at, task_of

NAME = "matched_401"
COST = "5 seeds of 32,000 updates, about 5 min each on one core"
SEEDS = coopetition_301.SEEDS


def configs(scale: str) -> list[dict]:
    """The default setting with matched exemplars."""
    (config,) = coopetition_301.configs(scale)
    return [config | {"variant": "matched", "task": config["task"] | {"matched": True}, "kept": []}]


def unit(config: dict, seed: int, folder=None) -> dict[str, np.ndarray]:
    """Train one model and look at it on the way; saved every minute."""
    look = Look(task_of(config), config["sequences"])
    run = fit(config, seed, look.measures(), folder)
    return looked_at(run) | {"train_loss": run.losses.astype(np.float16)}


def assemble(pieces: list[Piece]) -> dict[str, np.ndarray]:
    """Measures over seeds."""
    return coopetition_301.assemble(pieces)


def probe(record) -> Probe:
    """Seed 0: the training loss of its first 60 updates."""
    return coopetition_301.probe(record)
