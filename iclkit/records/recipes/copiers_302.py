"""How models of `coopetition_301` and `one_layer_302` know the answer, at points of training (chapter 302).

Arrays are named model/measure: "two layers" [seed step …], steps as in `steps`, and "one layer" [seed …].

    attention   [condition layer place head part]   from the query, `CONDITIONS`, parts as circuits.copying's
    imposed     [layer head strength]               accuracy on CIWL, one head alone answering, at `strengths`
    matched     [reading head]                      how often a class's own label has the larger key of two
    copied      [reading head]                      how often a label's value speaks for it, not another
    paths       [path evaluator]                    accuracy with one path after another removed, `PATHS`

`matched` and `copied` are read from the weights, with no context: the query is a class's mean exemplar, a
label's key and value are made of the label alone. Readings: layer 0; layer 1 when layer 0 writes nothing;
layer 1 when every position of layer 0 attends to itself. One layer has the first reading, and `PATHS` whole,
layer 0 → Out removed, Emb.
"""

import numpy as np
import torch

from iclkit.circuits import ablate_edges, imposed_accuracy, nodes, path_ablations, query_attention
from iclkit.circuits.copying import direct_paths
from iclkit.records.models import load_model
from iclkit.records.pieces import key
from iclkit.records.recipes import Piece, Probe, coopetition_301, one_layer_302, source
from iclkit.tasks import Batch

NAME = "copiers_302"
COST = "18 models, about 10 s each on one core"
SEEDS = (0, 1, 2)
CONDITIONS = ("CIWL", "Flip")
PATHS = ("whole", "direct", "Q", "K", "V", "QKV", "layer 1", "Emb", "Emb alone")
READINGS = ("layer 0", "layer 1", "layer 1, itself")
STRENGTHS = tuple(i / 10 for i in range(11))
SEQUENCES, FEW = 2000, 400
MEASURES = ("attention", "imposed", "matched", "copied", "paths")
MADE = {"two layers": ("coopetition_301", "default"), "one layer": ("one_layer_302", "one layer")}


def configs(scale: str) -> list[dict]:
    """The two-layer models, then the one-layer models, named by what made them; `paper` has the same."""
    made = {recipe.NAME: recipe for recipe in (coopetition_301, one_layer_302)}
    return [
        {"name": name, "record": record, "variant": variant, "models": key(source(made[record]))}
        | {"steps": made[record].configs(scale)[0]["kept"]}
        for name, (record, variant) in MADE.items()
    ]


def unit(config: dict, seed: int) -> dict[str, np.ndarray]:
    """Open one model at each of its steps: measures `[step …]`."""
    models = (load_model(config["record"], config["variant"], seed, step) for step in config["steps"])
    opened = [opened_up(model) for model in models]
    return {name: np.stack([each[name] for each in opened]).astype(np.float32) for name in MEASURES}


def opened_up(model, sequences: int = SEQUENCES, few: int = FEW) -> dict[str, np.ndarray]:
    """Every measure of one model."""
    look, layers = coopetition_301.Look(task(), sequences), range(model.config.n_layers)
    some = Batch(*(part[:few] for part in look.batches["CIWL"]))
    seen = [[query_attention(model, look.batches[name], layer) for layer in layers] for name in CONDITIONS]
    imposed = [imposed_accuracy(model, some, STRENGTHS, alone=True, layer=layer) for layer in layers]
    readings = [preferences(*skip_trigrams(model, reading)) for reading in READINGS[: 2 * len(layers) - 1]]
    return {
        "attention": np.array([[each.numpy() for each in row] for row in seen]),
        "imposed": torch.stack(imposed).numpy(),
        "matched": np.array([matched for matched, _ in readings]),
        "copied": np.array([copied for _, copied in readings]),
        "paths": np.array([look.answers(path)[0] for path in paths_of(model).values()]),
    }


def task():
    """What the default setting trains on."""
    return coopetition_301.task_of(coopetition_301.configs("book")[0])


def paths_of(model) -> dict:
    """`path_ablations`; of one layer the three that it has."""
    if model.config.n_layers == 2:
        return path_ablations(model)
    cuts = {"direct": [("Att0", "Out")], "Emb": direct_paths(model, set(nodes(model)[1:-1]))}
    return {"whole": model} | {name: ablate_edges(model, edges) for name, edges in cuts.items()}


@torch.no_grad()
def skip_trigrams(model, reading: str = "layer 0"):
    """Scores class → label by query and key, and label → label by value and output: `[head a b]` of each.

        x̄_c y_c x̄_c y_c x̄_c      one sequence a class; no position sees another before the layer that is read

    The last position asks, the first label is asked for.
    """
    layer, exemplars, norm = int(reading[6]), task().exemplars, model.ln_final
    classes = torch.arange(exemplars.n_classes)
    every = torch.broadcast_tensors(classes[:, None], torch.arange(exemplars.n_exemplars)[None])
    mean = exemplars.vectors(*every).mean(1)
    inputs = torch.zeros(len(classes), 5, exemplars.d_features + 1)
    inputs[:, 0::2, :-1], inputs[:, 0::2, -1] = mean[:, None], -1.0
    inputs[:, 1::2, -1] = classes[:, None].float()
    points = [(name, layer) for name in "qkv"]
    q, k, v = model.run_with_cache(inputs, points, alone(reading))[1].values()
    read = (torch.eye(len(norm.w)) - 1 / len(norm.w)) * norm.w @ model.W_U
    spoken = torch.einsum("bhe,hed->hbd", v[:, 1], model.W_O[layer]) @ read
    return torch.einsum("ahe,bhe->hab", q[:, 4], k[:, 1]), spoken


def alone(reading: str) -> list:
    """Hooks under which no position of layer 0 sees another, so that layer 1 reads single inputs."""
    hooks = {
        "layer 1": [(("attn_out", 0), lambda wrote, hook: torch.zeros_like(wrote))],
        "layer 1, itself": [(("pattern", 0), lambda pattern, hook: torch.eye(5).expand_as(pattern))],
    }
    return hooks.get(reading, [])


def preferences(*scores) -> list[np.ndarray]:
    """How often the diagonal is larger than another entry of its row, `[head]` of each `[head a a]`."""
    return [
        ((x.diagonal(0, 1, 2)[:, :, None] > x).sum((1, 2)) / (x.shape[1] * (x.shape[1] - 1))).numpy()
        for x in scores
    ]


def assemble(pieces: list[Piece]) -> dict[str, np.ndarray]:
    """Everything under model/measure, seeds first; the one step of the one-layer models is left out."""
    steps = next(piece.config["steps"] for piece in pieces if piece.config["name"] == "two layers")
    found = {"steps": np.array(steps), "strengths": np.array(STRENGTHS)}
    for name in MADE:
        mine = [piece.arrays for piece in pieces if piece.config["name"] == name]
        for measure in MEASURES:
            stacked = np.stack([arrays[measure] for arrays in mine])
            found[f"{name}/{measure}"] = stacked if name == "two layers" else stacked[:, 0]
    return found


def probe(record) -> Probe:
    """Two layers, seed 0, at the end: how often a label's value in layer 1 speaks for that label."""
    model = load_model(*MADE["two layers"], 0, int(record["steps"][-1]))
    recorded = float(record["two layers/copied"][0, -1, 2].mean())
    measured = float(preferences(skip_trigrams(model, READINGS[2])[1])[0].mean())
    what = "seed 0, at the end: how often a label's value speaks for it more than for another"
    return Probe(what, measured, recorded - 0.01, recorded + 0.01)
