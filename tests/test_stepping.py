"""Who makes the updates: by hand for plain models, autograd for others; both say the same and stop alike."""

import copy
from dataclasses import replace

import pytest
import torch
from torch import nn
from twins import ALL, SMALL, Plain, batch_for, built, gap

from iclkit import stepping
from iclkit.model import Transformer
from iclkit.stepping import ByAutograd, ByHand, build_stepper, cross_entropy
from iclkit.tasks import Batch
from iclkit.training import TrainConfig

PLAN = TrainConfig(steps=20, lr=3e-3, clip=1.0, warmup=3, schedule="cosine")
CPU = torch.device("cpu")


class Own(Transformer):
    """A subclass, which may compute anything."""


class Upper(nn.Module):
    def forward(self, weight):
        return weight.triu()


class Silent(nn.Module):
    def forward(self, x, taps):
        return x * 0


def seen(*arguments):
    return None


def silence(model):
    model.blocks[0].mlp = Silent()


def patch(model):
    model.blocks[0].mlp.forward = lambda x, taps: x * 0


def share(model):
    model.blocks[1].attn.W_Q = model.blocks[0].attn.W_Q


def bend(model):
    model.blocks[0].mlp.act = torch.tanh


ALTERED = {
    "a frozen weight": lambda m: m.W_E.requires_grad_(False),
    "a hook on a weight's gradient": lambda m: m.W_E.register_hook(lambda grad: grad * 0),
    "a hook after a gradient": lambda m: m.W_E.register_post_accumulate_grad_hook(seen),
    "a forward hook": lambda m: m.blocks[0].register_forward_hook(seen),
    "a forward hook before": lambda m: m.blocks[0].attn.register_forward_pre_hook(seen),
    "a backward hook": lambda m: m.ln_final.register_full_backward_hook(seen),
    "a backward hook before": lambda m: m.ln_final.register_full_backward_pre_hook(seen),
    "mixed types": lambda m: m.ln_final.double(),
    "a weight computed from another": lambda m: nn.utils.parametrize.register_parametrization(
        m.blocks[0].mlp, "W_in", Upper()
    ),
    "a shared weight": share,
    "a part of another kind": silence,
    "a part's own forward": patch,
    "another activation": bend,
    "a weight more": lambda m: m.register_parameter("more", nn.Parameter(torch.zeros(3))),
}


@pytest.mark.parametrize("positions", ["absolute", "shortformer", "none"])
@pytest.mark.parametrize("shape", [SMALL, ALL, replace(ALL, tied=True), replace(ALL, embedded=True)])
def test_plain_models_train_by_hand(shape, positions):
    models = [Transformer(replace(shape, positions=positions), seed) for seed in range(2)]
    assert isinstance(build_stepper(models, [PLAN] * 2), ByHand)


@pytest.mark.parametrize("why", ALTERED)
def test_what_somebody_changed_or_watches_trains_through_autograd(why):
    model = Transformer(ALL)
    assert stepping.is_plain(model)
    ALTERED[why](model)
    assert isinstance(build_stepper([model], [PLAN]), ByAutograd)


@pytest.mark.parametrize(
    "change", [{"positions": "relative"}, {"positions": "rotary"}, {"smeared_keys": True}]
)
def test_variants_without_a_written_derivative_train_through_autograd(change):
    model = Transformer(replace(SMALL, **change))
    assert isinstance(build_stepper([model], [PLAN]), ByAutograd)
    with pytest.raises(ValueError, match="models train in one stack only without.*processes"):
        build_stepper([model, model], [PLAN] * 2)


def test_subclasses_and_hooks_train_through_autograd():
    assert isinstance(build_stepper([Own(SMALL)], [PLAN]), ByAutograd)
    for hooks in ([("hook_embed", seen)], iter([("hook_embed", seen)])):
        assert isinstance(build_stepper([Transformer(SMALL)], [PLAN], fwd_hooks=hooks), ByAutograd)
    handle = nn.modules.module.register_module_forward_hook(seen)
    assert not stepping.is_plain(Transformer(SMALL))
    handle.remove()
    assert stepping.is_plain(Transformer(SMALL))


