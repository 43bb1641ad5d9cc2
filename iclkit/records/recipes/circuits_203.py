"""The circuits behind 1-Gen, 2-Gen and 2-Mem: which edges suffice, and what attention must do (203, 204).

    phase    model (of `models_203`)             sequences from
    1-Gen    K = 256 after   300 updates         fresh chains
    2-Gen    K = 256 after 2,000 updates         fresh chains
    2-Mem    K = 8   after 2,000 updates         the 8 training chains

Distances are KL(observer ‖ model) in nats at the last position, the observer being the one of the phase.
Under "2-Gen/": `shares` [seed subset], for each of the 2^15 subsets of edges kept (half precision), and
`mean_shares` with the other edges at their mean: (d_none − d) / (d_none − d_all). `distance` [seed],
`uniform` [seed] of a uniform guess, `forced` [seed way] with patterns written by hand:

    even        both layers attend evenly to all they see
    previous    L0H0 attends to the state before only
    match       and L1H0 evenly to the states that followed the present state, to the first if none

`without` [seed node] has one node at its mean, in the order Att0 MLP0 Att1 MLP1.
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

NAME = "circuits_203"
COST = "3 phases × 3 seeds × 2 × 32,768 subsets of edges, about 2 core-minutes"
SEEDS = (0, 1, 2)
MODELS = {"1-Gen": ("K256", 300), "2-Gen": ("K256", 2000), "2-Mem": ("K8", 2000)}
SEQUENCES = 100
WAYS = ("even", "previous", "match")


def configs(scale: str) -> list[dict]:
    """One dict a phase, and which models it opens; `paper` has the same."""
    made = load("models_203").meta
    known = {config["variant"]: config for config in made["config"]}
    shared = {"models": made["sha256"], "task": phases_202.TASK, "sequences": SEQUENCES}
    return [
        {"phase": phase, "variant": variant, "step": step, "K": known[variant]["K"], **shared}
        for phase, (variant, step) in MODELS.items()
    ]


def unit(config: dict, seed: int) -> dict[str, np.ndarray]:
    """Open one model."""
    model = load_model("models_203", config["variant"], seed, config["step"])
    return opened(model, *sequences(config, seed))


def sequences(config: dict, seed: int):
    """Sequences `[batch 64]`, for each one of another chain, and the observer's answers `[batch 5]`."""
    task = phases_202.task_of(config, seed)
    drawn_from = task if config["phase"] == "2-Mem" else task.fresh()
    drawn = type(task)(**vars(drawn_from) | {"batch_size": config["sequences"]}).draw(TEST, 203)
    tokens = drawn.tokens[:, :-1]
    other = tokens[pick_donors(drawn.chain, seed=203)]
    return tokens, other, predictors(task)[config["phase"]](tokens, (-1,))[:, 0]


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
        }
    return {name: np.asarray(value) for name, value in found.items()}


def pattern_hooks(tokens, way: str) -> list[tuple]:
    """Hooks that write the attention of both layers by hand, in one of WAYS."""
    before, after = by_hand(tokens)
    even = torch.ones_like(before).tril()
    even = even / even.sum(2, keepdim=True)
    patterns = {"even": [even, even], "previous": [before], "match": [before, after]}[way]
    return [
        (("pattern", layer), lambda now, hook, made=made: made[:, None].expand_as(now))
        for layer, made in enumerate(patterns)
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
    """2-Gen, seed 0: the distance with both patterns written by hand."""
    config = next(config for config in record.meta["config"] if config["phase"] == "2-Gen")
    tokens, _, answer = sequences(config, 0)
    model = load_model("models_203", config["variant"], 0, config["step"])
    with torch.no_grad():
        log_p = model.run_with_hooks(tokens, pattern_hooks(tokens, "match"))[:, -1:].double().log_softmax(-1)
    recorded = float(record["2-Gen/forced"][0, WAYS.index("match")])
    what = "2-Gen, seed 0: distance with both patterns written by hand"
    return Probe(what, float(divergence(answer[:, None], log_p)), recorded - 0.005, recorded + 0.005)
