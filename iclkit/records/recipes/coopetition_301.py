"""Exemplar–label models over training, the setting of Parts III and IV: five seeds (chapter 301).

    x₁ y₁ x₂ y₂ x_q →      1,600 classes, 20 exemplars each; two layers, 2 heads of 32, width 48, no MLP

Label table and unembedding learn at 0.3 of the rate of the rest: a row moves only when its class is drawn,
and Adam makes such rare steps large. The updates of both tables are dense, as the paper's are: rows without a
gradient go on moving by what the optimiser remembers. Arrays, of each look: `accuracy` and `loss`
[seed step 5] on Train, ICL, Flip, CIWL, IWL (accuracy among the labels shown, IWL among all; loss in nats over
all labels); `induction` [seed step head], of layer 1 on Flip; `previous` and `itself` [seed step head], of
layer 0 at the labels. `train_loss` [seed update]. Weights of seeds 0–2, as float16:
`load_model("coopetition_301", "default", 0, step)`.
"""

from dataclasses import replace

import numpy as np
import torch

from iclkit.circuits import induction_strength, label_attention
from iclkit.model import TransformerConfig
from iclkit.pairs import pair_transformer, query_loss
from iclkit.records.recipes import Piece, Probe
from iclkit.tasks import Batch, FewShot, ImageLike, evaluators
from iclkit.tasks.fewshot import EVALUATION_SEED, accuracy, in_context_accuracy
from iclkit.training import TrainConfig, train

NAME = "coopetition_301"
COST = "5 seeds of 32,000 updates, about 5 min each on one core"
SEEDS = (0, 1, 2, 3, 4)
SOURCE = dict(n_classes=1600, n_exemplars=20, d_features=128, rank=16, spread=0.75, norm=4.0)
TASK = dict(batch_size=32)
MODEL = dict(d_vocab=1600, n_ctx=5, n_layers=2, d_model=48, n_heads=2, d_mlp=0)
MODEL |= dict(d_head=32, layer_norm=True, positions="absolute", d_features=SOURCE["d_features"])
SLOW = [["pairs.W_L", 0.3], ["_W_U", 0.3]]
TRAINING = dict(steps=32_000, lr=1e-3, betas=[0.9, 0.999], weight_decay=0.0, warmup=4000, rates=SLOW)
EVALUATORS = ("Train", "ICL", "Flip", "CIWL", "IWL")
LOOKS = (*range(0, 8000, 250), *range(8000, 32_001, 500))
KEPT = (2000, 5000, 10_000, 18_000, 32_000)
SEQUENCES = 2000


def configs(scale: str) -> list[dict]:
    """The default setting; there is one scale."""
    shared = {"model": MODEL, "source": SOURCE, "task": TASK, "training": TRAINING}
    return [
        {"variant": "default", **shared, "looks": list(LOOKS), "kept": list(KEPT), "sequences": SEQUENCES}
    ]


def task_of(config: dict) -> FewShot:
    """What a run trains on."""
    return FewShot(ImageLike(**config["source"]), **config["task"])


def model_of(config: dict, seed: int):
    """A new model of this shape."""
    shape = dict(config["model"])
    d_features = shape.pop("d_features")
    return pair_transformer(TransformerConfig(**shape), d_features, seed, query_only=True)


class Look:
    """What is measured of a model: `accuracy`, `loss` `[5]`; `induction`, `previous`, `itself` `[head]`."""

    def __init__(self, task: FewShot, sequences: int = SEQUENCES):
        plain = replace(task, mix="bursty", batch_size=sequences, classes=None, zipf=0.0)
        tasks = evaluators(plain, *EVALUATORS)
        self.batches = {name: tasks[name].batch(EVALUATION_SEED, 0) for name in EVALUATORS}
        self.few = Batch(*(part[:500] for part in self.batches["Flip"]))

    @torch.no_grad()
    def answers(self, predict) -> np.ndarray:
        """Accuracy, then loss, on every evaluator, of a model or any other function of inputs: `[2, 5]`."""
        found = []
        for name, batch in self.batches.items():
            logits = predict(batch.inputs)
            right = (accuracy if name == "IWL" else in_context_accuracy)(logits, batch)
            found.append([right, query_loss(logits, batch).item()])
        return np.array(found).T

    def induction(self, model) -> np.ndarray:
        return induction_strength(model, self.few).numpy()

    def labels(self, model) -> np.ndarray:
        """Attention of layer 0 at the labels, to the exemplar before and to the label itself: `[2, head]`."""
        return torch.stack(label_attention(model, self.few)).numpy()

    def measures(self) -> dict:
        return {"answers": self.answers, "induction": self.induction, "labels": self.labels}


