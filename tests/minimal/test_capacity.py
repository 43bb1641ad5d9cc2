"""Waits, their laws and thresholds on made-up runs whose answer is known."""

import numpy as np
import pytest

from iclkit.minimal.capacity import bootstrap, by_line, by_power, medians, memory_gap, reached, waits

K = np.repeat([4, 8, 12, 16, 20, 24], 3)


def diverging(gamma, threshold=30.0, scale=4e4):
    return scale * (threshold - K) ** -float(gamma)


def test_the_line_finds_its_zero():
    threshold, slope = by_line(K, diverging(2))
    assert threshold == pytest.approx(30) and slope == pytest.approx(4e4**-0.5)


def test_censored_runs_are_left_out_of_the_line():
    wait = diverging(2)
    wait[[0, 7, 17]] = np.nan
    assert by_line(K, wait)[0] == pytest.approx(30)
    assert np.isnan(by_line(K, np.full(len(K), np.nan))[0])
    assert np.isnan(by_line(K, 100.0 - K)[0])  # waits that shrink with K end nowhere


def test_a_median_counts_censored_runs_as_the_longest():
    found = medians([4, 4, 4, 8, 8, 8, 9], [1.0, 3.0, np.nan, 5.0, np.nan, np.nan, -2.0])
    assert found[0].tolist() == [4] and found[1].tolist() == [3]


@pytest.mark.parametrize("gamma", [1.0, 2.0, 3.0])
def test_the_power_law_finds_exponent_and_threshold(gamma):
    law = by_power(K, diverging(gamma))
    assert law.gamma == pytest.approx(gamma, rel=0.1) and law.threshold == pytest.approx(30, rel=0.05)


def test_an_exponential_has_its_threshold_far_away():
    law = by_power(K, 100 * np.exp(0.1 * K))
    assert law.threshold > 1000 and law.gamma > 50


def test_bootstrap_draws_within_each_K():
    noise = np.exp(0.1 * np.random.default_rng(0).standard_normal(len(K)))
    zeros = bootstrap(by_line, K, diverging(2) * noise, draws=200)[:, 0]
    assert zeros.std() < 2 and abs(np.median(zeros) - 30) < 4 * zeros.std()
    same = bootstrap(lambda k, w: (k == 4).sum(), K, diverging(2), draws=5)
    assert (same == 3).all()


def test_times_of_a_run():
    steps = np.arange(0, 601, 100)
    distances = np.ones((7, 2, 5))
    distances[:, 0, 1] = [1, 1, 0.4, 0.2, 0.2, 0.2, 0.2]  # 2-Gen from step 200 on
    distances[:, 0, 3] = [1, 1, 1, 0.4, 0.2, 0.05, 0.05]  # 2-Mem within half of that between 400 and 500
    found = waits(steps, np.stack([distances, distances]), ratio=0.5)
    assert found.generalised.tolist() == [200, 200]
    assert found.memorised[0] == pytest.approx(400 + 100 * np.log(2) / np.log(4))
    distances[5:, 0, 3] = 0.2
    assert np.isnan(waits(steps, distances, ratio=0.5).wait)


def test_what_is_reached():
    counts, apart = np.array([2, 4, 8, 16]), np.zeros((4, 2, 5, 5))
    apart[:, 0, 3, 1] = 0.1
    distances = np.zeros((3, 4, 2, 5))
    distances[:, :, 0, 3] = [[0, 0.02, 0.08, 0.1], [0, 0, 0, 0], [0.09, 0.1, 0.1, 0.1]]
    found = reached(counts, distances, np.broadcast_to(apart, (3, 4, 2, 5, 5)))
    assert found[0] == pytest.approx(4 * 2**0.5) and np.isnan(found[1]) and found[2] == pytest.approx(2)
    assert memory_gap(distances[0], apart)[1] == pytest.approx(0.2)
