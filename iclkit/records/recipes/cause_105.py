"""Cause, not correlation (chapter 105): every head removed over training; what feeds the induction heads."""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from iclkit import circuits
from iclkit.model import Transformer, TransformerConfig
from iclkit.records.recipes import Piece, Probe
from iclkit.tasks import Repeats, generator, repeated_tokens
from iclkit.training import TrainConfig, train

NAME = "cause_105"
COST = "3 seeds × 3 models × 50 s on one core"
SEEDS = (0, 1, 2)
TASK = Repeats(vocab=64, length=64, min_period=12, max_period=31, batch_size=32)
STEPS = (0, 100, 200, 250, 300, 350, 400, 500, 600)
PERIOD = 24
HOW = ("zero", "mean", "resample")


def shape(positions: str, n_heads: int) -> TransformerConfig:
    """The model of this chapter; without its position scheme and number of heads it is that of Part I."""
    return TransformerConfig(n_heads=n_heads, positions=positions, layer_norm=True)


def restore(positions: str, n_heads: int, vector) -> Transformer:
    """A model from its recorded weights."""
    model = Transformer(shape(positions, n_heads)).eval()
    vector_to_parameters(torch.tensor(np.asarray(vector, np.float32)), model.parameters())
    return model.requires_grad_(False)


def held_out(rows: int = 128) -> Tensor:
    """Sequences of the training task that no run trains on, `[rows 64]`."""
    return replace(TASK, batch_size=rows).batch(10**6, 0).inputs


def mapping_probe(rows: int = 256, pairs: int = 12, labels: int = 4, seed: int = 0):
    """BOS x₁ y₁ … x₁₂ y₁₂ x_q: tokens `[rows 26]`, the row's labels `[rows 4]`, the right one `[rows]`."""
    random, row = generator(105, seed), torch.arange(rows)
    order = torch.rand(rows, 63, generator=random).argsort(1) + 1
    names, x = order[:, :labels], order[:, labels : labels + pairs]
    which = (torch.rand(rows, pairs, generator=random).argsort(1)) % labels
    y, asked = names.gather(1, which), torch.randint(pairs, (rows,), generator=random)
    shown = torch.stack([x, y], 2).flatten(1)
    tokens = torch.cat([torch.zeros(rows, 1, dtype=torch.long), shown, x[row, asked, None]], 1)
    return tokens, names, which[row, asked]


@torch.no_grad()
def icl(model, tokens: Tensor) -> float:
    """ICL score on these tokens, nats."""
    return circuits.icl_score(circuits.per_token_loss(model, tokens))


@torch.no_grad()
def accuracy(model, probe) -> float:
    """How often the right label scores highest of the row's four; chance is ¼."""
    tokens, names, right = probe
    return (model(tokens)[:, -1].gather(1, names).argmax(1) == right).float().mean().item()


def groups(model: Transformer) -> list:
    """Whole layers removed: layer 0, layer 0 with all patterns kept, layer 1."""
    heads = range(model.config.n_heads)
    low, high = [(0, h) for h in heads], [(1, h) for h in heads]
    return [circuits.ablate(model, *how) for how in ((low,), (low, "zero", True), (high,))]


def removals(model: Transformer) -> dict:
    """What every removal costs, ICL score (nats) and label accuracy, and the scores of all heads."""
    tokens, probe, twice = held_out(), mapping_probe(), repeated_tokens(64, PERIOD, 2, 64, seed=1)
    heads = [(layer, h) for layer in (0, 1) for h in range(model.config.n_heads)]
    singles = [circuits.ablate(model, [head], "zero", keep) for keep in (False, True) for head in heads]
    per_head = (2, 2, model.config.n_heads)
    return {
        "icl": icl(model, tokens),
        "labels": accuracy(model, probe),
        "icl_heads": np.reshape([icl(m, tokens) for m in singles], per_head),
        "labels_heads": np.reshape([accuracy(m, probe) for m in singles], per_head),
        "icl_groups": [icl(m, tokens) for m in groups(model)],
        "labels_groups": [accuracy(m, probe) for m in groups(model)],
        "prefix": circuits.prefix_matching(model, twice),
        "previous": circuits.previous_token(model, twice),
        "duplicate": circuits.duplicate_token(model, twice),
    }


