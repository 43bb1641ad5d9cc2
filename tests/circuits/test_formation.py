"""When something forms: known curves, and what has none."""

import numpy as np
import pytest

from iclkit.circuits.formation import final_value, formed_at, window

STEPS = np.arange(0, 1010, 10)


def ramp(begin, end, low=0.05, high=0.85):
    return np.interp(STEPS, [begin, end], [low, high])


def test_window_of_a_straight_rise():
    found = window(STEPS, ramp(300, 400))
    assert found == (300, 390) and found.width == 90


@pytest.mark.parametrize("scale, shift", [(2.0, 0.0), (-3.0, 1.0), (0.01, -5.0)])
def test_window_does_not_depend_on_unit_or_sign(scale, shift):
    score = 1 / (1 + np.exp(-(STEPS - 350) / 17))
    assert window(STEPS, score * scale + shift) == window(STEPS, score)


def test_window_begins_after_the_last_time_below_ten_percent():
    score = ramp(300, 400)
    score[5] = 0.4  # a stray peak on the plateau
    assert window(STEPS, score) == window(STEPS, ramp(300, 400))


def test_formed_needs_half_the_final_value_and_three_tenths():
    assert formed_at(STEPS, ramp(300, 400)) == 350
    assert formed_at(STEPS, ramp(300, 400, high=0.29)) is None
    assert formed_at(STEPS, ramp(300, 400, low=0.0, high=0.4)) == 380
    assert formed_at(STEPS, np.full(len(STEPS), 0.05)) is None


def test_final_value_is_a_mean_over_the_last_tenth():
    score = np.zeros(20)
    score[-2:] = 1, 3
    assert final_value(score) == 2 and final_value([5.0, 7.0]) == 7


def test_no_curve_no_window():
    with pytest.raises(ValueError, match="ends where it began"):
        window(STEPS, np.ones(len(STEPS)))
    with pytest.raises(ValueError, match="as many steps as values"):
        window(STEPS, np.ones(3))
    with pytest.raises(ValueError, match="as many steps as values"):
        formed_at([0], [1.0])
