"""Forward and backward by hand: the readable model's logits, and the gradients that autograd finds."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from twins import ALL, LENGTHS, batch_for, built, shapes, stream

from iclkit.fast.flat import Flat
from iclkit.fast.passes import Passes


def loaded(models: list) -> tuple[Flat, torch.Tensor, Passes]:
    """A buffer that holds these models, gradients that lie the same way, and the passes between them."""
    flat = Flat(models[0], len(models))
    for index, model in enumerate(models):
        for name, view in flat.named(flat.rows, index).items():
            view.copy_(model.get_parameter(name).data)
    grads = torch.zeros_like(flat.rows)
    return flat, grads, Passes(flat, flat.split(grads))


@settings(max_examples=80, deadline=None)
@given(shapes(), st.sampled_from(LENGTHS), st.integers(1, 3), st.integers(1, 3))
def test_logits_and_gradients_are_those_of_the_readable_model(config, length, count, size):
    models = [built(config, seed) for seed in range(count)]
    inputs = [batch_for(model, seed, size, length).inputs for seed, model in enumerate(models)]
    flat, grads, passes = loaded(models)
    with torch.no_grad():
        logits, kept = passes.forward(torch.stack(inputs))
        dlogits = torch.randn(logits.shape, generator=stream(9), dtype=torch.float64)
        passes.backward(dlogits.clone(), kept)
    for index, model in enumerate(models):
        wanted = model(inputs[index])
        torch.testing.assert_close(logits[index].view_as(wanted), wanted, atol=1e-10, rtol=1e-10)
        wanted.backward(dlogits[index].view_as(wanted))
        for name, grad in flat.named(grads, index).items():
            weight = model.get_parameter(name)
            found = torch.zeros_like(weight) if weight.grad is None else weight.grad
            torch.testing.assert_close(grad, found, atol=1e-10, rtol=1e-9, msg=lambda m, n=name: f"{n}: {m}")


@torch.no_grad()
def test_gradients_add_up_over_calls():
    model = built(ALL)
    _, grads, passes = loaded([model])
    both = batch_for(model, 0, size=4).inputs[None]
    dlogits = torch.randn(1, 4 * 9, 11, generator=stream(1), dtype=torch.float64)
    passes.backward(dlogits.clone(), passes.forward(both)[1])
    whole = grads.clone()
    grads.zero_()
    for half in (slice(0, 2), slice(2, 4)):
        part = dlogits.view(1, 4, 9, 11)[:, half].reshape(1, -1, 11)
        passes.backward(part, passes.forward(both[:, half])[1])
    torch.testing.assert_close(grads, whole, atol=1e-12, rtol=1e-10)


@torch.no_grad()
@pytest.mark.parametrize("embedded", [False, True])
def test_inputs_and_weights_are_left_as_they_were(embedded):
    model = built(replace(ALL, embedded=embedded, positions="none"))
    flat, _, passes = loaded([model])
    inputs = batch_for(model, 0).inputs[None]
    before, rows = inputs.clone(), flat.rows.clone()
    logits, kept = passes.forward(inputs)
    passes.backward(torch.ones_like(logits), kept)
    assert torch.equal(inputs, before) and torch.equal(flat.rows, rows)
