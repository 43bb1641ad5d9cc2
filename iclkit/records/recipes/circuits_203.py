"""The circuits behind 1-Gen and 2-Gen: which edges suffice, and what attention must do (chapter 203).

    1-Gen    K = 256 after   300 updates (`models_203`)      sequences of fresh chains
    2-Gen    the same after 2,000 updates

Distances are KL(observer ‖ model) in nats at the last position, the observer being the one of the phase.
Under "2-Gen/": `shares` [seed subset], for each of the 2^15 subsets of edges kept (half precision), and
`mean_shares` with the other edges at their mean: (d_none − d) / (d_none − d_all). `distance` [seed],
`uniform` [seed] of a uniform guess, `forced` [seed way] with patterns written by hand:

    even        both layers attend evenly to all they see
    previous    L0H0 attends to the state before only
    match       L1H0 attends evenly to the states that followed the present state, to the first if none
    both        the last two together

`without` [seed node] has one node at its mean, in the order Att0 MLP0 Att1 MLP1. `offsets` [seed back] is the
attention of L0H0 to the state 0, 1, 2 … places back, over queries from place 16 on.
"""

import numpy as np
import torch

from iclkit.circuits import subsets
from iclkit.circuits.edges import all_edges, edge_patcher, nodes
from iclkit.circuits.scores import earlier_occurrences
from iclkit.circuits.task_vectors import pick_donors
from iclkit.predictors import TEST, divergence, predictors
from iclkit.records.models import load_model
from iclkit.records.recipes import Piece, Probe, phases_202
from iclkit.records.store import load
from iclkit.tasks import Markov

NAME = "circuits_203"
COST = "2 phases × 3 seeds × 2 × 32,768 subsets of edges, about 1 core-minute"
SEEDS = (0, 1, 2)
STEPS = {"1-Gen": 300, "2-Gen": 2000}
SEQUENCES = 48
WAYS = ("even", "previous", "match", "both")


def configs(scale: str) -> list[dict]:
    """One dict a phase, and which models it opens; `paper` has the same."""
    made = load("models_203").meta
    return [{"phase": phase, "step": step, "models": made["sha256"]} for phase, step in STEPS.items()]


def unit(config: dict, seed: int) -> dict[str, np.ndarray]:
    """Open one model."""
    return opened(load_model("models_203", "K256", seed, config["step"]), *sequences(config["phase"], seed))


def sequences(phase: str, seed: int):
    """Sequences `[batch 64]`, for each one of another chain, and the observer's answers `[batch 5]`."""
    task = Markov(K=256, chain_seed=seed, **phases_202.TASK | {"batch_size": SEQUENCES})
    drawn = task.fresh().draw(TEST, 203)
    tokens = drawn.tokens[:, :-1]
    return tokens, tokens[pick_donors(drawn.chain)], predictors(task)[phase](tokens, (-1,))[:, 0]


def opened(model, tokens, other, answer) -> dict[str, np.ndarray]:
    """What the record says of one model."""

    def apart(logits):
        log_p = logits.double().log_softmax(-1)
        return divergence(answer[:, None].expand_as(log_p[..., None, :]), log_p[..., None, :])

    def shares(how):
        d = subsets.every_subset(model, tokens, other, apart, how)
        return ((d[0] - d) / (d[0] - d[-1])).numpy().astype(np.float16)

    ways = {way: pattern_hooks(tokens, way) for way in WAYS}
    mean = edge_patcher(model, tokens, other, "mean")
    gone = [[edge for edge in all_edges(model) if edge[0] == node] for node in nodes(model)[1:-1]]
    with torch.no_grad():
        found = {
            "shares": shares("resample"),
            "mean_shares": shares("mean"),
            "distance": apart(model(tokens)[:, -1]),
            "uniform": apart(torch.zeros_like(answer)),
            "forced": [apart(model.run_with_hooks(tokens, hooks)[:, -1]) for hooks in ways.values()],
            "without": [apart(mean(edges)[:, -1]) for edges in gone],
            "offsets": offsets(model, tokens),
        }
    return {name: np.asarray(value) for name, value in found.items()}


def offsets(model, tokens) -> list[float]:
    """Mean attention of L0H0 to the state 0 … 15 places back, over queries from place 16 on."""
    _, cache = model.run_with_cache(tokens, [("pattern", 0)])
    pattern = cache["pattern", 0][:, 0]
    return [pattern.diagonal(-back, 1, 2)[:, 16 - back :].mean().item() for back in range(16)]


def pattern_hooks(tokens, way: str) -> list[tuple]:
    """Hooks that write the attention of both layers by hand, in one of WAYS."""
    before, after = by_hand(tokens)
    even = torch.ones_like(before).tril()
    even = even / even.sum(2, keepdim=True)
    patterns = {
        "even": {0: even, 1: even},
        "previous": {0: before},
        "match": {1: after},
        "both": {0: before, 1: after},
    }[way]
    return [
        (("pattern", layer), lambda now, hook, made=made: made[:, None].expand_as(now))
        for layer, made in patterns.items()
    ]


def by_hand(tokens):
    """Attention to the state before, and evenly to what followed the present state: `[batch query key]`."""
    seq = tokens.shape[1]
    before = torch.eye(seq).roll(-1, 1).tril()
    before[0, 0] = 1
    after = earlier_occurrences(tokens).roll(1, 2).float()
    after[:, :, 0] += after.sum(2) == 0
    return before.expand(len(tokens), -1, -1), after / after.sum(2, keepdim=True)


def assemble(pieces: list[Piece]) -> dict[str, np.ndarray]:
    """Everything under phase/measure, seeds first."""
    found = {}
    for config, _, arrays in pieces:
        for name, array in arrays.items():
            found.setdefault(f"{config['phase']}/{name}", []).append(array)
    return {name: np.stack(arrays) for name, arrays in found.items()}


def probe(record) -> Probe:
    """2-Gen, seed 0: the distance with the pattern of layer 1 written by hand."""
    tokens, _, answer = sequences("2-Gen", 0)
    model = load_model("models_203", "K256", 0, STEPS["2-Gen"])
    with torch.no_grad():
        log_p = model.run_with_hooks(tokens, pattern_hooks(tokens, "match"))[:, -1:].double().log_softmax(-1)
    recorded = float(record["2-Gen/forced"][0, WAYS.index("match")])
    what = "2-Gen, seed 0: distance with the pattern of layer 1 written by hand"
    return Probe(what, float(divergence(answer[:, None], log_p)), recorded - 0.005, recorded + 0.005)
