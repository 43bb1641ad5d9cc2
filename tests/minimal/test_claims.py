"""The rules of M8, M9 and M10 can fail: records with the finding taken away lose their verdict."""

import numpy as np

from iclkit.records import load
from iclkit.records.claims import every


def judged(claim, record, **changes):
    """The verdict on a shipped record with some arrays replaced by functions of themselves."""
    arrays = {name: np.array(array) for name, array in load(record).items()}
    return every()[claim].judge(arrays | {name: change(arrays[name]) for name, change in changes.items()})


def one_time(distances):
    """Every run leaves the plateau at the same look and memorises ten looks later, whatever its K."""
    distances[:, :, 0, [0, 2]], distances[:, :, 0, 1] = 1.0, 0.1
    distances[:, :10, 0, 1], distances[:, :, 0, 3] = 1.0, 1.0
    distances[:, 20:, 0, 3] = 0.01
    return distances


def diverging(record):
    """Made-up runs whose wait is 10⁴ (30 − K)⁻² · 100 updates, with little noise between seeds."""
    arrays = {name: np.array(array) for name, array in load(record).items()}
    steps = arrays["steps"] = np.arange(0, 20_000, 10)
    noise = np.exp(0.05 * np.random.default_rng(0).standard_normal(len(arrays["K"])))
    wait = np.where(arrays["K"] < 30, 4e5 * (30.0 - arrays["K"]) ** -2 * noise, np.inf)
    distances = np.ones((len(wait), len(steps), 2, 5))
    distances[:, steps >= 100, 0, 1] = 0.1
    for run, at in enumerate(wait):
        distances[run, steps >= 100 + at, 0, 3] = 0.01
    return arrays | {"distances": distances}


def test_a_wait_that_does_not_grow_is_no_threshold():
    assert judged("M8", "thresholds_205").verdict == "partly"
    assert judged("M8", "thresholds_205", distances=one_time).verdict == "not reproduced"


def test_a_clean_divergence_gives_the_exponent():
    found = every()["M8"].judge(diverging("thresholds_205"))
    assert found.verdict == "reproduced" and abs(found.ours - 30) < 2


def test_capacity_needs_both_widths_and_the_generaliser():
    assert judged("M9", "recognition_206").verdict == "reproduced"
    narrow = {"distances": lambda d: np.repeat(d[:, :, :1], 3, 2)}
    assert judged("M9", "recognition_206", **narrow).verdict == "not reproduced"

    def far_from_counting(distances):
        distances[..., 1, 1] += 0.05
        return distances

    assert judged("M9", "recognition_206", distances=far_from_counting).verdict == "not reproduced"


def test_the_plateau_needs_its_force_and_its_law():
    assert judged("M10", "plateau_207").verdict == "partly"
    units = load("plateau_207")["N"] / np.log(load("plateau_207")["N"])

    def by_the_law(times):
        return times[:, -1:] * (units / units[-1])[:, None, None]

    assert judged("M10", "plateau_207", times=by_the_law).verdict == "reproduced"

    def by_luck(times):
        return times * np.random.default_rng(0).exponential(size=times.shape[:3])[..., None]

    assert judged("M10", "plateau_207", times=by_luck).verdict == "not reproduced"
    assert judged("M10", "plateau_207", coefficients=lambda c: -c).verdict == "not reproduced"
