"""The measurement behind the rule of `train_many`: it times what it says; its report follows from rates."""

import math

import pytest
from benchmarks import rule
from benchmarks.blocks import Plan
from benchmarks.results import Results, Store

START, FLOP = 2.0, {"small": 1e7, "large": 1e9}
RATES = {
    "small": {"processes": 100, "stacked, 1 thread": 200, "loop, 1 thread": 90},
    "large": {"processes": 10, "stacked, 1 thread": 5, "loop, 1 thread": 4},
}


def made(**changes) -> Results:
    """Results of two shapes, everything on two threads being twice as fast."""
    cells = {"rule/start/processes": {"seconds": [START, 9.0, 0.1]}}
    for shape, rates in RATES.items():
        rates = rates | {
            way.replace("1 thread", "2 threads"): 2 * rate for way, rate in rates.items() if "1" in way
        }
        for way, rate in rates.items():
            cells[f"rule/2 × {shape}/{way}"] = {"flop": FLOP[shape], "blocks": [[rate, 1, 1]]}
    return Results({"about": {}, "labels": {}, "cells": cells})


def test_the_rungs_rise_from_little_arithmetic_to_much():
    flop = [rule.flop_of(shape) for shape in rule.rungs().values()]
    assert flop == sorted(flop) and flop[-1] > 100 * flop[0]


def test_starting_processes_is_repaid_when_both_ways_take_equally_long():
    total = float(rule.repaid(START, FLOP["large"], other=5, processes=10))
    updates = total / FLOP["large"]
    assert updates / 5 == pytest.approx(START + updates / 10, rel=0.05)
    assert rule.repaid(START, 1e9, other=10, processes=10) == "never"


def test_the_report_says_where_stacking_stops_to_win():
    text = "\n".join(rule.report(made()))
    assert "starting the processes: 2.00 s" in text
    assert (
        "2 models, stacked, 1 thread: faster than processes up to 1e+07 FLOP an update, slower from 1e+09"
        in text
    )
    assert (
        "2 models, stacked, 2 threads: faster than processes up to 1e+09 FLOP an update, slower from inf"
        in text
    )
    assert "200 (0.50)" in text and "2.0e+10" in text and "never" in text


def test_every_way_gets_its_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr(rule, "start_seconds", lambda: [START])
    monkeypatch.setattr(rule, "bandwidth", lambda: 7.0)
    monkeypatch.setattr(rule, "WAYS", {"stacked, 1 thread": ("stacked", 1), "loop, 1 thread": ("loop", 1)})
    store = Store(tmp_path / "rule.json", {}, {})
    name = "few-shot, 5 positions"
    rule.measure(store, Plan(rounds=2, seconds=0.01), {name: rule.rungs()[name]}, counts=(2,))
    for way in rule.WAYS:
        cell = store.cell("rule", f"2 × {name}", way)
        assert cell["flop"] == rule.flop_of(rule.rungs()[name]) and len(cell["blocks"]) == 2
        assert all(rate > 0 and math.isfinite(rate) for rate, *_ in cell["blocks"])