def fit(config: dict, seed: int, measures: dict, folder=None, model=None, task=None, **more):
    """The training run of a config, from new weights or those of `model`, on its own task unless given."""
    return train(
        model_of(config, seed) if model is None else model,
        task_of(config) if task is None else task,
        TrainConfig(**config["training"], seed=seed),
        loss=query_loss,
        measures=measures,
        measure_at=config["looks"],
        folder=folder,
        device="cpu",
        **more,
    )


def looked_at(run) -> dict[str, np.ndarray]:
    """The arrays of a run with the measures of `Look`."""
    answers, labels = (np.array(run.history[name], np.float32) for name in ("answers", "labels"))
    return {
        "steps": run.steps,
        "accuracy": answers[:, 0],
        "loss": answers[:, 1],
        "induction": np.array(run.history["induction"], np.float32),
        "previous": labels[:, 0],
        "itself": labels[:, 1],
    }


def weights_of(run) -> dict[str, np.ndarray]:
    """Every checkpoint's weights under step/name, as float16."""
    return {
        f"{step}/{name}": weight.numpy().astype(np.float16)
        for step, weights in run.checkpoints.items()
        for name, weight in weights.items()
    }


def unit(config: dict, seed: int, folder=None) -> dict[str, np.ndarray]:
    """Train one model and look at it on the way; saved every minute."""
    look = Look(task_of(config), config["sequences"])
    kept = config["kept"] if seed < 3 else ()
    run = fit(config, seed, look.measures(), folder, checkpoint_at=kept)
    return looked_at(run) | {"train_loss": run.losses.astype(np.float16)} | weights_of(run)


def assemble(pieces: list[Piece]) -> dict[str, np.ndarray]:
    """Measures over seeds; weights under variant/seed/step/parameter."""
    names = [name for name in pieces[0].arrays if name != "steps" and "/" not in name]
    stacked = {name: np.stack([piece.arrays[name] for piece in pieces]) for name in names}
    weights = {
        f"{piece.config['variant']}/{piece.seed}/{name}": array
        for piece in pieces
        for name, array in piece.arrays.items()
        if "/" in name
    }
    return {"steps": pieces[0].arrays["steps"]} | stacked | weights


def variants(pieces: list[Piece]) -> dict[str, np.ndarray]:
    """Measures over variants, in the order of their configs, and seeds."""
    names = list(dict.fromkeys(piece.config["variant"] for piece in pieces))
    seeds = sorted({piece.seed for piece in pieces})
    at = {(piece.config["variant"], piece.seed): piece.arrays for piece in pieces}
    stacked = {
        measure: np.stack([[at[name, seed][measure] for seed in seeds] for name in names])
        for measure in pieces[0].arrays
        if measure != "steps"
    }
    return {"steps": pieces[0].arrays["steps"]} | stacked


def probe(record) -> Probe:
    """Seed 0: the training loss of its first 60 updates."""
    config = record.meta["config"][0]
    short = config | {"training": config["training"] | {"steps": 60}, "looks": [0]}
    recorded = float(record["train_loss"][0, 20:60].astype(float).mean())
    measured = float(fit(short, 0, {}).losses[20:].mean())
    return Probe("seed 0: training loss, updates 20 to 60", measured, recorded - 0.05, recorded + 0.05)
