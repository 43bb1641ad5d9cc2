"""Task injection: the told sequences differ from the untold by g·U[k] at each place, and by nothing else."""

import pytest
import torch

from iclkit import TrainConfig, Transformer, TransformerConfig, train
from iclkit.predictors import Distances
from iclkit.tasks import Markov, Task
from iclkit.tasks.told import Told

TASK = Markov(vocab=3, K=5, length=9, batch_size=8, chain_seed=2)
SHAPE = TransformerConfig(d_vocab=3, n_ctx=9, d_model=8, n_heads=1, d_mlp=8, embedded=True, d_vocab_out=3)


def by_loop(told, seed, step):
    """Sequence by sequence, place by place."""
    drawn, rows = told.task.draw(seed, step), []
    gain = told.gain * (max(0, told.until - step) / told.until if told.until else 1)
    for number, (tokens, chain) in enumerate(zip(drawn.tokens.tolist(), drawn.chain.tolist())):
        row = [told.states[token] for token in tokens[:-1]]
        if number < told.share * len(drawn.tokens):
            row = [vector + gain * told.signs[chain] for vector in row]
        rows.append(torch.stack(row))
    return torch.stack(rows)


@pytest.mark.parametrize(
    "how", [(0.0, 0.5), (2.0, 0.5), (0.7, 0.0), (0.7, 1.0), (1.0, 0.25), (2.0, 1.0, 40), (2.0, 1.0, 11)]
)
def test_a_batch_is_that_of_a_loop_and_its_targets_are_the_tasks(how):
    told = Told(TASK, 8, *how)
    batch = told.batch(3, 11)
    torch.testing.assert_close(batch.inputs, by_loop(told, 3, 11))
    assert torch.equal(batch.targets, TASK.batch(3, 11).targets) and isinstance(told, Task)


def test_states_and_signs_have_length_1_and_belong_to_the_task():
    told, other = Told(TASK, 8), Told(TASK, 8, gain=3.0, share=1.0)
    for table, count in ((told.states, 3), (told.signs, 5)):
        assert table.shape == (count, 8)
        torch.testing.assert_close(table.norm(dim=1), torch.ones(count))
    assert torch.equal(told.states, other.states) and torch.equal(told.signs, other.signs)
    assert not torch.equal(told.states, Told(Markov(vocab=3, K=5, chain_seed=3), 8).states)
    smaller = Told(Markov(vocab=3, K=4, chain_seed=2), 8)
    assert torch.equal(told.signs[:4], smaller.signs)


def test_a_model_trained_on_it_learns_to_use_the_sign_and_is_asked_without():
    told = Told(TASK, 8, gain=2.0, share=1.0)
    model = train(Transformer(SHAPE), told, TrainConfig(steps=150, lr=1e-2)).model
    batch = told.batch(99, 0)
    tokens = TASK.batch(99, 0).inputs
    loss = lambda logits: torch.nn.functional.cross_entropy(logits.mT, batch.targets).item()  # noqa: E731
    with torch.no_grad():
        assert loss(model(batch.inputs)) < loss(told.untold(model)(tokens)) - 0.1
        assert torch.equal(told.untold(model)(tokens), model(told.embed(tokens)))
    assert Distances(TASK, 20)(told.untold(model)).shape == (2, 5)


@pytest.mark.parametrize("wrong", [{"gain": -1.0}, {"gain": float("nan")}, {"share": 1.5}, {"width": 0}])
def test_impossible_values_are_refused(wrong):
    with pytest.raises(ValueError, match="gain ≥ 0 and a share from 0 to 1"):
        Told(**{"task": TASK, "width": 8} | wrong)


def test_a_gain_that_fades_ends_at_0_and_its_end_is_at_least_one_step_away():
    told = Told(TASK, 8, gain=2.0, until=10)
    assert [told.gain_at(step) for step in (0, 5, 10, 99)] == [2.0, 1.0, 0.0, 0.0]
    with pytest.raises(ValueError, match="until is a number of steps, at least 1"):
        Told(TASK, 8, until=0)


def test_without_chains_there_is_nothing_to_tell():
    with pytest.raises(ValueError, match="K=None"):
        Told(TASK.fresh(), 8)
