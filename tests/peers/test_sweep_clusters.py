"""Sweeps on a Dask cluster of two workers and on Ray, both local: equal records, a killed worker included."""

import importlib.util
import os
import signal

import numpy as np
import pytest
from joblib import parallel_config

from conftest import missing
from iclkit import Repeats, TrainConfig, Transformer, TransformerConfig, grid, sweep, train
from iclkit.sweep import SweepError

POINTS = grid({"seed": 0, "how": "well"}, seed=range(5))
KILLED_ONCE, KILLS = POINTS[2] | {"how": "is killed once"}, POINTS[1] | {"how": "kills"}


def trained(config, folder):
    """A small training run that may be killed, always or the first time."""
    first = not folder.exists()
    folder.mkdir(exist_ok=True)
    if config["how"] == "kills" or (config["how"] == "is killed once" and first):
        os.kill(os.getpid(), signal.SIGKILL)
    import torch

    task = Repeats(vocab=8, length=8, min_period=3, max_period=4, batch_size=4)
    model = TransformerConfig(d_vocab=8, n_ctx=8, n_layers=1, d_model=8, n_heads=2)
    run = train(Transformer(model, seed=config["seed"]), task, TrainConfig(steps=10), progress=False)
    return {
        "losses": run.losses,
        "threads": torch.get_num_threads(),
        "process": os.getpid(),
        "again": not first,
    }


@pytest.fixture(scope="module", autouse=True)
def importable():
    """Workers are new processes: they find this file by PYTHONPATH, as they would find a reader's module."""
    with pytest.MonkeyPatch.context() as patch:
        folders = [os.path.dirname(__file__), os.environ.get("PYTHONPATH", "")]
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, folders)))
        yield


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    return sweep(trained, POINTS, folder=tmp_path_factory.mktemp("alone"), jobs=1)


@pytest.fixture(scope="module")
def dask():
    if importlib.util.find_spec("distributed") is None:
        missing("peers", "Dask is not installed (requirements-peers.txt)")
    from distributed import Client, LocalCluster

    local = dict(host="127.0.0.1", dashboard_address=None)
    with LocalCluster(n_workers=2, threads_per_worker=1, **local) as cluster, Client(cluster):
        yield "dask"


@pytest.fixture(scope="module")
def ray(tmp_path_factory):
    if importlib.util.find_spec("ray") is None:
        missing("peers", "Ray is not installed (requirements-peers.txt)")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))
        import ray
        from ray.util.joblib import register_ray

        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, _node_ip_address="127.0.0.1")
        register_ray()
        yield "ray"
        ray.shutdown()


@pytest.mark.parametrize("name", ["dask", "ray"])
def test_a_cluster_gives_the_same_records_and_survives_a_killed_worker(name, alone, tmp_path, request):
    with parallel_config(backend=request.getfixturevalue(name)):
        found = sweep(trained, [*POINTS[:2], KILLED_ONCE, *POINTS[3:]], folder=tmp_path)
    for a, b in zip(alone, found):
        np.testing.assert_array_equal(a["losses"], b["losses"])
        assert b["threads"] == 1 and b["process"] != os.getpid()
    assert [record["again"].item() for record in found] == [False, False, True, False, False]
    assert {path.suffix for path in tmp_path.iterdir()} == {".npz"}


@pytest.mark.parametrize("name", ["dask", "ray"])
def test_a_config_that_kills_its_workers_is_reported_and_the_others_are_kept(name, alone, tmp_path, request):
    with parallel_config(backend=request.getfixturevalue(name)), pytest.raises(SweepError) as error:
        sweep(trained, [POINTS[0], KILLS, POINTS[2]], folder=tmp_path)
    assert [config["seed"] for config, _ in error.value.failures] == [1]
    assert "its worker died 2 times" in str(error.value)
    for a, b in zip((alone[0], alone[2]), error.value.records):
        np.testing.assert_array_equal(a["losses"], b["losses"])


def test_the_cluster_blocks_of_the_page_run(tmp_path, dask):
    if importlib.util.find_spec("submitit") is None:
        missing("peers", "submitit is not installed (requirements-peers.txt)")
    from sweeping import page_blocks, run_script

    run, laptop, slurm, cluster = page_blocks()
    (tmp_path / "rates.py").write_text(run)
    show = "\nprint([float(record['losses'][-1]) for record in records])\n"
    told = run_script(show.join([laptop, slurm, cluster, ""]), tmp_path).splitlines()
    losses = [line for line in told if line.startswith("[")]
    assert len(losses) == 3 and len(set(losses)) == 1
    for folder in ("rates", "rates_slurm", "rates_dask"):
        assert {path.suffix for path in (tmp_path / folder).iterdir()} == {".npz"}
        assert len(list((tmp_path / folder).iterdir())) == 6
