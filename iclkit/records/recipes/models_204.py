"""The models of chapter 204: one that comes to know 8 chains, and two controls, no MLPs and four layers.

    variant          model                                 K     updates
    K8               two layers with MLPs                   8      1,200
    attention-K8     two layers without MLPs                8      3,000
    attention-K256   the same                             256      1,200
    four-layers      four layers with MLPs, small           8      1,200

Seed s names chains, first weights and data. Those of two layers are `phases_202`, with and without MLPs: a
run there with the same K sees the same batches; four-layers has the sizes of `thresholds_205` (C = 3, N = 32,
width 16). Under "K8/": `steps`, `distances` [seed step 2 5], `losses` [seed step 2], `apart` [seed 2 5 5];
weights of the end, of "K8" with seed 0 also on the way, under "K8/0/1200/blocks.0.attn.W_Q".
"""

import numpy as np

from iclkit.records.recipes import Piece, Probe, phases_202, thresholds_205

NAME = "models_204"
COST = "4 models × 3 seeds, about 6 core-minutes"
SEEDS = (0, 1, 2)
MEASURED = ("distances", "losses", "apart")
ON_THE_WAY = (0, 50, 100, 200, 300, 450, 600, 900)
VARIANTS = {
    "K8": (8, phases_202, {}, 1200),
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
            "kept": [*ON_THE_WAY, steps] if variant == "K8" else [steps],
        }
        for variant, (K, sizes, changed, steps) in VARIANTS.items()
    ]


def unit(config: dict, seed: int, folder=None) -> dict[str, np.ndarray]:
    """Train one model and look at it on the way, as `phases_202` does."""
    return phases_202.unit(config, seed, folder)


def assemble(pieces: list[Piece]) -> dict[str, np.ndarray]:
    """Measures stacked over seeds under variant/measure, weights under variant/seed/step/parameter."""
    arrays, found = {}, {}
    for config, seed, piece in pieces:
        variant = config["variant"]
        arrays[f"{variant}/steps"] = piece["steps"]
        for name in MEASURED:
            found.setdefault(f"{variant}/{name}", []).append(piece[name].astype(np.float32))
        last = f"{config['kept'][-1]}/"
        kept = [name for name in piece if name.startswith(last) or ("/" in name and seed == 0)]
        arrays |= {f"{variant}/{seed}/{name}": piece[name] for name in kept}
    return arrays | {name: np.stack(values) for name, values in found.items()}


def probe(record) -> Probe:
    """K = 8 without MLPs, seed 0: its distance from 1-Gen on fresh chains after 100 updates."""
    config = record.meta["config"][2]
    step = list(record["attention-K8/steps"]).index(100)
    short = config | {"training": config["training"] | {"steps": 100}, "looks": [100], "kept": []}
    measured = unit(short, 0)["distances"][-1, 1, 0]
    recorded = float(record["attention-K8/distances"][0, step, 1, 0])
    what = "K = 8 without MLPs, seed 0: distance from 1-Gen after 100 updates"
    return Probe(what, float(measured), 0.9 * recorded, 1.1 * recorded)
