"""Runs for the tests of sweeps: some end well, some fail, some kill the process they run in."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch

from iclkit import Repeats, TrainConfig, Transformer, TransformerConfig, train

BASE = {"seed": 0, "how": "well", "log": ""}


def step(config):
    """A run that keeps a log of its calls and ends as its config says."""
    log = Path(config["log"])
    with log.open("a") as file:
        file.write(f"{config['seed']}\n")
    if config["how"] == "slowly":
        time.sleep(0.3)
    if config["how"] == "fails":
        raise ZeroDivisionError("a run that fails")
    if config["how"] == "kills":
        os.kill(os.getpid(), signal.SIGKILL)
    value = np.random.default_rng(config["seed"]).normal(size=5)
    return {"value": value, "threads": torch.get_num_threads(), "process": os.getpid()}


def calls(log) -> list[int]:
    return [int(line) for line in log.read_text().split()] if log.exists() else []


def configs(log, seeds, **how):
    """One config a seed; `how` says who ends otherwise than well, as in fails=2."""
    ends = {seed: name.replace("_", " ") for name, seed in how.items()}
    return [BASE | {"seed": seed, "log": str(log), "how": ends.get(seed, "well")} for seed in seeds]


def values(found):
    return [record["value"] for record in found]


def expected(seeds):
    return [np.random.default_rng(seed).normal(size=5) for seed in seeds]


def half_way(config, folder):
    """A run that keeps half of its work in its folder, and once is killed there."""
    half = folder / "half"
    if config["how"] == "kills once" and not half.exists():
        folder.mkdir()
        half.write_text("something")
        os.kill(os.getpid(), signal.SIGKILL)
    return step(config | {"how": "well"}) | {"resumed": half.exists()}


def trained(config, folder=None):
    """A real, small training run."""
    model = Transformer(
        TransformerConfig(d_vocab=8, n_ctx=8, n_layers=1, d_model=8, n_heads=2), seed=config.seed
    )
    task = Repeats(vocab=8, length=8, min_period=3, max_period=4, batch_size=4)
    run = train(model, task, config, folder=folder, progress=False)
    return {"losses": run.losses, "threads": torch.get_num_threads()}


def slowly_trained(config, folder):
    """As `trained`, and time enough to be killed in."""
    with (folder.parent.parent / "begun").open("a") as file:
        file.write(f"{config.seed}\n")
    time.sleep(0.8)
    return trained(config, folder)


def killed_and_trained(config, folder):
    """A training run that is killed as its config says: always, or the first time."""
    first = not folder.exists()
    folder.mkdir(exist_ok=True)
    if config["how"] == "kills" or (config["how"] == "kills once" and first):
        os.kill(os.getpid(), signal.SIGKILL)
    found = trained(TrainConfig(steps=10, seed=config["seed"]))
    return found | {"process": os.getpid(), "again": not first}


def page_blocks() -> list[str]:
    """The Python blocks of the page, in order: rates.py, a laptop, Slurm, Dask."""
    text = (Path(__file__).parents[1] / "book/sweeps.md").read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def run_script(script: str, folder: Path) -> str:
    ran = subprocess.run(
        [sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, timeout=900
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout
