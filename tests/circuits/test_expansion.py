"""Path expansion: the paths of a model with frozen patterns are its logits."""

import dataclasses

import pytest
import torch
from hand_built import induction_model

from iclkit import circuits
from iclkit.model import Transformer, TransformerConfig
from iclkit.tasks import repeated_tokens

SMALL = TransformerConfig(d_vocab=11, n_ctx=12, n_layers=2, d_model=8, n_heads=2)
TOKENS = torch.randint(11, (3, 10), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("positions", ["absolute", "shortformer", "relative", "rotary", "none"])
@pytest.mark.parametrize("n_layers", [0, 1, 2, 3])
@pytest.mark.parametrize("variant", [{}, {"smeared_keys": True}, {"tied": True}])
def test_the_paths_sum_to_the_logits(positions, n_layers, variant):
    model = Transformer(dataclasses.replace(SMALL, positions=positions, n_layers=n_layers, **variant), seed=1)
    paths = circuits.path_expansion(model, TOKENS)
    assert len(paths) == 3**n_layers
    torch.testing.assert_close(sum(paths.values()), model(TOKENS), atol=1e-5, rtol=1e-5)


def test_one_virtual_head_is_the_product_of_two():
    model = Transformer(SMALL)
    _, cache = model.run_with_cache(TOKENS)
    A1, A2 = cache["pattern", 0][0, 1], cache["pattern", 1][0, 0]
    OV = circuits.OV(model, 0, 1).AB @ circuits.OV(model, 1, 0).AB
    wanted = (A2 @ A1) @ cache["resid_pre", 0][0] @ OV @ model.W_U
    torch.testing.assert_close(
        circuits.path_expansion(model, TOKENS)["L0H1→L1H0"][0], wanted, atol=1e-5, rtol=1e-5
    )


def running_the_model_again_and_again(model: Transformer, tokens: torch.Tensor) -> list[torch.Tensor]:
    """By hooks alone: run n writes into the stream what the heads computed in run n − 1."""
    frozen, written, losses = circuits.frozen_patterns(model, tokens), {}, []
    for _ in range(model.config.n_layers + 1):
        computed = {}

        def swap(attn_out, hook, computed=computed, written=written):
            computed[hook.name] = attn_out
            return written.get(hook.name, torch.zeros_like(attn_out))

        points = [(("attn_out", layer), swap) for layer in range(model.config.n_layers)]
        losses.append(circuits.token_losses(model.run_with_hooks(tokens, [*frozen, *points]), tokens).mean())
        written = computed
    return losses


@pytest.mark.parametrize("n_layers", [0, 1, 3])
def test_term_importance_by_paths_by_runs_and_by_orders_agree(n_layers):
    model = Transformer(dataclasses.replace(SMALL, n_layers=n_layers), seed=2)
    found = circuits.term_importance(model, TOKENS)
    torch.testing.assert_close(found, torch.stack(running_the_model_again_and_again(model, TOKENS)).detach())
    paths = circuits.path_expansion(model, TOKENS)
    for order in range(n_layers + 1):
        kept = sum(
            x for name, x in paths.items() if (0 if name == "direct" else name.count("→") + 1) <= order
        )
        torch.testing.assert_close(found[order], circuits.token_losses(kept, TOKENS).mean())
    torch.testing.assert_close(found[-1], circuits.per_token_loss(model, TOKENS).mean())


def test_the_hand_built_model_speaks_through_one_path():
    model, tokens = induction_model(), repeated_tokens(12, 8, batch=4)
    paths = circuits.path_expansion(model, tokens)
    torch.testing.assert_close(paths["L1H0"], model(tokens))
    assert all(paths[name].abs().max() < 1e-6 for name in ("direct", "L0H0", "L0H0→L1H0"))


def test_an_embedded_model_expands_too():
    model = Transformer(dataclasses.replace(SMALL, embedded=True))
    vectors = torch.randn(2, 6, 8, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(
        sum(circuits.path_expansion(model, vectors).values()), model(vectors), atol=1e-5, rtol=1e-5
    )


@pytest.mark.parametrize("expand", [circuits.path_expansion, circuits.term_importance])
def test_models_that_are_no_sum_of_paths_are_refused(expand):
    with pytest.raises(ValueError, match="has MLPs, expected d_mlp=0"):
        expand(Transformer(dataclasses.replace(SMALL, d_mlp=4)), TOKENS)
    with pytest.raises(ValueError, match="has LayerNorm, expected layer_norm=False"):
        expand(Transformer(dataclasses.replace(SMALL, layer_norm=True)), TOKENS)


def test_too_many_paths_are_refused():
    model = Transformer(dataclasses.replace(SMALL, n_layers=8))
    with pytest.raises(ValueError, match="6561 paths.*term_importance"):
        circuits.path_expansion(model, TOKENS)
    assert len(circuits.term_importance(model, TOKENS)) == 9
