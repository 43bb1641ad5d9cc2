"""Chapter 102, claim I1: a small transformer without LayerNorm read as a sum of paths, over training."""

import numpy as np
import torch

from iclkit.circuits.expansion import path_expansion
from iclkit.circuits.scores import prefix_matching, previous_token, token_losses
from iclkit.circuits.weights import (
    QK,
    composition_baseline,
    composition_scores,
    copying_score,
    matching_score,
)
from iclkit.model import Transformer, TransformerConfig
from iclkit.records.recipes import Probe
from iclkit.tasks.repeats import Repeats, repeated_tokens
from iclkit.training import TrainConfig, train

NAME = "paths_102"
COST = "3 seeds × 25 s on one core (paper: 12 heads of 64 dimensions, about an hour a seed, not yet run)"
SEEDS = (0, 1, 2)
EVERY = 20
SHARED = ("steps", "paths", "noise")
NOISE = (0, 5, 10, 15, 20, 25, 30, 36)


def configs(scale: str) -> list[dict]:
    """One kind of run: two layers, attention only; at paper scale with the original's heads."""
    if scale == "paper":
        return [{"heads": 12, "d_head": 64, "d_model": 768, "steps": 2000, "lr": 1e-3}]
    return [{"heads": 4, "d_head": 16, "d_model": 64, "steps": 400, "lr": 1e-2}]


def unit(config: dict, seed: int) -> dict[str, np.ndarray]:
    """Train one model; its scores every 20 steps and its paths at the end."""
    model = Transformer(shape(config), seed)
    task = Repeats(vocab=64, length=64, min_period=12, max_period=31, batch_size=32)
    plan = TrainConfig(steps=config["steps"], lr=config["lr"], warmup=50, seed=seed)
    run = train(
        model, task, plan, measures=MEASURES, measure_at=range(0, config["steps"] + 1, EVERY), device="cpu"
    )
    return {"steps": run.steps, "loss": run.losses, **run.history, **paths(run.model)}


def shape(config: dict) -> TransformerConfig:
    """The model of one run: no LayerNorm, positions into queries and keys only."""
    return TransformerConfig(
        d_model=config["d_model"],
        n_heads=config["heads"],
        d_head=config["d_head"],
        positions="shortformer",
    )


def probe_tokens() -> torch.Tensor:
    """BOS and three copies of a string of 20 symbols, 64 sequences."""
    return repeated_tokens(vocab=64, period=20, copies=3, batch=64, seed=102)


def first_to_second(scores: torch.Tensor) -> torch.Tensor:
    """Scores of pairs `[layer head later_layer later_head]`, from layer 0 to layer 1 alone: `[head head]`."""
    return scores[0, :, 1]


MEASURES = {
    "prefix": lambda model: prefix_matching(model, probe_tokens()),
    "previous": lambda model: previous_token(model, probe_tokens()),
    "copying": copying_score,
    "matching": lambda model: first_to_second(matching_score(model)),
    "composition": lambda model: torch.stack([first_to_second(composition_scores(model, k)) for k in "QKV"]),
}


@torch.no_grad()
def paths(model: Transformer) -> dict[str, np.ndarray]:
    """How exactly the paths sum to the logits; the loss on later copies by order and without each path."""
    tokens, baseline = probe_tokens(), composition_baseline(model)
    terms = path_expansion(model, tokens)
    order = {name: name.count("L") for name in terms}
    total = sum(terms.values())
    result = {
        "orders": [later_loss(sum(terms[n] for n in terms if order[n] <= most), tokens) for most in range(3)],
        "without": [later_loss(total - term, tokens) for term in terms.values()],
        "paths": list(terms),
        "noise": NOISE,
        "one_back": one_back(model, previous_token(model, tokens)[0].argmax().item()),
        "accuracy_after": [accuracy_after(model, noise) for noise in NOISE],
        "exact_error32": error(model, tokens[:8]),
        "exact_error64": error(model.double(), tokens[:8]),
        "baseline": baseline.mean,
        "baseline_std": baseline.std,
    }
    return {name: np.asarray(value) for name, value in result.items()}


def later_loss(logits: torch.Tensor, tokens: torch.Tensor) -> float:
    """Mean loss (nats) where an earlier copy settles the next token."""
    return token_losses(logits, tokens)[:, 21:].mean().item()


def one_back(model: Transformer, head: int) -> torch.Tensor:
    """Attention from positions 1, 2, … to the one before, in a head of layer 0, by positions alone."""
    scores = model.W_pos @ QK(model, 0, head).AB @ model.W_pos.T / model.config.d_head**0.5
    future = torch.ones_like(scores, dtype=torch.bool).triu(1)
    return scores.masked_fill(future, -torch.inf).softmax(-1).diagonal(-1)


def accuracy_after(model: Transformer, noise: int) -> float:
    """Accuracy on the second copy of 12 symbols, when the first copy begins after `noise` other symbols."""
    once = repeated_tokens(vocab=64, period=noise + 12, copies=1, batch=256, seed=102)
    tokens = torch.cat([once, once[:, -12:]], 1)
    guess = model(tokens)[:, -12:-1].argmax(-1)
    return (guess == tokens[:, -11:]).float().mean().item()


@torch.no_grad()
def error(model: Transformer, tokens: torch.Tensor) -> float:
    """Largest |sum of paths − logits|."""
    return (sum(path_expansion(model, tokens).values()) - model(tokens)).abs().max().item()


def assemble(pieces) -> dict[str, np.ndarray]:
    """Every array with the seeds as its first axis; steps and names of paths once."""
    names = [name for name in pieces[0].arrays if name not in SHARED]
    return {name: pieces[0].arrays[name] for name in SHARED} | {
        name: np.stack([piece.arrays[name] for piece in pieces]) for name in names
    }


def probe(record) -> Probe:
    """The first 100 steps of seed 0 again: copying of layer 1, which rises long before the heads form."""
    config = {**record.meta["config"][0], "steps": 100}
    copying = unit(config, 0)["copying"][-1, 1].mean()
    at = int(np.flatnonzero(record["steps"] == 100)[0])
    found = record["copying"][:, at, 1].mean(-1)
    return Probe(
        "mean copying score of layer 1 at step 100", float(copying), found.min() - 0.05, found.max() + 0.05
    )
