"""C3 and C4 can fail: heads that look elsewhere or do not copy; one layer that learns too much, or little."""

import numpy as np
import pytest

from iclkit.records.claims import every
from iclkit.records.recipes.copiers_302 import PATHS

SEEDS, STEPS = 3, (5000, 32_000)


def opened(seen=0.8, away=0.05, there=0.95, direct=0.0):
    """A made-up record `copiers_302`: attention to the correct label, two ends of the sigmoid, the change."""
    attention = np.full((SEEDS, 2, 2, 2, 2, 4, 4), (1 - seen) / 3)
    attention[..., 0] = seen
    imposed = np.linspace(away, there, 11) * np.ones((SEEDS, 2, 2, 4, 1))
    paths = np.full((SEEDS, 2, len(PATHS), 5), 0.95)
    paths[:, :, PATHS.index("direct")] += direct
    made = {"attention": attention, "imposed": imposed, "paths": paths}
    return {f"two layers/{name}": array for name, array in made.items()}


def course(ciwl=0.9, icl=0.5):
    """A made-up training run: CIWL rises to its last value; ICL has one high look."""
    accuracy = np.full((SEEDS, 5, 5), 0.5)
    accuracy[..., 3] = np.linspace(0.5, ciwl, 5)
    accuracy[:, 2, 1] = icl
    return {"steps": np.arange(5) * 2000, "accuracy": accuracy}


def c3(**changes):
    return every()["C3"].judge(opened(**changes))


def c4(one=None, **changes):
    return every()["C4"].judge(opened(**changes), one or course(), course())


def test_copiers_that_look_at_the_answer_bear_c3_out():
    found = c3()
    assert found.verdict == "reproduced" and found.seeds == SEEDS and found.ours == pytest.approx(0.8)
    assert "at most 0.05 and at least 0.95" in found.why and "3 of 3 seeds copy" in found.why


def test_heads_that_could_copy_but_look_elsewhere_are_partly():
    assert c3(seen=0.4).verdict == "partly"


@pytest.mark.parametrize("change", [{"away": 0.3}, {"there": 0.7}, {"away": 0.95, "there": 0.05}])
def test_heads_that_do_not_copy_are_no_copiers(change):
    assert c3(**change).verdict == "not reproduced"


def test_the_worse_place_and_the_last_step_count():
    record = opened()
    record["two layers/attention"][:, 0] = 0.1
    assert every()["C3"].judge(record).verdict == "reproduced"
    record["two layers/attention"][0, -1, 0, 1, 1] = 0.1
    assert every()["C3"].judge(record).verdict == "partly"


def test_one_head_that_does_not_copy_is_seen():
    record = opened()
    record["two layers/imposed"][1, -1, 1, 2] = 0.5
    assert every()["C3"].judge(record).verdict == "not reproduced"


def test_one_layer_enough_for_one_and_not_for_the_other_bears_c4_out():
    found = c4(direct=-0.01)
    assert found.verdict == "reproduced" and found.ours == pytest.approx(-0.01)
    assert "never above 0.50" in found.why


@pytest.mark.parametrize("one", [{"ciwl": 0.85}, {"icl": 0.6}])
def test_one_layer_with_less_ciwl_or_with_icl_is_partly(one):
    assert c4(course(**one)).verdict == "partly"
    assert c4(course(**one), direct=-0.05).verdict == "not reproduced"


@pytest.mark.parametrize("direct", [-0.05, 0.05])
def test_a_direct_output_that_matters_is_partly(direct):
    assert c4(direct=direct).verdict == "partly"
