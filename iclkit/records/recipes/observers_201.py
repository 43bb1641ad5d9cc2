"""The four ideal observers measured without training: brute force, expected losses, how far apart they are.

    variant   states   K (chains)               n (length of the context)
    C5        5        1, 2, 4 … 1024           8, 16, 32, 64, 128, 256
    C10       10       4, 16, 64 … 4096         32, 100, 256

Seed s names the chains. "C5/losses" [K seed set n observer]: expected loss of the next state in nats for
1-Gen, 2-Gen, 1-Mem, 2-Mem, a uniform guess and the chain itself; sets are sequences of the training chains
and of fresh ones. "C5/apart" [K seed set observer observer]: KL(row ‖ column) of the first five at n = `at`.
"C5/right" [K seed order]: how often the likeliest chain is the right one there, told from states and from
transitions. "C5/laplace" [seed n]: the loss of 1-Gen with 1 for a, on fresh chains. "errors" [seed observer]:
the largest difference between the closed forms and brute force over all sequences of a length.
"""

from dataclasses import replace
from itertools import product

import numpy as np
import torch

from iclkit.predictors import TEST, Distances, Gen, Mem, expected_loss, predictors
from iclkit.records.recipes import Piece, Probe
from iclkit.tasks import Markov

NAME = "observers_201"
COST = "no training, about 2 minutes on one core"
SEEDS = (0, 1, 2, 3)
SEQUENCES = 1000
NODES = 48  # of the quadrature over chains: exact to rounding for the lengths used here


def configs(scale: str) -> list[dict]:
    """One dict a number of states, one for brute force; `paper` has the same."""
    return [
        {
            "variant": "C5",
            "vocab": 5,
            "K": [4**k for k in range(6)] + [2, 8, 32],
            "n": [8, 16, 32, 64, 128, 256],
        },
        {"variant": "C10", "vocab": 10, "K": [4**k for k in range(1, 7)], "n": [32, 100, 256]},
        {"variant": "brute force", "mem": [3, 7], "gen": [2, 9], "alphas": [0.5, 1.0, 2.0]},
    ]


