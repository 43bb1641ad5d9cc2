"""Claim of chapter 102."""

import numpy as np

from iclkit.records.claims import Measured, claim


@claim(
    "I1",
    finding="A transformer is a sum of paths: QK and OV circuits, path expansion, virtual heads",
    chapter="102",
    theirs="exact algebra; induction heads at copying and matching ≈ +1; most pairs below random",
    unit="K-composition of the strongest pair / random matrices",
    records=["paths_102"],
)
def i1(record):
    exact = record["exact_error64"] < 1e-5
    prefix, previous = record["prefix"][:, -1, 1], record["previous"][:, -1, 0]
    seeds = np.arange(len(prefix))
    ind, prev = prefix.argmax(1), previous.argmax(1)
    scores = record["copying"][seeds, -1, 1, ind], record["matching"][seeds, -1, prev, ind]
    copies_and_matches = (np.minimum(*scores) > 0.9) & (prefix.max(1) > 0.5)
    kinds = record["composition"][:, -1]
    level = (record["baseline"] + 4 * record["baseline_std"])[:, None]
    into = kinds[seeds, :, prev]
    by_keys = (into[:, 1] > level).all(1) & (into[:, [0, 2]] < level[..., None]).all((1, 2))
    return Measured.over(
        kinds[:, 1].max((1, 2)) / record["baseline"],
        good=exact & copies_and_matches & by_keys,
        why=(
            f"paths sum to the logits to {record['exact_error64'].max():.0e} in double precision "
            f"({record['exact_error32'].max():.0e} in single); the induction head's copying and matching scores "
            f"are at least {np.minimum(*scores).min():.2f}; the previous-token head composes through keys with "
            "every head of layer 1, more than 4 standard deviations above random matrices, and through queries "
            "and values with none"
        ),
    )
