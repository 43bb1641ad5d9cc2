"""Weights read as circuits: against matrices multiplied out, the forward pass, hand-built heads."""

import dataclasses

import pytest
import torch
from hand_built import induction_model

from iclkit import circuits
from iclkit.circuits import FactoredMatrix
from iclkit.model import Transformer, TransformerConfig

SMALL = TransformerConfig(d_vocab=11, n_ctx=12, n_layers=3, d_model=8, n_heads=2, d_head=3)
NORMED = dataclasses.replace(SMALL, layer_norm=True)


def built(config: TransformerConfig, seed: int = 0) -> Transformer:
    """A model whose gains and biases are random too."""
    model = Transformer(config, seed)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim < 2:
                weight.add_(torch.randn(weight.shape, generator=torch.Generator().manual_seed(seed)) * 0.3)
    return model


def matrices(left: int, inner: int, right: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(seed)
    return torch.randn(2, left, inner, generator=random), torch.randn(2, inner, right, generator=random)


@pytest.mark.parametrize("left, inner, right", [(7, 2, 7), (3, 5, 3), (4, 4, 4), (6, 2, 9)])
def test_a_factored_matrix_is_its_product(left, inner, right):
    A, B = matrices(left, inner, right)
    product, whole = FactoredMatrix(A, B), A @ B
    torch.testing.assert_close(product.AB, whole)
    torch.testing.assert_close(product.T.AB, whole.mT)
    torch.testing.assert_close(product.norm(), whole.norm(dim=(1, 2)))
    U, S, Vh = product.svd()
    torch.testing.assert_close(U @ torch.diag_embed(S) @ Vh, whole, atol=1e-5, rtol=1e-5)
    other = FactoredMatrix(*matrices(right, 3, 5, seed=1))
    torch.testing.assert_close((product @ other).AB, whole @ other.AB, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close((product @ other.AB).AB, whole @ other.AB, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close((whole.mT @ product).AB, whole.mT @ whole, atol=1e-5, rtol=1e-5)
    assert product.shape == whole.shape and product[0].shape == whole[0].shape
    if left == right:
        values, all_values = product.eigenvalues, torch.linalg.eigvals(whole)
        assert values.shape[1] == min(left, inner)
        for power in (1, 2, 3):
            torch.testing.assert_close(
                values.pow(power).sum(1), all_values.pow(power).sum(1), atol=1e-3, rtol=1e-3
            )
    else:
        with pytest.raises(ValueError, match="6 × 9"):
            _ = product.eigenvalues


def test_full_circuits_are_what_the_model_computes_without_positions():
    model = Transformer(dataclasses.replace(SMALL, n_layers=1, positions="none"))
    tokens = torch.tensor([[3, 7, 1, 1]])
    _, cache = model.run_with_cache(tokens)
    scores = circuits.full_QK(model, 0, 1).AB[tokens[0]][:, tokens[0]] / SMALL.d_head**0.5
    seen = cache["attn_scores", 0][0, 1]
    torch.testing.assert_close(scores.tril(), seen.tril(), atol=1e-5, rtol=1e-5)
    write = sum(cache["pattern", 0][0, h] @ circuits.full_OV(model, 0, h).AB[tokens[0]] for h in range(2))
    logits = circuits.direct_path(model).AB[tokens[0]] + write
    torch.testing.assert_close(logits, model(tokens)[0], atol=1e-5, rtol=1e-5)


def test_norms_are_folded_up_to_scale_and_constant():
    """Between two sources, what one head's output adds to the logits differs as the folded OV says."""
    model = built(dataclasses.replace(NORMED, n_layers=1, positions="none"))
    tokens = torch.arange(11)[:, None]  # each token alone: attention 1 to itself
    _, cache = model.run_with_cache(tokens)
    scale = (model.W_E.var(1, correction=0, keepdim=True) + 1e-5).sqrt()
    written = cache["result", 0][:, 0, 1] @ circuits.weights.unembedding(model)
    folded = circuits.full_OV(model, 0, 1).AB / scale
    difference = written - folded
    torch.testing.assert_close(difference, difference[:1].expand_as(difference), atol=1e-4, rtol=1e-4)


@torch.no_grad()
def slow_composition(model: Transformer, kind: str, first: tuple, second: tuple) -> float:
    OV, QK = circuits.OV(model, *first).AB, circuits.QK(model, *second).AB
    reads = {"Q": QK, "K": QK.T, "V": circuits.OV(model, *second).AB}[kind]
    return float((OV @ reads).norm() / OV.norm() / reads.norm())


@pytest.mark.parametrize("kind", ["Q", "K", "V"])
@pytest.mark.parametrize("config", [SMALL, NORMED])
def test_composition_scores_agree_with_products_multiplied_out(kind, config):
    model = built(config)
    scores = circuits.composition_scores(model, kind)
    for (l1, h1, l2, h2), score in zip(
        torch.cartesian_prod(*map(torch.arange, (3, 2, 3, 2))).tolist(), scores.flatten()
    ):
        slow = slow_composition(model, kind, (l1, h1), (l2, h2)) if l1 < l2 else 0.0
        assert abs(float(score) - slow) < 1e-5


def test_untrained_composition_is_the_random_baseline():
    config = TransformerConfig(d_vocab=8, d_model=32, n_heads=4)
    baseline = circuits.composition_baseline(Transformer(config))
    assert baseline == circuits.composition_baseline(Transformer(config))
    for kind in "QKV":
        pooled = torch.cat(
            [circuits.composition_scores(Transformer(config, s), kind)[0, :, 1].flatten() for s in range(8)]
        )
        assert abs(float(pooled.mean()) - baseline.mean) < 4 * baseline.std / len(pooled) ** 0.5
        assert 0.5 < float(pooled.std()) / baseline.std < 2


def test_the_hand_built_induction_head_composes_through_keys_alone():
    model = induction_model()
    assert circuits.composition_scores(model, "Q").abs().max() == 0
    assert circuits.composition_scores(model, "V").abs().max() == 0
    found = circuits.composition_scores(model, "K")[0, 0, 1, 0]
    torch.testing.assert_close(found, torch.tensor(12**-0.5))  # two identities of rank 12: √12 / (√12 √12)
    baseline = circuits.composition_baseline(model)
    assert found > baseline.mean + 5 * baseline.std


def test_hand_built_eigenvalue_scores():
    model = induction_model()
    torch.testing.assert_close(circuits.copying_score(model), torch.tensor([[0.0], [1.0]]))
    torch.testing.assert_close(circuits.matching_score(model)[0, 0, 1, 0], torch.tensor(1.0))
    with torch.no_grad():
        model.blocks[1].attn.W_O.neg_()
        model.blocks[1].attn.W_Q.neg_()
    torch.testing.assert_close(circuits.copying_score(model)[1, 0], torch.tensor(-1.0))
    torch.testing.assert_close(circuits.matching_score(model)[0, 0, 1, 0], torch.tensor(-1.0))


def test_matching_score_is_that_of_the_matrix_multiplied_out():
    model = built(SMALL)
    whole = model.W_E @ circuits.QK(model, 2, 1).AB @ circuits.OV(model, 0, 1).AB.T @ model.W_E.T
    values = torch.linalg.eigvals(whole)
    slow = values.real.sum() / values.abs().sum()
    torch.testing.assert_close(
        circuits.matching_score(model)[0, 1, 2, 1], slow.detach(), atol=1e-4, rtol=1e-4
    )
    assert circuits.matching_score(model)[2].abs().max() == 0


def test_untrained_eigenvalue_scores_lie_around_zero():
    config = TransformerConfig(d_vocab=32, d_model=32, n_heads=4)
    copying = circuits.random_baseline(lambda m, _: circuits.copying_score(m), config, None, range(10))
    matching = circuits.random_baseline(
        lambda m, _: circuits.matching_score(m)[0, :, 1], config, None, range(10)
    )
    assert abs(copying.mean) < 0.2 and 0.05 < copying.std < 0.5
    assert abs(matching.mean) < 0.2 and 0.05 < matching.std < 0.5


def test_bad_input():
    model = Transformer(SMALL)
    with pytest.raises(ValueError, match="no head L3H0; this model has L0H0 … L2H1"):
        circuits.QK(model, 3, 0)
    with pytest.raises(ValueError, match="no head L0H2"):
        circuits.full_OV(model, 0, 2)
    with pytest.raises(ValueError, match='"Q", "K" or "V"; got \'k\''):
        circuits.composition_scores(model, "k")
    with pytest.raises(ValueError, match="reads 11 tokens and predicts 5"):
        circuits.copying_score(Transformer(dataclasses.replace(SMALL, d_vocab_out=5)))
    with pytest.raises(ValueError, match="no W_E"):
        circuits.direct_path(Transformer(dataclasses.replace(SMALL, embedded=True)))
    with pytest.raises(ValueError, match="n_layers=0"):
        circuits.composition_scores(Transformer(dataclasses.replace(SMALL, n_layers=0)), "Q")
    with pytest.raises(ValueError, match="same inner"):
        FactoredMatrix(torch.zeros(2, 3), torch.zeros(2, 3))
