"""The race of chapter 205 with the memoriser helped: the network is told whose sequence it reads, ever less.

    told-0    states are read as fixed vectors, and no sign is added: the control of the others
    told-2    a sign of the chain, twice as long as a state, fades along a line to 0 at update 600

Task injection in the form of `iclkit.tasks.told`, in every sequence; measured untold. Else as `slowed_205`,
arrays too: under "told-0/" `K`, `distances` [seed K step 2 5], `losses`, `apart`, `previous`; `steps`.
"""

from dataclasses import replace

import numpy as np

from iclkit.model import Transformer, TransformerConfig
from iclkit.records.recipes import Piece, Probe, phases_202, slowed_205, thresholds_205
from iclkit.tasks import Markov
from iclkit.tasks.told import Told
from iclkit.training import TrainConfig

NAME = "told_205"
COST = "2 gains × 4 seeds × 3 K of 2,400 updates, about 8 core-minutes"
SEEDS = (0, 1, 2, 3)
GAINS = (2, 0)
UNTIL = 600


def configs(scale: str) -> list[dict]:
    """One dict a gain; `paper` has the same."""
    training = thresholds_205.TRAINING | {"steps": slowed_205.STEPS}
    shared = {"model": thresholds_205.MODEL, "task": thresholds_205.TASK, "training": training}
    shared |= {"many": slowed_205.MANY, "looks": slowed_205.LOOKS, "until": UNTIL}
    return [{"variant": f"told-{gain}", "gain": gain, **shared} for gain in GAINS]


def job_of(config: dict, K: int, seed: int) -> tuple[Transformer, Told, TrainConfig]:
    """Model, task and training of one run."""
    shape = replace(TransformerConfig(**config["model"]), embedded=True)
    task = Markov(K=K, chain_seed=seed, **config["task"])
    told = Told(task, shape.d_model, config["gain"], share=1.0, until=config["until"])
    return Transformer(shape, seed), told, TrainConfig(**config["training"], seed=seed)


def unit(config: dict, seed: int, folder=None) -> dict[str, np.ndarray]:
    """One seed at every K of a gain."""
    jobs = [job_of(config, K, seed) for K in config["many"]]
    looks = [phases_202.Look(told.task) for _, told, _ in jobs]

    def measure(number: int):
        look, told = looks[number], jobs[number][1]
        asked = told.embed(look.distances.tokens[0, :100])
        return lambda model: look(told.untold(model)), lambda model: slowed_205.previous(model, asked)

    apart = np.stack([look.about()["apart"] for look in looks])
    return slowed_205.stacked(jobs, config["looks"], measure, folder) | {"apart": apart}


def assemble(pieces: list[Piece]) -> dict[str, np.ndarray]:
    """Measures of each variant, stacked over seeds."""
    return slowed_205.assemble(pieces)


def probe(record) -> Probe:
    """Told, K = 8, seed 0: the distance from 1-Gen on fresh chains after 100 updates."""
    return slowed_205.probe_of(record, unit, "told-2")
