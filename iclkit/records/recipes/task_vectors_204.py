"""Chapter 204: the vector from which 2-Mem knows its chain, swapped and read, over training and over depth.

Models come from `models_204`, seeds 0 and 1 of K = 8 from `phases_202`; sequences are of the training chains,
answers at the last position, KL(row ‖ answer) in nats. A donor is a sequence of another chain ("other"), one
that also ends in the same state ("same_state"), or another sequence of the same chain ("own_chain").

Under "K8/": what `circuits_203` says of a model, the observer being 2-Mem; `swap` [seed donor 3], after φ was
swapped: the answer's KL from the own row, from the donor's row, and how often the donor's is nearer;
`by_chain`, `by_state` [seed], the share of φ's variance between chains, and between present states; `read`,
`ideal` [seed], how often a linear probe on φ, and 2-Mem, name the right chain; `entropy` [seed layer]. Seed 0
on the way: "K8/steps", "K8/swap_by_step" [step donor 3], "K8/read_by_step", "K8/by_chain_by_step" [step].
Under "four-layers/", at the last position after each half layer (`points`): `read` [seed point] as above,
`swap` [seed point 3] with donors of the same state, `ideal` [seed].
"""

from dataclasses import replace

import numpy as np
import torch

from iclkit.circuits.entropy import attention_entropy
from iclkit.circuits.task_vectors import LinearProbe, between, follows, pick_donors, swap, task_vector
from iclkit.predictors import TEST, Mem
from iclkit.records.models import load_model
from iclkit.records.recipes import Piece, Probe, circuits_203, phases_202, thresholds_205
from iclkit.records.store import load

NAME = "task_vectors_204"
COST = "2 models × 3 seeds, opened; about 1 core-minute"
SEEDS = (0, 1, 2)
SEQUENCES = 800
FEW = 24  # for the subsets of edges
ON_THE_WAY = (0, 50, 100, 200, 300, 450, 600, 900, 1200, 1500, 2000, 2400)
DONORS = ("other", "same_state", "own_chain")
POINTS = [("resid_pre", 0), *((n, layer) for layer in range(4) for n in ("resid_mid", "resid_post"))]


def configs(scale: str) -> list[dict]:
    """One dict a model; `paper` has the same."""
    made = [load(name).meta["sha256"] for name in ("phases_202", "models_204")]
    deep = {"variant": "four-layers", "task": thresholds_205.TASK, "step": 1200}
    both = [{"variant": "K8", "task": phases_202.TASK, "step": 2400}, deep]
    return [{"K": 8, "models": made, **each} for each in both]


def opened_model(variant: str, seed: int, step: int):
    """A model from the record that has it."""
    return load_model("phases_202" if (variant == "K8" and seed < 2) else "models_204", variant, seed, step)


def unit(config: dict, seed: int) -> dict[str, np.ndarray]:
    """Open one model, and that of K = 8 and seed 0 at every checkpoint."""
    data, model = Sequences(config, seed), opened_model(config["variant"], seed, config["step"])
    if config["variant"] == "four-layers":
        return data.by_depth(model)
    found = data.opened(model)
    if seed == 0:
        models = [opened_model("K8", 0, step) for step in ON_THE_WAY]
        vectors = [task_vector(model, data.tokens) for model in models]
        found["swap_by_step"] = np.stack([data.swapped(model) for model in models])
        found["read_by_step"] = np.array([data.read(model) for model in models])
        found["by_chain_by_step"] = np.array([between(phi, data.chain) for phi in vectors])
    return found


