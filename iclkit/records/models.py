"""Trained models in records: weights under "variant/seed/parameter" or "variant/seed/step/parameter"."""

import numpy as np
import torch

from iclkit.model import Transformer, TransformerConfig
from iclkit.pairs import pair_transformer
from iclkit.records.store import Record, RecordError, load


def pack(model: Transformer) -> dict[str, np.ndarray]:
    """A model's parameters by name, as arrays."""
    return {name: weight.detach().cpu().numpy() for name, weight in model.named_parameters()}


def load_model(name: str | Record, variant: str, seed: int = 0, step: int | None = None) -> Transformer:
    """Rebuild a trained model from a record whose configs give `variant` and `model`.

        load_model("part1_models", variant="2L", seed=0)
        load_model("phases_202", variant="K8", seed=0, step=300)     a checkpoint, where the record has them

    Raises KeyError for a variant, seed or step the record does not hold, naming those it does, and
    RecordError for weights that do not fit the record's config.
    """
    record = name if isinstance(name, Record) else load(name)
    configs = record.meta["config"] if isinstance(record.meta["config"], list) else []
    known = {config["variant"]: config["model"] for config in configs if {"variant", "model"} <= set(config)}
    if not known:
        raise KeyError(f"record {record.name!r} holds no models; it has the arrays {', '.join(record)}")
    if variant not in known:
        raise KeyError(f"record {record.name!r} has no variant {variant!r}; it has {', '.join(known)}")
    prefix = f"{variant}/{seed}/"
    weights = {key.removeprefix(prefix): record[key] for key in record if key.startswith(prefix)}
    if not weights:
        seeds = sorted(
            {key.split("/")[1] for key in record if key.startswith(f"{variant}/") and key.count("/") > 1},
            key=lambda known: (len(known), known),
        )
        raise KeyError(f"record {record.name!r} has no seed {seed} of {variant!r}; it has {', '.join(seeds)}")
    steps = sorted({int(name.split("/")[0]) for name in weights if name.split("/")[0].isdigit()})
    if step not in (steps or [None]) or isinstance(step, (bool, float)):
        raise KeyError(
            f"record {record.name!r} has {f'steps {steps}' if steps else 'no steps, only the final weights,'} "
            f"of {variant!r}, seed {seed}; got step={step}"
        )
    if steps:
        weights = {
            name.removeprefix(f"{step}/"): array
            for name, array in weights.items()
            if name.startswith(f"{step}/")
        }
    try:
        model = build(known[variant])
        model.load_state_dict({key: torch.from_numpy(np.array(array)) for key, array in weights.items()})
    except (RuntimeError, TypeError) as error:
        raise RecordError(
            f"the weights of {variant!r} in record {record.name!r} do not fit its config {known[variant]}; "
            f"make the record anew ({str(error).splitlines()[-1].strip()})"
        ) from None
    return model.eval()


def build(config: dict) -> Transformer:
    """A new model of this config; with `d_features`, one that reads exemplars and labels and answers last."""
    shape = dict(config)
    d_features = shape.pop("d_features", None)
    shape = TransformerConfig(**shape)
    return Transformer(shape) if d_features is None else pair_transformer(shape, d_features, query_only=True)
