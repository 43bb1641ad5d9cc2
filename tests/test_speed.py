"""The benchmark's protocol and file; the page on speed prints what the file says. Nothing here is timed."""

import copy
import json
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks import blocks, page, results
from benchmarks.crews import Cell, WorkerError
from benchmarks.results import SHIPPED, Results, Store

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "book/speed.md").read_text(encoding="utf-8")
CELLS = [Cell("steps", "repeats", variant) for variant in ("ours", "plain", "jax")]


class FakeCrew:
    """Answers like a crew, without processes; `broken` names what fails, as "variant order"."""

    broken: set[str] = set()
    told: list[str] = []

    def __init__(self, cell, threads):
        self.variant = cell.variant

    def _obey(self, order: str):
        self.told.append(f"{self.variant} {order}")
        if f"{self.variant} {order}" in self.broken:
            raise WorkerError("it broke")

    def hear(self):
        self._obey("build")
        return [{"parameters": 10, "memory": 100.0}]

    def run(self, steps):
        self._obey("run")
        return 0.5, 20.0

    def steps_for(self, seconds):
        return 10

    def ask(self, do):
        self._obey(do)
        return [{"memory": 150.0}]

    def end(self):
        self.told.append(f"{self.variant} end")


@pytest.fixture
def crews(monkeypatch):
    monkeypatch.setattr(FakeCrew, "broken", set())
    monkeypatch.setattr(FakeCrew, "told", [])
    monkeypatch.setattr(blocks, "Crew", FakeCrew)
    monkeypatch.setattr(blocks, "bandwidth", lambda: 7.0)
    return FakeCrew


def measured(path, rounds=3, stop_after=None) -> Store:
    store = Store(path, {"date": "today"}, {})
    ticks = []

    def tick(key):
        ticks.append(key)
        if len(ticks) == stop_after:
            raise KeyboardInterrupt

    try:
        blocks.Group(CELLS, store, blocks.Plan(rounds=rounds)).measure(tick)
    except KeyboardInterrupt:
        pass
    return store


def test_variants_take_turns_and_all_processes_end(crews, tmp_path):
    store = measured(tmp_path / "r.json")
    turns = [told for told in crews.told if told.endswith("run")]
    first, turns = turns[:3], turns[3:]
    assert first == turns[:3] and turns == ["ours run", "plain run", "jax run"] * 3
    assert sorted(told for told in crews.told if told.endswith("end")) == ["jax end", "ours end", "plain end"]
    assert store.cells["steps/repeats/plain"]["blocks"] == [[20.0, 7.0, 7.0]] * 3
    assert store.cells["steps/repeats/plain"]["peak"] == 150.0


def test_a_peer_that_fails_is_reported_and_the_rest_goes_on(crews, tmp_path):
    crews.broken = {"plain run"}
    store = measured(tmp_path / "r.json")
    assert store.errors() == [("steps/repeats/plain", "it broke")]
    assert len(store.rates("steps", "repeats", "jax")) == 3
    assert crews.told.count("plain end") == 1


def test_an_interrupted_run_goes_on_with_whole_rounds(crews, tmp_path):
    measured(tmp_path / "r.json", stop_after=5)
    on_disk = json.loads((tmp_path / "r.json").read_text())["cells"]
    assert [len(cell["blocks"]) for cell in on_disk.values()] == [2, 2, 1]
    crews.told.clear()
    store = measured(tmp_path / "r.json")
    assert [len(cell["blocks"]) for cell in store.cells.values()] == [3, 3, 3]
    assert sum(told.endswith("run") for told in crews.told) == 3 + 2 * 3
    crews.told.clear()
    measured(tmp_path / "r.json")
    assert crews.told == [], "what is done is not done again"


def made(**rates) -> Results:
    blocks_of = {key: [[rate, 1, 2] for rate in found] for key, found in rates.items()}
    cells = {f"steps/repeats/{key}": {"blocks": found} for key, found in blocks_of.items()}
    return Results({"about": {}, "labels": {}, "cells": cells, "shares": {}})


