"""The default setting of Parts III and IV with one layer in place of two, three seeds (chapter 302).

Everything but the number of layers, updates and looks is as in `coopetition_301`, whose functions make the
runs. Arrays: `steps`, `accuracy` and `loss` [seed step 5] (Train, ICL, Flip, CIWL, IWL), `induction`
[seed step head] of the only layer, on Flip, `train_loss` [seed update]. Weights at the end, as float16:
`load_model("one_layer_302", "one layer", seed=0, step=8000)`.
"""

import numpy as np

from iclkit.records.recipes import Piece, Probe, coopetition_301

NAME = "one_layer_302"
COST = "3 seeds of 8,000 updates, about 1 min each on one core"
SEEDS = (0, 1, 2)
UPDATES = 8000
LOOKS = (0, *range(500, UPDATES + 1, 500))
MEASURED = ("accuracy", "loss", "induction", "train_loss")


def configs(scale: str) -> list[dict]:
    """One layer, and a quarter of the updates; there is one scale."""
    (config,) = coopetition_301.configs(scale)
    few = {"model": config["model"] | {"n_layers": 1}, "training": config["training"] | {"steps": UPDATES}}
    return [config | few | {"variant": "one layer", "looks": list(LOOKS), "kept": [UPDATES]}]


def unit(config: dict, seed: int, folder=None) -> dict[str, np.ndarray]:
    """Train one model and look at it on the way."""
    found = coopetition_301.unit(config, seed, folder)
    return {name: array for name, array in found.items() if name in (*MEASURED, "steps") or "/" in name}


def assemble(pieces: list[Piece]) -> dict[str, np.ndarray]:
    """Measures over seeds; weights under variant/seed/step/parameter."""
    return coopetition_301.assemble(pieces)


def probe(record) -> Probe:
    """Seed 0: the training loss of its first 60 updates."""
    return coopetition_301.probe(record)
