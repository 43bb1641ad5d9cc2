"""A transformer that reads exemplars and labels: what it reads, and that nothing else of it changes."""

import pytest
import torch

from iclkit.model import Transformer, TransformerConfig
from iclkit.pairs import PairInputs, pair_transformer, query_loss
from iclkit.stepping import cross_entropy
from iclkit.tasks import FewShot, Given, ImageLike, evaluate, evaluators, generator
from iclkit.training import TrainConfig, train

TASK = FewShot(ImageLike(n_classes=12, n_exemplars=4, d_features=10, rank=4), batch_size=16)
CONFIG = TransformerConfig(d_vocab=12, n_ctx=5, n_layers=2, d_model=16, n_heads=2, layer_norm=True)
BATCH = TASK.batch(0, 0)


def test_each_position_is_read_as_what_it_is():
    pairs = PairInputs(10, 12, 16, seed=3)
    torch.nn.init.normal_(pairs.b_X)
    read = pairs(BATCH.inputs)
    for row in range(16):
        for place in range(5):
            *features, label = BATCH.inputs[row, place]
            if place % 2:
                assert torch.equal(read[row, place], pairs.W_L[int(label)])
            else:
                x = torch.stack(features) @ pairs.W_X + pairs.b_X
                assert torch.allclose(read[row, place], x, atol=1e-6)


def test_it_is_the_embedded_model_behind_its_reading():
    model = pair_transformer(CONFIG, 10, seed=1)
    plain = Transformer(model.config, seed=1)
    assert type(model) is Transformer and model.config.embedded
    read = model.pairs(BATCH.inputs)
    logits, cache = model.run_with_cache(BATCH.inputs)
    assert torch.allclose(logits, plain(read), atol=1e-5) and torch.equal(cache["embed"], read)
    patched = model.run_with_hooks(BATCH.inputs, [("hook_embed", lambda x, hook: x * 2)])
    assert torch.allclose(patched, plain(read * 2), atol=1e-5)


def test_weights_come_from_the_seed_at_their_scale():
    big = PairInputs(100, 3000, 64, seed=5)
    assert big.W_X.std().item() == pytest.approx(0.1, rel=0.05) and not big.b_X.any()
    assert big.W_L.std().item() == pytest.approx(0.02, rel=0.05)
    again, other = PairInputs(100, 3000, 64, seed=5), PairInputs(100, 3000, 64, seed=6)
    assert torch.equal(big.W_L, again.W_L) and not torch.equal(big.W_L, other.W_L)


def test_relabelling_everywhere_relabels_the_answers_alone():
    number = torch.randperm(12, generator=generator(1))
    model, other = pair_transformer(CONFIG, 10), pair_transformer(CONFIG, 10)
    with torch.no_grad():
        other.pairs.W_L[number] = model.pairs.W_L
        other._W_U[:, number] = model._W_U
    inputs = BATCH.inputs.clone()
    inputs[:, 1::2, -1] = number[inputs[:, 1::2, -1].long()].float()
    assert torch.allclose(other(inputs)[..., number], model(BATCH.inputs), atol=1e-6)


def test_the_query_alone_is_the_last_position_and_trains_the_same():
    whole, last = pair_transformer(CONFIG, 10), pair_transformer(CONFIG, 10, query_only=True)
    assert torch.equal(last(BATCH.inputs), whole(BATCH.inputs)[:, -1:])
    logits = whole(BATCH.inputs)
    assert query_loss(logits, BATCH).item() == pytest.approx(cross_entropy(logits, BATCH).item(), abs=1e-6)
    assert evaluate(whole, evaluators(TASK), 64) == evaluate(last, evaluators(TASK), 64)
    config = TrainConfig(steps=20, lr=3e-3)
    masked, query = train(whole, TASK, config), train(last, TASK, config, loss=query_loss)
    assert abs(masked.losses - query.losses).max() < 1e-5 and masked.losses[-1] < masked.losses[0]


def test_training_moves_the_reading_and_checkpoints_return_it():
    model, first = pair_transformer(CONFIG, 10), pair_transformer(CONFIG, 10)
    run = train(model, TASK, TrainConfig(steps=4), checkpoint_at=[0, 4])
    for name in ("W_X", "b_X", "W_L"):
        assert not torch.equal(getattr(model.pairs, name), getattr(first.pairs, name))
    assert torch.equal(run.at(0)(BATCH.inputs), first(BATCH.inputs))
    assert torch.equal(run.at(4)(BATCH.inputs), model(BATCH.inputs))


def test_a_run_resumes_with_its_reading(tmp_path):
    once = train(pair_transformer(CONFIG, 10), TASK, TrainConfig(steps=6))
    train(pair_transformer(CONFIG, 10), TASK, TrainConfig(steps=6), folder=tmp_path)
    again = train(pair_transformer(CONFIG, 10), TASK, TrainConfig(steps=6), folder=tmp_path)
    assert torch.equal(again.model.pairs.W_L, once.model.pairs.W_L)


def test_bursts_are_learned():
    """Twelve classes and one picture each: after a few hundred updates the label in the context is found."""
    task = FewShot(Given(torch.randn(12, 1, 10, generator=generator(0))), batch_size=64)
    model = pair_transformer(CONFIG, 10, query_only=True)
    tasks = evaluators(task, "Train", "CIWL")
    assert evaluate(model, tasks, 256)["Train"] < 0.75
    train(model, task, TrainConfig(steps=150, lr=1e-2), loss=query_loss)
    assert evaluate(model, tasks, 256)["Train"] > 0.95


@pytest.mark.parametrize(
    "inputs, message",
    [
        (torch.zeros(2, 5, 10), r"\[batch seq 11\], 10 features and a label; got torch.float32 of shape"),
        (torch.zeros(2, 5, 11).double(), "got torch.float64"),
        (torch.full((2, 5, 11), 12.0), r"labels must lie in 0 … 11; got 12"),
        (torch.zeros(2, 6, 11), "longer than n_ctx=5"),
    ],
)
def test_inputs_that_cannot_be_read_are_refused(inputs, message):
    model = pair_transformer(CONFIG, 10)
    with pytest.raises(ValueError, match=message):
        model(inputs)


def test_a_model_needs_features():
    with pytest.raises(ValueError, match="d_features must be at least 1; got 0"):
        pair_transformer(CONFIG, 0)
