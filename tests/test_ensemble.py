"""Many models at once: each ends as if it had trained alone, in every way, whatever becomes of the others."""

import json
import os
import re
import signal
import subprocess
import sys
import warnings
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from joblib import Parallel, delayed, parallel_config
from joblib.externals.loky.process_executor import TerminatedWorkerError
from torch.utils.flop_counter import FlopCounterMode

from iclkit import ensemble
from iclkit.ensemble import WAYS, choose, train_many, update_flop
from iclkit.model import Transformer, TransformerConfig
from iclkit.saving import RunFolder
from iclkit.stepping import has_bfloat16
from iclkit.tasks import Batch, Repeats
from iclkit.tasks.base import generator
from iclkit.training import TrainConfig, cross_entropy, train

SHAPE = TransformerConfig(d_vocab=8, n_ctx=12, d_model=16, n_heads=2, d_mlp=24, layer_norm=True)
SCALES = (1.0, 0.7, 1.3, 1.0)
TASKS = [
    Repeats(vocab=8, length=12, min_period=3, max_period=5, batch_size=8),
    Repeats(vocab=8, length=12, min_period=2, max_period=4, batch_size=8, repeats_only=True),
    Repeats(vocab=6, length=12, min_period=3, max_period=4, batch_size=8, placement="burst"),
    Repeats(vocab=8, length=12, min_period=4, max_period=4, batch_size=8),
]
CONFIGS = [
    TrainConfig(steps=20, seed=5),
    TrainConfig(steps=20, lr=3e-3, weight_decay=0.3, warmup=8, clip=0.2),
    TrainConfig(steps=20, lr=2e-3, betas=(0.8, 0.95), schedule="cosine", seed=1),
    TrainConfig(steps=20, weight_decay=0.0, schedule="linear", warmup=3, clip=5.0, seed=1),
]
EVERY = [None, *WAYS]


def models(count=4, shape=SHAPE):
    return [Transformer(replace(shape, init_scale=SCALES[seed]), seed) for seed in range(count)]


def weights(model):
    return torch.cat([w.flatten() for w in model.state_dict().values()])


def size(model):
    return float(sum(w.detach().abs().sum() for w in model.parameters()))


def place(model):
    return [os.getpid(), torch.get_num_threads()]


OPTIONS = {"measures": {"size": size, "place": place}, "measure_at": [0, 7, 20], "checkpoint_at": [7, 20]}


@pytest.fixture(scope="module")
def separate():
    return [train(*job, **OPTIONS) for job in zip(models(), TASKS, CONFIGS)]


@pytest.fixture(scope="module", params=EVERY)
def together(request):
    """How, the models that the caller holds, their runs; two threads here while processes have one each."""
    mine = models()
    torch.set_num_threads(1 + (request.param == "processes"))
    runs = train_many(iter(mine), iter(TASKS), iter(CONFIGS), how=request.param, **OPTIONS)
    torch.set_num_threads(1)
    return request.param, mine, runs


def test_together_is_separate(separate, together):
    for run, alone, config in zip(together[2], separate, CONFIGS, strict=True):
        np.testing.assert_allclose(run.losses, alone.losses, atol=1e-5, rtol=0)
        torch.testing.assert_close(weights(run.model), weights(alone.model), atol=2e-5, rtol=0)
        assert run.config == config and run.losses.shape == (20,)


def test_every_model_has_its_own_measures_and_checkpoints(separate, together):
    for run, alone in zip(together[2], separate):
        np.testing.assert_allclose(run.history["size"], alone.history["size"], rtol=1e-5)
        assert run.steps.tolist() == [0, 7, 20] and sorted(run.checkpoints) == [7, 20]
        assert [size(run.at(step)) for step in (7, 20)] == pytest.approx(run.history["size"][1:].tolist())


def test_the_callers_models_are_trained_in_place(together):
    _, mine, runs = together
    for model, run in zip(mine, runs):
        assert run.model is model and not model.training
        assert torch.equal(weights(model), weights(run.at(20)))
    assert owned(mine)


