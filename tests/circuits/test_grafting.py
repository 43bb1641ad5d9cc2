"""Two models in one: against running the halves one after the other; frozen halves that stay, bit for bit."""

import copy
import dataclasses

import pytest
import torch

from iclkit.circuits import frozen, graft
from iclkit.circuits.grafting import weight_halves
from iclkit.model import Transformer, TransformerConfig
from iclkit.pairs import pair_transformer, query_loss
from iclkit.tasks import FewShot, ImageLike
from iclkit.training import TrainConfig, train

TASK = FewShot(ImageLike(n_classes=12, n_exemplars=4, d_features=10, rank=4), batch_size=16)
CONFIG = TransformerConfig(d_vocab=12, n_ctx=5, n_layers=3, d_model=16, n_heads=2, layer_norm=True, d_mlp=8)
INPUTS = TASK.batch(0, 0).inputs


def pair(config=CONFIG, **more):
    """Two models with no weight alike."""
    models = [pair_transformer(config, 10, seed, **more) for seed in (1, 2)]
    with torch.no_grad():
        for model in models:
            for weight in model.parameters():
                weight.add_(
                    torch.randn(weight.shape, generator=torch.Generator().manual_seed(len(weight))) * 0.01
                )
    return models


FIRST, SECOND = pair()


@pytest.mark.parametrize("boundary", [0, 1, 2, 3])
@torch.no_grad()
def test_a_graft_is_one_half_after_the_other(boundary):
    """What the first model writes before the boundary, put into the second there."""
    grafted = graft(FIRST, SECOND, boundary)
    point = ("resid_pre", boundary) if boundary < 3 else ("resid_post", 2)
    _, cache = FIRST.run_with_cache(INPUTS, [point])
    expected = SECOND.run_with_hooks(INPUTS, [(point, lambda x, hook: cache[hook.name])])
    torch.testing.assert_close(grafted(INPUTS), expected)


@pytest.mark.parametrize("boundary", [0, 1, 2, 3])
def test_every_weight_comes_from_the_half_it_is_in(boundary):
    grafted, (below, above) = graft(FIRST, SECOND, boundary), weight_halves(FIRST, boundary)
    assert not set(below) & set(above) and set(below) | set(above) == {n for n, _ in FIRST.named_parameters()}
    for names, source in ((below, FIRST), (above, SECOND)):
        for name in names:
            assert torch.equal(grafted.get_parameter(name), source.get_parameter(name))
    assert {n.split(".")[1] for n in below if n.startswith("blocks")} == set(map(str, range(boundary)))
    assert {"_W_U", "ln_final.w", "ln_final.b"} <= set(above)
    assert {"pairs.W_X", "pairs.W_L", "positions.W_pos"} <= set(below)


def test_a_model_grafted_with_itself_is_itself():
    for boundary in range(4):
        assert torch.equal(graft(FIRST, FIRST, boundary)(INPUTS), FIRST(INPUTS))


def test_what_is_grafted_stays_as_it_was():
    first, second = pair()
    grafted = graft(first, second)
    with torch.no_grad():
        for weight in grafted.parameters():
            weight.add_(1)
    assert torch.equal(first(INPUTS), FIRST(INPUTS)) and torch.equal(second(INPUTS), SECOND(INPUTS))


def test_a_graft_answers_the_query_alone_if_the_second_does():
    first, second = pair(query_only=True)
    assert graft(FIRST, second)(INPUTS).shape == (16, 1, 12)
    assert torch.equal(graft(first, SECOND)(INPUTS)[:, -1:], graft(FIRST, second)(INPUTS))


def test_tokens_are_grafted_too():
    config = TransformerConfig(d_vocab=7, n_ctx=6, d_model=8, n_heads=2, positions="rotary")
    first, second = Transformer(config, seed=1), Transformer(config, seed=2)
    grafted = graft(first, second)
    assert torch.equal(grafted.W_E, first.W_E) and torch.equal(grafted.W_U, second.W_U)


