"""Training without attention from a label to the exemplar before it: is there ICL, and by what circuit? (401)

    x₁ y₁ x₂ y₂ x_q →      the query may compare itself with x₁ and x₂ in layer 0, and layer 1 take the label

The variant "forbidden" of `levers_401` with more seeds. Arrays, [seed look …]: `accuracy` [5] on Train, ICL,
Flip, CIWL, IWL; `blind` [5], the same when the query sees itself alone in layer 0; on Flip, `induction`
[head] of layer 1, attention from the query to the right label minus the other, and `matching` [head] of layer
0, to the right exemplar minus the other. Trained, and looked at, without the forbidden attention.
"""

import numpy as np
import torch

from iclkit.circuits import forbid_attention, induction_strength
from iclkit.circuits.copying import correct_places, over_places, query_row, query_sees
from iclkit.records.recipes import Piece, Probe, coopetition_301, levers_401
from iclkit.records.recipes.coopetition_301 import Look, fit, model_of, task_of

NAME = "forbidden_401"
COST = "6 seeds of 12,000 updates, about 12 core-minutes"
SEEDS = (0, 1, 2, 3, 4, 5)


def configs(scale: str) -> list[dict]:
    """The variant of `levers_401`; there is one scale."""
    return [config for config in levers_401.configs(scale) if config["variant"] == "forbidden"]


def matching(model, batch, hooks=()) -> np.ndarray:
    """How much more the query attends to the right exemplar than to the other in layer 0, of each head.

    The mean over the sequences of each place of the right pair, then over places."""
    correct = correct_places(batch)
    exemplars = query_row(model, batch, 0, hooks)[:, :, 0:-1:2]
    more = (exemplars * (2 * correct.float() - 1)[:, None]).sum(2)
    return over_places(more, correct).mean(0).numpy()


def blinded(model, hooks=()):
    """The model as a function of its inputs when in layer 0 the query sees itself alone."""
    heads = range(model.config.n_heads)

    def predict(inputs):
        itself = torch.zeros(inputs.shape[:2])
        itself[:, -1] = 1
        return model.run_with_hooks(inputs, fwd_hooks=[*hooks, query_sees(model, 0, heads, itself)])

    return predict


def measures(look: Look, hooks) -> dict:
    """What is measured at each look, while `hooks` act."""
    return {
        "answers": lambda model: look.answers(model.hooked(hooks))[0],
        "blind": lambda model: look.answers(blinded(model, hooks))[0],
        "induction": lambda model: induction_strength(model, look.few, fwd_hooks=hooks).numpy(),
        "matching": lambda model: matching(model, look.few, hooks),
    }


def unit(config: dict, seed: int, folder=None) -> dict[str, np.ndarray]:
    """Train one model that must do without."""
    hooks = [forbid_attention(*config["forbidden"])]
    look = Look(task_of(config), config["sequences"])
    run = fit(config, seed, measures(look, hooks), folder, fwd_hooks=hooks)
    found = {name: np.array(values, np.float32) for name, values in run.history.items()}
    return {"steps": run.steps, "accuracy": found.pop("answers")} | found


def assemble(pieces: list[Piece]) -> dict[str, np.ndarray]:
    """Measures over seeds."""
    return coopetition_301.assemble(pieces)


def probe(record) -> Probe:
    """Seed 0 before training: accuracy on Train, a guess between two labels."""
    config = record.meta["config"][0]
    look = Look(task_of(config), config["sequences"])
    predict = model_of(config, 0).hooked([forbid_attention(*config["forbidden"])])
    recorded = float(record["accuracy"][0, 0, 0])
    return Probe(
        "seed 0: Train before training", float(look.answers(predict)[0, 0]), recorded - 0.01, recorded + 0.01
    )
