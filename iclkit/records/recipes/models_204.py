"""The models of chapter 204: no MLPs, four layers, and a third seed of the model that knows 8 chains.

    variant          model                                 K     updates
    K8               two layers with MLPs, seed 2 alone     8      2,400
    attention-K8     two layers without MLPs                8      3,000
    attention-K256   the same                             256      1,200
    four-layers      four layers with MLPs, small           8      1,200

Seed s names chains, first weights and data. Those of two layers are `phases_202`, with and without MLPs: a
run there with the same K sees the same batches, and seeds 0 and 1 of K = 8 are there; four-layers has the
sizes of `thresholds_205` (C = 3, N = 32, width 16). Under "four-layers/": `steps`, `distances` [seed step 2
5], `losses` [seed step 2], `apart` [seed 2 5 5]; weights of the end under "K8/2/2400/blocks.0.attn.W_Q".
"""

import numpy as np

from iclkit.records.recipes import Piece, Probe, phases_202, thresholds_205

NAME = "models_204"
COST = "4 models, 10 runs, about 5 core-minutes"
SEEDS = (0, 1, 2)
MEASURED = ("distances", "losses", "apart")
VARIANTS = {
    "K8": (8, phases_202, {}, 2400),
    "four-layers": (8, thresholds_205, {"n_layers": 4}, 1200),
    "attention-K8": (8, phases_202, {"d_mlp": 0}, 3000),
    "attention-K256": (256, phases_202, {"d_mlp": 0}, 1200),
}


def configs(scale: str) -> list[dict]:
    """One dict a variant; `paper` has the same models."""
    return [
        {
            "variant": variant,
            "K": K,
            "model": sizes.MODEL | changed,
            "task": sizes.TASK,
            "training": sizes.TRAINING | {"steps": steps},
            "looks": [step for step in phases_202.LOOKS if step <= steps],
            "kept": [steps],
        }
        for variant, (K, sizes, changed, steps) in VARIANTS.items()
    ]


def unit(config: dict, seed: int, folder=None) -> dict[str, np.ndarray]:
    """Train one model and look at it on the way, as `phases_202` does; nothing for what it has."""
    return {} if config["variant"] == "K8" and seed < 2 else phases_202.unit(config, seed, folder)


def assemble(pieces: list[Piece]) -> dict[str, np.ndarray]:
    """Measures stacked over seeds under variant/measure, weights under variant/seed/step/parameter."""
    arrays, found = {}, {}
    for config, seed, piece in (each for each in pieces if each.arrays):
        variant = config["variant"]
        arrays[f"{variant}/steps"] = piece["steps"]
        for name in MEASURED:
            found.setdefault(f"{variant}/{name}", []).append(piece[name].astype(np.float32))
        arrays |= {f"{variant}/{seed}/{name}": piece[name] for name in piece if "/" in name}
    return arrays | {name: np.stack(values) for name, values in found.items()}


def probe(record) -> Probe:
    """K = 8 without MLPs, seed 0: its distance from 1-Gen on fresh chains after 100 updates."""
    config = next(c for c in record.meta["config"] if c["variant"] == "attention-K8")
    step = list(record["attention-K8/steps"]).index(100)
    short = config | {"training": config["training"] | {"steps": 100}, "looks": [100], "kept": []}
    measured = unit(short, 0)["distances"][-1, 1, 0]
    recorded = float(record["attention-K8/distances"][0, step, 1, 0])
    what = "K = 8 without MLPs, seed 0: distance from 1-Gen after 100 updates"
    return Probe(what, float(measured), 0.9 * recorded, 1.1 * recorded)