def test_ratios_compare_blocks_of_the_same_round():
    one = made(ours=[10, 40, 90], plain=[10, 20, 30])
    assert one.ratio("steps", "repeats", "ours", "plain") == (2, 1, 3)
    assert one.rate("steps", "repeats", "ours") == (40, 10, 90)
    assert one.fastest("steps", "repeats", ("plain", "ours", "absent")) == "ours"
    assert one.ratio("steps", "repeats", "ours", "absent") is None
    assert one.bandwidth() == (1.5, 1, 2) and one.disturbed() == (6, 6)


def test_the_exponent_of_a_power_is_its_power():
    assert results.exponent([(x, 3 * x**1.7) for x in (1, 2, 5, 30)]) == pytest.approx(1.7)
    assert results.exponent([(1, 1)]) is None


def test_the_page_shows_every_block_once_and_types_no_measurement():
    assert sorted(re.findall(r"```\{icl-speed\} (\w+)", PAGE)) == sorted(page.BLOCKS)
    prose = re.sub(r"```.*?```|\$\$.*?\$\$", "", PAGE, flags=re.S)
    assert not re.search(r"\d\s*(×|%|ms|GB|MB|seconds|times)|\d\.\d", prose)


def test_the_pages_numbers_are_the_files():
    shipped = results.read()
    doubled = copy.deepcopy(shipped.data)
    for one in doubled["cells"].values():
        one["blocks"] = [[2 * rate, *probes] for rate, *probes in one.get("blocks", [])]
    line = next(line for line in page.steps(shipped) if line.startswith("| plain PyTorch |"))
    for shape, text in zip(shipped.keys("steps")[0], line.split("|")[2:]):
        rate = shipped.rate("steps", shape, "plain")
        assert text.strip() == page.cell(rate)
        assert rate is None or text.strip() != page.cell(Results(doubled).rate("steps", shape, "plain"))
    assert page.steps(Results(doubled)) != page.steps(shipped)
    assert page.ratios(Results(doubled)) == page.ratios(shipped)
    assert all(block(shipped) for block in page.BLOCKS.values())


def test_the_shipped_results_say_how_they_were_made_and_name_no_machine():
    text, shipped = SHIPPED.read_text(encoding="utf-8"), results.read()
    pins = dict(re.findall(r"^([\w-]+)==([\w.]+)$", (ROOT / "requirements-peers.txt").read_text(), re.M))
    for name in ("torch", "jax", "equinox", "transformer-lens", "x-transformers", "transformers", "optax"):
        assert shipped.about["versions"][name].split("+")[0] == pins[name]
    assert shipped.about["machine"]["processor"] and shipped.about["rounds"] >= 1
    assert not re.search(rf"\b{re.escape(socket.gethostname())}\b", text)
    assert not re.search(r"(/[\w.-]+){2,}/?", "".join(error for _, error in shipped.errors()))


def test_one_command_measures_in_processes_of_its_own(tmp_path):
    command = [sys.executable, str(ROOT / "tests/benchmarks"), "--parts", "steps", "--shapes", "few-shot"]
    command += ["--variants", "ours", "plain", "limit", "--rounds", "1", "--seconds", "0.01"]
    command += ["--threads", "1", "--results", str(tmp_path / "r.json")]
    environment = {"ICLKIT_CACHE": str(tmp_path), "PATH": "/usr/bin:/bin"}
    ran = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    found = results.read(tmp_path / "r.json")
    assert not found.errors() and "| plain PyTorch |" in ran.stdout
    for variant in ("ours", "plain", "limit"):
        cell = found.cell("steps", "few-shot", variant)
        assert len(cell["blocks"]) == 1 and cell["peak"] >= cell["built"] > 0 and cell["first"] > 0
    assert found.cell("steps", "few-shot", "ours")["parameters"] == 35_200