def owned(several) -> bool:
    """Whether every weight has memory of its own."""
    found = [w.untyped_storage() for model in several for w in model.parameters()]
    sizes = [w.nbytes for model in several for w in model.parameters()]
    return len({s.data_ptr() for s in found}) == len(found) and [s.nbytes() for s in found] == sizes


def test_processes_compute_on_one_thread_each(together):
    how, _, runs = together
    here = {(pid == os.getpid(), threads) for run in runs for pid, threads in run.history["place"].tolist()}
    assert here == {(how != "processes", 1)}


@pytest.mark.parametrize("how", WAYS)
def test_a_single_task_and_config_serve_all(how):
    config = TrainConfig(steps=3, seed=2)
    runs = train_many(models(2), TASKS[0], config, how=how)
    for run, model in zip(runs, models(2)):
        np.testing.assert_allclose(run.losses, train(model, TASKS[0], config).losses, atol=1e-5)


@dataclass(frozen=True)
class Vectors:
    """Random vectors with random labels."""

    batch_size: int = 8

    def batch(self, seed: int, step: int) -> Batch:
        random, shape = generator(seed, step), (self.batch_size, 5)
        return Batch(torch.randn(*shape, 16, generator=random), torch.randint(8, shape, generator=random))


EMBEDDED = {"embedded": True, "positions": "none"}


@pytest.mark.parametrize(
    "how, change",
    [("processes", EMBEDDED), ("stacked", EMBEDDED), ("stacked", {"tied": True}), ("stacked", {"d_mlp": 0})],
)
def test_other_shapes_train_together_too(how, change):
    shape, task = replace(SHAPE, **change), Vectors() if "embedded" in change else TASKS[0]
    runs = train_many(models(3, shape), task, CONFIGS[:3], how=how)
    for run, model, config in zip(runs, models(3, shape), CONFIGS):
        np.testing.assert_allclose(run.losses, train(model, task, config).losses, atol=1e-5)


def test_what_only_autograd_does_trains_apart():
    shapes = [replace(SHAPE, positions="rotary"), replace(SHAPE, smeared_keys=True, n_layers=1)]
    tasks, configs = [TASKS[0], replace(TASKS[0], batch_size=4)], [CONFIGS[0], replace(CONFIGS[1], steps=5)]
    runs = train_many(map(Transformer, shapes), tasks, configs, how="loop")
    for run, shape, task, config in zip(runs, shapes, tasks, configs):
        np.testing.assert_allclose(run.losses, train(Transformer(shape), task, config).losses, atol=1e-5)


@pytest.mark.parametrize("how", WAYS)
def test_a_model_that_diverges_leaves_the_others_as_they_were(how):
    wild = [replace(CONFIGS[0], steps=30, lr=lr) for lr in (1e-3, 1e9, 2e-3)]
    tame = [replace(config, lr=min(config.lr, 1e-2)) for config in wild]
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        runs = train_many(models(3), TASKS[0], wild, how=how)
    assert [str(w.message)[:23] for w in told] == ["models [1] of 3 diverge"]
    beside = train_many(models(3), TASKS[0], tame, how=how)
    assert not np.isfinite(runs[1].losses[-1])
    for index in (0, 2):
        assert torch.equal(weights(runs[index].model), weights(beside[index].model))


# --- folders ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fragile:
    """A task that saves after 12 updates, logs its calls and, while `fuse` exists, ends a run there."""

    place: Path
    index: int
    kill: bool

    def batch(self, seed, step):
        RunFolder.due = lambda self: step == 11
        with (self.place / f"log{self.index}").open("a") as log:
            log.write(f"{step}\n")
        if step == 12 and self.index == 1 and (self.place / "fuse").exists():
            if self.kill:
                os.kill(os.getpid(), signal.SIGKILL)
            raise KeyboardInterrupt
        return TASKS[self.index].batch(seed, step)

    def calls(self):
        return Counter(map(int, (self.place / f"log{self.index}").read_text().split()))