def at(config: dict) -> int:
    """The context length at which observers are told apart: 64 for 5 states, 100 for 10."""
    return config["n"][len(config["n"]) // 2]


def unit(config: dict, seed: int) -> dict[str, np.ndarray]:
    """One seed's chains, every K; or the largest errors against brute force."""
    if config["variant"] == "brute force":
        worst = [errors(config, alpha, seed) for alpha in config["alphas"]]
        return {"errors": np.max(worst, 0)}
    found = [measure(config, K, seed) for K in sorted(config["K"])]
    fresh = Markov(vocab=config["vocab"], K=1, length=max(config["n"]), chain_seed=seed)
    stacked = {name: np.stack([each[name] for each in found]) for name in found[0]}
    return stacked | {"laplace": laplace(fresh, config["n"], seed)}


def measure(config: dict, K: int, seed: int) -> dict[str, np.ndarray]:
    """Losses, separations and right guesses for K chains."""
    task = Markov(vocab=config["vocab"], K=K, length=max(config["n"]), chain_seed=seed)
    test = Distances(task, SEQUENCES, positions=[n - 1 for n in config["n"]], seed=seed)
    answers = torch.cat([test.answers, test.truth[:, None]], 1)
    truth = test.truth[:, None].expand_as(answers)
    losses = [expected_loss(*pair) for pair in zip(truth.split(1, 3), answers.split(1, 3))]
    short = Distances(replace(task, length=at(config)), SEQUENCES, seed=seed)
    drawn = replace(task, length=at(config), batch_size=SEQUENCES).draw(TEST, seed)
    right = [
        (Mem(order, task.chains()).log_posterior(drawn.tokens[:, :-1], (-1,))[:, 0].argmax(1) == drawn.chain)
        for order in (1, 2)
    ]
    return {
        "losses": torch.stack(losses, 1).numpy(),
        "apart": short.apart.numpy(),
        "right": torch.stack(right).double().mean(1).numpy(),
    }


def laplace(task: Markov, lengths: list[int], seed: int) -> np.ndarray:
    """The loss of 1-Gen with a = 1 on fresh chains, [n]."""
    test = Distances(task, SEQUENCES, positions=[n - 1 for n in lengths], seed=seed)
    seen = torch.nn.functional.one_hot(test.tokens[1], task.vocab).cumsum(1)[:, test.positions] + 1.0
    answer = (seen / seen.sum(-1, keepdim=True)).log()
    return np.array(
        [float(expected_loss(*pair)) for pair in zip(test.truth[1].split(1, 1), answer.split(1, 1))]
    )


def errors(config: dict, alpha: float, seed: int) -> np.ndarray:
    """Largest |closed form − brute force| over all sequences of a length, for the four, [observer]."""
    states, length = config["mem"]
    task = Markov(vocab=states, K=5, alpha=alpha, chain_seed=seed)
    tokens = torch.tensor(list(product(range(states), repeat=length)))
    closed = predictors(task)
    chains = task.chains()
    mem = [
        by_products(chains.pi[:, None].expand(-1, states, -1), chains.pi, chains.log_weights.exp(), tokens),
        by_products(chains.P, chains.log_start.exp(), chains.log_weights.exp(), tokens),
    ]
    wrong = [closed[name](tokens, (-1,))[:, 0].exp() - found for name, found in zip(("1-Mem", "2-Mem"), mem)]
    return np.array([*gen_errors(*config["gen"], alpha), *(float(gap.abs().max()) for gap in wrong)])


def by_products(P, start, weights, tokens):
    """Σ_k p_k p^k(x_1 … x_n, j) / Σ_k p_k p^k(x_1 … x_n) from plain products, one sequence at a time."""
    answers = []
    for row in tokens.tolist():
        joint = weights * start[:, row[0]]
        for now, following in zip(row, row[1:]):
            joint = joint * P[:, now, following]
        answers.append((joint[:, None] * P[:, row[-1]]).sum(0) / joint.sum())
    return torch.stack(answers)


def gen_errors(states: int, length: int, alpha: float) -> list[float]:
    """The Gens against sums over a fine grid of all chains of two states, weighted by their density."""
    tokens = torch.tensor(list(product(range(states), repeat=length)))
    found = []
    for order in (1, 2):
        closed = Gen(order, states, alpha)
        p, density = grid(closed.smoothing)
        rows = torch.stack([p, 1 - p], 1)  # every way to leave a state
        if order == 1:
            P, weights = rows[:, None].expand(-1, 2, -1), density
        else:
            pairs = torch.cartesian_prod(*[torch.arange(len(p))] * 2)
            P, weights = rows[pairs], density[pairs].prod(1)
        start = P[:, 0] if order == 1 else torch.full((len(P), 2), 0.5, dtype=torch.float64)
        gap = closed(tokens, (-1,))[:, 0].exp() - by_products(P, start, weights, tokens)
        found.append(float(gap.abs().max()))
    return found


def grid(concentration: float):
    """Nodes p in (0, 1) and weights of the Beta(a, a) density: p = sin² θ, Gauss–Legendre over θ."""
    x, w = np.polynomial.legendre.leggauss(NODES)
    angle = torch.from_numpy((x + 1) * np.pi / 4)
    p = angle.sin() ** 2
    weights = torch.from_numpy(w) * (angle.sin() * angle.cos()) ** (2 * concentration - 1)
    return p, weights / weights.sum()


def assemble(pieces: list[Piece]) -> dict[str, np.ndarray]:
    """Stack seeds after K."""
    arrays = {}
    for config in {piece.config["variant"]: piece.config for piece in pieces}.values():
        mine = [piece.arrays for piece in pieces if piece.config == config]
        if "errors" in mine[0]:
            arrays["errors"] = np.stack([each["errors"] for each in mine])
            continue
        name = config["variant"]
        arrays |= {f"{name}/K": np.array(sorted(config["K"])), f"{name}/n": np.array(config["n"])}
        arrays |= {f"{name}/at": np.array(at(config))}
        arrays |= {
            f"{name}/{key}": np.stack([e[key] for e in mine], 1) for key in ("losses", "apart", "right")
        }
        arrays[f"{name}/laplace"] = np.stack([each["laplace"] for each in mine])
    return arrays


def probe(record) -> Probe:
    """C = 5, K = 16, seed 0: the loss of 2-Mem on fresh chains at n = 64."""
    config = record.meta["config"][0]
    k, n = list(record["C5/K"]).index(16), list(record["C5/n"]).index(64)
    recorded = float(record["C5/losses"][k, 0, 1, n, 3])
    measured = float(measure(config, 16, 0)["losses"][1, n, 3])
    return Probe(
        "loss of 2-Mem on fresh chains, C = 5, K = 16, seed 0", measured, recorded - 1e-6, recorded + 1e-6
    )