@pytest.mark.parametrize("query_only", [False, True])
@pytest.mark.parametrize("half, boundary", [("first", 1), ("second", 1), ("first", 0), ("second", 2)])
def test_a_frozen_half_stays_bit_for_bit_while_the_other_trains(half, boundary, query_only):
    model, _ = pair(query_only=query_only)
    before = copy.deepcopy(dict(model.named_parameters()))
    config = TrainConfig(steps=8, lr=1e-2, weight_decay=0.1, rates=frozen(model, half, boundary))
    run = train(model, TASK, config, loss=query_loss)
    below, above = weight_halves(model, boundary)
    still, moved = (below, above) if half == "first" else (above, below)
    assert all(torch.equal(model.get_parameter(name), before[name]) for name in still)
    assert not any(torch.equal(model.get_parameter(name), before[name]) for name in moved)
    assert torch.isfinite(torch.from_numpy(run.losses)).all()


def test_a_graft_trains_below_a_frozen_half():
    """What the training is for: the second half is the donor's before and after."""
    model = graft(FIRST, SECOND)
    run = train(model, TASK, TrainConfig(steps=60, lr=1e-2, rates=frozen(model, "second")), loss=query_loss)
    assert run.losses[-10:].mean() < run.losses[:10].mean()
    assert all(
        torch.equal(graft(FIRST, model).get_parameter(n), SECOND.get_parameter(n))
        for n in weight_halves(model)[1]
    )


def test_rates_are_few_and_readable():
    assert frozen(FIRST, "first") == (("positions.*", 0.0), ("blocks.0.*", 0.0), ("pairs.*", 0.0))
    assert frozen(FIRST, "second", 2) == (("_W_U", 0.0), ("blocks.2.*", 0.0), ("ln_final.*", 0.0))


@pytest.mark.parametrize(
    "change, message",
    [
        ({"n_layers": 2}, r"differ in n_layers \(3 and 2\)"),
        ({"d_model": 32, "d_head": 8}, r"differ in d_model \(16 and 32\)"),
        ({"d_vocab": 13, "d_vocab_out": 13}, r"d_vocab \(12 and 13\), d_vocab_out \(12 and 13\)"),
        ({"positions": "none"}, "differ in positions"),
    ],
)
def test_models_of_two_configs_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        graft(FIRST, pair_transformer(dataclasses.replace(CONFIG, **change), 10))


def test_models_that_read_differently_are_refused():
    with pytest.raises(
        ValueError, match=r"pairs.W_X is \(10, 16\) in the first and \(11, 16\) in the second"
    ):
        graft(FIRST, pair_transformer(CONFIG, 11))
    plain = Transformer(FIRST.config)
    with pytest.raises(ValueError, match="pairs.W_X is .* in the first and absent in the second"):
        graft(FIRST, plain)
    with pytest.raises(ValueError, match="pairs.W_X is absent in the first"):
        graft(plain, FIRST)


@pytest.mark.parametrize(
    "boundary, message", [(-1, "0 … 3 in this model; got -1"), (4, "got 4"), (True, "whole")]
)
def test_boundaries_that_are_none_are_refused(boundary, message):
    for use in (lambda b: graft(FIRST, SECOND, b), lambda b: frozen(FIRST, "first", b)):
        with pytest.raises(ValueError, match=message):
            use(boundary)


def test_halves_that_share_weights_are_refused():
    for change in ({"tied": True}, {"positions": "relative"}, {"positions": "shortformer"}):
        model = Transformer(TransformerConfig(d_vocab=7, n_ctx=6, d_model=8, n_heads=2, **change))
        with pytest.raises(ValueError, match="halves of this model share weights"):
            graft(model, model)
    with pytest.raises(ValueError, match="half must be one of first, second; got 'upper'"):
        frozen(FIRST, "upper")
