"""First halves on second halves of other times: grafts of the default setting's checkpoints (chapter 303).

    W_X W_L W_pos │ L0 │ L1 │ ln_final W_U
    └── of update a ───┘ └── of update b ─┘          a ≤ b, both of `stages`

The first 6,000 updates are trained again (a run repeats bit for bit); later weights are `coopetition_301`'s.
No graft is trained. `stages` [stage]. `accuracy` [seed first second 4] on Train, ICL, Flip, CIWL, and
`induction` [seed first second head] of layer 1 on Flip: NaN where a > b. `parts` [seed 2 2 2 4]: embeddings,
layer 0 and the rest, each of 5,000 (0) or of 32,000 (1) updates. `paths` [seed shipped path 4]: models of
the updates in `shipped`, one of `PATHS` after another removed.
"""

import numpy as np

from iclkit.circuits import ablate_edges, graft, path_ablations
from iclkit.records.models import load_model
from iclkit.records.recipes import Piece, Probe, coopetition_301

NAME = "grafts_303"
COST = "3 seeds: 6,000 updates and 66 grafts, about 2 min each on one core"
SEEDS = (0, 1, 2)
TRAINED = (0, 2000, 3000, 3500, 4000, 4500, 5000, 6000)
SHIPPED = (2000, 5000, 10_000, 18_000, 32_000)
PEAK = 5000
EVALUATORS = ("Train", "ICL", "Flip", "CIWL")
PATHS = ("whole", "direct", "Q", "K", "V", "layer 1", "Emb", "Emb alone", "L0 → K", "Emb → K")
SEQUENCES = 1000


def configs(scale: str) -> list[dict]:
    """The default setting, its first 6,000 updates; there is one scale."""
    setting = coopetition_301.configs(scale)[0]
    training = setting["training"] | {"steps": TRAINED[-1]}
    grafts = {"kept": list(TRAINED), "shipped": list(SHIPPED), "sequences": SEQUENCES}
    return [setting | {"training": training} | grafts]


def answers(look: coopetition_301.Look, predict) -> np.ndarray:
    """In-context accuracy of any function of the inputs on `EVALUATORS`, `[4]`."""
    return look.answers(predict)[0, : len(EVALUATORS)]


def ablations(model) -> dict:
    """The functions of `PATHS`: those of `path_ablations`, and layer 1's keys without a source."""
    senders = {"L0 → K": "Att0", "Emb → K": "Emb"}
    keys = {name: ablate_edges(model, [(sender, "Att1.k")]) for name, sender in senders.items()}
    paths = path_ablations(model) | keys
    return {name: paths[name] for name in PATHS}


def three_parts(embeddings, layer0, rest):
    """A model of three."""
    return graft(graft(embeddings, layer0, boundary=0), rest, boundary=1)


def measured(models: dict, look: coopetition_301.Look) -> dict[str, np.ndarray]:
    """All arrays of one seed, from its models by number of updates."""
    many, last = list(models), max(models)
    accuracy = np.full((len(many), len(many), len(EVALUATORS)), np.nan)
    induction = np.full((len(many), len(many), models[last].config.n_heads), np.nan)
    for i, first in enumerate(many):
        for j, second in enumerate(many[i:], i):
            model = graft(models[first], models[second])
            accuracy[i, j], induction[i, j] = answers(look, model), look.induction(model)
    two, bits = (models[PEAK], models[last]), (0, 1)
    parts = [[[answers(look, three_parts(two[a], two[b], two[c])) for c in bits] for b in bits] for a in bits]
    paths = [[answers(look, cut) for cut in ablations(models[step]).values()] for step in SHIPPED]
    return {
        "accuracy": accuracy,
        "induction": induction,
        "parts": np.array(parts),
        "paths": np.array(paths),
        "stages": np.array(many),
    }


def unit(config: dict, seed: int, folder=None) -> dict[str, np.ndarray]:
    """Train one model, take its halves apart and put them together again; saved every minute."""
    run = coopetition_301.fit(config, seed, {}, folder, checkpoint_at=config["kept"])
    models = {step: run.at(step) for step in config["kept"]}
    later = [step for step in config["shipped"] if step not in models]
    models |= {step: load_model("coopetition_301", config["variant"], seed, step) for step in later}
    return measured(models, coopetition_301.Look(coopetition_301.task_of(config), config["sequences"]))


def assemble(pieces: list[Piece]) -> dict[str, np.ndarray]:
    """Seeds stacked."""
    names = ("accuracy", "induction", "parts", "paths")
    stacked = {name: np.stack([piece.arrays[name] for piece in pieces]).astype(np.float32) for name in names}
    return {"stages": pieces[0].arrays["stages"], "shipped": np.array(SHIPPED)} | stacked


def probe(record) -> Probe:
    """Seed 0: Flip of the shipped first half of update 5,000 on the second half of update 32,000."""
    config, stages = record.meta["config"][0], list(record["stages"])
    first, second = (
        load_model("coopetition_301", config["variant"], 0, step) for step in (PEAK, SHIPPED[-1])
    )
    look = coopetition_301.Look(coopetition_301.task_of(config), config["sequences"])
    recorded = float(record["accuracy"][0, stages.index(PEAK), stages.index(SHIPPED[-1]), 2])
    measured = float(answers(look, graft(first, second))[2])
    return Probe("seed 0: Flip of a graft, 5,000 on 32,000", measured, recorded - 0.02, recorded + 0.02)