def routes(model: Transformer) -> dict:
    """Composition scores, and the loss (nats, second copy) that a corrupted path L0 head → L1 input adds."""
    clean = repeated_tokens(64, PERIOD, 2, 64, seed=2)
    noise = torch.randint(1, 64, clean[:, 1:].shape, generator=generator(3))
    corrupted, n = torch.cat([clean[:, :1], noise], 1), model.config.n_heads
    patched = circuits.edge_patcher(model, clean, corrupted)

    def loss(edges):
        return circuits.token_losses(patched(edges), clean)[:, PERIOD + 1 :].mean().item()

    single = [[[loss([(f"L0H{s}", f"L1H{r}.{to}")]) for r in range(n)] for s in range(n)] for to in "qkv"]
    return {
        "second_copy": loss([]),
        "paths": np.array(single) - loss([]),
        "routes": np.array([loss([("Att0", f"Att1.{to}")]) for to in "qkv"]) - loss([]),
        "composition": np.stack([circuits.composition_scores(model, kind)[0, :, 1] for kind in "QKV"]),
        "chance": np.array(circuits.composition_baseline(model)),
    }


def hows(model: Transformer) -> dict:
    """ICL score with each head removed by zero, mean and resample ablation: `[how layer head]`."""
    tokens, reference = held_out(), replace(TASK, batch_size=128).batch(10**6, 1).inputs
    heads = [(layer, h) for layer in (0, 1) for h in range(model.config.n_heads)]
    kinds = [
        [icl(circuits.ablate(model, [h], how, reference=reference), tokens) for h in heads] for how in HOW
    ]
    return {"icl_how": np.reshape(kinds, (3, 2, -1))}


def configs(scale: str) -> list[dict]:
    times = 10 if scale == "paper" else 1
    return [
        {"positions": "shortformer", "heads": 4, "steps": 600 * times, "at": [s * times for s in STEPS]},
        {"positions": "absolute", "heads": 4, "steps": 700 * times, "at": [700 * times]},
        {"positions": "absolute", "heads": 1, "steps": 1200 * times, "at": [1200 * times]},
    ]


def unit(config: dict, seed: int) -> dict:
    model = Transformer(shape(config["positions"], config["heads"]), seed)
    training = TrainConfig(steps=config["steps"], lr=3e-3, seed=seed)
    run = train(model, TASK, training, measures={}, checkpoint_at=config["at"], progress=False)
    taken = [removals(run.at(step)) for step in config["at"]]
    arrays = {name: np.stack([np.asarray(each[name]) for each in taken]) for name in taken[0]}
    weights = parameters_to_vector(run.model.parameters()).detach().numpy().astype(np.float16)
    return arrays | routes(run.model) | hows(run.model) | {"weights": weights}


def assemble(pieces: list[Piece]) -> dict:
    """`shortformer_4_icl [seed step]`, `absolute_1_routes [seed q/k/v]` …: each array of `unit`, by model."""
    arrays = {"steps": np.array(pieces[0].config["at"])}
    for name in dict.fromkeys(f"{p.config['positions']}_{p.config['heads']}" for p in pieces):
        mine = [p.arrays for p in pieces if f"{p.config['positions']}_{p.config['heads']}" == name]
        arrays |= {f"{name}_{key}": np.stack([each[key] for each in mine]) for key in mine[0]}
    return arrays


def probe(record) -> Probe:
    model = restore("shortformer", 4, record["shortformer_4_weights"][0])
    lost = [icl(m, held_out()) for m in groups(model)][2]
    want = float(record["shortformer_4_icl_groups"][0, -1, 2])
    return Probe("ICL score without layer 1, from the recorded weights", lost, want - 0.02, want + 0.02)
