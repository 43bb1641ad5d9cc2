"""Sweeps on a Dask cluster of two workers and on Ray, both local: equal records, a killed worker included."""

import importlib.util
import os

import numpy as np
import pytest
import sweeping
from joblib import parallel_config

from conftest import missing
from iclkit import sweep
from iclkit.sweep import SweepError

ENDS = {2: "kills once", 4: "kills"}
POINTS = [{"seed": seed, "how": ENDS.get(seed, "well")} for seed in range(6)]


@pytest.fixture(scope="module", autouse=True)
def importable():
    """Workers are new processes: they find a module of the tests by PYTHONPATH, as they would a reader's."""
    with pytest.MonkeyPatch.context() as patch:
        folders = [os.path.dirname(sweeping.__file__), os.environ.get("PYTHONPATH", "")]
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, folders)))
        yield


@pytest.fixture(scope="module")
def dask(tmp_path_factory):
    if importlib.util.find_spec("distributed") is None:
        missing("peers", "Dask is not installed (requirements-peers.txt)")
    from distributed import Client, LocalCluster

    scratch = str(tmp_path_factory.mktemp("dask"))
    local = dict(host="127.0.0.1", dashboard_address=None, local_directory=scratch)
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
def test_a_cluster_gives_equal_records_and_survives_killed_workers(name, tmp_path, request):
    with parallel_config(backend=request.getfixturevalue(name)), pytest.raises(SweepError) as error:
        sweep(sweeping.killed_and_trained, POINTS, folder=tmp_path / name)
    ((config, why),) = error.value.failures
    assert config["seed"] == 4 and "its worker died 2 times" in why
    found = {record.meta["config"]["seed"]: record for record in error.value.records}
    assert found[2]["again"], "it killed its worker once and went again, as what ran beside it may have"
    well = [point | {"how": "well"} for point in POINTS if point["seed"] != 4]
    for here in sweep(sweeping.killed_and_trained, well, folder=tmp_path / "here", jobs=1):
        there = found.pop(here.meta["config"]["seed"])
        np.testing.assert_array_equal(there["losses"], here["losses"])
        assert there["threads"] == 1 and there["process"] != os.getpid()
    assert not found and {path.suffix for path in (tmp_path / name).iterdir()} <= {".npz", ".lock", ""}


def test_the_cluster_blocks_of_the_page_run(tmp_path, monkeypatch):
    """With one core to each machine: its processes are tested elsewhere."""
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "1")
    for package in ("distributed", "submitit"):
        if importlib.util.find_spec(package) is None:
            missing("peers", f"{package} is not installed (requirements-peers.txt)")
    run, laptop, slurm, cluster = sweeping.page_blocks()
    (tmp_path / "rates.py").write_text(run)
    show = "\nprint([float(record['losses'][-1]) for record in records])\n"
    told = sweeping.run_script(show.join([laptop, slurm, cluster, ""]), tmp_path).splitlines()
    losses = [line for line in told if line.startswith("[")]
    assert len(losses) == 3 and len(set(losses)) == 1
    for folder in ("rates", "rates_slurm", "rates_dask"):
        assert {path.suffix for path in (tmp_path / folder).iterdir()} == {".npz"}
        assert len(list((tmp_path / folder).iterdir())) == 6
