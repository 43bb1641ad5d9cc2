"""The race of chapter 205 with the generaliser slowed: layer 0 learns more slowly where to look.

    slow-0.5    blocks.0.attn.W_Q, W_K and positions.W_pos at 0.5 times the learning rate

These weights are all that makes layer 0 attend to the state before; W_pos is shared with layer 1. Models,
chains and batches are those of `thresholds_205`, which is the race without intervention. Under "slow-0.5/":
`K`, `distances` [seed K step 2 5], `losses` [seed K step 2], `apart` [seed K 2 5 5], and `previous`
[seed K step], the mean attention of layer 0 to the state before. `steps` are shared.
"""

import numpy as np

from iclkit.ensemble import train_many
from iclkit.model import Transformer, TransformerConfig
from iclkit.records.recipes import Piece, Probe, phases_202, thresholds_205
from iclkit.tasks import Markov
from iclkit.training import TrainConfig

NAME = "slowed_205"
COST = "4 seeds × 3 K of 2,400 updates, about 4 core-minutes"
SEEDS = (0, 1, 2, 3)
PATHWAY = ("blocks.0.attn.W_[QK]", "positions.W_pos")
FACTORS = (0.5,)
MANY = [8, 12, 16]
STEPS = 2400
LOOKS = [step for step in thresholds_205.LOOKS if step <= STEPS]
MEASURED = ("distances", "losses", "apart", "previous")


def configs(scale: str) -> list[dict]:
    """One dict a dose; `paper` has the same."""
    training = thresholds_205.TRAINING | {"steps": STEPS}
    shared = {"model": thresholds_205.MODEL, "task": thresholds_205.TASK, "training": training}
    shared |= {"many": MANY, "looks": LOOKS}
    return [
        {"variant": f"slow-{factor}", "rates": [[name, factor] for name in PATHWAY], **shared}
        for factor in FACTORS
    ]


def job_of(config: dict, K: int, seed: int) -> tuple[Transformer, Markov, TrainConfig]:
    """Model, task and training of one run."""
    training = TrainConfig(**config["training"], rates=config["rates"], seed=seed)
    return (
        Transformer(TransformerConfig(**config["model"]), seed),
        Markov(K=K, chain_seed=seed, **config["task"]),
        training,
    )


def previous(model, inputs) -> float:
    """Mean attention of layer 0 to the state before, over queries 1 … N − 1."""
    _, cache = model.run_with_cache(inputs, [("pattern", 0)])
    return cache["pattern", 0].diagonal(-1, 2, 3).mean().item()


def stacked(jobs: list[tuple], looks: list, measure, folder=None) -> dict[str, np.ndarray]:
    """Train jobs in one stack; `measure(number of job)` gives two functions of its model: look, previous."""
    models, tasks, plans = zip(*jobs)
    taken = {id(model): measure(number) for number, model in enumerate(models)}
    runs = train_many(
        models,
        tasks,
        plans,
        how="stacked",
        measures={
            "looks": lambda model: taken[id(model)][0](model),
            "previous": lambda m: taken[id(m)][1](m),
        },
        measure_at=looks,
        folder=folder,
        device="cpu",
    )
    found = np.stack([run.history["looks"] for run in runs])
    return {
        "steps": runs[0].steps,
        "distances": found[..., :5],
        "losses": found[..., 5],
        "previous": np.stack([run.history["previous"] for run in runs]),
    }


def unit(config: dict, seed: int, folder=None) -> dict[str, np.ndarray]:
    """One seed at every K of a dose."""
    jobs = [job_of(config, K, seed) for K in config["many"]]
    looks = [phases_202.Look(task) for _, task, _ in jobs]

    def measure(number: int):
        look = looks[number]
        return look, lambda model: previous(model, look.distances.tokens[0, :100])

    apart = np.stack([look.about()["apart"] for look in looks])
    return stacked(jobs, config["looks"], measure, folder) | {"apart": apart}


def assemble(pieces: list[Piece]) -> dict[str, np.ndarray]:
    """Measures of each variant, stacked over seeds."""
    arrays = {"steps": pieces[0].arrays["steps"]}
    for name in dict.fromkeys(piece.config["variant"] for piece in pieces):
        mine = [piece for piece in pieces if piece.config["variant"] == name]
        arrays[f"{name}/K"] = np.array(mine[0].config["many"])
        for key in MEASURED:
            arrays[f"{name}/{key}"] = np.stack([piece.arrays[key] for piece in mine]).astype(np.float32)
    return arrays


def probe(record) -> Probe:
    """Dose 0.5, K = 8, seed 0: the distance from 1-Gen on fresh chains after 100 updates."""
    return probe_of(record, unit, "slow-0.5")


def probe_of(record, unit, variant: str) -> Probe:
    """K = 8, seed 0 of a variant, up to update 100."""
    config = next(config for config in record.meta["config"] if config["variant"] == variant)
    short = config | {"many": [8], "looks": [100], "training": config["training"] | {"steps": 100}}
    measured = float(unit(short, 0)["distances"][0, -1, 1, 0])
    at = list(record["steps"]).index(100), list(config["many"]).index(8)
    recorded = float(record[f"{variant}/distances"][0, at[1], at[0], 1, 0])
    what = f"{variant}, K = 8, seed 0: distance from 1-Gen after 100 updates"
    return Probe(what, measured, 0.8 * recorded, 1.25 * recorded)
