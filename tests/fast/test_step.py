"""The step by hand against autograd and `torch.optim.AdamW`: losses, gradients, twenty updates, M models."""

import copy
from dataclasses import replace
from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from twins import ALL, SMALL, Plain, batch_for, built, gap, shapes

from iclkit.fast import step as step_module
from iclkit.fast.step import Step
from iclkit.stepping import cross_entropy
from iclkit.training import TrainConfig

STEPS = 20
PLAN = TrainConfig(steps=STEPS, lr=3e-3)


def of_last(logits, batch):
    """A loss of another kind: squares at the last position, which never fall below a target's number."""
    return (logits[:, -1] - batch.targets[:, -1:]).square().mean() / 10 + logits.logsumexp(-1).mean()


@settings(max_examples=30, deadline=None)
@given(
    shapes(),
    st.sampled_from([1, 2, 7, 9, 65, 150]),
    st.integers(1, 5),
    st.lists(st.booleans(), min_size=1, max_size=3),
    st.sampled_from([1, 20, 400, 100_000]),
    st.sampled_from([cross_entropy, of_last]),
)
def test_losses_and_gradients_are_autograds_however_the_batch_is_cut(
    config, length, size, masks, tokens, loss
):
    models = [built(config, seed) for seed in range(len(masks))]
    twins = [copy.deepcopy(model) for model in models]
    batches = [
        batch_for(m, seed, size, length, masked) for seed, (m, masked) in enumerate(zip(models, masks))
    ]
    step = Step(models, [PLAN] * len(models), None if loss is cross_entropy else loss)
    with mock.patch.object(step_module, "TOKENS", tokens):
        losses = step(batches)
    for index, (twin, batch) in enumerate(zip(twins, batches)):
        wanted = loss(twin(batch.inputs), batch)
        wanted.backward()
        torch.testing.assert_close(losses[index], wanted.detach(), atol=1e-12, rtol=1e-10)
        for name, grad in step.flat.named(step.grads, index).items():
            weight = twin.get_parameter(name)
            found = torch.zeros_like(weight) if weight.grad is None else weight.grad
            torch.testing.assert_close(grad, found, atol=1e-10, rtol=1e-9, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("size", [1, 2, 3, 5, 6])
def test_the_last_part_of_a_batch_may_be_smaller(size, count):
    models = [built(ALL, seed) for seed in range(count)]
    batches = [batch_for(model, seed, size, masked=seed == 1) for seed, model in enumerate(models)]
    wanted = [cross_entropy(model(batch.inputs), batch).detach() for model, batch in zip(models, batches)]
    with mock.patch.object(step_module, "TOKENS", 2 * 9 * count):
        losses = Step(models, [PLAN] * count)(batches)
    torch.testing.assert_close(losses, torch.stack(wanted), atol=1e-12, rtol=1e-10)


def together(models, plans, batches, loss=cross_entropy):
    """Losses `[update model]` and weights of a stack and of its twins, each trained alone by autograd."""
    twins = [copy.deepcopy(model) for model in models]
    step = Step(models, plans, None if loss is cross_entropy else loss)
    stacked = torch.stack([step(batches(n)) for n in range(STEPS)])
    step.release()
    plain = [Plain(twin, plan, loss) for twin, plan in zip(twins, plans)]
    alone = torch.stack([torch.stack([p(b) for p, b in zip(plain, batches(n))]) for n in range(STEPS)])
    return stacked, alone, twins


DIFFERENT = [
    TrainConfig(steps=STEPS, lr=3e-3, warmup=5, schedule="cosine", weight_decay=0.1),
    TrainConfig(steps=STEPS, lr=1e-2, betas=(0.9, 0.95), clip=0.5),
    TrainConfig(steps=STEPS, lr=1e-3, betas=(0.8, 0.999), schedule="linear", weight_decay=0, clip=1e-3),
]
KINDS = {
    "tokens": ALL,
    "no norm": replace(ALL, layer_norm=False, act="relu"),
    "attention only": SMALL,
    "shortformer": replace(ALL, positions="shortformer"),
    "tied": replace(ALL, tied=True, positions="none"),
    "vectors": replace(ALL, embedded=True, d_vocab_out=5),
}


@pytest.mark.parametrize(
    "dtype, loss_gap, weight_gap", [(torch.float64, 1e-11, 1e-11), (torch.float32, 1e-5, 1e-5)]
)
@pytest.mark.parametrize("kind", KINDS)
def test_twenty_updates_of_three_models_are_those_of_three_runs(kind, dtype, loss_gap, weight_gap):
    models = [built(KINDS[kind], seed, dtype) for seed in range(3)]
    length = 6 if kind in ("tokens", "shortformer") else 14

    def batches(n):
        return [batch_for(m, 3 * n + i, 8, length, masked=i == 1) for i, m in enumerate(models)]

    stacked, alone, twins = together(models, DIFFERENT, batches)
    print(
        f"{kind} {dtype} loss {(stacked - alone).abs().max():.1e} weights {max(map(gap, models, twins)):.1e}"
    )
    assert stacked.dtype == dtype and (stacked - alone).abs().max() < loss_gap
    assert max(map(gap, models, twins)) < weight_gap
    assert (stacked[0] - stacked[-1]).abs().min() > 1e-3


@pytest.mark.parametrize(
    "dtype, loss_gap, weight_gap", [(torch.float64, 1e-11, 1e-11), (torch.float32, 1e-5, 1e-5)]
)
@pytest.mark.parametrize("plan", DIFFERENT, ids=["warm-up, cosine, decay", "clip", "linear, clip"])
@pytest.mark.parametrize("loss", [cross_entropy, of_last])
def test_twenty_updates_of_one_model_are_those_of_a_plain_loop(plan, loss, dtype, loss_gap, weight_gap):
    models = [built(ALL, 0, dtype)]
    stacked, alone, twins = together(models, [plan], lambda n: [batch_for(models[0], n, 8, 14)], loss)
    print(f"{dtype} loss {(stacked - alone).abs().max():.1e} weights {gap(models[0], twins[0]):.1e}")
    assert (stacked - alone).abs().max() < loss_gap and gap(models[0], twins[0]) < weight_gap


def test_a_model_that_diverges_leaves_the_others_as_they_would_be_without_it():
    wild = TrainConfig(steps=STEPS, lr=1e30)
    models = [built(ALL, seed, torch.float32) for seed in range(3)]
    stacked, alone, twins = together(
        models, [PLAN, wild, PLAN], lambda n: [batch_for(m, n, 8, 14) for m in models]
    )
    assert not stacked[-1, 1].isfinite()
    assert (stacked - alone)[:, [0, 2]].abs().max() < 1e-5
    assert max(gap(models[i], twins[i]) for i in (0, 2)) < 1e-5


def test_lengths_and_sizes_may_change_from_step_to_step():
    models = [built(ALL)]
    sizes = [(8, 14), (3, 6), (8, 14), (1, 1), (40, 16)] * 4
    stacked, alone, twins = together(models, [PLAN], lambda n: [batch_for(models[0], n, *sizes[n])])
    assert (stacked - alone).abs().max() < 1e-9 and gap(models[0], twins[0]) < 1e-9


def test_while_training_the_models_share_one_buffer_and_after_it_they_own_their_weights():
    models = [built(ALL, seed, torch.float32) for seed in range(2)]
    weights = [list(model.parameters()) for model in models]
    step = Step(models, [PLAN] * 2)
    step([batch_for(m, 0) for m in models])
    shared = {w.untyped_storage().data_ptr() for model in models for w in model.parameters()}
    assert shared == {step.flat.rows.untyped_storage().data_ptr()}
    trained = [copy.deepcopy(model) for model in models]
    step.release()
    for model, twin, before in zip(models, trained, weights):
        assert all(w is old for w, old in zip(model.parameters(), before)) and gap(model, twin) == 0
        for weight in [*model.parameters(), *copy.deepcopy(model).parameters(), *model.state_dict().values()]:
            assert weight.is_contiguous()
            assert weight.untyped_storage().nbytes() == weight.numel() * weight.element_size()
    step.flat.rows.zero_()
    assert all(map(lambda model, twin: gap(model, twin) == 0, models, trained))
