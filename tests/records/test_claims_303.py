"""C5 and C6 can fail: made-up curves that turn, stay, let go; grafts that follow their first half."""

import numpy as np
import pytest

from iclkit.records.claims import every
from iclkit.records.claims.c303 import grafted, strength, strongest

STEPS = np.arange(0, 32_001, 1000)
STAGES = np.array([0, 2000, 5000, 10_000, 32_000])
CURVE = np.array([0.5, 0.5, 0.8, 0.5, 0.1])  # the run's own Flip


def run(end: float = -0.4, previous_end: float = 0.1, seeds: int = 5):
    """A made-up run: induction to +.4 at 5,000 and to `end`; a head to .6 and to `previous_end`."""
    wave = np.interp(STEPS, [0, 5000, 28_000], [0, 0.4, end])
    before = np.interp(STEPS, [0, 2000, 6000, 28_000], [0.1, 0.1, 0.6, previous_end])
    heads = np.stack([before, 0 * before], 1)
    return {
        "steps": STEPS,
        "induction": np.tile(wave[None, :, None], (seeds, 1, 4)),
        "previous": np.tile(heads, (seeds, 1, 1)),
        "itself": np.tile(0.9 - heads, (seeds, 1, 1)),
    }


def grafts(by: str = "first", seeds: int = 3):
    """Grafts whose Flip is that of the run at the time of their first (or second) half."""
    own = CURVE[:, None] + 0 * CURVE if by == "first" else CURVE + 0 * CURVE[:, None]
    flip = np.where(np.tri(len(STAGES), k=-1) > 0, np.nan, own)
    accuracy = np.tile(flip[None, :, :, None], (seeds, 1, 1, 4))
    return {"stages": STAGES, "accuracy": accuracy, "paths": np.full((seeds, 5, 10, 4), 0.5)}


def verdict(id: str, *records) -> str:
    return every()[id].judge(*records).verdict


def test_c5_is_reproduced_by_a_wave_and_grafts_that_follow_the_first_half():
    assert verdict("C5", run(), grafts()) == "reproduced"


def test_c5_without_a_turn_below_zero_is_partly():
    assert verdict("C5", run(end=0.1), grafts()) == "partly"
    assert verdict("C5", run(end=0.4), grafts()) == "partly"


def test_c5_fails_when_the_second_half_makes_the_curves_or_nothing_rises():
    assert verdict("C5", run(), grafts(by="second")) == "not reproduced"
    flat = run() | {"induction": np.zeros((5, len(STEPS), 4))}
    assert verdict("C5", flat, grafts()) == "not reproduced"


@pytest.mark.parametrize("risen, said", [(4, "partly"), (3, "partly"), (2, "not reproduced")])
def test_c5_is_partly_when_half_of_the_seeds_rise(risen, said):
    some = run()
    some["induction"][risen:] = 0
    assert verdict("C5", some, grafts()) == said


def test_one_seed_that_stays_above_zero_counts():
    mixed = run()
    mixed["induction"][2] = run(end=0.1)["induction"][2]
    found = every()["C5"].judge(mixed, grafts())
    assert found.verdict == "partly" and "below zero in 4 of 5" in found.why


def test_c6_asks_the_head_to_let_go_and_to_look_at_itself():
    assert verdict("C6", run(), grafts()) == "reproduced"
    assert verdict("C6", run(previous_end=0.6), grafts()) == "not reproduced"
    elsewhere = run()
    elsewhere["itself"] = elsewhere["previous"]
    assert verdict("C6", elsewhere, grafts()) == "not reproduced"


def test_what_is_read_off_the_arrays():
    assert strength(run()["induction"]).top == pytest.approx(0.4) and strength(
        run()["induction"]
    ).end == pytest.approx(-0.4)
    follows, moves = grafted(STAGES, grafts(by="second")["accuracy"])
    assert follows == pytest.approx(0.7) and moves == pytest.approx(1.0)
    found = strongest(STEPS, run()["previous"], run()["itself"])
    assert found.begin == pytest.approx(0.1) and found.top == pytest.approx(0.6)
    assert found.end == pytest.approx(0.1) and found.self_end == pytest.approx(0.8)
