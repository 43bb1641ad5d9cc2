"""Forbidden attention: what is forbidden is nought, the rest keeps its proportions, and training obeys."""

import dataclasses

import pytest
import torch

from iclkit.circuits import forbid_attention, label_attention
from iclkit.model import TransformerConfig
from iclkit.pairs import pair_transformer, query_loss
from iclkit.tasks import FewShot, ImageLike
from iclkit.training import TrainConfig, train

SOURCE = ImageLike(n_classes=12, n_exemplars=4, d_features=10, rank=4)
TASKS = [FewShot(SOURCE, pairs=pairs, batch_size=16) for pairs in (1, 2, 4)]
CONFIG = TransformerConfig(d_vocab=12, n_ctx=9, d_model=16, n_heads=4, layer_norm=True, init_scale=2.0)
MODEL = pair_transformer(CONFIG, 10, seed=1, query_only=True)
WAYS = [("previous",), ("itself",), ("earlier",), ("previous", "earlier"), ("itself", "earlier")]
every_task = pytest.mark.parametrize("task", TASKS, ids=lambda task: f"{task.pairs} pairs")
every_way = pytest.mark.parametrize("kinds", WAYS, ids="+".join)


def is_forbidden(kinds, query, key):
    if query % 2 == 0:
        return False
    kind = "itself" if key == query else "previous" if key == query - 1 else "earlier"
    return kind in kinds


@every_task
@every_way
@pytest.mark.parametrize("layer, heads", [(0, None), (0, [1, 3]), (1, [2])])
@torch.no_grad()
def test_the_rest_of_each_row_is_as_before_in_proportion(task, kinds, layer, heads):
    inputs, names = task.batch(0, 0).inputs, [("pattern", 0), ("pattern", 1)]
    _, free = MODEL.run_with_cache(inputs, names)
    _, bound = MODEL.run_with_cache(inputs, names, [forbid_attention(*kinds, layer=layer, heads=heads)])
    expected, seq = free["pattern", layer].clone(), inputs.shape[1]
    for head in range(4) if heads is None else heads:
        for query in range(seq):
            for key in range(query + 1):
                if is_forbidden(kinds, query, key):
                    expected[:, head, query, key] = 0
    expected = expected / expected.sum(-1, keepdim=True)
    torch.testing.assert_close(bound["pattern", layer], expected, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(bound["pattern", layer].sum(-1), torch.ones(16, 4, seq))
    if layer == 1:
        torch.testing.assert_close(bound["pattern", 0], free["pattern", 0])


@every_way
@pytest.mark.parametrize("pairs", [2, 4])
def test_models_train_under_it(pairs, kinds):
    task = FewShot(SOURCE, pairs=pairs, batch_size=16)
    model, hook = pair_transformer(CONFIG, 10, query_only=True), forbid_attention(*kinds)
    seen = []

    def look(pattern, hook):
        seen.append([pattern.diagonal(-k, 2, 3)[..., 1 - k :: 2].abs().max().item() for k in (0, 1)])

    hooks = [hook, (("pattern", 0), look)]
    run = train(model, task, TrainConfig(steps=40, lr=1e-2), loss=query_loss, fwd_hooks=hooks)
    assert run.losses[-5:].mean() < run.losses[:5].mean()
    for place, kind in enumerate(("itself", "previous")):
        assert all((row[place] == 0) == (kind in kinds) for row in seen)
    assert all(weight.isfinite().all() for weight in model.parameters())


def test_measures_see_what_is_forbidden():
    batch, hook = TASKS[1].batch(0, 0), forbid_attention("previous", heads=[2])
    free, bound = label_attention(MODEL, batch), label_attention(MODEL, batch, fwd_hooks=[hook])
    others = [0, 1, 3]
    assert free.previous.min() > 0 and bound.previous[2] == 0 and bound.itself[2] > free.itself[2]
    assert torch.equal(bound.previous[others], free.previous[others])


def test_what_cannot_be_forbidden_is_refused():
    with pytest.raises(ValueError, match="one or more of previous, itself, earlier; got none"):
        forbid_attention()
    with pytest.raises(ValueError, match="got 'previous', 'next'"):
        forbid_attention("previous", "next")
    with pytest.raises(ValueError, match="the first label sees its exemplar and itself alone"):
        forbid_attention("itself", "earlier", "previous")
    inputs = TASKS[1].batch(0, 0).inputs
    for heads in ([4], [-1]):
        with pytest.raises(ValueError, match=r"layer 0 has heads 0 … 3; got \[-?\d\]"):
            MODEL.run_with_hooks(inputs, [forbid_attention("itself", heads=heads)])
    with pytest.raises(KeyError, match="attn_scores"):
        MODEL.run_with_hooks(inputs, [forbid_attention("itself", layer=2)])
    narrow = pair_transformer(dataclasses.replace(CONFIG, n_layers=1), 10)
    assert narrow.run_with_hooks(inputs, [forbid_attention("itself")]).isfinite().all()