class Sequences:
    """Sequences of the training chains with their chains, last states and donors."""

    def __init__(self, config: dict, seed: int, sequences: int = SEQUENCES):
        task = replace(phases_202.task_of(config, seed), batch_size=sequences)
        drawn = task.draw(TEST, 204)
        self.task, self.log_P = task, drawn.chains.log_P
        self.tokens, self.chain = drawn.tokens[:, :-1], drawn.chain
        self.state = self.tokens[:, -1]
        self.observer = Mem(2, drawn.chains)
        self.donors = {
            "other": pick_donors(self.chain),
            "same_state": pick_donors(self.chain, self.state),
            "own_chain": own_chain(self.chain),
        }

    def opened(self, model) -> dict[str, np.ndarray]:
        """The circuit, the swap and the geometry of φ of a two-layer model."""
        few, phi = slice(0, FEW), task_vector(model, self.tokens)
        other = self.tokens[pick_donors(self.chain)]
        answer = self.observer(self.tokens[few], (-1,))[:, 0]
        return circuits_203.opened(model, self.tokens[few], other[few], answer) | {
            "swap": self.swapped(model),
            "by_chain": np.float64(between(phi, self.chain)),
            "by_state": np.float64(between(phi, self.state)),
            "read": np.float64(self.read(model)),
            "ideal": np.float64(self.ideal()),
            "entropy": attention_entropy(model, self.tokens[:200])[:, 0].numpy(),
        }

    def swapped(self, model, at=("attn_out", 1), kinds=DONORS) -> np.ndarray:
        """Own KL, donor's KL and share nearer the donor, `[donor 3]`."""
        found = []
        for kind in kinds:
            donor = self.donors[kind]
            rows = [self.log_P[chain, self.state] for chain in (self.chain, self.chain[donor])]
            found.append(follows(swap(model, self.tokens, self.tokens[donor], at), *rows))
        return np.array(found)

    def read(self, model, at=("attn_out", 1)) -> float:
        """How often a linear probe names the chain of sequences it was not fitted on."""
        x, half = task_vector(model, self.tokens, at), len(self.tokens) // 2
        probe = LinearProbe(x[:half], self.chain[:half], self.task.K)
        return (probe(x[half:]) == self.chain[half:]).double().mean().item()

    def ideal(self) -> float:
        """How often the likeliest chain is the right one."""
        best = self.observer.log_posterior(self.tokens, (-1,))[:, 0].argmax(1)
        return (best == self.chain).double().mean().item()

    def by_depth(self, model) -> dict[str, np.ndarray]:
        """Where the chain can be read, and where it can be swapped."""
        return {
            "read": np.array([self.read(model, at) for at in POINTS]),
            "swap": np.stack([self.swapped(model, at, ["same_state"])[0] for at in POINTS]),
            "ideal": np.float64(self.ideal()),
            "entropy": attention_entropy(model, self.tokens[:200])[:, 0].numpy(),
        }


def own_chain(chain):
    """For each sequence the next one of the same chain."""
    found = torch.arange(len(chain))
    for k in chain.unique():
        of_k = (chain == k).nonzero()[:, 0]
        found[of_k] = of_k.roll(1)
    return found


def assemble(pieces: list[Piece]) -> dict[str, np.ndarray]:
    """Everything under variant/measure, seeds first; what was measured on the way once."""
    found, arrays = {}, {}
    for config, _, piece in pieces:
        for name, array in piece.items():
            if name.endswith("by_step"):
                arrays[f"{config['variant']}/{name}"] = array
                arrays["K8/steps"] = np.array(ON_THE_WAY)
            else:
                found.setdefault(f"{config['variant']}/{name}", []).append(array)
    points = np.array([f"{name} {layer}" for name, layer in POINTS])
    return arrays | {"points": points} | {name: np.stack(values) for name, values in found.items()}


def probe(record) -> Probe:
    """K = 8, seed 0: how often the answer is nearer the donor's row after the swap."""
    config = record.meta["config"][0]
    measured = Sequences(config, 0).swapped(opened_model("K8", 0, config["step"]))[0, 2]
    recorded = float(record["K8/swap"][0, 0, 2])
    what = "K = 8, seed 0: answers nearer the donor's row after the swap"
    return Probe(what, float(measured), recorded - 0.01, recorded + 0.01)
