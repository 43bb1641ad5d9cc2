"""Sweeps: a grid refuses what its base lacks; records do not depend on workers, kills or neighbours."""

import errno
import functools
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from sweeping import BASE, calls, configs, expected, step, values

from iclkit import TrainConfig, TransformerConfig, grid, records, sweep
from iclkit.records import pieces, store
from iclkit.sweep import SweepError


@pytest.fixture
def log(tmp_path):
    return tmp_path / "log"


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "records"


# --- grids --------------------------------------------------------------------------------------------


def test_a_grid_is_every_combination_in_order():
    points = grid({"lr": 1.0, "seed": 0, "kept": "x"}, lr=[0.1, 0.2], seed=range(3))
    loop = [{"lr": lr, "seed": seed, "kept": "x"} for lr in (0.1, 0.2) for seed in range(3)]
    assert points == loop and grid({"a": 1}) == [{"a": 1}]


def test_a_grid_of_dataclasses_keeps_their_refusals():
    assert [c.lr for c in grid(TrainConfig(steps=7), lr=(0.1, 0.2))] == [0.1, 0.2]
    assert grid(TransformerConfig(), n_layers=[1])[0].n_layers == 1
    with pytest.raises(ValueError, match="lr > 0"):
        grid(TrainConfig(), lr=[0.1, -1.0])


@pytest.mark.parametrize("base", [TrainConfig(), {"weight_decay": 0.1, "lr": 1.0}])
def test_an_unknown_field_names_the_nearest(base):
    with pytest.raises(ValueError, match="unknown field 'wieght_decay'; did you mean 'weight_decay'?"):
        grid(base, lr=[1.0], wieght_decay=[0.1])


def test_axes_and_bases_that_are_none_are_refused():
    with pytest.raises(ValueError, match="the axis seed has no values"):
        grid(BASE, seed=[], how=["well"])
    for axis in (3, "well", np.array(3), {"well": 1}):
        with pytest.raises(TypeError, match="an axis lists its values"):
            grid(BASE, how=axis)
    for base in (TrainConfig, 3):
        with pytest.raises(TypeError, match="instance of a dataclass"):
            grid(base)


# --- what comes back ----------------------------------------------------------------------------------


def test_records_come_back_in_order_with_their_configs(folder, log):
    found = sweep(step, configs(log, [2, 0, 1, 0]), folder=folder, jobs=1)
    np.testing.assert_array_equal(values(found), expected([2, 0, 1, 0]))
    assert [record.meta["config"]["seed"] for record in found] == [2, 0, 1, 0] and calls(log) == [2, 0, 1]
    assert found[0].meta["function"].endswith(".step") and found[0].meta["seconds"] >= 0
    assert found[0].meta["versions"] == store.versions() and found[0]["value"].dtype == np.float64
    assert {path.suffix for path in folder.iterdir()} == {".npz"}


def test_what_is_done_is_not_done_again(folder, log, monkeypatch):
    sweep(step, configs(log, [0, 1]), folder=folder, jobs=1)
    found = sweep(step, configs(log, [0, 1, 2]), folder=folder, jobs=1)
    assert calls(log) == [0, 1, 2]
    next(folder.glob(f"{found[1].name}.npz")).write_bytes(b"half")
    sweep(step, configs(log, [0, 1, 2]), folder=folder, jobs=1)
    assert calls(log) == [0, 1, 2, 1]


@pytest.mark.parametrize("name, other", [("FORMAT", 99), ("text_of", lambda run: "another text")])
def test_records_of_another_version_or_text_stay_and_are_not_used(folder, log, monkeypatch, name, other):
    sweep(step, configs(log, [0]), folder=folder, jobs=1)
    before = {path: path.read_bytes() for path in folder.iterdir()}
    monkeypatch.setattr(sys.modules["iclkit.sweep"], name, other)
    sweep(step, configs(log, [0]), folder=folder, jobs=1)
    assert calls(log) == [0, 0] and len(list(folder.iterdir())) == 2
    assert all(path.read_bytes() == text for path, text in before.items())


def test_a_dataclass_a_dict_and_numpy_numbers_are_one_config(folder, monkeypatch):
    @dataclass(frozen=True)
    class Config:
        seed: int = 3

    def run(config, seed):
        return {"seed": seed}

    ways = [Config(), {"seed": 3}, {"seed": np.int64(3)}]
    names = {sweep(run, [way], folder=folder, jobs=1)[0].name for way in ways}
    assert len(names) == 1
    assert sweep(run, [{"seed": 4}], folder=folder, jobs=1)[0]["seed"] == 4
    with pytest.raises(ValueError, match="every config gives one"):
        sweep(run, [{"sed": 4}], folder=folder, jobs=1)


def test_what_cannot_be_swept_is_refused_before_anything_runs(folder, log):
    good = configs(log, [0])
    with pytest.raises(TypeError, match="made with def"):
        sweep(functools.partial(step, good[0]), good, folder=folder)
    space = {}
    exec("def run(config): return config", space)
    with pytest.raises(TypeError, match="text of run cannot be read; write it in a file"):
        sweep(space["run"], good, folder=folder)
    with pytest.raises(TypeError, match="configs hold numbers.*got <function"):
        sweep(step, [*good, {"log": calls}], folder=folder)
    with pytest.raises(ValueError, match="at least 1"):
        sweep(step, good, folder=folder, jobs=0)
    with pytest.raises(TypeError, match="configs are a list of dicts or dataclasses"):
        sweep(step, good[0], folder=folder)
    with pytest.raises(TypeError, match="a config is a dict or a dataclass; got 3"):
        sweep(step, [3], folder=folder)
    with pytest.raises(ValueError, match="configs hold finite numbers.*nan"):
        sweep(step, [{"log": float("nan")}], folder=folder)
    assert not folder.exists() and not log.exists()


