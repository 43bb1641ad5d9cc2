"""Claims of 205: a race moved by hand is judged moved, one left alone is not, two groups are told from one."""

import numpy as np

from iclkit import records
from iclkit.records.claims import every

MANY = np.array([8, 12, 16])
STEPS = np.arange(0, 1000, 100)


def race(border: float, seeds: int = 4, off: int = 300):
    """Runs that leave the plateau at `off`, 2-Mem nearer below `border` chains: distances [seed K step 2 5]."""
    d = np.ones((seeds, len(MANY), len(STEPS), 2, 5))
    lean = np.log(border / MANY)
    later = int((STEPS >= off).argmax())
    d[:, :, later:, :, 1] = 0.2 * np.exp(lean / 2)[:, None, None]
    d[:, :, later:, :, 3] = 0.2 * np.exp(-lean / 2)[:, None, None]
    return d


def rows(distances):
    """The same runs as a list, as in `thresholds_205`."""
    seeds = len(distances)
    return {
        "K": np.tile(MANY, seeds),
        "seed": np.repeat(np.arange(seeds), len(MANY)),
        "steps": STEPS,
        "distances": distances.reshape(-1, *distances.shape[2:]),
    }


def judged(slowed: float, told: float):
    """M7 of a race whose border is at 10 chains, and where the interventions put it."""
    slow = {"slow-0.5/K": MANY, "slow-0.5/distances": race(slowed, off=400), "steps": STEPS}
    gains = {"told-0/distances": race(10), "told-2/distances": race(told)}
    return every()["M7"].judge(slow, rows(race(10)), {"told-2/K": MANY, "steps": STEPS, **gains})


def test_interventions_are_judged_by_where_the_border_goes():
    assert judged(14, 15).verdict == "reproduced"
    assert judged(14, 10).verdict == judged(10, 15).verdict == "partly"
    assert judged(10, 9).verdict == "not reproduced"
    np.testing.assert_allclose(judged(14, 10).ours, 1.4, rtol=1e-6)


def test_a_seed_without_a_border_is_counted_and_left_out():
    still = race(14, off=400)
    still[2] = 1  # this seed never leaves the plateau
    slow = {"slow-0.5/K": MANY, "slow-0.5/distances": still, "steps": STEPS}
    told = {"told-2/K": MANY, "steps": STEPS, "told-0/distances": race(10), "told-2/distances": race(10)}
    found = every()["M7"].judge(slow, rows(race(10)), told)
    assert found.seeds == 4 and "1 of 4 seeds have no border" in found.why and np.isfinite(found.ours)


def test_a_race_needs_a_memoriser_that_slows_down():
    record = dict(records.load("thresholds_205"))
    assert every()["M6"].judge(record).verdict in ("reproduced", "partly")
    d = record["distances"].copy()
    d[:] = d[record["K"] == 8][0]  # every run like one with 8 chains: memorising does not slow down
    assert every()["M6"].judge(record | {"distances": d}).verdict == "not reproduced"
