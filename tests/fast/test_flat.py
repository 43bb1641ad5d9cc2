"""One buffer: every number has one place, under the names that the model gives it."""

import torch
from hypothesis import given, settings
from twins import ALL, built, shapes

from iclkit.fast.flat import Flat


@settings(max_examples=20, deadline=None)
@given(shapes())
def test_every_number_has_one_place_and_the_models_name_and_shape(config):
    model = built(config)
    flat = Flat(model, 2)
    numbers = torch.arange(2.0 * flat.size).view(2, -1)
    for index in range(2):
        named = flat.named(numbers, index)
        assert {n: v.shape for n, v in named.items()} == {n: w.shape for n, w in model.named_parameters()}
        places = torch.cat([view.flatten() for view in named.values()])
        assert torch.equal(places.sort().values, numbers[index])


@settings(max_examples=20, deadline=None)
@given(shapes())
def test_matrices_come_first_and_they_alone_decay(config):
    model = built(config)
    flat = Flat(model, 1)
    numbers = torch.arange(float(flat.size))[None]
    for name, view in flat.named(numbers, 0).items():
        first = view.max() < flat.decaying
        assert (
            first == (dict(model.named_parameters())[name].ndim > 1) and (view < flat.decaying).all() == first
        )


def test_a_view_shares_memory_with_its_own_model_alone():
    flat = Flat(built(ALL), 3)
    for view in flat.named(flat.rows, 1).values():
        view.fill_(1.0)
    assert flat.rows.sum(1).tolist() == [0.0, float(flat.size), 0.0]
    assert all(
        (view.flatten(1).mean(1) == torch.tensor([0.0, 1.0, 0.0])).all() for view in flat.views.values()
    )


def test_queries_keys_and_values_are_columns_of_one_product():
    model = built(ALL)
    flat, attn = Flat(model, 1), model.blocks[1].attn
    for name, view in flat.named(flat.rows, 0).items():
        view.copy_(dict(model.named_parameters())[name].data)
    x = torch.randn(5, ALL.d_model, dtype=torch.float64)
    q, k, v = (x @ flat.views["blocks.1.attn.W_QKV"][0]).view(5, 3, ALL.n_heads, ALL.d_head).unbind(1)
    for got, weight in ((q, attn.W_Q), (k, attn.W_K), (v, attn.W_V)):
        torch.testing.assert_close(got, torch.einsum("sd,hde->she", x, weight))
