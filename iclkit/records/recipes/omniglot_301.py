"""The default setting on real drawings: does in-context learning come, and does it stay? (chapters 301, 401)

    characters        242 characters of Omniglot, each in 8 orientations: 1,936 classes of 20 drawings
    composites        two of those classes side by side are one class: 6,400 classes of 400
    … matched         all items of a class in a sequence are one picture

Model and training are those of `coopetition_301`; features are `smooth`. The drawings come from the folder
`ICLKIT_OMNIGLOT`, or are downloaded. Arrays, variants in the order of the record's configs: `steps`,
`accuracy` and `loss` [variant seed step 5] on Train, ICL, Flip, CIWL, IWL, `induction`, `previous`, `itself`
[variant seed step head], `train_loss` [variant seed block], the mean of 50 updates each.
"""

import numpy as np
import torch

from iclkit.records.recipes import Piece, Probe
from iclkit.records.recipes.coopetition_301 import (
    MODEL,
    TASK,
    TRAINING,
    Look,
    fit,
    looked_at,
    model_of,
    variants,
)
from iclkit.tasks import Composite, FewShot, Given, generator
from iclkit.tasks.omniglot import omniglot

NAME = "omniglot_301"
COST = "5 variants × 3 seeds of 16,000 updates, about 50 core-minutes"
SEEDS = (0, 1, 2)
STEPS, EVERY, SEQUENCES, BLOCK = 16_000, 500, 2000, 50
CHARACTERS = {"features": "smooth", "norm": 4.0}


def configs(scale: str) -> list[dict]:
    """Plain features, then smooth ones, of characters and of composites, unmatched and matched."""
    looks = list(range(0, STEPS + 1, EVERY))
    shared = {"training": TRAINING | {"steps": STEPS}, "looks": looks, "sequences": SEQUENCES}
    found = []
    for name, source, n_classes, d_features, task in (
        ("characters, plain features", CHARACTERS | {"features": "principal"}, 1936, 64, {}),
        ("characters", CHARACTERS, 1936, 64, {}),
        ("characters, matched", CHARACTERS, 1936, 64, {"matched": True}),
        ("composites", CHARACTERS | {"composites": 6400}, 6400, 128, {}),
        ("composites, matched", CHARACTERS | {"composites": 6400}, 6400, 128, {"matched": True}),
    ):
        model = MODEL | {"d_vocab": n_classes, "d_features": d_features}
        found.append({"variant": name, "source": source, "model": model, "task": TASK | task, **shared})
    return found


def task_of(config: dict) -> FewShot:
    """What a run trains on; it reads the drawings."""
    source = dict(config["source"])
    composites = source.pop("composites", None)
    drawings = omniglot(**source)
    return FewShot(Composite(drawings, composites) if composites else drawings, **config["task"])


def unit(config: dict, seed: int, folder=None) -> dict[str, np.ndarray]:
    """Train one model and look at it on the way; saved every minute."""
    task = task_of(config)
    look = Look(task, config["sequences"])
    run = fit(config, seed, look.measures(), folder, task=task)
    return looked_at(run) | {"train_loss": run.losses.reshape(-1, BLOCK).mean(1)}


def assemble(pieces: list[Piece]) -> dict[str, np.ndarray]:
    """Measures over variants and seeds."""
    return variants(pieces)


def probe(record) -> Probe:
    """Seed 0 before training, without the drawings: the loss of the same new model on random vectors."""
    config = record.meta["config"][0]
    shape = (config["model"]["d_vocab"], 2, config["model"]["d_features"])
    vectors = torch.randn(shape, generator=generator(301)) * (4.0 / shape[-1] ** 0.5)
    look = Look(FewShot(Given(vectors), **config["task"]), 500)
    measured, recorded = float(look.answers(model_of(config, 0))[1, 0]), float(record["loss"][0, 0, 0, 0])
    return Probe("seed 0: loss of the new model on Train", measured, recorded - 0.1, recorded + 0.1)
