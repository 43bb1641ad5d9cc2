"""Transformers on 256 chains from 1-Gen to 2-Gen, with a look at their attention on the way (chapter 203).

Seed s names chains, first weights and data, as in `phases_202`: the same runs, looked at more closely. Under
"K256/": `steps`, `distances` [seed step 2 5] and `losses` [seed step 2] as there; on 200 sequences of fresh
chains `entropy` [seed step layer], of attention against an even look, `previous` [seed step], attention of
L0H0 to the state before, and `match` [seed step], attention of L1H0 to states that followed the present one;
`match_even` [seed] is what an even look would give. Weights are kept after 300 updates (1-Gen) and after
2,000 (2-Gen), under "K256/0/300/blocks.0.attn.W_Q".
"""

import numpy as np
import torch

from iclkit.circuits.entropy import attention_entropy_score
from iclkit.circuits.scores import prefix_matching_score, previous_token_score
from iclkit.records.recipes import Piece, Probe, phases_202

NAME = "models_203"
COST = "3 seeds of 2,000 updates, about 3 core-minutes"
SEEDS = (0, 1, 2)
STEPS = 2000
KEPT = (300, STEPS)
MEASURED = ("distances", "losses", "entropy", "previous", "match", "match_even")


def configs(scale: str) -> list[dict]:
    """One config; `paper` has the same."""
    return [
        {
            "variant": "K256",
            "K": 256,
            "model": phases_202.MODEL,
            "task": phases_202.TASK,
            "training": phases_202.TRAINING | {"steps": STEPS},
            "looks": [step for step in phases_202.LOOKS if step <= STEPS],
        }
    ]


def unit(config: dict, seed: int, folder=None) -> dict[str, np.ndarray]:
    """Train one model and look at its answers and its attention on the way."""
    look = phases_202.Look(phases_202.task_of(config, seed))
    tokens = look.distances.tokens[1, :200]
    measures = {"looks": look, "attention": lambda model: at_attention(model, tokens)}
    run = phases_202.fit(config, seed, measures, config["looks"], KEPT, folder)
    looks, attention = np.array(run.history["looks"]), np.array(run.history["attention"])
    even = torch.ones(64, 64).tril()
    even = (even / even.sum(1, keepdim=True)).expand(len(tokens), 1, -1, -1)
    found = {"steps": run.steps, "distances": looks[..., :5], "losses": looks[..., 5]}
    found |= {"entropy": attention[:, :2], "previous": attention[:, 2], "match": attention[:, 3]}
    found["match_even"] = prefix_matching_score(even, tokens).numpy()[0]
    return found | {
        f"{step}/{name}": weight.numpy()
        for step, weights in run.checkpoints.items()
        for name, weight in weights.items()
    }


@torch.no_grad()
def at_attention(model, tokens):
    """Entropy of both layers, previous-state score of L0H0, match score of L1H0: `[4]`."""
    _, cache = model.run_with_cache(tokens, [("pattern", 0), ("pattern", 1)])
    first, second = cache["pattern", 0], cache["pattern", 1]
    scores = [attention_entropy_score(pattern) for pattern in (first, second)]
    scores += [previous_token_score(first), prefix_matching_score(second, tokens)]
    return torch.cat(scores)


def assemble(pieces: list[Piece]) -> dict[str, np.ndarray]:
    """Measures stacked over seeds under variant/measure, weights under variant/seed/step/parameter."""
    arrays, found = {}, {}
    for config, seed, piece in pieces:
        variant = config["variant"]
        arrays[f"{variant}/steps"] = piece["steps"]
        for name in MEASURED:
            found.setdefault(f"{variant}/{name}", []).append(np.asarray(piece[name], np.float32))
        arrays |= {f"{variant}/{seed}/{name}": piece[name] for name in piece if "/" in name}
    return arrays | {name: np.stack(values) for name, values in found.items()}


def probe(record) -> Probe:
    """K = 256, seed 0: entropy of layer 1's attention after 100 updates."""
    step = list(record["K256/steps"]).index(100)
    config = record.meta["config"][0]
    short = config | {"training": config["training"] | {"steps": 100}, "looks": [100]}
    measured = float(unit(short, 0)["entropy"][-1, 1])
    recorded = float(record["K256/entropy"][0, step, 1])
    what = "K = 256, seed 0: entropy of L1H0 after 100 updates, against an even look"
    return Probe(what, measured, recorded - 0.02, recorded + 0.02)
