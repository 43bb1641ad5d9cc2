"""C7 can fail: when the given half is of no use, no donor fails, or a start neither helps nor blocks."""

import numpy as np
import pytest

from iclkit.records.claims import c304, every

AGES = (0, 2000, 4000, 6000, 9000, 14_000)
STEPS = np.arange(0, 9001, 500)
WHEN = {0: np.inf, 2000: 8500, 4000: 5500, 6000: 4000, 9000: 4500, 14_000: np.inf}
FLIP = {0: 0.7, 2000: 0.8, 4000: 0.75, 6000: 0.6, 9000: 0.48, 14_000: 0.3}


class Record(dict):
    """Arrays with the one thing of `meta` that the claim reads."""

    meta = {"config": [{"training": {"warmup": 4000}}] * len(AGES)}


def a_record(when=WHEN, flip=FLIP, seeds=3) -> Record:
    """Made-up accuracies [age seed look 5]: ICL comes at `when[age]`, Flip goes up to `flip[age]`."""
    given, start = (np.full((len(AGES), seeds, n, 5), 0.45) for n in (len(STEPS), 17))
    for row, age in enumerate(AGES):
        given[row, :, when[age] <= STEPS, 1] = 0.9
        start[row, :, 9, 2] = flip[age]
    steps = {"given_steps": STEPS, "start_steps": STEPS[:17]}
    return Record(age=np.array(AGES), given_accuracy=given, start_accuracy=start, **steps)


def judged(**changes):
    return every()["C7"].judge(a_record(**changes))


def test_updates_are_counted_by_their_rate():
    rate = np.minimum(np.arange(1, 9001) / 4000, 1)
    for updates in (0, 500, 4000, 9000):
        assert c304.learning(updates, 4000) == pytest.approx(rate[:updates].sum(), abs=1)
    assert c304.learning(700, 0) == 700 and c304.learning(np.inf, 4000) == np.inf


def test_all_parts_in_all_seeds():
    said = judged()
    assert said.verdict == "reproduced" and said.seeds == 3
    assert said.ours == pytest.approx(2000 / 7000)
    assert "donor of 6,000" in said.why and "start of 2,000" in said.why


def test_a_half_that_is_of_no_use():
    useless = judged(when=dict.fromkeys(AGES, 8000), flip=dict.fromkeys(AGES, 0.7))
    assert useless.verdict == "not reproduced" and useless.ours == 1
    never = judged(when=dict.fromkeys(AGES, np.inf), flip=dict.fromkeys(AGES, 0.7))
    assert never.verdict == "not reproduced" and np.isfinite(never.ours)


@pytest.mark.parametrize(
    "changes",
    [
        {"when": WHEN | {0: 5000}},  # from scratch hardly slower
        {"when": dict.fromkeys(AGES, 4000) | {0: np.inf}},  # any donor will do
        {"flip": FLIP | {0: 0.8}},  # a start does not help
        {"flip": FLIP | {14_000: 0.6}},  # the longest does not block
    ],
)
def test_one_part_that_fails_makes_it_partly(changes):
    assert judged(**changes).verdict == "partly"


def test_blocking_alone_is_no_cooperation():
    said = judged(when=WHEN | {0: 4000}, flip=FLIP | {0: 0.85})
    assert said.verdict == "not reproduced"


def test_seeds_count_one_by_one():
    record = a_record()
    record["start_accuracy"][0, 0, 5, 2] = 0.8
    said = every()["C7"].judge(record)
    assert said.verdict == "partly" and "by 0.05 in 2" in said.why
    record["given_accuracy"][0, :2, 1:, 1] = 0.9
    record["start_accuracy"][0, 1, 5, 2] = 0.8
    assert every()["C7"].judge(record).verdict == "not reproduced"


def test_a_donor_that_helps_one_seed_is_the_best_of_those_that_help_none():
    record = a_record(when=dict.fromkeys(AGES, np.inf))
    record["given_accuracy"][3, 0, 17:, 1] = 0.9
    parts = c304.found(record)
    assert parts.best == 6000 and parts.comes.tolist() == [True, False, False] and not parts.given.any()
    assert parts.age.tolist() == [True, False, False]


def test_one_look_is_not_enough():
    record = a_record()
    record["given_accuracy"][0, :, 3, 1] = 0.9
    assert every()["C7"].judge(record).verdict == "reproduced"
