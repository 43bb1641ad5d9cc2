"""Models that read exemplars and labels, by hand against autograd: losses, gradients, what is not by hand."""

import copy

import pytest
import torch

from iclkit.fast.step import Step
from iclkit.model import TransformerConfig
from iclkit.pairs import pair_transformer, query_loss
from iclkit.stepping import ByAutograd, ByHand, build_stepper, cross_entropy
from iclkit.tasks import FewShot, ImageLike
from iclkit.training import TrainConfig, train

TASK = FewShot(ImageLike(n_classes=12, n_exemplars=4, d_features=10, rank=4), batch_size=8)
PLAN = TrainConfig(steps=20, lr=3e-3, betas=(0.9, 0.999))


def built(seed: int, query_only: bool, **changes):
    shape = dict(d_vocab=12, n_ctx=5, n_layers=2, d_model=16, n_heads=2, layer_norm=True) | changes
    model = pair_transformer(TransformerConfig(**shape), 10, seed, query_only)
    with torch.no_grad():
        model.pairs.b_X.normal_(generator=torch.Generator().manual_seed(seed))
    return model.double()


def batch(seed: int, task: FewShot = TASK):
    found = task.batch(seed, 0)
    return found._replace(inputs=found.inputs.double())


@pytest.mark.parametrize("query_only", [False, True])
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("changes", [{}, {"d_mlp": 24}, {"layer_norm": False}, {"positions": "shortformer"}])
def test_losses_and_gradients_are_autograds(query_only, count, changes):
    models = [built(seed, query_only, **changes) for seed in range(count)]
    twins, batches = copy.deepcopy(models), [batch(seed) for seed in range(count)]
    step = Step(models, [PLAN] * count, query_loss)
    losses = step(batches)
    for index, (twin, one) in enumerate(zip(twins, batches)):
        wanted = query_loss(twin(one.inputs), one)
        wanted.backward()
        torch.testing.assert_close(losses[index], wanted.detach(), atol=1e-12, rtol=1e-10)
        grads = step.flat.named(step.grads, index)
        assert set(grads) == {name for name, _ in twin.named_parameters()}
        for name, grad in grads.items():
            assert (found := twin.get_parameter(name).grad).any() or "b_X" not in name
            torch.testing.assert_close(grad, found, atol=1e-11, rtol=1e-9, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize("query_only", [False, True])
def test_a_run_by_hand_ends_where_autograds_does(query_only):
    hand, auto = built(0, query_only).float(), built(0, query_only).float()
    assert isinstance(build_stepper([hand], [PLAN], loss=query_loss), ByHand)
    touched = [("hook_embed", lambda x, hook: None)]
    assert isinstance(build_stepper([auto], [PLAN], loss=query_loss, fwd_hooks=touched), ByAutograd)
    first, second = (
        train(hand, TASK, PLAN, loss=query_loss),
        train(auto, TASK, PLAN, loss=query_loss, fwd_hooks=touched),
    )
    assert abs(first.losses - second.losses).max() < 1e-5
    for name, weight in hand.named_parameters():
        assert torch.allclose(weight, auto.get_parameter(name), atol=1e-4), name


def unread(model):
    model._forward_pre_hooks.clear()


def watched(model):
    model.register_forward_hook(lambda *_: None)


def watched_inside(model):
    model.pairs.register_forward_hook(lambda *_: None)


def frozen(model):
    model.pairs.W_L.requires_grad_(False)


def read_otherwise(model):
    model.pairs = torch.nn.Linear(11, 16)


@pytest.mark.parametrize("change", [unread, watched, watched_inside, frozen, read_otherwise])
def test_a_model_read_in_another_way_is_not_by_hand(change):
    model = built(0, True)
    assert isinstance(build_stepper([model], [PLAN], loss=query_loss), ByHand)
    model = built(0, True)
    change(model)
    assert isinstance(build_stepper([model], [PLAN], loss=query_loss), ByAutograd)


@pytest.mark.parametrize(
    "inputs, message",
    [
        (torch.zeros(2, 5, 10), r"\[batch seq 11\]"),
        (torch.zeros(2, 7, 11), "longer than n_ctx=5"),
        (torch.full((2, 5, 11), 12.0), "labels must lie in 0 … 11; got 12"),
    ],
)
def test_inputs_it_cannot_read_are_refused_as_the_model_does(inputs, message):
    stepper = build_stepper([built(0, True).float()], [PLAN], loss=query_loss)
    targets = torch.zeros(inputs.shape[:2], dtype=torch.long)
    with pytest.raises(ValueError, match=message):
        stepper.step([batch(0)._replace(inputs=inputs, targets=targets)], 0)


def test_a_loss_over_all_positions_of_one_that_answers_last_is_refused():
    stepper = build_stepper([built(0, True).float()], [PLAN], loss=cross_entropy)
    with pytest.raises(ValueError, match="as its inputs are"):
        stepper.step([TASK.batch(0, 0)], 0)


def test_a_label_that_another_model_of_the_stack_would_know_is_refused():
    models = [built(seed, True).float() for seed in range(2)]
    stepper = build_stepper(models, [PLAN] * 2, loss=query_loss)
    good, bad = TASK.batch(0, 0), TASK.batch(1, 0)
    bad.inputs[0, 1, -1] = 12
    with pytest.raises(ValueError, match="labels must lie in 0 … 11"):
        stepper.step([bad, good], 0)
