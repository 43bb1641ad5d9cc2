"""What keeps 2-Gen in transformers on Markov chains: weight decay, width and K as levers (chapter 401).

    the setting of thresholds_205, trained twice as long: C = 3 states, N = 32; 10,000 updates

Every variant differs from `default` in what its config says: `lever` and `dose` name it, `K` its chains.
Arrays: `steps` [look], `distances` [variant seed look 2 5], the KL of the four observers and of a uniform guess
from the model on training and on fresh chains, `losses` [variant seed look 2], both at the last position;
`apart` [variant seed 2 5 5], `floors` [variant seed 2 5]. Variants stand in the order of the record's configs.
"""

import numpy as np

from iclkit.records.recipes import Piece, Probe, coopetition_301, phases_202, thresholds_205

NAME = "markov_401"
COST = "17 variants × 3 seeds of 10,000 updates, about 70 core-minutes"
SEEDS = (0, 1, 2)
MANY, FEWER_K = (16, 64), (8, 32, 128)
DECAYS, WIDTHS = (0.1, 0.3, 1.0, 3.0), (8, 32)
TRAINING = thresholds_205.TRAINING | dict(steps=10_000)
LOOKS = (0, 100, 200, 300, 400, *range(600, 2001, 200), *range(2500, 10_001, 500))


def variant(lever: str, K: int, dose=None, model={}, training={}) -> dict:
    """One config: the default at this K with changes to its model or training."""
    name = f"{lever} K={K}" if dose is None else f"{lever} {dose} K={K}"
    shared = {"task": thresholds_205.TASK, "looks": list(LOOKS), "kept": []}
    parts = {"model": thresholds_205.MODEL | model, "training": TRAINING | training}
    return {"variant": name, "lever": lever, "dose": dose, "K": K} | parts | shared


def configs(scale: str) -> list[dict]:
    """One dict a variant; `paper` has the same."""
    found = [variant("default", K) for K in (*MANY, *FEWER_K)]
    for K in MANY:
        found += [variant("decay", K, dose, training={"weight_decay": dose}) for dose in DECAYS]
        found += [variant("width", K, width, model={"d_model": width, "d_mlp": 4 * width}) for width in WIDTHS]
    return found


def unit(config: dict, seed: int, folder=None) -> dict[str, np.ndarray]:
    """Train one model and look at it on the way."""
    found = phases_202.unit(config, seed, folder)
    return {name: array for name, array in found.items() if name != "train_loss"}


def assemble(pieces: list[Piece]) -> dict[str, np.ndarray]:
    """Measures over variants and seeds."""
    found = coopetition_301.variants(pieces)
    return {name: array if name == "steps" else array.astype(np.float32) for name, array in found.items()}


def probe(record) -> Probe:
    """The first variant, seed 0: the distance from 1-Gen on fresh chains after 100 updates."""
    config = record.meta["config"][0]
    short = config | {"training": config["training"] | {"steps": 100}}
    look = phases_202.Look(phases_202.task_of(config, 0))
    run = phases_202.fit(short, 0, {"looks": look}, [100])
    recorded = float(record["distances"][0, 0, list(record["steps"]).index(100), 1, 0])
    measured = float(np.array(run.history["looks"])[-1, 1, 0])
    what = "default, seed 0: distance from 1-Gen after 100 updates"
    return Probe(what, measured, 0.8 * recorded, 1.25 * recorded)
