"""The SA model of chapter 207: how its loss tilts at the start, and how long its plateau lasts.

    N = 32, 64, 128, 256, 512   every sequence from a chain of its own, Dirichlet(1) rows

Without training, for C = 5 and C = 10: `coefficients` [seed N C name (mean, error)], names c_beta, c_delta,
mixed, from 4,000 sequences; `limit` [seed C (mean, error)], what mixed·N / log N tends to. For C = 5:
`landscapes` [N beta delta] of seed 0; trained models from β = δ = 0: `times` [seed N batch share], when a
tenth, half and nine tenths of the fall are made, t = learning rate × steps; batch 0 stands for all sequences
at once, the gradient flow. `beta`, `delta`, `losses` [seed N batch look] on the way, `looks` [look] in
units of N / log N.
"""

import math

import numpy as np

from iclkit.minimal.sa import SA, coefficients, contexts, descend, estimate, fallen, landscape
from iclkit.records.recipes import Piece, Probe
from iclkit.tasks import Markov

NAME = "plateau_207"
COST = "5 lengths × 3 seeds, about 4 core-minutes"
SEEDS = (0, 1, 2)
LENGTHS = (32, 64, 128, 256, 512)
STATES = (5, 10)
NAMES = ("c_beta", "c_delta", "mixed")
SEQUENCES, HELD_OUT, DRAWN = 4000, 500, 400
BATCHES = (0, 16, 64, 256)
FLOW = 600  # sequences of the gradient flow
LR, LONG = 5.0, 40.0  # time a run: LONG · N / log N
SHARES = (0.1, 0.5, 0.9)
LOOKS = np.linspace(0, LONG, 81)
GRID = np.linspace(0, 8, 17)


def configs(scale: str) -> list[dict]:
    """One dict a length; both scales are the same."""
    return [{"N": N} for N in LENGTHS]


def unit_of(N: int) -> float:
    """N / log N: the time in which the plateau's length is counted."""
    return N / math.log(N)


def drawn(N: int, C: int, size: int, seed: int, step: int):
    """Contexts of the seed; step 0 is for training and coefficients, step 1 held out."""
    return contexts(Markov(vocab=C, K=None, length=N, batch_size=size), seed, step)


def unit(config: dict, seed: int) -> dict[str, np.ndarray]:
    """All measures of one length and seed."""
    N = config["N"]
    pools = {C: drawn(N, C, SEQUENCES, seed, 0) for C in STATES}
    found = {"coefficients": np.array([tilt(pools[C]) for C in STATES])}
    found["limit"] = np.array([limit(C, seed) for C in STATES])
    held_out = drawn(N, STATES[0], HELD_OUT, seed, 1)
    runs = [trained(pools[STATES[0]], held_out, N, batch, seed) for batch in BATCHES]
    found |= {name: np.array([run[name] for run in runs]) for name in runs[0]}
    if seed == 0:
        some = drawn(N, STATES[0], DRAWN, seed, 2)
        found["landscapes"] = landscape(SA(STATES[0]), some, GRID, GRID)
    return found


def tilt(pool) -> list:
    """The three coefficients with errors, in the order of NAMES."""
    found = coefficients(pool)
    return [found[name] for name in NAMES]


def limit(C: int, seed: int):
    """κ = E Σ_ij π_i² P_ij (P_ij / π_j − 1), the mean over chains; c_βδ → κ log N / N for long sequences."""
    chains = Markov(vocab=C, K=20_000, chain_seed=seed).chains()
    lift = chains.pi[:, :, None] ** 2 * chains.P * (chains.P / chains.pi[:, None] - 1)
    return estimate(lift.sum((1, 2)))


def trained(pool, held_out, N: int, batch: int, seed: int) -> dict:
    """One run from the plateau: when it falls, and what it is like on the way."""
    some = pool if batch else type(pool)(*(part[:FLOW] for part in pool))
    steps = math.ceil(LONG * unit_of(N) / LR)
    path = descend(SA(STATES[0]), some, LR, steps, batch or None, seed)
    looks = LOOKS * unit_of(N)
    beta, delta = (np.interp(looks, path.times, values) for values in (path.beta, path.delta))
    sa = SA(STATES[0])
    losses = np.array([sa.at(b, d).loss(held_out).item() for b, d in zip(beta, delta)])
    times = [fallen(looks, losses, share) for share in SHARES]
    return {"times": times, "beta": beta, "delta": delta, "losses": losses}


def assemble(pieces: list[Piece]) -> dict[str, np.ndarray]:
    """Measures over seeds and lengths."""
    seeds = sorted({piece.seed for piece in pieces})
    at = {(piece.seed, piece.config["N"]): piece.arrays for piece in pieces}
    stacked = {
        name: np.array([[at[seed, N][name] for N in LENGTHS] for seed in seeds])
        for name in ("coefficients", "times", "beta", "delta", "losses")
    }
    stacked["limit"] = np.array([at[seed, LENGTHS[0]]["limit"] for seed in seeds])
    stacked["landscapes"] = np.array([at[0, N]["landscapes"] for N in LENGTHS])
    axes = {"N": LENGTHS, "C": STATES, "batch": BATCHES, "looks": LOOKS, "grid": GRID}
    return {name: np.array(values) for name, values in axes.items()} | {
        name: values.astype(np.float32) for name, values in stacked.items()
    }


def probe(record) -> Probe:
    """The mixed coefficient of N = 32, C = 5, seed 0, from its 4,000 sequences."""
    measured = coefficients(drawn(32, 5, SEQUENCES, 0, 0))["mixed"].mean
    recorded = float(record["coefficients"][0, 0, 0, 2, 0])
    return Probe("c_βδ at N = 32, C = 5", measured, 0.999 * recorded, 1.001 * recorded)
