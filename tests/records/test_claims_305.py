"""C8 can fail: without transience, in the other order, or where α and μ₁ decide nothing."""

import numpy as np
import pytest

from iclkit.records import load
from iclkit.records.claims import every
from iclkit.records.claims.c305 import interval


def judged(**changes):
    """The verdict on the shipped record with some arrays replaced by functions of themselves."""
    arrays = {name: np.array(array) for name, array in load("coopetition_305").items()}
    return every()["C8"].judge(arrays | {name: change(arrays[name]) for name, change in changes.items()})


def test_the_record_bears_it_out():
    found = judged()
    assert found.verdict == "reproduced" and found.seeds == 12 and found.low < found.ours < found.high


def test_icl_that_stays_is_no_transience():
    assert judged(**{"map/lost": lambda lost: np.nan * lost}).verdict == "not reproduced"


def test_the_order_counts():
    early = {"map/ciwl": lambda ciwl: 0 * ciwl}
    assert judged(**early).verdict == "not reproduced"


def test_settings_that_decide_nothing_are_partly():
    def gone_with_mu1_at_0(lost):
        lost[:, :, 0] = 30_000
        return lost

    def kept_where_both_act(lost):
        lost[:, 5:, 5:] = np.nan
        return lost

    assert judged(**{"map/lost": gone_with_mu1_at_0}).verdict == "partly"
    assert judged(**{"map/lost": kept_where_both_act}).verdict == "partly"


def test_nobody_learns_nothing_is_shown():
    never = {f"map/{name}": lambda times: np.nan * times for name in ("icl", "lost", "ciwl")}
    found = judged(**never)
    assert found.verdict == "not reproduced" and found.ours == 0 and "0 of 0" in found.why


def test_the_interval_of_a_share():
    assert interval(6, 12) == pytest.approx((3.05, 8.95), abs=0.01)
    low, high = interval(0, 12)
    assert low == pytest.approx(0, abs=1e-9) and 2.5 < high < 3.5


def network(lost=True, late=True, seeds=5):
    """Made-up losses in nats [seed step 5]: ICL falls at step 20, CIWL at 40, ICL is lost at 60."""
    steps = np.arange(0, 100, 2)
    loss = np.full((seeds, len(steps), 5), np.log(2))
    loss[:, :5] = 5.0
    loss[:, steps >= 20, 1] = 0.1
    loss[:, (steps >= 20) & (steps < 30), 3] = 1.1 * np.log(2)
    loss[:, steps >= (40 if late else 10), 3] = 0.01
    loss[:, steps >= 60, 1] = 1.0 if lost else 0.1
    accuracy = np.where(steps >= 20, 0.95, 0.5)[:, None] * np.ones_like(loss)
    return {"steps": steps, "loss": loss, "accuracy": accuracy}


def beside(**changes):
    return every()["C9"].judge(network(**changes), load("coopetition_305"))


def test_a_network_like_the_toy_is_told_from_others():
    found = beside()
    assert found.verdict == "reproduced" and found.seeds == 5
    assert "1.10 times what it was" in found.why and "in 8 of 9 seeds that learn ICL" in found.why
    assert beside(lost=False).verdict == "not reproduced"
    assert beside(late=False).verdict == "not reproduced"


def test_one_network_that_differs_makes_it_partly():
    mixed = network()
    mixed["loss"][0, :, 1], mixed["accuracy"][0] = np.log(2), 0.5
    assert every()["C9"].judge(mixed, load("coopetition_305")).verdict == "partly"
