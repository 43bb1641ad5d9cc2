"""Subsets of edges: the tree of runs against path patching, one subset at a time."""

import dataclasses
import random

import pytest
import torch

from iclkit.circuits import all_edges, edge_patcher, subsets
from iclkit.model import Transformer, TransformerConfig

SMALL = TransformerConfig(d_vocab=5, n_ctx=9, d_model=8, n_heads=2, d_mlp=8, layer_norm=True)
CONFIGS = [
    SMALL,
    dataclasses.replace(SMALL, positions="shortformer", n_heads=1),
    dataclasses.replace(SMALL, d_mlp=0, n_layers=3, layer_norm=False),
    dataclasses.replace(SMALL, positions="relative", n_layers=1),
]
CLEAN = torch.randint(5, (3, 7), generator=torch.Generator().manual_seed(0))
CORRUPTED = torch.randint(5, (3, 7), generator=torch.Generator().manual_seed(1))


def one_logit(logits):
    """A measure that no two different runs share."""
    return (logits[..., 2] * torch.tensor([1.0, 2.0, 3.0])).mean(-1)


@pytest.mark.parametrize("how", ["resample", "mean"])
@pytest.mark.parametrize("config", CONFIGS)
def test_each_subset_agrees_with_path_patching_the_others(config, how):
    model, draw = Transformer(config), random.Random(0)
    values = subsets.every_subset(model, CLEAN, CORRUPTED, one_logit, how)
    patched, whole = edge_patcher(model, CLEAN, CORRUPTED, how), len(values) - 1
    for subset in (0, whole, *(draw.randrange(whole) for _ in range(25))):
        kept = subsets.edges_in(model, subset)
        logits = patched([edge for edge in all_edges(model) if edge not in kept])
        torch.testing.assert_close(values[subset], one_logit(logits[:, -1]), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(values[whole], one_logit(model(CLEAN)[:, -1]).detach(), atol=1e-5, rtol=1e-4)
    if how == "resample":
        end = one_logit(model(CORRUPTED)[:, -1]).detach()
        torch.testing.assert_close(values[0], end, atol=1e-5, rtol=1e-4)


def test_the_mean_is_over_the_corrupted_batch():
    model = Transformer(SMALL)
    alike = CORRUPTED[:1].expand(3, -1)
    for edges in (all_edges(model)[:4], all_edges(model)):
        one, many = (edge_patcher(model, CLEAN, alike, how)(edges) for how in ("resample", "mean"))
        torch.testing.assert_close(one, many)


def test_edges_by_number():
    model = Transformer(SMALL)
    edges = all_edges(model)
    assert subsets.edges_in(model, 0) == []
    assert subsets.edges_in(model, 2**15 - 1) == edges
    assert subsets.edges_in(model, 0b101) == [edges[0], edges[2]]


def test_smallest_and_without_each():
    shares = torch.tensor([0.0, 0.2, 0.95, 0.92, 0.1, 0.97, 0.99, 1.0])  # three edges
    assert subsets.smallest(shares) == [2]
    assert subsets.smallest(shares, least=0.96) == [6, 5]
    assert subsets.without_each(shares).tolist() == pytest.approx([0.99, 0.97, 0.92])
    with pytest.raises(ValueError, match="no subset reaches 1.1; the best share is 1"):
        subsets.smallest(shares, least=1.1)


def test_bad_input():
    deep = Transformer(dataclasses.replace(SMALL, n_layers=3))
    with pytest.raises(ValueError, match=r"28 edges and 2\^28 subsets; at most 15"):
        subsets.every_subset(deep, CLEAN, CORRUPTED, one_logit)
    with pytest.raises(ValueError, match="one shape"):
        subsets.every_subset(Transformer(SMALL), CLEAN, CORRUPTED[:, 1:], one_logit)
    with pytest.raises(ValueError, match="how must be one of resample, mean; got 'zero'"):
        edge_patcher(Transformer(SMALL), CLEAN, CORRUPTED, "zero")
