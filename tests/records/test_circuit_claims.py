"""Claims M3, M4, M5, M12 and M13 can fail: a record spoiled in one place costs the verdict."""

import numpy as np
import pytest

from iclkit import records
from iclkit.records.claims import c203, every


def judged(claim, **changes):
    """The verdict where some arrays of the claim's records are replaced by functions of themselves."""
    known = every()[claim]
    loaded = [{name: np.array(array) for name, array in records.load(r).items()} for r in known.records]
    for name, change in changes.items():
        for arrays in loaded:
            if name in arrays:
                arrays[name] = change(arrays[name])
    return known.judge(*loaded).verdict


def all_of(value):
    return lambda array: np.full_like(array, value)


def told_suffice(shares):
    shares[:, c203.number(c203.TOLD)] = 0.95
    return shares


def read_once(shares):
    shares[:, c203.number(c203.POOL_AND_READ)] = 0.8
    return shares


@pytest.mark.parametrize(
    ("claim", "changes", "verdict"),
    [
        ("M3", {}, "partly"),
        ("M3", {"1-Gen/shares": read_once}, "reproduced"),
        ("M3", {"K256/entropy": all_of(0.5)}, "not reproduced"),
        ("M4", {}, "partly"),
        ("M4", {"2-Gen/shares": told_suffice}, "reproduced"),
        ("M4", {"K256/match": all_of(0.25)}, "not reproduced"),
        ("M5", {}, "reproduced"),
        ("M5", {"K8/swap": all_of(0.5)}, "not reproduced"),
        ("M12", {}, "partly"),
        ("M12", {"attention-K8/distances": all_of(0.01)}, "not reproduced"),
        ("M13", {}, "not reproduced"),
        (
            "M13",
            {"four-layers/swap": lambda swap: (np.arange(9) > 4)[None, :, None] * np.ones_like(swap)},
            "reproduced",
        ),
    ],
)
def test_verdicts_follow_the_record(claim, changes, verdict):
    assert judged(claim, **changes) == verdict


def test_subsets_are_numbered_as_in_the_circuits():
    from iclkit import Transformer, TransformerConfig, circuits

    model = Transformer(TransformerConfig(d_vocab=5, n_ctx=4, d_model=4, n_heads=1, d_mlp=4))
    assert circuits.all_edges(model) == c203.EDGES
    for subset in (0, 5, 2**15 - 1):
        assert circuits.subsets.edges_in(model, subset) == c203.edges_in(subset)
