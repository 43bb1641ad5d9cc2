"""Sweeps over processes: records do not depend on how many there are, nor on which of them are killed."""

import json
import os
import signal
import subprocess
import sys
import time
import types
from pathlib import Path

import numpy as np
import pytest
import torch
from sweeping import (
    calls,
    configs,
    expected,
    half_way,
    page_blocks,
    run_script,
    slowly_trained,
    step,
    trained,
    values,
)

from iclkit import TrainConfig, grid, sweep
from iclkit.records.making import make
from iclkit.sweep import SweepError


@pytest.fixture
def log(tmp_path):
    return tmp_path / "log"


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "records"


def test_records_do_not_depend_on_the_number_of_workers(tmp_path):
    points = grid(TrainConfig(steps=20), lr=[1e-3, 1e-2], seed=range(2))
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        one = sweep(trained, points, folder=tmp_path / "one", jobs=1)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
    two = sweep(trained, points, folder=tmp_path / "two", jobs=2)
    for a, b in zip(one, two):
        np.testing.assert_array_equal(a["losses"], b["losses"])
        assert a["threads"] == b["threads"] == 1 and a.meta["config"] == b.meta["config"]
    assert len({record["losses"][-1].item() for record in two}) == 4
    assert {path.suffix for path in (tmp_path / "two").iterdir()} == {".npz"}


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_failing_run_is_reported_and_stops_no_other(folder, log, jobs):
    with pytest.raises(
        SweepError, match=r"1 of 4 runs of step failed(?s:.*)\"seed\": 1(?s:.*)a run that fails"
    ) as e:
        sweep(step, configs(log, range(4), fails=1), folder=folder, jobs=jobs)
    np.testing.assert_array_equal(values(e.value.records), expected([0, 2, 3]))
    ((config, text),) = e.value.failures
    assert config["seed"] == 1 and "ZeroDivisionError" in text
    assert {record["process"] == os.getpid() for record in e.value.records} == {jobs == 1}
    with pytest.raises(SweepError):
        sweep(step, configs(log, range(4), fails=1), folder=folder, jobs=1)
    assert sorted(calls(log)) == [0, 1, 1, 2, 3]


def test_a_killed_worker_loses_nothing_that_was_done_and_its_run_goes_on(folder, log):
    found = sweep(half_way, configs(log, range(5), kills_once=2), folder=folder, jobs=2)
    np.testing.assert_array_equal(values(found), expected(range(5)))
    assert [record["resumed"].item() for record in found] == [False, False, True, False, False]
    assert {path.suffix for path in folder.iterdir()} == {".npz"}


def test_a_config_that_kills_its_worker_twice_is_reported(folder, log):
    with pytest.raises(SweepError, match="1 of 4 runs.*(?s:.*)its worker died 2 times") as error:
        sweep(step, configs(log, range(4), kills=0), folder=folder, jobs=2)
    np.testing.assert_array_equal(values(error.value.records), expected([1, 2, 3]))
    assert error.value.failures[0][0]["seed"] == 0 and calls(log).count(0) == 2


SCRIPT = """
import sys
sys.path[:0] = [{tests!r}]
from sweeping import slowly_trained
from iclkit import TrainConfig, grid, sweep
sweep(slowly_trained, grid(TrainConfig(steps=20), seed=range(4)), folder={folder!r}, jobs=2)
"""


def test_kill_9_during_a_sweep_then_resume_gives_equal_records(tmp_path):
    folder, begun = tmp_path / "killed", tmp_path / "begun"
    script = SCRIPT.format(tests=str(Path(__file__).parent), folder=str(folder))
    process = subprocess.Popen([sys.executable, "-c", script], start_new_session=True)
    while len(list(folder.glob("*.npz"))) < 1 or len(calls(begun)) < 2:
        assert process.poll() is None, "it ended before it could be killed"
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    done = {path.name: path.read_bytes() for path in folder.glob("*.npz")}
    assert len(done) < 4 and list(folder.glob("*.started"))
    points = grid(TrainConfig(steps=20), seed=range(4))
    resumed = sweep(slowly_trained, points, folder=folder, jobs=1)
    straight = sweep(slowly_trained, points, folder=tmp_path / "straight", jobs=1)
    for a, b in zip(resumed, straight):
        np.testing.assert_array_equal(a["losses"], b["losses"])
    assert all((folder / name).read_bytes() == data for name, data in done.items())
    assert {path.suffix for path in folder.iterdir()} == {".npz"}


def test_what_a_worker_left_that_died_after_saving_is_tidied(tmp_path):
    points = grid(TrainConfig(steps=20), seed=range(2))
    first = sweep(slowly_trained, points, folder=tmp_path / "here", jobs=1)
    file, other = sorted((tmp_path / "here").glob("*.npz"))
    file.with_suffix("").mkdir()
    file.with_suffix(".started").write_text("killed 1")
    file.with_suffix(".lock").touch(), other.with_suffix(".lock").touch()
    times = {path: path.stat().st_mtime_ns for path in (file, other)}
    again = sweep(slowly_trained, points, folder=tmp_path / "here", jobs=1)
    for a, b in zip(first, again):
        np.testing.assert_array_equal(a["losses"], b["losses"])
    assert set((tmp_path / "here").iterdir()) == {file, other}
    assert times == {path: path.stat().st_mtime_ns for path in (file, other)}


def test_making_a_record_with_two_workers_gives_the_same(tmp_path, monkeypatch):
    def unit(config, seed):
        return {"end": np.random.default_rng(seed).normal(size=config["steps"]).sum()}

    recipe = types.ModuleType("walks")
    recipe.NAME, recipe.COST, recipe.SEEDS, recipe.unit = "walks", "nothing", (0, 1, 2), unit
    recipe.configs = lambda scale: [{"steps": 5}, {"steps": 9}]
    recipe.assemble = lambda pieces: {"exact_ends": np.array([p.arrays["end"] for p in pieces])}
    monkeypatch.setattr("iclkit.records.making.source", lambda recipe: "text")
    made = []
    for jobs in (1, 2):
        monkeypatch.setenv("ICLKIT_CACHE", str(tmp_path / f"cache {jobs}"))
        made.append(make(recipe, folder=tmp_path / str(jobs), jobs=jobs))
    np.testing.assert_array_equal(made[0]["exact_ends"], made[1]["exact_ends"])
    assert json.loads((tmp_path / "2/walks.json").read_text())["seeds"] == [0, 1, 2]


# --- the page -----------------------------------------------------------------------------------------


def test_the_laptop_of_the_page_runs_and_then_has_nothing_to_do(tmp_path):
    blocks = page_blocks()
    (tmp_path / "rates.py").write_text(blocks[0])
    script = blocks[1] + "\nprint(max(record.meta['seconds'] for record in records))"
    told = [run_script(script, tmp_path).splitlines() for _ in range(2)]
    assert len(told[0]) == 7 and told[0] == told[1], "the second time reads the records of the first"
    assert [float(line.split()[0]) for line in told[0][:-1]] == [1e-3, 1e-3, 3e-3, 3e-3, 1e-2, 1e-2]
