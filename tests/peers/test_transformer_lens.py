"""Our forward and TransformerLens's, with the same weights, give the same logits and the same activations."""

import dataclasses
import importlib.util

import pytest
import torch
from conftest import missing

from iclkit.model import Transformer, TransformerConfig

BASE = TransformerConfig(d_vocab=13, n_ctx=12, n_layers=2, d_model=16, n_heads=2)
VARIANTS = {
    "absolute": {},
    "shortformer": {"positions": "shortformer"},
    "rotary": {"positions": "rotary"},
    "relative": {"positions": "relative"},
    "none": {"positions": "none"},
    "layer norm": {"layer_norm": True},
    "shortformer, layer norm": {"positions": "shortformer", "layer_norm": True},
    "mlp relu": {"d_mlp": 32, "layer_norm": True},
    "mlp gelu": {"d_mlp": 32, "act": "gelu"},
    "smeared keys": {"smeared_keys": True},
    "tied": {"tied": True},
    "wide heads": {"d_head": 12, "d_vocab_out": 5},
}


@pytest.fixture(scope="module", autouse=True)
def transformer_lens():
    if importlib.util.find_spec("transformer_lens") is None:
        missing("peers", "TransformerLens is not installed (requirements-peers.txt)")


@pytest.mark.parametrize("variant", VARIANTS)
def test_same_logits_and_same_activations(variant):
    model = Transformer(dataclasses.replace(BASE, **{"d_head": None, **VARIANTS[variant]})).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn(weight.shape, generator=torch.Generator().manual_seed(1)) * 0.2)
        lens = model.to_transformer_lens()
        tokens = torch.randint(13, (4, 12), generator=torch.Generator().manual_seed(2))
        logits, cache = model.run_with_cache(tokens)
        their_logits, theirs = lens.run_with_cache(tokens)
    torch.testing.assert_close(logits, their_logits, atol=1e-5, rtol=1e-5)
    for name in ("q", "k", "v", "pattern", "z"):
        for layer in range(2):
            torch.testing.assert_close(cache[name, layer], theirs[name, layer], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(cache["resid_post", 1], theirs["resid_post", 1], atol=1e-5, rtol=1e-4)


def test_vectors_have_no_counterpart_there():
    with pytest.raises(ValueError, match="takes vectors"):
        Transformer(dataclasses.replace(BASE, embedded=True)).to_transformer_lens()
