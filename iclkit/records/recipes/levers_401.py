"""What makes in-context learning stay or go: one lever at a time, in the setting of `coopetition_301` (401).

Every variant differs from `default` in what its config says: `lever` and `dose` name it. 12,000 updates: ICL
has peaked and the default is well into its fade. Arrays: `steps` [look], `accuracy` and `loss`
[variant seed look 5] on Train, ICL, Flip, CIWL, IWL (the same evaluators for every lever: unmatched, uniform
classes), `induction` [variant seed look], the mean over heads of the last layer. Variants stand in the order
of the record's configs. "forbidden" trains, and is looked at, without attention from a label to the exemplar
before it.
"""

import numpy as np

from iclkit.circuits import forbid_attention, induction_strength
from iclkit.records.recipes import Piece, Probe
from iclkit.records.recipes.coopetition_301 import (
    MODEL,
    SOURCE,
    TASK,
    TRAINING,
    Look,
    fit,
    model_of,
    task_of,
    variants,
)

NAME = "levers_401"
COST = "27 variants × 3 seeds of 12,000 updates, about 2 core-hours"
SEEDS = (0, 1, 2)
STEPS, EVERY, SEQUENCES = 12_000, 1000, 1000
TABLES, ATTENTION = ("pairs.*", "positions.*", "_W_U"), ("blocks.*",)


def only(*places: str) -> list[list]:
    """Decay factors that spare everything but these weights."""
    spared = [pattern for pattern in (*TABLES, *ATTENTION) if pattern not in places]
    return [[pattern, 0.0] for pattern in spared]


def variant(lever: str, dose=None, forbidden=(), **changes) -> dict:
    """One config: the default with `changes` to its model, source, task or training."""
    base = {"model": MODEL, "source": SOURCE, "task": TASK, "training": TRAINING | {"steps": STEPS}}
    base = {part: values | changes.get(part, {}) for part, values in base.items()}
    name = lever if dose is None else f"{lever} {dose}"
    about = {"variant": name, "lever": lever, "dose": dose, "forbidden": list(forbidden)}
    return about | base | {"looks": list(range(0, STEPS + 1, EVERY)), "sequences": SEQUENCES}


def configs(scale: str) -> list[dict]:
    """One dict a variant."""
    matched, four = {"task": {"matched": True}}, {"model": {"n_layers": 4}}
    found = [variant("default"), variant("matched", **matched), variant("forbidden", forbidden=["previous"])]
    found += [variant("4 layers", **four), variant("4 layers matched", **four, **matched)]
    found += [variant("heads", count, model={"n_heads": count}) for count in (1, 4)]
    found += [variant("warm-up", 1000, training={"warmup": 1000})]
    found += [variant("tables' rate", 1.0, training={"rates": []})]
    for where, places, doses in (
        ("everywhere", (*TABLES, *ATTENTION), (0.03, 0.1, 0.3)),
        ("tables", TABLES, (0.1, 0.3)),
        ("attention", ATTENTION, (0.1, 0.3)),
    ):
        for dose in doses:
            training = {"weight_decay": dose, "decays": only(*places)}
            found.append(variant(f"decay {where}", dose, training=training))
    for count in (800, 3200):
        sizes = {"source": {"n_classes": count}, "model": {"d_vocab": count}}
        found.append(variant("classes", count, **sizes))
    found += [variant("exemplars", count, source={"n_exemplars": count}) for count in (1, 5, 80)]
    found += [variant("spread", spread, source={"spread": spread}) for spread in (0.6, 0.9)]
    found += [variant("bursty", share, task={"bursty": share}) for share in (0.5, 0.9)]
    found += [variant("zipf", exponent, task={"zipf": exponent}) for exponent in (0.5, 1.0)]
    return found


def measures(look: Look, hooks: list) -> dict:
    """The measures of `look`, taken while `hooks` act as they did in training."""
    return {
        "answers": lambda model: look.answers(model.hooked(hooks)),
        "induction": lambda model: induction_strength(model, look.few, fwd_hooks=hooks).numpy(),
    }


def unit(config: dict, seed: int, folder=None) -> dict[str, np.ndarray]:
    """Train one model under one lever."""
    look, kinds = Look(task_of(config), config["sequences"]), config["forbidden"]
    hooks = [forbid_attention(*kinds)] if kinds else []
    run = fit(config, seed, measures(look, hooks), folder, fwd_hooks=hooks)
    answers = np.array(run.history["answers"], np.float32)
    induction = np.array(run.history["induction"], np.float32).mean(1)
    return {"steps": run.steps, "accuracy": answers[:, 0], "loss": answers[:, 1], "induction": induction}


def assemble(pieces: list[Piece]) -> dict[str, np.ndarray]:
    """Measures over variants and seeds."""
    return variants(pieces)


def probe(record) -> Probe:
    """The default, seed 0, before it has learned: its loss on Train."""
    config = next(config for config in record.meta["config"] if config["variant"] == "default")
    index = record.meta["config"].index(config)
    loss = float(Look(task_of(config), config["sequences"]).answers(model_of(config, 0))[1, 0])
    recorded = float(record["loss"][index, 0, 0, 0])
    return Probe("default, seed 0: loss on Train at the start", loss, recorded - 0.01, recorded + 0.01)
