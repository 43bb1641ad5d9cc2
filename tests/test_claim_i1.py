"""The rule of claim I1 can fail: each of its three conditions, spoiled alone, costs the seed its verdict."""

import numpy as np
import pytest

from iclkit.records import load
from iclkit.records.claims import every


def spoiled(**changes):
    """The shipped record with some arrays replaced by functions of themselves."""
    record = {name: np.array(array) for name, array in load("paths_102").items()}
    for name, change in changes.items():
        record[name] = change(record[name])
    return record


def only_first_seed(value):
    def change(array):
        array[0] = value
        return array

    return change


def through_values(composition):
    """Q, K, V composition with K and V exchanged in every seed."""
    return composition[:, :, [0, 2, 1]]


def test_the_shipped_record_is_judged_by_the_rule():
    assert every()["I1"].judge(spoiled()).verdict == "reproduced"


@pytest.mark.parametrize(
    "changes",
    [
        {"exact_error64": only_first_seed(1e-3)},
        {"copying": only_first_seed(0.5)},
        {"matching": only_first_seed(0.5)},
        {"prefix": only_first_seed(0.1)},
        {"composition": only_first_seed(0.125)},
    ],
)
def test_one_spoiled_seed_makes_it_partly(changes):
    assert every()["I1"].judge(spoiled(**changes)).verdict == "partly"


def test_another_letter_is_not_reproduced():
    assert every()["I1"].judge(spoiled(composition=through_values)).verdict == "not reproduced"
