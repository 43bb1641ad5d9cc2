"""Runs on disk: killed and resumed is uninterrupted, bit for bit, however and wherever it is computed."""

import errno
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors import SafetensorError
from twins import ALL, gap

from iclkit.model import Transformer
from iclkit.saving import RunFolder, read_whole, write_whole
from iclkit.stepping import ByAutograd, ByHand
from iclkit.tasks import Repeats
from iclkit.training import TrainConfig, fit

TASK = Repeats(vocab=11, length=12, min_period=3, max_period=4, batch_size=6)
PLANS = [
    TrainConfig(steps=12, lr=3e-3, warmup=3, schedule="cosine", clip=1.0),
    TrainConfig(steps=12, lr=1e-2, betas=(0.9, 0.95), seed=4),
]


class Killed(Exception):
    pass


class Fragile(Repeats):
    """The same task, until the plug is pulled."""

    def batch(self, seed, step):
        if step == 7:
            raise Killed
        return super().batch(seed, step)

    def __repr__(self):
        return repr(TASK)


def size(model):
    return sum(float(weight.abs().sum()) for weight in model.parameters())


def runs_of(count, task=TASK, plans=PLANS, shape=ALL, **options):
    models = [Transformer(shape, seed) for seed in range(count)]
    options = dict(measures={"size": size}, measure_at=[0, 5, 9, 12], checkpoint_at=[5, 12]) | options
    return fit(models, [task] * count, list(plans[:count]), **options)


HOOK = [("hook_embed", lambda tensor, hook: None)]
WAYS = {
    "by hand": (1, {}, ByHand),
    "by hand, two": (2, {}, ByHand),
    "by hand, on a copy": (2, {"device": "cpu:0"}, ByHand),
    "by autograd": (1, {"fwd_hooks": HOOK}, ByAutograd),
    "by autograd, on a copy": (1, {"fwd_hooks": HOOK, "device": "cpu:0"}, ByAutograd),
}


@pytest.mark.parametrize("way", WAYS)
def test_killed_and_resumed_is_uninterrupted(way, tmp_path, monkeypatch):
    count, options, kind = WAYS[way]
    steppers, made = [], kind.__init__
    monkeypatch.setattr(
        kind, "__init__", lambda self, *a, **k: (steppers.append(self), made(self, *a, **k))[1]
    )
    whole = runs_of(count, **options)
    monkeypatch.setattr(RunFolder, "due", lambda self: True)
    fragile = Fragile(vocab=11, length=12, min_period=3, max_period=4, batch_size=6)
    with pytest.raises(Killed):
        runs_of(count, fragile, folder=tmp_path, **options)
    assert read_whole(tmp_path / "run.safetensors")[1]["step"] == "7"
    resumed = runs_of(count, folder=tmp_path, **options)
    again = runs_of(count, folder=tmp_path, **options)
    assert len(steppers) == 4
    for run, *others in zip(whole, resumed, again):
        for other in others:
            assert gap(run.model, other.model) == 0 and np.array_equal(run.losses, other.losses)
            assert run.losses.shape == (12,) and np.array_equal(run.history["size"], other.history["size"])
            assert sorted(other.checkpoints) == [5, 12]
            for step in (5, 12):
                assert gap(run.at(step), other.at(step)) == 0
        assert gap(run.at(12), run.model) == 0 and gap(run.at(5), run.model) > 1e-4


@pytest.mark.parametrize("way", WAYS)
def test_a_file_holds_weights_moments_losses_and_checkpoints_under_the_models_names(way, tmp_path):
    count, options, _ = WAYS[way]
    runs = runs_of(count, folder=tmp_path, **options)
    tensors, about = read_whole(tmp_path / "run.safetensors")
    names = [name for name, _ in runs[0].model.named_parameters()]
    wanted = {"losses"}
    for index in range(count):
        wanted |= {f"model/{index}/{name}" for name in names}
        wanted |= {f"checkpoint/{index}/{step}/{name}" for step in (5, 12) for name in names}
        wanted |= {f"optimiser/{index}/{m}/{n}" for m in ("exp_avg", "exp_avg_sq", "step") for n in names}
    assert set(tensors) == wanted and about["step"] == "12" and len(json.loads(about["history"])) == count
    for index, run in enumerate(runs):
        for name, weight in run.model.named_parameters():
            assert torch.equal(tensors[f"model/{index}/{name}"], weight)
            assert tensors[f"optimiser/{index}/exp_avg_sq/{name}"].shape == weight.shape
            assert tensors[f"optimiser/{index}/step/{name}"] == 12
        assert np.array_equal(tensors["losses"][index], run.losses)


def test_a_folder_goes_on_with_the_same_run_only(tmp_path):
    runs_of(2, folder=tmp_path)
    before = (tmp_path / "run.safetensors").read_bytes()
    others = [
        lambda: runs_of(1, folder=tmp_path),
        lambda: runs_of(2, plans=PLANS[::-1], folder=tmp_path),
        lambda: runs_of(2, plans=[PLANS[0], replace(PLANS[1], lr=0.5)], folder=tmp_path),
        lambda: runs_of(2, shape=replace(ALL, act="relu"), folder=tmp_path),
        lambda: runs_of(2, task=replace(TASK, batch_size=7), folder=tmp_path),
        lambda: runs_of(2, measures={"other": size}, folder=tmp_path),
    ]
    for other in others:
        with pytest.raises(ValueError, match="holds another run.*choose another folder"):
            other()
    assert (tmp_path / "run.safetensors").read_bytes() == before


def test_a_full_disk_is_known_by_its_number_and_the_last_file_stays(tmp_path, monkeypatch):
    """safetensors tells the number in its message alone, as "(os error 13)"; sweeps look for an `errno`."""
    path = tmp_path / "run.safetensors"
    write_whole({"a": torch.ones(2)}, path, {"step": "1"})

    def save_file(tensors, beside, metadata):
        beside.write_bytes(b"half")
        raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")

    monkeypatch.setattr("iclkit.saving.save_file", save_file)
    with pytest.raises(OSError, match="No space left.*what was saved before stays") as caught:
        write_whole({"a": torch.zeros(2)}, path, {"step": "2"})
    assert caught.value.errno == errno.ENOSPC and list(tmp_path.iterdir()) == [path]
    assert read_whole(path)[1] == {"step": "1"}


def test_a_read_only_folder_is_refused_before_the_first_update(tmp_path, monkeypatch):
    monkeypatch.setattr("iclkit.saving.os.access", lambda path, mode: False)
    with pytest.raises(ValueError, match="cannot hold a run.*read-only"):
        runs_of(1, Fragile(**vars(TASK)), folder=tmp_path)
