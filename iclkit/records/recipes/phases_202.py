"""Transformers trained on K Markov chains, from one chain to 256: the phase diagram of chapter 202.

    12 values of K × 4 seeds, 2,400 updates each, looked at 40 times on the way (densely at first).

Seed s names the chains, the first weights and the data. Of each look: `distances` [K seed step 2 5], the KL
of the four observers and of a uniform guess from the model on training and on fresh chains, and `losses`
[K seed step 2], the expected loss of the next state on both, in nats, all at the last position. `apart`
[K seed 2 5 5] is the KL between the observers, `floors` [K seed 2 5] their losses. Weights of a few models
stand under "K8/0/300/blocks.0.attn.W_Q": K, seed, step; `load_model("phases_202", "K8", seed=0, step=300)`.
"""

import numpy as np

from iclkit.model import Transformer, TransformerConfig
from iclkit.predictors import Distances, divergence, expected_loss
from iclkit.records.recipes import Piece, Probe
from iclkit.tasks import Markov
from iclkit.training import TrainConfig, train

NAME = "phases_202"
COST = "12 K × 4 seeds of 2,400 updates, about 60 core-minutes"
SEEDS = (0, 1, 2, 3)
MANY = (1, 2, 3, 4, 6, 8, 12, 16, 32, 64, 128, 256)
MODEL = dict(
    d_vocab=5,
    n_ctx=64,
    n_layers=2,
    d_model=32,
    n_heads=1,
    d_mlp=128,
    positions="shortformer",
    layer_norm=True,
)
TASK = dict(vocab=5, alpha=1.0, length=64, batch_size=32)
TRAINING = dict(steps=2400, lr=6e-3, weight_decay=0.0, warmup=100)
SEQUENCES = 500
KEPT = {
    8: (0, 50, 100, 200, 300, 450, 600, 900, 1200, 1500, 2000, 2400),
    32: (300, 1500, 2400),
    256: (300, 600, 900, 1200, 2400),
}
LOOKS = (
    *(0, 5, 10, 15, 20, 30, 40, 50, 60, 80, 100, 130, 160, 200, 250),
    *range(300, 1200, 75),
    *range(1200, 3001, 100),
)


def configs(scale: str) -> list[dict]:
    """One dict a K; `paper` has the same: the paper's size has a record of its own."""
    looks = [step for step in LOOKS if step <= TRAINING["steps"]]
    shared = {"model": MODEL, "task": TASK, "training": TRAINING, "looks": looks}
    return [{"variant": f"K{K}", "K": K, "kept": list(KEPT.get(K, [])), **shared} for K in MANY]


def task_of(config: dict, seed: int) -> Markov:
    """The task of a run: the seed names its chains."""
    return Markov(K=config["K"], chain_seed=seed, **config["task"])


class Look:
    """Distances, then losses, of a model on both test sets, from one pass: `[2, 6]`."""

    def __init__(self, task: Markov, sequences: int = SEQUENCES):
        self.distances = Distances(task, sequences)

    def __call__(self, model):
        d = self.distances
        answer = d.answer(model)
        loss = expected_loss(d.truth, answer)
        return np.concatenate([divergence(d.answers, answer[:, None]), loss[:, None]], 1)

    def about(self) -> dict[str, np.ndarray]:
        """How far the observers are from each other, and their losses."""
        d = self.distances
        floors = expected_loss(d.truth[:, None], d.answers)
        return {"apart": d.apart.numpy(), "floors": floors.numpy()}


def unit(config: dict, seed: int, folder=None) -> dict[str, np.ndarray]:
    """Train one model and look at it on the way."""
    look = Look(task_of(config, seed))
    run = fit(config, seed, {"looks": look}, config["looks"], config["kept"] if seed < 3 else (), folder)
    looks = np.array(run.history["looks"])
    kept = {
        f"{step}/{name}": weight.numpy()
        for step, weights in run.checkpoints.items()
        for name, weight in weights.items()
    }
    found = {
        "steps": run.steps,
        "distances": looks[..., :5],
        "losses": looks[..., 5],
        "train_loss": run.losses,
    }
    return found | look.about() | kept


def fit(config: dict, seed: int, measures: dict, looks, kept=(), folder=None):
    """The training run of a config."""
    model = Transformer(TransformerConfig(**config["model"]), seed)
    training = TrainConfig(**config["training"], seed=seed)
    return train(
        model,
        task_of(config, seed),
        training,
        measures=measures,
        measure_at=looks,
        checkpoint_at=kept,
        folder=folder,
        device="cpu",
    )


def assemble(pieces: list[Piece]) -> dict[str, np.ndarray]:
    """Measures over K and seeds; weights under K/seed/step/parameter."""
    many = sorted({piece.config["K"] for piece in pieces})
    seeds = sorted({piece.seed for piece in pieces})
    at = {(piece.config["K"], piece.seed): piece.arrays for piece in pieces}
    stacked = {
        name: np.stack([[at[K, seed][name] for seed in seeds] for K in many]).astype(np.float32)
        for name in ("distances", "losses", "apart", "floors", "train_loss")
    }
    weights = {
        f"K{K}/{seed}/{name}": array
        for (K, seed), arrays in at.items()
        for name, array in arrays.items()
        if "/" in name
    }
    return {"K": np.array(many), "steps": pieces[0].arrays["steps"]} | stacked | weights


def probe(record) -> Probe:
    """K = 8, seed 0: its distance from 1-Mem on training chains after 20 updates."""
    config = record.meta["config"][list(record["K"]).index(8)]
    step = list(record["steps"]).index(20)
    short = config | {"training": config["training"] | {"steps": 20}}
    look = Look(task_of(config, 0))
    run = fit(short, 0, {"looks": look}, [20])
    recorded = float(record["distances"][list(record["K"]).index(8), 0, step, 0, 2])
    return Probe(
        "K = 8, seed 0: distance from 1-Mem after 20 updates",
        float(np.array(run.history["looks"])[-1, 0, 2]),
        0.9 * recorded,
        1.1 * recorded,
    )
