"""Training: it learns, it repeats bit for bit, and a killed run ends as if it had never been killed."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from iclkit.model import Transformer, TransformerConfig
from iclkit.saving import RunFolder
from iclkit.tasks import Batch, Repeats
from iclkit.training import TrainConfig, cross_entropy, fit, train

SHAPE = TransformerConfig(d_vocab=8, n_ctx=16, n_layers=1, d_model=16, n_heads=2)
TASK = Repeats(vocab=8, length=16, min_period=3, max_period=5, batch_size=16)
PLAN = TrainConfig(steps=30, lr=3e-3)


def weights(model):
    return torch.cat([w.flatten() for w in model.state_dict().values()])


def evaluated(model):
    return cross_entropy(model(TASK.batch(99, 0).inputs), TASK.batch(99, 0)).item()


def test_the_loss_falls_and_history_has_its_shape():
    run = train(Transformer(SHAPE), TASK, PLAN, measures={"loss": evaluated}, measure_at=[0, 10, 30])
    assert run.steps.tolist() == [0, 10, 30] and run.history["loss"].shape == (3,)
    assert run.history["loss"][-1] < run.history["loss"][0] and run.losses.shape == (30,)


def test_training_agrees_with_a_plain_loop():
    model, twin = Transformer(SHAPE), Transformer(SHAPE)
    train(model, TASK, PLAN)
    matrices = [w for w in twin.parameters() if w.ndim >= 2]
    optimiser = torch.optim.AdamW(matrices, lr=3e-3, betas=(0.9, 0.98), weight_decay=0.01)
    for step in range(30):
        inputs, targets, _ = TASK.batch(0, step)
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(twin(inputs).transpose(1, 2), targets).backward()
        optimiser.step()
    torch.testing.assert_close(weights(model), weights(twin), atol=1e-5, rtol=1e-4)


def test_training_repeats_bit_for_bit():
    first, second = train(Transformer(SHAPE), TASK, PLAN), train(Transformer(SHAPE), TASK, PLAN)
    assert torch.equal(weights(first.model), weights(second.model))
    assert not torch.equal(weights(first.model), weights(train(Transformer(SHAPE, 1), TASK, PLAN).model))


class Killed(Exception):
    pass


class Fragile(Repeats):
    """The same task, until the plug is pulled."""

    def batch(self, seed, step):
        if step == 20:
            raise Killed
        return super().batch(seed, step)

    def __repr__(self):
        return repr(TASK)


def test_a_killed_run_resumes_to_the_same_numbers(tmp_path, monkeypatch):
    options = dict(measures={"loss": evaluated}, measure_at=[0, 5, 15, 30], checkpoint_at=[5, 30])
    whole = train(Transformer(SHAPE), TASK, PLAN, **options)
    monkeypatch.setattr(RunFolder, "due", lambda self: True)
    fragile = Fragile(vocab=8, length=16, min_period=3, max_period=5, batch_size=16)
    with pytest.raises(Killed):
        train(Transformer(SHAPE), fragile, PLAN, folder=tmp_path, **options)
    resumed = train(Transformer(SHAPE), TASK, PLAN, folder=tmp_path, **options)
    assert torch.equal(weights(whole.model), weights(resumed.model))
    assert np.array_equal(whole.losses, resumed.losses)
    assert np.array_equal(whole.history["loss"], resumed.history["loss"])
    assert sorted(resumed.checkpoints) == [5, 30]
    assert torch.equal(weights(whole.at(5)), weights(resumed.at(5)))
    again = train(Transformer(SHAPE), TASK, PLAN, folder=tmp_path, **options)
    assert torch.equal(weights(again.model), weights(whole.model))


def test_a_damaged_or_foreign_run_is_refused_and_left_alone(tmp_path):
    train(Transformer(SHAPE), TASK, PLAN, folder=tmp_path)
    with pytest.raises(ValueError, match="holds another run"):
        train(Transformer(SHAPE, seed=1), TASK, PLAN, folder=tmp_path)
    file = tmp_path / "run.safetensors"
    half = file.read_bytes()[: file.stat().st_size // 2]
    file.write_bytes(half)
    with pytest.raises(ValueError, match="damaged or half written"):
        train(Transformer(SHAPE), TASK, PLAN, folder=tmp_path)
    assert file.read_bytes() == half


@pytest.mark.parametrize("place", [-100, 20])
def test_one_flipped_byte_of_a_run_is_noticed(tmp_path, place):
    train(Transformer(SHAPE), TASK, PLAN, folder=tmp_path)
    file = tmp_path / "run.safetensors"
    data = bytearray(file.read_bytes())
    data[place] ^= 1
    file.write_bytes(data)
    with pytest.raises(ValueError, match="is damaged or half written.*left as it is"):
        train(Transformer(SHAPE), TASK, PLAN, folder=tmp_path)
    assert file.read_bytes() == data


def test_measures_of_numpy_scalars_are_kept(tmp_path):
    kept = train(
        Transformer(SHAPE), TASK, PLAN, folder=tmp_path, measures={"half": lambda model: np.float32(0.5)}
    )
    assert (kept.history["half"] == 0.5).all()


def test_hooks_act_during_training():
    def silent(z, hook):
        return z * 0

    start = Transformer(SHAPE)
    run = train(
        Transformer(SHAPE), TASK, TrainConfig(steps=3, weight_decay=0.0), fwd_hooks=[(("z", 0), silent)]
    )
    torch.testing.assert_close(run.model.W_O, start.W_O, atol=0, rtol=0)
    assert not torch.equal(run.model.W_E, start.W_E)


def test_schedules_and_warmup():
    plan = TrainConfig(steps=100, lr=1.0, warmup=10, schedule="linear")
    assert plan.lr_at(0) == pytest.approx(0.1) and plan.lr_at(50) == pytest.approx(0.5)
    assert TrainConfig(steps=100, lr=1.0, schedule="cosine").lr_at(50) == pytest.approx(0.5)
    assert TrainConfig(steps=100, lr=1.0).lr_at(99) == 1.0


def test_a_masked_loss_counts_marked_positions_only():
    batch = Repeats(vocab=8, length=16, min_period=3, max_period=5, repeats_only=True).batch(0, 0)
    logits = torch.randn(64, 16, 8)
    logits_elsewhere = torch.where(batch.mask[..., None], logits, torch.randn(64, 16, 8))
    assert cross_entropy(logits, batch) == cross_entropy(logits_elsewhere, batch)


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="set d_vocab=9"):
        train(Transformer(SHAPE), Repeats(vocab=9, length=16, min_period=3, max_period=5))
    with pytest.raises(ValueError, match="set n_ctx=17"):
        train(Transformer(SHAPE), Repeats(vocab=8, length=17, min_period=3, max_period=5))
    with pytest.raises(ValueError, match="steps ≥ 1"):
        TrainConfig(steps=0)
    with pytest.raises(ValueError, match="schedule must be one of"):
        TrainConfig(schedule="wave")
    with pytest.raises(FloatingPointError, match="lower lr"):
        train(Transformer(SHAPE), TASK, TrainConfig(steps=301, lr=1e9))
    with pytest.raises(KeyError, match=r"kept \[2\]"):
        train(Transformer(SHAPE), TASK, TrainConfig(steps=3), checkpoint_at=[2]).at(1)


def test_a_stack_gives_the_runs_that_its_models_have_alone():
    plans = [PLAN, TrainConfig(steps=30, lr=1e-2, seed=7, clip=0.5), TrainConfig(steps=30, warmup=9)]
    tasks = [TASK, replace(TASK, repeats_only=True), replace(TASK, min_period=4)]
    options = dict(measures={"loss": evaluated}, measure_at=[0, 15, 30], checkpoint_at=[10])
    stack = fit([Transformer(SHAPE, seed) for seed in range(3)], tasks, plans, **options)
    for seed, (run, task, plan) in enumerate(zip(stack, tasks, plans)):
        alone = train(Transformer(SHAPE, seed), task, plan, **options)
        torch.testing.assert_close(weights(run.model), weights(alone.model), atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(weights(run.at(10)), weights(alone.at(10)), atol=1e-5, rtol=1e-5)
        np.testing.assert_allclose(run.losses, alone.losses, atol=1e-5)
        np.testing.assert_allclose(run.history["loss"], alone.history["loss"], atol=1e-5)
        assert run.config is plan and not run.model.training


def test_beside_a_diverging_model_of_a_stack_the_others_end_as_alone():
    models, plans = [Transformer(SHAPE, seed) for seed in range(3)], [PLAN, replace(PLAN, lr=1e30), PLAN]
    stack = fit(models, [TASK] * 3, plans, strict=False)
    assert not np.isfinite(stack[1].losses[-1])
    for seed in (0, 2):
        alone = train(Transformer(SHAPE, seed), TASK, PLAN)
        torch.testing.assert_close(weights(stack[seed].model), weights(alone.model), atol=1e-5, rtol=1e-5)


def test_by_hand_and_through_a_hook_that_does_nothing_are_one_run():
    plain = train(Transformer(SHAPE), TASK, PLAN)
    watched = train(Transformer(SHAPE), TASK, PLAN, fwd_hooks=[("hook_embed", lambda tensor, hook: None)])
    torch.testing.assert_close(weights(plain.model), weights(watched.model), atol=1e-5, rtol=1e-5)
    np.testing.assert_allclose(plain.losses, watched.losses, atol=1e-5)


@pytest.mark.parametrize(
    "fwd_hooks", [[], [("hook_embed", lambda tensor, hook: None)]], ids=["hand", "autograd"]
)
def test_training_on_a_copy_measures_the_trained_weights_and_brings_them_home(fwd_hooks):
    options = dict(
        measures={"loss": evaluated}, measure_at=[0, 7, 30], checkpoint_at=[7], fwd_hooks=fwd_hooks
    )
    home, copied = train(Transformer(SHAPE), TASK, PLAN, **options), Transformer(SHAPE)
    away = train(copied, TASK, PLAN, device="cpu:0", **options)
    assert away.model is copied and torch.equal(weights(home.model), weights(copied))
    assert np.array_equal(home.history["loss"], away.history["loss"])
    assert torch.equal(weights(home.at(7)), weights(away.at(7)))


class Blank(Repeats):
    """No target counts."""

    def batch(self, seed, step):
        batch = super().batch(seed, step)
        return batch._replace(mask=torch.zeros_like(batch.targets, dtype=torch.bool))


@pytest.mark.parametrize(
    "fwd_hooks", [[], [("hook_embed", lambda tensor, hook: None)]], ids=["hand", "autograd"]
)
def test_a_mask_that_leaves_no_target_is_named(fwd_hooks):
    blank = Blank(vocab=8, length=16, min_period=3, max_period=5, batch_size=16)
    with pytest.raises(FloatingPointError, match="does the batch's mask leave a target that counts"):
        train(Transformer(SHAPE), blank, PLAN, fwd_hooks=fwd_hooks)


@pytest.mark.parametrize(
    "task", [TASK, Fragile(vocab=8, length=16, min_period=3, max_period=5, batch_size=16)]
)
def test_a_trained_model_owns_its_weights_even_when_training_broke_off(task):
    model = Transformer(SHAPE)
    kept = dict(model.named_parameters())
    if task is TASK:
        train(model, task, PLAN)
    else:
        with pytest.raises(Killed):
            train(model, task, PLAN)
    assert not torch.equal(weights(model), weights(Transformer(SHAPE)))
    for name, weight in model.named_parameters():
        assert weight is kept[name] and weight.is_contiguous() and weight.is_leaf
        assert weight.untyped_storage().nbytes() == weight.nbytes


class Empty(Repeats):
    """A task that ran out of sequences."""

    def batch(self, seed, step):
        return Batch(*(part[:0] for part in super().batch(seed, step)[:2]))


def test_an_empty_batch_is_refused_with_its_shape():
    with pytest.raises(ValueError, match=r"one sequence or more; got inputs \(0, 16\)"):
        train(Transformer(SHAPE), Empty(**vars(TASK)), PLAN)


def test_a_folder_of_one_precision_is_not_gone_on_with_in_another(tmp_path, monkeypatch):
    monkeypatch.setattr("iclkit.stepping.has_bfloat16", lambda device: True)
    train(Transformer(SHAPE), TASK, PLAN, folder=tmp_path, precision="bfloat16")
    with pytest.raises(ValueError, match="holds another run"):
        train(Transformer(SHAPE), TASK, PLAN, folder=tmp_path)
