"""The guide on records made by hand: every number is the record's, every direction can come."""

import statistics

import numpy as np
import pytest
from made import Made, guided, levers, runs

from iclkit.records import guide as module
from iclkit.records.guide import LATE_FLIP, LEAN, OUTCOMES, RECORDS, guide, signed, table
from iclkit.records.recipes import coopetition_301, levers_401


def rows(**changes):
    return guide(guided(**changes))


def found(rows, lever, dose=None, where=""):
    (row,) = [row for row in rows if (row.lever, row.dose) == (lever, dose) and where in row.where]
    return row


def noisy(seed, shape):
    return np.random.default_rng(seed).random((*shape, 13, 5))


def late(run, evaluator, looks=3):
    """One run's accuracy `[look 5]`, the mean of its last looks, by hand."""
    return sum(run[-k][evaluator] for k in range(1, looks + 1)) / looks


def changes(with_, without, evaluator, looks=3):
    return [late(one, evaluator, looks) - late(other, evaluator, looks) for one, other in zip(with_, without)]


def same(change, by_hand):
    expected = [statistics.median(by_hand), min(by_hand), max(by_hand)]
    assert list(change) == pytest.approx(expected, abs=1e-6)


def agrees(row, with_, without, looks=3):
    assert row.measure == LATE_FLIP and row.seeds == len(with_)
    assert row.without == pytest.approx([late(run, 2, looks) for run in without])
    for number, change in ((2, row.flip), (1, row.icl), (0, row.train)):
        same(change, changes(with_, without, number, looks))


def test_every_number_of_every_lever_is_the_records():
    given = guided()
    record = given["levers_401"]
    record["accuracy"] = noisy(0, record["accuracy"].shape[:2])
    at = {config["variant"]: runs for config, runs in zip(record.meta["config"], record["accuracy"])}
    mine = [row for row in guide(given) if row.record == "levers_401"]
    assert len(mine) == len(at) - 1
    for config, row in zip(record.meta["config"][1:], mine):
        name = config["variant"]
        against = "4 layers" if name == "4 layers matched" else "default"
        agrees(row, at[name], at[against])
        assert row.dose == config["dose"] and row.chapter == "401"
        assert row.where == f"synthetic exemplars, {4 if against != 'default' else 2} layers, 12,000 updates"


def test_matched_exemplars_are_paired_by_seed_over_the_last_five_looks():
    with_, without = noisy(1, (5,)), noisy(2, (5,))
    plain = Made({"accuracy": without}, coopetition_301.configs("book"))
    row = found(rows(matched_401=Made({"accuracy": with_}), coopetition_301=plain), "matched", where="32,000")
    agrees(row, with_, without, looks=5)
    few = Made({"accuracy": with_[:4]})
    with pytest.raises(ValueError, match="matched_401.*paired by seed.*got 4 and 5"):
        rows(matched_401=few, coopetition_301=plain)


def test_drawings_and_starts():
    given = guided()
    drawn, started = given["omniglot_301"], given["starts_304"]
    drawn["accuracy"] = noisy(3, (5, 3))
    started["start_accuracy"] = noisy(4, (3, 3))
    plain, characters, matched, composites, both = drawn["accuracy"]
    made = guide(given)
    agrees(found(made, "matched", where="Omniglot, characters, 16,000"), matched, characters)
    agrees(found(made, "matched", where="Omniglot, composites, 16,000"), both, composites)
    agrees(found(made, "features", "smooth", "characters, plain features"), characters, plain)
    agrees(found(made, "composites", 6400, "Omniglot, characters, 16,000"), composites, characters)
    for number, age in enumerate((2000, 9000), 1):
        row = found(made, "start", age, "8,000 updates")
        agrees(row, started["start_accuracy"][number], started["start_accuracy"][0])
        assert row.chapter == "304"


