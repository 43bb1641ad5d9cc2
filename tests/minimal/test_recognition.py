"""The task-recognition head against loops, stacked against alone; what it must not depend on."""

import pytest
import torch

from iclkit.minimal.recognition import HeadConfig, RecognitionHead, features, init, logits, train_heads
from iclkit.predictors import Distances
from iclkit.tasks import Markov

CONFIG = HeadConfig(vocab=3, d_phi=2, d_mlp=5)
TASK = Markov(vocab=3, K=4, length=10, batch_size=8)


def head(seed=0, config=CONFIG):
    return RecognitionHead(config, init(config, seed))


def by_loops(weights, x):
    """Encode every pair, average, decode: one sequence, one place after the other."""
    codes, answer = [], []
    for n, state in enumerate(x):
        if n:
            codes.append(weights["W_enc"][3 * x[n - 1] + state])
        phi = sum(codes) / len(codes) if codes else torch.zeros(2)
        hidden = torch.relu(phi @ weights["W_phi"] + weights["W_now"][state] + weights["b_in"][0])
        answer.append(hidden @ weights["W_out"] + weights["b_out"][0])
    return torch.stack(answer)


def test_agrees_with_loops():
    model, tokens = head(), TASK.batch(0, 0).inputs
    expected = torch.stack([by_loops(model.weights, x) for x in tokens.tolist()])
    assert torch.allclose(model(tokens), expected, atol=1e-5)


def test_later_states_change_nothing_earlier():
    model, tokens = head(), TASK.batch(0, 0).inputs
    changed = tokens.clone()
    changed[:, 6] = (changed[:, 6] + 1) % 3
    assert torch.allclose(model(tokens)[:, :6], model(changed)[:, :6], atol=1e-6)
    assert not torch.allclose(model(tokens)[:, 6:], model(changed)[:, 6:], atol=1e-3)


def test_only_how_often_each_pair_came_counts():
    one, other = torch.tensor([[0, 1, 2, 0, 1, 0, 1]]), torch.tensor([[0, 1, 0, 1, 2, 0, 1]])
    assert torch.allclose(head().phi(one)[:, -1], head().phi(other)[:, -1], atol=1e-6)
    assert torch.allclose(head()(one)[:, -1], head()(other)[:, -1], atol=1e-6)


def test_a_stack_of_heads_answers_as_each_alone():
    tokens = TASK.batch(0, 0).inputs
    stack = {name: torch.stack([init(CONFIG, s)[name] for s in (0, 1)]) for name in init(CONFIG, 0)}
    seen, now = (part.flatten(0, 1).expand(2, -1, -1) for part in features(tokens, 3))
    alone = torch.stack([head(seed)(tokens).flatten(0, 1) for seed in (0, 1)])
    assert torch.allclose(logits(stack, seen, now), alone, atol=1e-5)


def test_training_together_is_training_alone():
    tasks = [TASK, Markov(vocab=3, K=2, length=10, batch_size=8)]
    sizes = [CONFIG, HeadConfig(3, 9, 4)]
    together = train_heads(sizes, tasks, seed=1, steps=20)
    alone = train_heads(sizes[1:], tasks[1:], seed=1, steps=20)[0][0]
    for name, weight in alone.weights.items():
        assert torch.allclose(weight, together[1][1].weights[name], atol=1e-5)


def test_training_starts_from_the_seed_and_lowers_the_distance():
    far = Distances(TASK, 200)
    (small,), (long,) = train_heads([CONFIG], [TASK], 0, 1)[0], train_heads([CONFIG], [TASK], 0, 400)[0]
    assert far(long)[0, 3] < far(small)[0, 3] / 2
    first = init(CONFIG, 0)
    assert all((small.weights[name] - first[name]).abs().max() < 0.011 for name in first)


def test_places_before_the_first_do_not_count():
    (head_,) = train_heads([CONFIG], [TASK], 0, 3, first=9)[0]
    other = Markov(vocab=3, K=4, length=10, batch_size=8)
    (same,) = train_heads([CONFIG], [other], 0, 3, first=9)[0]
    (all_,) = train_heads([CONFIG], [TASK], 0, 3)[0]
    assert torch.equal(head_.weights["W_out"], same.weights["W_out"])
    assert not torch.allclose(head_.weights["W_out"], all_.weights["W_out"], atol=1e-3)


def test_says_what_is_wrong():
    with pytest.raises(ValueError, match="expected d_phi ≥ 1; got 0"):
        HeadConfig(d_phi=0)
    with pytest.raises(ValueError, match="states are 0 … 2; got tokens from 0 to 3"):
        head()(torch.tensor([[0, 3]]))
    with pytest.raises(ValueError, match="share one vocab"):
        train_heads([HeadConfig(4)], [TASK], 0, 1)
