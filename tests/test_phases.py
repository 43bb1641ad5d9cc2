"""Times of phases on drawn curves; what never happens is NaN."""

import numpy as np
import pytest
import torch

from iclkit import phases
from iclkit.predictors import PHASES, UNDECIDED, Distances, predictors
from iclkit.tasks import Markov

STEPS = np.array([0, 10, 20, 40, 80])


def test_names_of_the_observers_themselves():
    look = Distances(Markov(vocab=4, K=3, length=40), sequences=60)
    seen = [look(observer).numpy() for observer in predictors(Markov(vocab=4, K=3, length=40)).values()]
    flat = look(lambda tokens: torch.zeros(*tokens.shape, 4)).numpy()
    runs = np.stack([seen + [flat], [flat] + seen])
    apart = np.stack([look.apart.numpy()] * 2)
    found = phases.names(runs, apart)
    assert found.tolist() == [[*PHASES, UNDECIDED], [UNDECIDED, *PHASES]]
    assert (phases.names(runs[0], apart[0]) == found[0]).all()
    with pytest.raises(ValueError, match="of the same runs"):
        phases.names(runs, apart[0])


def test_first_time_and_lasting():
    held = np.array([[0, 1, 0, 1, 1], [1, 1, 0, 0, 0], [0, 0, 0, 0, 0]], bool)
    assert np.array_equal(phases.first_time(STEPS, held), [10, 0, np.nan], equal_nan=True)
    assert np.array_equal(phases.first_time(STEPS, held, lasting=2), [40, 0, np.nan], equal_nan=True)
    assert np.isnan(phases.first_time(STEPS, held[1], lasting=3))
    with pytest.raises(ValueError, match="1 to 5"):
        phases.first_time(STEPS, held, lasting=6)


def test_crossing_meets_the_line_between_looks():
    curve = np.array([3.0, 1.0, -1.0, 1.0, -3.0])
    assert phases.crossing(STEPS, curve) == 15
    assert phases.crossing(STEPS, curve, for_good=True) == 50
    assert phases.crossing(STEPS, curve, level=1.0) == 10
    assert phases.crossing(STEPS, curve, level=np.full(5, 5.0)) == 0
    both = phases.crossing(STEPS, np.stack([curve, curve + 4]))
    assert np.array_equal(both, [15, np.nan], equal_nan=True)


def test_a_fall_that_does_not_last_is_none_for_good():
    assert np.isnan(phases.crossing(STEPS, [1.0, -1, -1, -1, 1], for_good=True))


def test_crossing_agrees_with_a_fine_grid():
    random = np.random.default_rng(0)
    for _ in range(50):
        curve = random.normal(size=len(STEPS)) + 0.5
        grid = np.linspace(0, 80, 80001)
        below = np.interp(grid, STEPS, curve) <= 1e-9
        slow = grid[below.argmax()] if below.any() else np.nan
        assert np.isclose(phases.crossing(STEPS, curve), slow, atol=0.01, equal_nan=True)


def test_turning_point_of_a_valley_alone():
    steps = np.arange(0, 2100, 100.0)
    valley = np.abs(steps - 700) / 1000
    turn = phases.turning(steps, valley, least=0.1)
    assert turn.step == 700 and turn.value == pytest.approx(0.2 / 3)  # of three looks
    assert turn.rise == pytest.approx(1.25 - 0.2 / 3)
    falling = phases.turning(steps, -steps, least=0.1)
    rising = phases.turning(steps, steps, least=0.1)
    assert np.isnan(falling.step) and np.isnan(rising.step) and np.isnan(falling.value)
    spike = valley.copy()
    spike[15] -= 0.5
    assert phases.turning(steps, spike, least=0.1).step == 700
    with pytest.raises(ValueError, match="odd"):
        phases.turning(steps, valley, least=0.1, smooth=2)


def test_median_counts_censored_runs_as_later():
    times = np.array([[10, np.nan, 30], [np.nan, np.nan, 5], [1, 2, 3]])
    assert np.array_equal(phases.median_time(times), [30, np.nan, 2], equal_nan=True)
    assert np.isnan(phases.median_time([1.0, np.nan]))


@pytest.mark.parametrize("steps", [STEPS[:4], STEPS[::-1], STEPS[None]])
def test_looks_must_fit(steps):
    with pytest.raises(ValueError, match="expected rising steps|expected a last axis"):
        phases.crossing(steps, np.ones(5))