def test_leans_are_against_the_default_of_the_same_k():
    given = guided()
    record = given["markov_401"]
    record["distances"] = np.random.default_rng(5).random(record["distances"].shape)
    lean = {}
    for number, config in enumerate(record.meta["config"]):
        for seed in range(3):
            fresh = sum(record["distances"][number, seed, -k, 1] for k in (1, 2, 3)) / 3
            lean[config["variant"], seed] = (fresh[3] - fresh[1]) / record["apart"][number, seed, 1, 1, 3]
    mine = [row for row in guide(given) if row.measure == LEAN]
    assert len(mine) == len(record.meta["config"]) - 1
    for config, row in zip(record.meta["config"][1:], mine):
        K = 16 if config["lever"] == "default" else config["K"]
        same(row.flip, [lean[config["variant"], s] - lean[f"default K={K}", s] for s in range(3)])
        assert row.where == f"Markov chains, K = {K}, 10,000 updates" and row.icl is row.train is None
        assert row.dose == (config["K"] if config["lever"] == "default" else config["dose"])


def test_what_stood_there_before_is_read_from_the_config():
    before = {(row.lever, row.instead) for row in rows()}
    assert {("classes", 1600), ("exemplars", 20), ("spread", 0.75), ("bursty", 1.0), ("zipf", 0.0)} <= before
    assert {("heads", 2), ("4 layers", 2), ("warm-up", 4000), ("tables' rate", 0.3)} <= before
    assert {("decay tables", 0.0), ("features", "plain"), ("composites", 1936)} <= before
    assert {("decay of chains", 0.0), ("width of chains", 16), ("K of chains", 16)} <= before


@pytest.mark.parametrize(
    "ends, direction, outcome",
    [
        ((0.61, 0.9, 0.7), 1, "up"),
        ((0.59, 0.9, 0.7), 0, "depends on the seed"),
        ((0.9, 0.3, 0.3), 0, "depends on the seed"),
        ((0.59, 0.41, 0.5), 0, "no change"),
        ((0.39, 0.1, 0.2), -1, "down"),
        ((0.41, 0.1, 0.2), 0, "depends on the seed"),
    ],
)
def test_a_direction_is_that_of_every_seed(ends, direction, outcome):
    seeds = np.concatenate([runs(end, seeds=1) for end in ends])
    row = found(rows(levers_401=levers(default=runs(0.5), heads_4=seeds)), "heads", 4)
    assert (row.direction, row.outcome) == (direction, outcome)


@pytest.mark.parametrize("name", RECORDS)
def test_a_missing_record_is_named(name):
    given = guided()
    del given[name]
    with pytest.raises(ValueError, match=f"{name} is missing.*load\\('{name}'\\)"):
        guide(given)


def test_a_record_under_another_name_is_refused():
    given = guided()
    given["starts_304"].name = "markov_401"
    with pytest.raises(ValueError, match="expected the record starts_304 under its name; got markov_401"):
        guide(given)


def test_the_table_is_sorted_and_says_what_to_do():
    made = rows(levers_401=levers(default=runs(0.5), matched=runs(0.9), heads_1=runs(0.1)))
    shown = table(made)
    lines = shown.splitlines()[2:]
    assert len(lines) == len(made) and all(line.count("|") == 9 for line in lines)
    outcomes = [line.split(" | ")[6].rpartition(",")[0] for line in lines]
    assert outcomes == sorted(outcomes, key=OUTCOMES.index) and len(set(outcomes)) >= 3
    ups = [line.split(" | ")[3] for line in lines if " | up, " in line and "lean" not in line]
    assert ups == sorted(ups, reverse=True) and len(set(ups)) > 1, "the largest change first"
    (line,) = [line for line in lines if "heads a layer: 1, not 2" in line]
    assert "| .50 | −.40 (−.40 to −.40) | .00 (.00 to .00) |" in line and "down, 3" in line
    assert line.endswith("| synthetic exemplars, 2 layers, 12,000 updates; levers_401 |")
    assert "50% of the sequences bursty, not 100%" in shown and "{" not in shown
    assert repr(shown) == shown == shown._repr_markdown_(), "as text it is what it shows"
    assert table(made[::-1]).splitlines()[:2] == shown.splitlines()[:2]


def test_every_lever_has_words():
    used = {config["lever"] for config in levers_401.configs("book")} - {"default", "4 layers matched"}
    assert used < set(module.LEVERS) and {row.lever for row in rows()} == set(module.LEVERS)


@pytest.mark.parametrize(
    "value, text",
    [(0.344, "+.34"), (-0.1, "−.10"), (1.2, "+1.20"), (-0.004, ".00"), (0, ".00"), (1, "+1.00")],
)
def test_numbers_have_a_sign_and_two_digits(value, text):
    assert signed(value) == text
