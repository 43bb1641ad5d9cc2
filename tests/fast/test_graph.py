"""A recorded step is the ordinary step: same losses, same weights, whatever batch comes."""

import pytest
import torch

from iclkit.fast.graph import WARM, Replayed
from iclkit.fast.step import Step
from iclkit.model import Transformer, TransformerConfig
from iclkit.tasks import Repeats
from iclkit.training import TrainConfig

SHAPE = TransformerConfig(d_vocab=8, n_ctx=12, n_layers=1, d_model=8, n_heads=2)
TASK = Repeats(vocab=8, length=12, min_period=3, max_period=4, batch_size=4)


def steps(models, count):
    """The ordinary step, and one that is recorded by remembering the function instead of its kernels."""
    configs = [TrainConfig(steps=20, lr=1e-3 * (index + 1)) for index in range(count)]
    plain = Step([Transformer(SHAPE, seed) for seed in range(count)], configs)
    return plain, Replayed(Step(models, configs), capture=lambda function: function)


@pytest.mark.parametrize("count", [1, 2])
def test_a_recorded_step_equals_the_ordinary_one(count):
    models = [Transformer(SHAPE, seed) for seed in range(count)]
    plain, recorded = steps(models, count)
    for step in range(WARM + 4):
        batches = [TASK.batch(seed, step) for seed in range(count)]
        assert torch.equal(plain(batches), recorded(batches))
    assert recorded.replay is not None and recorded.optimiser.steps == plain.optimiser.steps == WARM + 4
    assert torch.equal(plain.flat.rows, recorded.flat.rows)


def test_recording_reads_buffers_of_its_own():
    _, recorded = steps([Transformer(SHAPE)], 1)
    for step in range(WARM + 1):
        batch = TASK.batch(0, step)
        recorded([batch])
    kept = recorded.buffers[0].inputs
    assert torch.equal(kept, batch.inputs) and kept.data_ptr() != batch.inputs.data_ptr()


def test_a_batch_of_another_shape_is_refused_with_both_shapes():
    _, recorded = steps([Transformer(SHAPE)], 1)
    for step in range(WARM + 1):
        recorded([TASK.batch(0, step)])
    longer = Repeats(vocab=8, length=12, min_period=3, max_period=4, batch_size=5).batch(0, 0)
    before = recorded.flat.rows.clone()
    with pytest.raises(ValueError, match=r"inputs were \(4, 12\), now \(5, 12\)"):
        recorded([longer])
    assert torch.equal(before, recorded.flat.rows)
