"""Entropy of attention: known patterns, a slow twin, and models."""

import math

import pytest
import torch
from hand_built import induction_model

from iclkit.circuits.entropy import attention_entropy, attention_entropy_score
from iclkit.model import Transformer, TransformerConfig


def even(n: int) -> torch.Tensor:
    return torch.ones(n, n).tril() / torch.arange(1, n + 1)[:, None]


def test_even_attention_has_1_and_one_place_0():
    patterns = torch.stack([even(7), torch.eye(7)])[None]  # two heads
    assert attention_entropy_score(patterns).tolist() == pytest.approx([1, 0], abs=1e-6)


def test_agrees_with_a_loop():
    random = torch.Generator().manual_seed(0)
    pattern = torch.randn(3, 2, 6, 6, generator=random).masked_fill(torch.ones(6, 6).triu(1) > 0, -torch.inf)
    pattern = pattern.softmax(-1)
    for head, found in enumerate(attention_entropy_score(pattern).tolist()):
        shares = []
        for rows in pattern[:, head].tolist():
            for query in range(1, 6):
                entropy = -sum(p * math.log(p) for p in rows[query] if p > 0)
                shares.append(entropy / math.log(query + 1))
        assert found == pytest.approx(sum(shares) / len(shares), abs=1e-5)


def test_of_models():
    tokens = torch.randint(12, (4, 20), generator=torch.Generator().manual_seed(0))
    sharp = attention_entropy(induction_model(), tokens)
    assert sharp.shape == (2, 1) and sharp[0, 0] < 0.1
    config = TransformerConfig(d_vocab=12, n_ctx=20, d_model=16, n_heads=2, init_scale=0.1)
    assert attention_entropy(Transformer(config), tokens).min() > 0.99


def test_bad_input():
    with pytest.raises(ValueError, match="at least 2 tokens; got 1"):
        attention_entropy_score(torch.ones(1, 1, 1, 1))
    with pytest.raises(ValueError, match="sum to 1"):
        attention_entropy_score(torch.ones(1, 1, 3, 3))
