"""Ablation: what it cuts, what it keeps, and that the model is left as it was."""

import dataclasses

import pytest
import torch
from hand_built import induction_model

from iclkit import circuits
from iclkit.model import Transformer, TransformerConfig
from iclkit.tasks import repeated_tokens

SMALL = TransformerConfig(d_vocab=11, n_ctx=12, n_layers=2, d_model=8, n_heads=2)
TOKENS = torch.randint(11, (4, 10), generator=torch.Generator().manual_seed(0))
OTHERS = torch.randint(11, (3, 12), generator=torch.Generator().manual_seed(1))
EVERY = [(layer, head) for layer in range(2) for head in range(2)]

configs = pytest.mark.parametrize(
    "config", [SMALL, dataclasses.replace(SMALL, layer_norm=True, d_mlp=8, positions="rotary")]
)
ways = pytest.mark.parametrize("how", ["zero", "mean", "resample"])
keeps = pytest.mark.parametrize("keep_patterns", [False, True])


@configs
@ways
@keeps
def test_taking_no_head_away_changes_nothing(config, how, keep_patterns):
    model = Transformer(config)
    ablated = circuits.ablate(model, [], how, keep_patterns, OTHERS)
    torch.testing.assert_close(ablated(TOKENS), model(TOKENS), atol=1e-5, rtol=1e-5)


@keeps
def test_without_any_head_the_direct_path_is_left(keep_patterns):
    model = Transformer(SMALL)
    alone = (model.W_E[TOKENS] + model.W_pos[:10]) @ model.W_U
    torch.testing.assert_close(circuits.ablate(model, EVERY, keep_patterns=keep_patterns)(TOKENS), alone)


@configs
@pytest.mark.parametrize("layer", [0, 1])
def test_zero_is_a_head_whose_output_weights_are_zero(config, layer):
    model, cut = Transformer(config), Transformer(config)
    with torch.no_grad():
        cut.blocks[layer].attn.W_O[1] = 0
    torch.testing.assert_close(
        circuits.ablate(model, [(layer, 1)])(TOKENS), cut(TOKENS), atol=1e-5, rtol=1e-5
    )


def test_keeping_patterns_cuts_values_alone():
    """The path expansion says what is left: all paths that do not pass through the head."""
    model = Transformer(SMALL)
    left = sum(x for name, x in circuits.path_expansion(model, TOKENS).items() if "L0H1" not in name)
    kept = circuits.ablate(model, [(0, 1)], keep_patterns=True)(TOKENS)
    torch.testing.assert_close(kept, left, atol=1e-5, rtol=1e-5)
    assert (circuits.ablate(model, [(0, 1)])(TOKENS) - kept).abs().max() > 1e-3
    last = [circuits.ablate(model, [(1, 0)], keep_patterns=keep)(TOKENS) for keep in (False, True)]
    torch.testing.assert_close(*last, atol=1e-5, rtol=1e-5)  # nothing looks at the last layer


def test_mean_is_the_mean_of_the_reference_at_each_place():
    model = Transformer(SMALL)
    _, cache = model.run_with_cache(OTHERS)
    _, own = model.run_with_cache(TOKENS)
    mean = sum(cache["z", 1][row, :10, 0] for row in range(3)) / 3
    change = (mean - own["z", 1][:, :, 0]) @ model.W_O[1, 0] @ model.W_U
    found = circuits.ablate(model, [(1, 0)], "mean", reference=OTHERS)(TOKENS)
    torch.testing.assert_close(found, model(TOKENS) + change, atol=1e-5, rtol=1e-5)


def test_resampling_takes_rows_of_the_reference_in_turn():
    model = Transformer(SMALL)
    _, cache = model.run_with_cache(OTHERS)
    _, own = model.run_with_cache(TOKENS)
    change = (cache["z", 1][[0, 1, 2, 0], :10, 0] - own["z", 1][:, :, 0]) @ model.W_O[1, 0] @ model.W_U
    found = circuits.ablate(model, [(1, 0)], "resample", reference=OTHERS)(TOKENS)
    torch.testing.assert_close(found, model(TOKENS) + change, atol=1e-5, rtol=1e-5)
    itself = circuits.ablate(model, EVERY, "resample", reference=TOKENS)(TOKENS)
    torch.testing.assert_close(itself, model(TOKENS), atol=1e-5, rtol=1e-5)


@ways
def test_an_ablated_model_reads_a_growing_sequence(how):
    model = Transformer(SMALL)
    ablated = circuits.ablate(model, [(0, 1)], how, keep_patterns=True, reference=OTHERS.repeat(2, 1))
    whole = ablated(TOKENS)
    for seq in (1, 4, 10):
        torch.testing.assert_close(ablated(TOKENS[:, :seq]), whole[:, :seq], atol=1e-5, rtol=1e-5)


@ways
@keeps
def test_nothing_is_left_behind(how, keep_patterns):
    model = Transformer(SMALL)
    before, weights = model(TOKENS), [weight.clone() for weight in model.parameters()]
    circuits.ablate(model, EVERY, how, keep_patterns, OTHERS)(TOKENS)
    circuits.ablate_each_head(model, TOKENS, lambda logits: logits.sum(), how, keep_patterns, OTHERS)
    with pytest.raises(ZeroDivisionError):
        circuits.ablate_each_head(model, TOKENS, lambda logits: 1 / 0)
    assert torch.equal(model(TOKENS), before)
    assert all(torch.equal(old, new) for old, new in zip(weights, model.parameters()))
    assert not any(module._forward_hooks for module in model.modules())


def second_copy_loss(tokens):
    return lambda logits: circuits.token_losses(logits, tokens)[:, 9:].mean()


def test_either_hand_built_head_is_necessary():
    model, tokens = induction_model(), repeated_tokens(12, 8, batch=10)
    full = circuits.ablate_each_head(model, tokens, second_copy_loss(tokens))
    assert (full > 1).all()
    kept = circuits.ablate_each_head(model, tokens, second_copy_loss(tokens), keep_patterns=True)
    assert kept[0, 0].abs() < 1e-4  # the first head matters through the second's pattern alone
    torch.testing.assert_close(kept[1], full[1])


def test_each_head_of_an_untrained_model_hardly_matters():
    config = TransformerConfig(d_vocab=12, n_ctx=24, d_model=32, n_heads=4)
    tokens = repeated_tokens(12, 8, batch=10)
    found = circuits.random_baseline(
        lambda model, t: circuits.ablate_each_head(model, t, second_copy_loss(t)), config, tokens, range(3)
    )
    assert abs(found.mean) < 0.1 and found.std < 0.2


def test_bad_input():
    model = Transformer(SMALL)
    with pytest.raises(ValueError, match="no head L0H2; this model has L0H0 … L1H1"):
        circuits.ablate(model, [(0, 2)])
    with pytest.raises(ValueError, match="no head L-1H0"):
        circuits.ablate(model, [(-1, 0)])
    with pytest.raises(ValueError, match="zero, mean, resample; got 'none'"):
        circuits.ablate(model, [(0, 0)], "none")
    with pytest.raises(ValueError, match="needs reference tokens"):
        circuits.ablate(model, [(0, 0)], "mean")
    with pytest.raises(ValueError, match="\\(4 tokens\\) are shorter than the input \\(10\\)"):
        circuits.ablate(model, [(0, 0)], "mean", reference=OTHERS[:, :4])(TOKENS)
