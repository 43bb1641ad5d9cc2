"""The toy model of chapter 305: when each product is learned, and lost, by seed and by setting.

Seed s names the start and the targets of a run. Arrays, seed first:

    steps [look]; M1, M2, C [seed look]      the default run, α = μ₁ = .1, μ₂ = 0, of 16,000 steps
    nothing [seed 2]                         M1 and M2 where both products are 0
    map/T [seed alpha mu1]                   times of iclkit.minimal.coopetition.Times, T = icl, lost, ciwl,
    mu2/T [seed mu2]                         NaN for never within `long` steps
    dims/T [seed d]                          the same for other lengths of d, within 16,000 steps

with the values of α, μ₁, μ₂ and d in `alpha`, `mu1`, `mu2` and `d`.
"""

import numpy as np

from iclkit.minimal.coopetition import DIMS, Path, descend, start
from iclkit.records.recipes import Piece, Probe

NAME = "coopetition_305"
COST = "no network, 12 seeds, about 7 core-minutes"
SEEDS = tuple(range(12))
ALPHA = MU1 = [0.0, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0]
MU2 = [0.0, 0.001, 0.003, 0.01, 0.03, 0.1]
D = [20, 40, 80, 160, 320, 640]
EVERY = 40


def configs(scale: str) -> list[dict]:
    """One dict; both scales are the same."""
    return [{"steps": 16_000, "long": 64_000, "alpha": ALPHA, "mu1": MU1, "mu2": MU2, "d": D}]


def unit(config: dict, seed: int) -> dict[str, np.ndarray]:
    """Everything of one seed."""
    begun, steps, long = start([seed]), config["steps"], config["long"]
    alpha, mu1, mu2 = (np.array(config[name])[:, None] for name in ("alpha", "mu1", "mu2"))
    plain = descend(begun, steps=steps, every=EVERY)
    found = {name: each[0] for name, each in plain.losses._asdict().items()}
    found["nothing"] = np.array([loss[0, 0] / share[0, 0] for loss, share in zip(plain.losses, plain.shares)])
    found |= times("map", descend(begun, alpha[:, None], mu1, steps=long, every=EVERY))
    found |= times("mu2", descend(begun, mu2=mu2, steps=long, every=EVERY))
    longer = [descend(start([seed], (*DIMS[:3], d)), steps=steps, every=EVERY) for d in config["d"]]
    by_d = [times("dims", path) for path in longer]
    return found | {name: np.array([each[name] for each in by_d]) for name in by_d[0]}


def times(what: str, path: Path) -> dict[str, np.ndarray]:
    """The times of the one run there is, over its settings."""
    return {f"{what}/{name}": each[..., 0] for name, each in path.times._asdict().items()}


def assemble(pieces: list[Piece]) -> dict[str, np.ndarray]:
    """Stack seeds in front."""
    config = pieces[0].config
    axes = {name: np.array(config[name]) for name in ("alpha", "mu1", "mu2", "d", "long")}
    stacked = {name: np.stack([piece.arrays[name] for piece in pieces]) for name in pieces[0].arrays}
    return axes | {"steps": np.arange(0, config["steps"] + 1, EVERY)} | stacked


def probe(record) -> Probe:
    """Seed 3, which is early: when it has lost ICL again."""
    measured = float(descend(start([3]), steps=3000, every=EVERY).times.lost[0])
    recorded = float(record["map/lost"][3, ALPHA.index(0.1), MU1.index(0.1)])
    return Probe("step at which seed 3 has lost ICL", measured, 0.99 * recorded, 1.01 * recorded)
