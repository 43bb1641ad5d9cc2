"""Task-recognition heads of nine sizes on 2 to 64 chains: how many chains each can hold (chapter 206).

    D_φ 2, 4, 9 × decoder width 4, 16, 64 × K = 2 … 64 × 3 seeds, C = 3, N = 32, 1,200 updates

Seed s names the chains, the first weights and the data; the loss is that of places 17 … 32.
`distances` [seed d_phi d_mlp K 2 5]: KL of the four observers and of a uniform guess from the trained head,
on training and on fresh chains, last place, in nats; `apart` [seed K 2 5 5] between the observers. Corners
of the map are also trained three times as long on 4 to 32 chains of seed 0: `long` [d_phi d_mlp K 2 5], with
axes `long_K`, `long_d_phi`, `long_d_mlp`.
"""

import numpy as np

from iclkit.minimal.recognition import HeadConfig, train_heads
from iclkit.predictors import Distances
from iclkit.records.recipes import Piece, Probe
from iclkit.tasks import Markov

NAME = "recognition_206"
COST = "54 heads × 3 seeds, trained in stacks: about 2 core-minutes"
SEEDS = (0, 1, 2)
TASK = dict(vocab=3, alpha=1.0, length=32, batch_size=32)
MAP = dict(steps=1200, K=[2, 4, 8, 16, 32, 64], d_phi=[2, 4, 9], d_mlp=[4, 16, 64])
LONG = dict(steps=3600, K=[4, 8, 16, 32], d_phi=[2, 9], d_mlp=[4, 64])
SEQUENCES, FIRST = 500, 16


def configs(scale: str) -> list[dict]:
    """The map, and some of it for longer; both scales are the same."""
    return [{"name": "map", **MAP}, {"name": "long", **LONG}]


def unit(config: dict, seed: int) -> dict[str, np.ndarray]:
    """Train the heads of one seed and measure each; the long ones for seed 0 alone."""
    if config["name"] == "long" and seed:
        return {}
    tasks = [task_of(K, seed) for K in config["K"]]
    sizes = [
        HeadConfig(TASK["vocab"], d_phi, d_mlp) for d_phi in config["d_phi"] for d_mlp in config["d_mlp"]
    ]
    heads = train_heads(sizes, tasks, seed, config["steps"], first=FIRST)
    far = [Distances(task, SEQUENCES) for task in tasks]
    found = np.array([[d(head).numpy() for d, head in zip(far, of_size)] for of_size in heads])
    shape = len(config["d_phi"]), len(config["d_mlp"])
    return {
        "distances": found.reshape(*shape, *found.shape[1:]),
        "apart": np.array([d.apart.numpy() for d in far]),
    }


def task_of(K: int, seed: int) -> Markov:
    """The chains of a run."""
    return Markov(K=K, chain_seed=seed, **TASK)


def assemble(pieces: list[Piece]) -> dict[str, np.ndarray]:
    """The map over seeds; the long runs under names of their own."""
    at = {
        name: [p.arrays for p in pieces if p.config["name"] == name and p.arrays] for name in ("map", "long")
    }
    found = {name: np.array([p[name] for p in at["map"]], np.float32) for name in ("distances", "apart")}
    axes = {axis: np.array(MAP[axis]) for axis in ("K", "d_phi", "d_mlp")}
    long = {f"long_{axis}": np.array(LONG[axis]) for axis in ("K", "d_phi", "d_mlp")}
    return axes | found | long | {"long": at["long"][0]["distances"].astype(np.float32)}


def probe(record) -> Probe:
    """The distance between 2-Mem and 2-Gen for 8 chains of seed 0: the yardstick of the map."""
    measured = Distances(task_of(8, 0), SEQUENCES).apart[0, 3, 1].item()
    recorded = float(record["apart"][0, list(record["K"]).index(8), 0, 3, 1])
    return Probe("KL(2-Mem ‖ 2-Gen) for K = 8", measured, 0.999 * recorded, 1.001 * recorded)
