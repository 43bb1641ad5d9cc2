"""Claims of 201 and 202 can fail: on wrong formulas, on runs without an order, on losses that only fall."""

import numpy as np

from iclkit import records
from iclkit.records.claims import every


def test_m1_fails_on_a_wrong_formula_and_on_a_poor_memory():
    arrays = dict(records.load("observers_201"))
    assert every()["M1"].judge(arrays | {"errors": arrays["errors"] + 1e-3}).verdict == "not reproduced"
    losses = arrays["C5/losses"].copy()
    losses[..., 3] += 0.1
    assert every()["M1"].judge(arrays | {"C5/losses": losses}).verdict == "not reproduced"


def test_m2_fails_where_all_numbers_of_chains_end_alike():
    arrays = dict(records.load("phases_202"))
    one = arrays["distances"][-1:].repeat(len(arrays["K"]), 0)
    judged = every()["M2"].judge(arrays | {"distances": one}, records.load("phases_paper"))
    assert judged.verdict == "not reproduced"


def test_m11_fails_on_a_loss_that_only_falls():
    arrays = dict(records.load("thresholds_205"))
    losses = np.linspace(2, 1, arrays["losses"].shape[1])[None, :, None].repeat(2, 2)
    losses = losses.repeat(len(arrays["K"]), 0)
    assert every()["M11"].judge(arrays | {"losses": losses}).verdict == "not reproduced"
