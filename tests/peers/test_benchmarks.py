"""What the benchmark times is the same work for everybody: parameters, a causal model, a step that learns."""

import importlib.util
import math

import pytest
import torch
from benchmarks import limit, variants
from benchmarks.crews import Cell, Crew
from benchmarks.page import EAGER
from benchmarks.shapes import SHAPES
from torch.utils.flop_counter import FlopCounterMode

from conftest import missing
from iclkit.model import Transformer

MODELS = [key for key in variants.ONE if not key.startswith("limit") and key != "batches"]
COMPILED = [key for key in MODELS if "compiled" in key]
PAIRS = [(v, s) for v in MODELS for s in variants.ONE[v].only or SHAPES if v not in COMPILED]


@pytest.fixture(scope="module", autouse=True)
def peers():
    for name in ("transformer_lens", "x_transformers", "transformers", "jax", "equinox", "optax"):
        if importlib.util.find_spec(name) is None:
            missing("peers", f"{name} is not installed (requirements-peers.txt)")


def trainer_of(variant: str, shape: str):
    """The trainer of a variant, fed one batch again and again."""
    chosen, built = variants.ONE[variant], SHAPES[shape]
    return variants.called(chosen.build)(built, built.batches(1), **chosen.options)


@pytest.mark.parametrize(("variant", "shape"), PAIRS)
def test_equal_parameters_and_a_step_that_learns(variant, shape):
    if "bfloat16" in variant and not limit.has_bfloat16():
        with pytest.raises(ValueError, match="no bfloat16"):
            trainer_of(variant, shape)
        return
    trainer = trainer_of(variant, shape)
    config, gap = SHAPES[shape].model, 0
    if variant == "x-transformers":
        gap = 64 * (config.n_layers * (2 if config.d_mlp else 1) + 1)
    ours = sum(weight.numel() for weight in Transformer(config).parameters())
    assert trainer.parameters == ours - gap == variants.parameters(SHAPES[shape], variants.ONE[variant])
    losses = [float(trainer.advance()) for _ in range(4)]
    assert all(map(math.isfinite, losses)) and losses[-1] < losses[0], losses


@pytest.mark.parametrize("variant", COMPILED)
def test_compiled_variants_learn_in_a_process_of_their_own(variant):
    """Not in this one: the tests' shape checks stand in a compiler's way."""
    crew = Crew(Cell("steps", "few-shot", variant), threads=1)
    try:
        (built,) = crew.hear()
        losses = [crew.ask(do="run", steps=1)[0]["loss"] for _ in range(3 * variants.BATCHES + 1)]
    finally:
        crew.end()
    assert built["parameters"] == variants.parameters(SHAPES["few-shot"], variants.ONE[variant])
    assert all(map(math.isfinite, losses)) and losses[-1] < losses[0], "the first batch again"


@pytest.mark.parametrize("variant", EAGER)
@pytest.mark.parametrize("shape", ["repeats", "few-shot"])
def test_no_peer_looks_ahead(variant, shape):
    trainer = trainer_of(variant, shape)
    inputs = SHAPES[shape].batches(1)[0].inputs
    changed = inputs.clone()
    changed[:, -1] = inputs[:, -2]
    with torch.no_grad():
        before, after = trainer.logits(inputs), trainer.logits(changed)
    torch.testing.assert_close(before[:, :-1], after[:, :-1], atol=1e-5, rtol=1e-5)
    assert not torch.allclose(before[:, -1], after[:, -1], atol=1e-3)


def test_jax_looks_at_no_later_token():
    from benchmarks.jaxed import first_weights, forward, jax

    config = SHAPES["repeats"].model
    weights = first_weights(config, jax.random.key(0))
    inputs = SHAPES["repeats"].batches(1)[0].inputs[:4].numpy()
    changed = inputs.copy()
    changed[:, -1] = inputs[:, -2]
    difference = abs(forward(weights, inputs, 4) - forward(weights, changed, 4)).max((0, 2))
    assert difference[:-1].max() < 1e-5 and difference[-1] > 1e-3


@pytest.mark.parametrize("variant", variants.MANY)
def test_several_models_train_side_by_side(variant):
    trainer = variants.build("many", "models=2", variant)
    each = sum(weight.numel() for weight in Transformer(SHAPES["few-shot"].model).parameters())
    assert trainer.parameters == each * 2 / variants.MANY[variant].crew
    losses = [float(trainer.advance()) for _ in range(5 * variants.BATCHES)]
    assert all(map(math.isfinite, losses)) and losses[-variants.BATCHES] < losses[0], "the first batch again"


def test_vmapped_models_are_the_models_of_the_loop():
    pair = [variants.build("many", "models=4", key) for key in ("loop", "vmap")]
    for _ in range(5):
        looped, mapped = (float(trainer.advance()) for trainer in pair)
        assert looped == pytest.approx(mapped, abs=1e-5)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_limit_is_made_of_the_models_own_products(shape):
    """The same multiplications, counted by PyTorch, as in the plain model with its softmax written out."""
    built, counts = SHAPES[shape], []
    plain = variants.called("plain:build")(built, built.batches(1), fused=False)
    for trainer in (plain, limit.Products(built)):
        with FlopCounterMode(display=False) as counter:
            trainer.advance()
        counts.append(counter.get_total_flops())
    assert counts[0] == counts[1] == limit.flops(built)