def test_what_autograd_is_chosen_for_takes_effect():
    frozen, muted, watched, calls = *(Transformer(ALL) for _ in range(3)), []
    frozen.W_E.requires_grad_(False)
    muted.W_E.register_hook(lambda grad: grad * 0)
    watched.blocks[1].register_forward_hook(lambda *_: calls.append(1))
    still = replace(PLAN, weight_decay=0)
    for model in (frozen, muted, watched):
        build_stepper([model], [still]).step([batch_for(model, 0)], 0)
        moved = {
            n for n, w in model.named_parameters() if not torch.equal(w, Transformer(ALL).get_parameter(n))
        }
        assert ("W_E" in moved) == (model is watched) and "_W_U" in moved
    assert len(calls) == 1


@pytest.mark.parametrize("kind", [ByHand, ByAutograd])
def test_both_are_the_plain_loop(kind):
    model = built(ALL)
    twin = copy.deepcopy(model)
    plain = Plain(twin, PLAN)
    stepper = stepper_of(kind, [model])
    for n in range(20):
        batch = batch_for(model, n, 8, 14, masked=n % 2 == 1)
        torch.testing.assert_close(stepper.step([batch], n)[0], plain(batch), atol=1e-10, rtol=1e-10)
    stepper.close()
    assert gap(model, twin) < 1e-9


def stepper_of(kind, models, device=CPU, loss=cross_entropy):
    if kind is ByHand:
        return ByHand(models, [PLAN] * len(models), device, loss)
    return ByAutograd(models[0], PLAN, device, loss)


@pytest.mark.parametrize("kind", [ByHand, ByAutograd])
def test_a_working_copy_gives_the_same_and_shows_its_weights_when_asked(kind):
    at_home, away = built(ALL), built(ALL)
    first, second = stepper_of(kind, [at_home]), stepper_of(kind, [away], torch.device("cpu", 0))
    assert first.here and not second.here
    for n in range(3):
        batch = batch_for(at_home, n)
        assert torch.equal(first.step([batch], n), second.step([batch], n))
        assert gap(at_home, away) > 1e-4
        second.publish()
        assert gap(at_home, away) == 0
    first.step([batch], 3), second.step([batch], 3)
    first.close(), second.close()
    assert gap(at_home, away) == 0


@pytest.mark.parametrize("device", [CPU, torch.device("cpu", 0)], ids=["home", "copy"])
@pytest.mark.parametrize("before", [ByHand, ByAutograd])
@pytest.mark.parametrize("after", [ByHand, ByAutograd])
def test_the_optimisers_memory_has_one_form_for_both(before, after, device):
    whole, broken = built(ALL), built(ALL)
    first, second = stepper_of(before, [whole], device), stepper_of(before, [broken], device)
    for n in range(5):
        first.step([batch_for(whole, n)], n), second.step([batch_for(whole, n)], n)
    second.close()
    state = {name: value.clone() for name, value in second.state().items()}
    again = built(ALL, seed=5)
    third = stepper_of(after, [again], device)
    again.load_state_dict(broken.state_dict())
    third.load(state)
    for n in range(5, 10):
        one, other = first.step([batch_for(whole, n)], n), third.step([batch_for(whole, n)], n)
        assert torch.equal(one, other) if before is after else abs(one - other) < 1e-11
    first.close(), third.close()
    assert gap(whole, again) == 0 if before is after else gap(whole, again) < 1e-10


def altered(batch: Batch, **change) -> Batch:
    return batch._replace(**{name: edit(getattr(batch, name)) for name, edit in change.items()})


def put(value):
    def edit(x):
        x = x.clone()
        x[-1, -1] = value
        return x

    return edit