@pytest.mark.parametrize("how", WAYS)
def test_killed_runs_resume_to_the_same_numbers(how, tmp_path, monkeypatch):
    monkeypatch.setattr(RunFolder, "due", RunFolder.due)
    whole = train_many(models(), TASKS, CONFIGS, how="stacked" if how == "stacked" else "loop", **OPTIONS)
    tasks = [Fragile(tmp_path, index, how == "processes") for index in range(4)]
    (tmp_path / "fuse").touch()
    with pytest.raises(TerminatedWorkerError if how == "processes" else KeyboardInterrupt):
        train_many(models(), tasks, CONFIGS, how=how, folder=tmp_path / "runs", **OPTIONS)
    (tmp_path / "fuse").unlink()
    mine = models()
    runs = train_many(mine, tasks, CONFIGS, how=how, folder=tmp_path / "runs", **OPTIONS)
    for run, model, before in zip(runs, mine, whole):
        assert np.array_equal(run.losses, before.losses) and run.model is model
        assert torch.equal(weights(run.model), weights(before.model))
        assert np.array_equal(run.history["size"], before.history["size"])
        assert torch.equal(weights(run.at(7)), weights(before.at(7)))
    assert tasks[1].calls()[11] == 1 and tasks[1].calls()[12] == 2


@pytest.mark.parametrize("how, other", [("loop", "stacked"), ("stacked", "loop")])
def test_without_how_the_folder_says_how_it_goes_on(how, other, tmp_path, monkeypatch):
    before = train_many(models(2), TASKS[0], CONFIGS[:2], how=how, folder=tmp_path)
    files = sorted(tmp_path.rglob("*.safetensors"))
    monkeypatch.setattr(ensemble, "choose", lambda *_: "loop" if how == "loop" and not _[3] else other)
    again = train_many(models(2), TASKS[0], CONFIGS[:2], folder=tmp_path)
    assert sorted(tmp_path.rglob("*.safetensors")) == files
    assert all(torch.equal(weights(a.model), weights(b.model)) for a, b in zip(before, again))


@pytest.mark.parametrize("how", ["stacked", "loop"])
def test_a_file_where_the_folder_should_be(how, tmp_path):
    (tmp_path / "file").write_text("mine")
    mine = models(2)
    with pytest.raises(ValueError, match="cannot hold a run"):
        train_many(mine, TASKS[0], CONFIGS[:2], how=how, folder=tmp_path / "file")
    assert (tmp_path / "file").read_text() == "mine"
    assert all(torch.equal(weights(a), weights(b)) for a, b in zip(mine, models(2))) and owned(mine)


# --- what goes wrong ----------------------------------------------------------------------------------


def test_an_interrupted_stack_leaves_models_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setattr(RunFolder, "due", RunFolder.due)
    (tmp_path / "fuse").touch()
    tasks, mine = [Fragile(tmp_path, index, kill=False) for index in range(3)], models(3)
    with pytest.raises(KeyboardInterrupt):
        train_many(mine, tasks, TrainConfig(steps=20), how="stacked")
    assert owned(mine)
    for model, twin, task in zip(mine, models(3), TASKS):
        train(twin, task, TrainConfig(steps=12))
        torch.testing.assert_close(weights(model), weights(twin), atol=1e-5, rtol=0)
    train_many(mine, TASKS[:3], TrainConfig(steps=1), how="stacked")


def broken(model):
    raise ZeroDivisionError("a measure that fails")


@pytest.mark.parametrize("how", WAYS)
def test_a_measure_that_fails_is_the_error(how):
    mine = models(3)
    with pytest.raises(ZeroDivisionError, match="a measure that fails"):
        train_many(mine, TASKS[0], TrainConfig(steps=2), how=how, measures={"broken": broken})
    assert owned(mine)


def test_what_cannot_travel_is_said():
    class Held(Repeats):
        def __reduce__(self):
            raise TypeError("it is held here")

    held = Held(vocab=8, length=12, min_period=3, max_period=5)
    with pytest.raises(ValueError, match='cannot go to another process.*use how="loop"'):
        train_many(models(2), held, TrainConfig(steps=1), how="processes")
    assert len(train_many(models(2), held, TrainConfig(steps=1), how="stacked")) == 2


