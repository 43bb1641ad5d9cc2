"""What CIWL-only training leaves behind, and what in-context learning makes of it: chapter 304.

    donor    CIWL only for `age` updates                       B a | C c | A → a
    given    the donor's layer 1 and unembedding, frozen, under a new first half; trained on ICL only
    start    all of the donor's weights, then the ordinary bursty task

Age 0 is no donor: ICL only from scratch, nothing frozen, and the ordinary run. Arrays of `given` and `start`:
`{which}_steps` [look], `{which}_accuracy` and `{which}_loss` [age seed look 5] on Train, ICL, Flip, CIWL, IWL,
`{which}_induction` [age seed look head], `{which}_train_loss` [age seed block], the mean of 50 updates each;
`donor_accuracy` [age seed 5].
"""

import numpy as np

from iclkit.circuits.grafting import frozen, graft
from iclkit.records.recipes import Piece, Probe
from iclkit.records.recipes.coopetition_301 import (
    MODEL,
    SOURCE,
    TASK,
    TRAINING,
    Look,
    fit,
    looked_at,
    model_of,
    task_of,
)

NAME = "starts_304"
COST = "6 ages × 3 seeds, up to 34,000 updates each: about 60 core-minutes"
SEEDS = (0, 1, 2)
AGES = (0, 2000, 4000, 6000, 9000, 14_000)
GIVEN, START, EVERY, SEQUENCES, BLOCK = 9000, 8000, 500, 1000, 50


def configs(scale: str) -> list[dict]:
    """One dict an age of the donor."""
    training = {name: value for name, value in TRAINING.items() if name != "steps"}
    shared = {"model": MODEL, "source": SOURCE, "task": TASK, "training": training, "sequences": SEQUENCES}
    return [{"variant": f"age{age}", "age": age, "given": GIVEN, "start": START, **shared} for age in AGES]


def stage(config: dict, mix: str, steps: int, rates=()) -> dict:
    """The config of one run: what it trains on, how long, and what stands still."""
    training = config["training"] | {"steps": steps, "rates": [*config["training"]["rates"], *rates]}
    looks = list(range(0, steps + 1, EVERY))
    return config | {"task": config["task"] | {"mix": mix}, "training": training, "looks": looks}


def unit(config: dict, seed: int, folder=None) -> dict[str, np.ndarray]:
    """Train a donor to its age, then a first half under its second half, and the whole of it."""
    inside = (lambda name: None) if folder is None else (lambda name: folder / name)
    look, age = Look(task_of(config), config["sequences"]), config["age"]
    donor = model_of(config, seed)
    if age:
        copying = stage(config, "copied", age) | {"looks": [age]}
        donor = fit(copying, seed, {}, inside("donor"), donor).model
    found = {"donor_accuracy": look.answers(donor)[0].astype(np.float32)}
    fresh = model_of(config, seed + 100)
    given = graft(fresh, donor) if age else fresh
    rates = [list(pair) for pair in frozen(given, "second")] if age else []
    runs = {
        "given": (stage(config, "relabelled", config["given"], rates), given),
        "start": (stage(config, "bursty", config["start"]), donor),
    }
    for which, (one, model) in runs.items():
        run = fit(one, seed, look.measures(), inside(which), model)
        arrays = {"train_loss": run.losses.reshape(-1, BLOCK).mean(1), **looked_at(run)}
        found |= {f"{which}_{name}": array for name, array in arrays.items()}
    return found


def assemble(pieces: list[Piece]) -> dict[str, np.ndarray]:
    """Measures over ages and seeds."""
    ages = sorted({piece.config["age"] for piece in pieces})
    seeds = sorted({piece.seed for piece in pieces})
    at = {(piece.config["age"], piece.seed): piece.arrays for piece in pieces}
    names = [name for name in pieces[0].arrays if not name.endswith(("_steps", "_previous", "_itself"))]
    stacked = {name: np.stack([[at[age, s][name] for s in seeds] for age in ages]) for name in names}
    steps = {name: pieces[0].arrays[name] for name in ("given_steps", "start_steps")}
    return {"age": np.array(ages)} | steps | {name: a.astype(np.float32) for name, a in stacked.items()}


def probe(record) -> Probe:
    """Age 0, seed 0: the loss of its first 50 updates of the ordinary task."""
    config = next(config for config in record.meta["config"] if config["age"] == 0)
    run = fit(stage(config, "bursty", BLOCK) | {"looks": [0]}, 0, {})
    recorded = float(record["start_train_loss"][0, 0, 0])
    return Probe(
        "age 0, seed 0: loss of the first 50 updates",
        float(run.losses.mean()),
        recorded - 0.05,
        recorded + 0.05,
    )
