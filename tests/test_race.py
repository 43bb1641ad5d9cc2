"""Who was first: against a loop over looks; thresholds of made-up leans are where they were put."""

import math

import numpy as np
import pytest

from iclkit.race import Asked, asked, outcomes, threshold

STEPS = np.array([0, 50, 100, 200, 300, 400])


def a_run(gen, mem, one=1.0):
    """Distances of one run on training chains; those on fresh chains are another matter."""
    found = np.full((len(STEPS), 2, 5), 9.0)
    found[:, 0, 0], found[:, 0, 2] = one, 2.0
    found[:, 0, 1], found[:, 0, 3] = gen, mem
    return found


def slowly(steps, distances, share):
    """Look by look."""
    off = [min(d[0][1], d[0][3]) < share * min(d[0][0], d[0][2]) for d in distances]
    for i in range(len(steps) - 1):
        if off[i] and off[i + 1]:
            two = [math.log(distances[j][0][1] / distances[j][0][3]) for j in (i, i + 1)]
            return steps[i], sum(two) / 2
    return math.nan, math.nan


def test_it_agrees_with_a_loop_on_random_runs():
    random = np.random.default_rng(0)
    distances = random.exponential(size=(3, 4, len(STEPS), 2, 5)) * np.array([3.0, 1, 3, 1, 3])
    for share in (0.3, 0.5, 1.0):
        found = asked(STEPS, distances, share)
        wanted = np.array([[slowly(STEPS, run, share) for run in row] for row in distances])
        np.testing.assert_allclose(np.stack(found, -1), wanted)
        assert np.isnan(wanted).any() or share > 0.3


def test_a_run_on_the_plateau_is_not_asked_and_a_flicker_does_not_count():
    flicker = a_run([1, 1, 0.1, 1, 1, 0.1], 1.0)
    plateau = a_run(0.8, 0.8)
    for run in (flicker, plateau):
        assert np.isnan(asked(STEPS, run)).all()
    late = asked(STEPS, a_run([1, 0.1, 1, 1, 0.3, 0.3], 0.6))
    assert late.step == 300 and late.lean == pytest.approx(math.log(0.5))


def test_the_lean_is_below_zero_for_a_generaliser_and_turns_sign_when_the_racers_change_places():
    first, other = (asked(STEPS, a_run(*pair)).lean for pair in ((0.1, 0.2), (0.2, 0.1)))
    assert first == pytest.approx(-math.log(2)) and other == pytest.approx(math.log(2))
    assert outcomes([first, other, 0.05, np.nan]) == ["2-Gen", "2-Mem", "undecided", "undecided"]


def test_a_threshold_is_where_it_was_put_and_missing_runs_are_left_out():
    K = [8, 12, 16, 24]
    leans = np.stack([0.5 * (np.log(at) - np.log(K)) for at in (9.0, 14.0)])
    np.testing.assert_allclose(threshold(K, leans), [9.0, 14.0])
    leans[0, 2] = np.nan
    np.testing.assert_allclose(threshold(K, leans)[0], 9.0)
    assert np.isnan(threshold(K, [0.1, 0.2, 0.3, 0.4])) and np.isnan(threshold(K, [0.1] + [np.nan] * 3))


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match=r"\[… step 2 5\] and a share in \(0, 1\].*got \[6, 5\]"):
        asked(STEPS, np.ones((6, 5)))
    with pytest.raises(ValueError, match="share in .*and 0"):
        asked(STEPS, np.ones((6, 2, 5)), share=0)
    with pytest.raises(ValueError, match=r"one lean a K, \[… K\]; got \[3\] for K \[2\]"):
        threshold([1, 2], [1.0, 2.0, 3.0])
    assert Asked._fields == ("step", "lean")