UNSTACKED = {
    "differ in n_layers, positions": lambda: (
        [*models(1), Transformer(replace(SHAPE, n_layers=1, positions="none"))],
        TASKS[0],
        CONFIGS[0],
    ),
    "same number of steps; got [20, 21]": lambda: (
        models(2),
        TASKS[0],
        [CONFIGS[0], replace(CONFIGS[1], steps=21)],
    ),
    "batches of one shape; got [(4, 12), (8, 12)]": lambda: (
        models(2),
        [TASKS[0], replace(TASKS[0], batch_size=4)],
        CONFIGS[0],
    ),
    "models [0, 1] have relative or rotary": lambda: (
        models(2, replace(SHAPE, positions="rotary")),
        TASKS[0],
        CONFIGS[0],
    ),
    "models [1] have": lambda: ([*models(1), frozen()], TASKS[0], CONFIGS[0]),
    "got torch.float32 on cpu, torch.float64 on cpu": lambda: (
        [*models(1), Transformer(SHAPE, 1).double()],
        TASKS[0],
        CONFIGS[0],
    ),
}


def frozen():
    model = Transformer(SHAPE, 1)
    model.W_E.requires_grad_(False)
    return model


@pytest.mark.parametrize("said", UNSTACKED)
def test_what_cannot_be_stacked_is_said_and_not_chosen(said, monkeypatch):
    monkeypatch.setattr(ensemble, "cpu_count", lambda: 1)
    with pytest.raises(
        ValueError, match=re.escape(said) + '.*train these with how="processes" or how="loop"'
    ):
        train_many(*UNSTACKED[said](), how="stacked")
    assert len(train_many(*UNSTACKED[said]())) == 2


@pytest.mark.parametrize("option", [{"precision": "bfloat16"}, {"compile": True}])
def test_another_arithmetic_is_not_stacked(option):
    with pytest.raises(ValueError, match="in float32, and compiled only on CUDA; train these with how="):
        train_many(models(2), TASKS[0], CONFIGS[:2], how="stacked", **option)


def test_bfloat16_is_handed_on():
    if not has_bfloat16(torch.device("cpu")):
        pytest.skip("this processor has no bfloat16")
    runs = train_many(models(2), TASKS[0], CONFIGS[:2], precision="bfloat16")
    for run, model, config in zip(runs, models(2), CONFIGS):
        assert np.array_equal(run.losses, train(model, TASKS[0], config, precision="bfloat16").losses)


def test_some_devices_have_no_stack():
    said = ensemble.unlike(models(2), CONFIGS[:2], [(8, 12)] * 2, torch.device("mps"))
    assert said == "models train in one stack on cpu or cuda; got mps"


SETUP = """
import json, sys
from iclkit import Repeats, TrainConfig, Transformer, TransformerConfig, train_many
shape = TransformerConfig(d_vocab=8, n_ctx=12, d_model=8, n_heads=2)
task, plan = Repeats(vocab=8, length=12, min_period=3, max_period=5, batch_size=4), TrainConfig(steps=2)
two = [Transformer(shape), Transformer(shape, 1)]
vectors = [Transformer(TransformerConfig(n_ctx=12, d_model=8, n_heads=2, embedded=True), s) for s in (0, 1)]
said = {}
for case in json.load(sys.stdin):
    try:
        eval(case)
        said[case] = "nothing"
    except Exception as error:
        said[case] = f"{type(error).__name__}: {error}"
print(json.dumps(said))
"""
REFUSED = {
    "train_many([], task, plan)": "ValueError.*at least one model.*got 0 models and 0 tasks",
    "train_many(two, [task], plan)": "ValueError.*one for each; got 2 models and 1 tasks",
    "train_many(two, iter([task] * 3), plan)": "ValueError.*got 2 models and 3 tasks",
    "train_many(two, task, [plan])": "ValueError.*got 2 models and 1 configs",
    "train_many(two, task, [])": "ValueError.*got 2 models and 0 configs",
    "train_many(two, task, plan, how='stack')": "ValueError.*one of stacked, processes, loop; got 'stack'",
    "train_many([two[0]] * 2, task, plan, how='loop')": r"ValueError.*share their weights.*\(config, seed\)",
    "train_many(two[0], task, plan)": "TypeError.*models are a list.*single Transformer",
    "train_many(['a', 'b'], task, plan)": "TypeError: expected a Transformer for each run; got 'a'",
    "train_many(two, 'ab', plan)": r"TypeError.*batch\(seed, step\).*got str",
    "train_many(two, Repeats, plan)": "TypeError.*the class Repeats; make an instance",
    "train_many(two, Repeats(), plan)": "ValueError.*set d_vocab=64",
    "train_many(two, task, {'lr': 1})": r"TypeError: expected a TrainConfig for each run; got {'lr': 1}",
    "train_many(two, task, shape)": "TypeError: expected a TrainConfig for each run; got TransformerConfig",
    "train_many(vectors, task, plan, how='stacked')": r"ValueError: this model takes float \[batch seq 8\]",
    "train_many(vectors, task, plan, how='loop')": r"ValueError: this model takes float \[batch seq 8\]",
    "train_many(two, task, plan, measure_at=['x'])": "ValueError.*measure_at must be a whole number; got 'x'",
}


