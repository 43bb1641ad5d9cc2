"""The models of Part I, trained: final weights and what was measured on the way (chapters 102–106).

    variant        what                                                      steps   seeds
    2L             the standard model: two layers, one head each               600   0 … 4
    1L             one layer                                                   600   0 … 4
    1L-smeared     one layer, each key mixed with the key before it            600   0 … 4
    2L-smeared     two layers, smeared keys                                    600   0 … 2
    absolute       the standard model with positions in the residual stream   1000   0 … 2

Seed s names the first weights and the data, so all variants of one seed see the same batches. Every 10 steps:
`prefix`, `previous`, `copying` [seed step layer head], `icl`, `loss` [seed step], and `by_kind`
[seed step kind], the mean loss of new, settled, misled and mixed tokens. Weights stand under
"2L/0/blocks.0.attn.W_Q"; `iclkit.records.load_model` puts them back into a model.
"""

import dataclasses

import numpy as np
import torch
import torch.nn.functional as F

from iclkit.circuits import scores
from iclkit.model import Transformer, TransformerConfig
from iclkit.records.models import pack
from iclkit.records.recipes import Piece, Probe
from iclkit.tasks import Repeats, repeated_tokens
from iclkit.training import TrainConfig, train

NAME = "part1_models"
COST = "19 models, about 6 minutes on one core"
SEEDS = (0, 1, 2, 3, 4)
EVERY = 10
HELD_OUT = 10**6
STANDARD = dict(
    d_vocab=64, n_ctx=64, n_layers=2, d_model=64, n_heads=1, positions="shortformer", layer_norm=True
)
TASK = Repeats(vocab=64, length=64, min_period=12, max_period=31, batch_size=32)
KINDS = ("new", "settled", "misled", "mixed")


def configs(scale: str) -> list[dict]:
    """One dict a variant; `paper` has the same models: they are small at every scale."""
    variants = [
        ("2L", {}, 600, 5),
        ("1L", {"n_layers": 1}, 600, 5),
        ("1L-smeared", {"n_layers": 1, "smeared_keys": True}, 600, 5),
        ("2L-smeared", {"smeared_keys": True}, 600, 3),
        ("absolute", {"positions": "absolute"}, 1000, 3),
    ]
    return [
        {"variant": name, "model": STANDARD | changed, "steps": steps, "seeds": seeds}
        for name, changed, steps, seeds in variants
    ]


def unit(config: dict, seed: int) -> dict[str, np.ndarray]:
    """Train one model; nothing for the seeds that a variant does without."""
    if seed >= config["seeds"]:
        return {}
    model = Transformer(TransformerConfig(**config["model"]), seed)
    steps = range(0, config["steps"] + 1, EVERY)
    run = fit(model, seed, config["steps"], steps)
    history = dict(run.history)
    by_position, by_kind = np.split(history.pop("losses"), [TASK.length], axis=1)
    icl = [scores.icl_score(torch.from_numpy(row)) for row in by_position]
    history |= {"loss": by_position.mean(1), "icl": np.array(icl), "by_kind": by_kind}
    return pack(model) | {"steps": run.steps, "train_loss": run.losses} | history


def fit(model: Transformer, seed: int, steps: int, measure_at):
    """The training run of every variant."""
    probe, held_out = probe_tokens(), held_out_tokens()
    kinds = kinds_of(held_out[:, :-1], held_out[:, 1:])
    measures = {
        "prefix": lambda model: scores.prefix_matching(model, probe),
        "previous": lambda model: scores.previous_token(model, probe),
        "copying": lambda model: scores.copying_score_logits(model, probe),
        "losses": lambda model: summary(losses_on(model, held_out), kinds),
    }
    config = TrainConfig(steps=steps, lr=3e-3, seed=seed)
    return train(model, TASK, config, measures=measures, measure_at=measure_at, device="cpu")


def summary(losses, kinds):
    """Mean loss by position, then by kind, `[length + 4]`."""
    return torch.cat([losses.mean(0), torch.stack([losses[kinds == k].mean() for k in range(4)])])


def probe_tokens():
    """Olsson's test at our length: BOS and 20 random symbols, three times; 32 sequences."""
    return repeated_tokens(TASK.vocab, period=20, copies=3, batch=32, seed=99)


def held_out_tokens():
    """256 sequences of the training task that no seed trains on, `[batch 1 + length]`."""
    batch = dataclasses.replace(TASK, batch_size=256).batch(HELD_OUT, 0)
    return torch.cat([batch.inputs, batch.targets[:, -1:]], 1)


@torch.no_grad()
def losses_on(model: Transformer, tokens):
    """−log p of every token but the first, nats, `[batch length]`."""
    return F.cross_entropy(model(tokens[:, :-1]).mT, tokens[:, 1:], reduction="none")


def kinds_of(inputs, targets):
    """What looking the present token up would tell of the next one: an index into KINDS, `[batch seq]`.

    new      the present token never stood here before
    settled  it did, and the next token followed it every time
    misled   it did, and something else followed it every time
    mixed    it did, and the next token followed it some of the times
    """
    earlier = (inputs[:, :, None] == inputs[:, None, :]).tril(-1)
    right = earlier & (targets[:, :, None] == targets[:, None, :])
    times, hits = earlier.sum(2), right.sum(2)
    kind = torch.where(hits == times, 1, torch.where(hits == 0, 2, 3))
    return torch.where(times == 0, 0, kind)


def assemble(pieces: list[Piece]) -> dict[str, np.ndarray]:
    """Weights under variant/seed/parameter, measures stacked over seeds under variant/measure."""
    measured = ("prefix", "previous", "copying", "icl", "loss", "by_kind", "train_loss")
    arrays, found = {}, {}
    for piece in pieces:
        if not piece.arrays:
            continue
        variant = piece.config["variant"]
        arrays[f"{variant}/steps"] = piece.arrays["steps"]
        for name, array in piece.arrays.items():
            if name in measured:
                found.setdefault(f"{variant}/{name}", []).append(array)
            elif name != "steps":
                arrays[f"{variant}/{piece.seed}/{name}"] = array
    return arrays | {name: np.stack(values) for name, values in found.items()}


def probe(record) -> Probe:
    """The standard model of seed 0, its first 50 steps."""
    recorded = float(record["2L/loss"][0, 50 // EVERY])
    run = fit(Transformer(TransformerConfig(**STANDARD), 0), 0, 50, [50])
    measured = float(run.history["losses"][0, : TASK.length].mean())
    return Probe("held-out loss of 2L, seed 0, step 50", measured, recorded - 0.03, recorded + 0.03)