@pytest.mark.parametrize(
    "given, why",
    [
        (3, "returns a dict"),
        ({"x": {1, 2}}, "'x' holds objects"),
        ({"file": 1}, "named by strings other than.*got 'file'"),
        ({"allow_pickle": 1}, "got 'allow_pickle'"),
        ({0: 1}, "named by strings.*got 0"),
    ],
)
def test_what_cannot_be_kept_fails_and_says_so(folder, given, why):
    def run(config):
        return given

    with pytest.raises(SweepError, match=why):
        sweep(run, [{"a": 1}], folder=folder, jobs=1)


def test_the_bar_counts_what_was_there(folder, log, capsys):
    sweep(step, configs(log, [0], slowly=1), folder=folder, jobs=1)
    assert capsys.readouterr() == ("", "")
    sweep(step, configs(log, [0, 1], slowly=1), folder=folder, jobs=1, progress=True)
    told = capsys.readouterr().err
    assert "runs of step" in told and "1/2" in told and "2/2" in told


# --- what fails ---------------------------------------------------------------------------------------


def test_many_failures_of_one_kind_are_told_once(folder, log):
    with pytest.raises(SweepError) as caught:
        sweep(step, [config | {"how": "fails"} for config in configs(log, range(12))], folder=folder, jobs=1)
    message = str(caught.value)
    assert message.count("Traceback") == 1 and message.count('"seed"') == 10
    assert "and 2 more" in message and len(caught.value.failures) == 12


def test_a_pool_that_never_works_is_not_tried_for_ever(folder, log, monkeypatch):
    def engine(*_):
        raise ConnectionError("no cluster there")
        yield

    monkeypatch.setattr(sys.modules["iclkit.sweep"], "engine", engine)
    with pytest.raises(ConnectionError, match="no cluster there"):
        sweep(step, configs(log, [0]), folder=folder)


# --- one folder, many sweeps --------------------------------------------------------------------------


def test_two_sweeps_in_one_folder_share_the_work(folder, log):
    points = [config | {"how": "slowly"} for config in configs(log, range(4))]
    found = {}
    both = [
        threading.Thread(target=lambda n=n: found.update({n: sweep(step, points, folder=folder, jobs=1)}))
        for n in range(2)
    ]
    for thread in both:
        thread.start()
    for thread in both:
        thread.join()
    assert sorted(calls(log)) == [0, 1, 2, 3]
    for n in range(2):
        np.testing.assert_array_equal(values(found[n]), expected(range(4)))
    assert {path.suffix for path in folder.iterdir()} == {".npz"}


def test_a_job_that_is_being_done_elsewhere_is_left_alone_or_waited_for(folder, log):
    (config,) = configs(log, [0])
    job = pieces.Job(folder / "k.npz", (config,), {"config": config})
    folder.mkdir()
    with pieces.FileLock(folder / "k.lock"):
        assert pieces.attempt(step, job, "me", wait=False).state == "busy"
        assert not log.exists()
        waiting = threading.Thread(target=lambda: pieces.attempt(step, job, "me", wait=True))
        waiting.start()
    waiting.join()
    assert calls(log) == [0] and pieces.read(job.file)


# --- a disk that is full ------------------------------------------------------------------------------


def test_a_full_disk_ends_the_sweep_with_all_that_is_done(folder, log, monkeypatch):
    whole, room = Path.write_bytes, [2]

    def half(path, data):
        if not room[0]:
            whole(path, data[: len(data) // 2])
            raise OSError(errno.ENOSPC, "No space left on device")
        room[0] -= 1
        return whole(path, data)

    monkeypatch.setattr(Path, "write_bytes", half)
    with pytest.raises(
        SweepError, match="cannot be written.*No space left.*2 of 4 runs of step are kept"
    ) as e:
        sweep(step, configs(log, range(4)), folder=folder, jobs=1)
    np.testing.assert_array_equal(values(e.value.records), expected([0, 1]))
    assert calls(log) == [0, 1, 2], "after a full disk nothing more is computed"
    assert {path.suffix for path in folder.iterdir()} <= {".npz", ".lock"}
    room[0] = 9
    assert len(sweep(step, configs(log, range(4)), folder=folder, jobs=1)) == 4
    assert calls(log) == [0, 1, 2, 2, 3]


def test_a_disk_that_fills_inside_a_run_ends_the_sweep_too(folder):
    def run(config):
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(SweepError, match="0 of 2 runs of run are kept"):
        sweep(run, [{"a": 1}, {"a": 2}], folder=folder, jobs=1)


def test_a_folder_that_is_a_file_is_refused(tmp_path, log):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(SweepError, match="file cannot be written"):
        sweep(step, configs(log, [0]), folder=tmp_path / "file", jobs=1)
    assert (tmp_path / "file").read_text() == "mine" and not log.exists()


# --- records ------------------------------------------------------------------------------------------


def test_pieces_written_before_they_told_of_themselves_are_still_read(tmp_path):
    np.savez_compressed(tmp_path / "old.npz", _seconds=1.5, x=np.arange(3))
    arrays, about = pieces.read(tmp_path / "old.npz")
    assert about == {"seconds": 1.5} and list(arrays) == ["x"]
    assert records.Record("old", arrays, about)["x"].sum() == 3