@pytest.fixture(scope="module")
def said():
    run = subprocess.run(
        [sys.executable, "-c", SETUP], input=json.dumps(list(REFUSED)), capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr[-2000:]
    return json.loads(run.stdout.splitlines()[-1])


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_is_refused_in_words(said, case):
    assert re.search(REFUSED[case], said[case], re.S), said[case]


# --- the rule -----------------------------------------------------------------------------------------

FLOP = update_flop(SHAPE, (8, 12))
RULE = [  # cores, models, small?, starting processes repaid?, stackable?, device → choice
    (2, 4, True, True, True, "cpu", "stacked"),
    (2, 4, True, True, False, "cpu", "processes"),
    (2, 4, False, True, True, "cpu", "processes"),
    (2, 4, False, True, False, "cpu", "processes"),
    (2, 4, False, False, True, "cpu", "stacked"),
    (2, 4, False, False, False, "cpu", "loop"),
    (1, 4, False, True, True, "cpu", "stacked"),
    (1, 4, False, True, False, "cpu", "loop"),
    (2, 1, False, True, True, "cpu", "stacked"),
    (2, 1, False, True, False, "cpu", "loop"),
    (2, 4, False, True, True, "cuda", "stacked"),
    (2, 4, True, True, False, "cuda", "loop"),
]


@pytest.mark.parametrize("cores, count, small, repaid, stackable, device, expected", RULE)
def test_the_rule(cores, count, small, repaid, stackable, device, expected, monkeypatch):
    monkeypatch.setattr(ensemble, "cpu_count", lambda: cores)
    monkeypatch.setattr(ensemble, "SMALL", FLOP + small)
    monkeypatch.setattr(ensemble, "WORTH", FLOP * 20 * count + (not repaid))
    found = choose(models(count), CONFIGS[:count], [(8, 12)] * count, stackable, torch.device(device))
    assert found == expected


def test_within_a_worker_there_is_one_core(monkeypatch):
    monkeypatch.setattr(ensemble, "cpu_count", lambda: 8)
    with parallel_config(backend="threading"):
        assert ensemble.cores() == 8
        assert Parallel(n_jobs=2)(delayed(ensemble.cores)() for _ in range(2)) == [1, 1]


@pytest.mark.parametrize("change", [{}, {"d_mlp": 0, "n_layers": 3}, {"d_head": 4, "d_vocab_out": 11}])
def test_update_flop_counts_every_product(change):
    model, batch = Transformer(replace(SHAPE, **change)), TASKS[0].batch(0, 0)
    shown = [(("pattern", layer), lambda x, hook: None) for layer in range(model.config.n_layers)]
    with FlopCounterMode(display=False) as counted:
        cross_entropy(model.run_with_hooks(batch.inputs, fwd_hooks=shown), batch).backward()
    assert update_flop(model.config, tuple(batch.targets.shape)) == counted.get_total_flops()
