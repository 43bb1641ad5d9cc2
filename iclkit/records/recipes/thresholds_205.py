"""Many small transformers on K Markov chains, long enough to see both thresholds (chapters 205 and 206).

    C = 3 states, N = 32, width 16; K = 8 … 64; 5,000 updates; 4 seeds, 8 where the first threshold lies

Everything else is as in `phases_202`, whose functions make the runs: seed s names chains, first weights and
data. A list of runs, not a grid: `K` and `seed` [run], `distances` [run step 2 5], `losses` [run step 2],
`apart` [run 2 5 5], `floors` [run 2 5].
"""

import numpy as np

from iclkit.records.recipes import Piece, Probe, phases_202

NAME = "thresholds_205"
COST = "40 runs of 5,000 updates, about 25 core-minutes"
SEEDS = tuple(range(8))
MANY = {8: 4, 10: 8, 12: 8, 16: 4, 20: 4, 24: 4, 32: 4, 64: 4}
MODEL = phases_202.MODEL | dict(d_vocab=3, n_ctx=32, d_model=16, d_mlp=64)
TASK = phases_202.TASK | dict(vocab=3, length=32)
TRAINING = phases_202.TRAINING | dict(steps=5000)
LOOKS = (0, 25, 50, *range(100, 2000, 100), *range(2000, 5001, 200))
MEASURED = ("distances", "losses", "apart", "floors")


def configs(scale: str) -> list[dict]:
    """One dict a K; `paper` has the same."""
    shared = {"model": MODEL, "task": TASK, "training": TRAINING, "looks": list(LOOKS), "kept": []}
    return [{"K": K, "seeds": seeds, **shared} for K, seeds in MANY.items()]


def unit(config: dict, seed: int, folder=None) -> dict[str, np.ndarray]:
    """Train one model and look at it; nothing for the seeds that a K does without."""
    return phases_202.unit(config, seed, folder) if seed < config["seeds"] else {}


def assemble(pieces: list[Piece]) -> dict[str, np.ndarray]:
    """One row a run."""
    runs = [piece for piece in pieces if piece.arrays]
    stacked = {name: np.stack([run.arrays[name] for run in runs]).astype(np.float32) for name in MEASURED}
    about = {"K": np.array([run.config["K"] for run in runs]), "seed": np.array([run.seed for run in runs])}
    return about | {"steps": runs[0].arrays["steps"]} | stacked


def probe(record) -> Probe:
    """K = 8, seed 0: the distance from 1-Gen on fresh chains after 100 updates."""
    config = record.meta["config"][0]
    short = config | {"training": config["training"] | {"steps": 100}}
    look = phases_202.Look(phases_202.task_of(config, 0))
    run = phases_202.fit(short, 0, {"looks": look}, [100])
    row = int(((record["K"] == 8) & (record["seed"] == 0)).argmax())
    recorded = float(record["distances"][row, list(record["steps"]).index(100), 1, 0])
    measured = float(np.array(run.history["looks"])[-1, 1, 0])
    return Probe(
        "K = 8, seed 0: distance from 1-Gen after 100 updates", measured, 0.8 * recorded, 1.25 * recorded
    )
