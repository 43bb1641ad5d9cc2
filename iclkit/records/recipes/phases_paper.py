"""The phase diagram at the size of the paper: ten states, width 64, up to 8,192 chains (chapter 202).

    C = 10, N = 128, width 64; 12 K from 4 to 8,192; 10,000 updates; one seed

Sequence length, batch and optimiser of the paper are not known: ours. K*₂ ≈ 7,000 is not within reach of so
few updates; the chapter draws it as censored. Arrays as in `phases_202`, whose functions make the runs; a
record made with `--seeds` or from a part of the K holds what there is.
"""

import numpy as np

from iclkit.records.recipes import Piece, Probe, phases_202

NAME = "phases_paper"
COST = "12 runs of 10,000 updates, about 3 core-hours"
SEEDS = (0,)
MANY = (64, 256, 4096, 16, 1024, 128, 32, 512, 4, 96, 192, 8192)
MODEL = phases_202.MODEL | dict(d_vocab=10, n_ctx=128, d_model=64, d_mlp=256)
TASK = phases_202.TASK | dict(vocab=10, length=128)
TRAINING = phases_202.TRAINING | dict(steps=10_000, lr=3e-3)
LOOKS = (
    *(0, 10, 20, 50, 100, 150, 200, 250),
    *range(300, 1000, 100),
    *range(1000, 3000, 200),
    *range(3000, 10_001, 500),
)


def configs(scale: str) -> list[dict]:
    """One dict a K; there is one scale, the paper's."""
    shared = {"model": MODEL, "task": TASK, "training": TRAINING, "looks": list(LOOKS), "kept": []}
    return [{"K": K, **shared} for K in MANY]


def unit(config: dict, seed: int, folder=None) -> dict[str, np.ndarray]:
    """Train one model and look at it on the way; saved every minute."""
    return phases_202.unit(config, seed, folder)


def assemble(pieces: list[Piece]) -> dict[str, np.ndarray]:
    """Measures over K and seeds, without the weights."""
    arrays = phases_202.assemble(pieces)
    return {name: array for name, array in arrays.items() if "/" not in name}


def probe(record) -> Probe:
    """The loss of the first of its K on fresh chains after 10 updates."""
    K = int(record["K"][0])
    config = next(config for config in record.meta["config"] if config["K"] == K)
    short = config | {"training": config["training"] | {"steps": 10}}
    look = phases_202.Look(phases_202.task_of(config, 0))
    run = phases_202.fit(short, 0, {"looks": look}, [10])
    recorded = float(record["losses"][0, 0, list(record["steps"]).index(10), 1])
    measured = float(np.array(run.history["looks"])[-1, 1, 5])
    return Probe(
        f"K = {K}: loss on fresh chains after 10 updates", measured, recorded - 0.05, recorded + 0.05
    )