BAD = {
    r"tokens must lie in 0 … 10 \(d_vocab=11\); got 0 … 11": dict(inputs=put(11)),
    r"tokens must lie in 0 … 10 \(d_vocab=11\); got -1 … \d+": dict(inputs=put(-1)),
    "targets must lie in 0 … 10; got 0 … 11; set d_vocab_out": dict(targets=put(11)),
    "targets must lie in 0 … 10; got -1 … ": dict(targets=put(-1)),
    "targets must lie in 0 … 10; got -100 … ": dict(targets=put(-100)),
    "mask must be bool.*got torch.int64": dict(mask=lambda mask: mask.long()),
    r"mask must be \[batch seq\].*\(40, 9\); got \(40, 1\)": dict(mask=lambda mask: mask[:, :1]),
    r"targets must be \[batch seq\].*\(40, 9\); got \(40, 8\)": dict(targets=lambda x: x[:, :8]),
    r"targets must be \[batch seq\].*\(40, 9\); got \(360,\)": dict(targets=lambda x: x.flatten()),
    "a sequence of 18 is longer than n_ctx=16": dict(inputs=lambda x: torch.cat([x, x], 1)),
}


@pytest.mark.parametrize("message", BAD)
@pytest.mark.parametrize("kind, count", [(ByAutograd, 1), (ByHand, 1), (ByHand, 2)])
def test_a_bad_batch_is_refused_alike_and_nothing_is_updated(kind, count, message, monkeypatch):
    monkeypatch.setattr("iclkit.fast.step.TOKENS", 90)
    models, twins = ([built(SMALL, seed) for seed in range(count)] for _ in range(2))
    good = [batch_for(model, 0, size=40, masked=True) for model in models]
    stepper, twin = stepper_of(kind, models), stepper_of(kind, twins)
    stepper.step(good, 0), twin.step(good, 0)
    with pytest.raises(ValueError, match=message):
        stepper.step([altered(good[0], **BAD[message]), *good[1:]], 1)
    assert all(map(lambda a, b: gap(a, b) == 0, models, twins))
    assert torch.equal(stepper.step(good, 1), twin.step(good, 1))
    stepper.close(), twin.close()
    assert all(map(lambda a, b: gap(a, b) == 0, models, twins))


def test_inputs_of_another_type_or_shape_are_refused_before_any_arithmetic():
    """Through autograd the tests' type checker stops these first; `test_bad_input` goes without it."""
    model = built(SMALL)
    good, stepper, before = batch_for(model, 0), stepper_of(ByHand, [model]), copy.deepcopy(model)
    for inputs, got in (
        (good.inputs.float(), "torch.float32"),
        (good.inputs[..., None], r"shape \(3, 9, 1\)"),
    ):
        with pytest.raises(ValueError, match=rf"takes int \[batch seq\].*got.*{got}"):
            stepper.step([good._replace(inputs=inputs)], 0)
    assert gap(model, before) == 0


def test_in_a_stack_no_model_reads_the_tables_of_another():
    models = [built(SMALL, seed) for seed in range(3)]
    good = [batch_for(model, 0) for model in models]
    for place, token in ((0, 11), (1, -1), (1, 12), (2, 11)):
        batches = list(good)
        batches[place] = altered(good[place], inputs=put(token))
        with pytest.raises(ValueError, match="tokens must lie in 0 … 10"):
            stepper_of(ByHand, models).step(batches, 0)


@pytest.mark.parametrize("kind", [ByHand, ByAutograd])
def test_a_loss_that_fails_speaks_for_itself(kind):
    def short(logits, batch):
        return (logits.sum(-1) - batch.targets[:, :3]).square().mean()

    stepper = stepper_of(kind, [built(SMALL)], loss=short)
    batch = altered(batch_for(built(SMALL), 0), targets=lambda x: x.double())
    with pytest.raises(RuntimeError, match=r"size of tensor a \(9\) must match the size of tensor b \(3\)"):
        stepper.step([batch], 0)
