"""Mixtures of Markov chains: the vectorised sampler against a loop, π against a linear solve, frequencies."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from iclkit import TrainConfig, Transformer, TransformerConfig, train
from iclkit.tasks import Markov, Task, chains_of, generator
from iclkit.tasks.markov import dirichlet_rows, log_stationary, sample

ALPHAS = st.sampled_from([0.01, 0.1, 1.0, 10.0, 100.0])
CYCLE = torch.eye(3).roll(1, 1)[None]


def slow_sample(chains, chain, length, random):
    """One token after the other, one comparison after the other."""
    u = torch.rand(len(chain), length, generator=random, dtype=torch.float64)
    tokens = []
    for row, k in enumerate(chain.tolist()):
        p, sequence = chains.log_start[k].exp(), []
        for t in range(length):
            total = np.cumsum(p.numpy())
            sequence.append(next(j for j in range(len(p)) if u[row, t] < total[j] / total[-1]))
            p = chains.P[k, sequence[-1]]
        tokens.append(sequence)
    return torch.tensor(tokens)


def solved_stationary(P):
    """π as the solution of π (P − 1) = 0, Σ π = 1."""
    C = len(P)
    left = np.vstack([P.numpy().T - np.eye(C), np.ones(C)])
    return torch.from_numpy(np.linalg.lstsq(left, np.r_[np.zeros(C), 1.0], rcond=None)[0])


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 7), st.integers(1, 5), ALPHAS, st.integers(2, 40), st.integers(0, 10**6))
def test_the_sampler_agrees_with_a_loop(vocab, K, alpha, length, seed):
    chains = Markov(vocab=vocab, K=K, alpha=alpha, chain_seed=seed).chains()
    chain = torch.randint(K, (6,), generator=generator(seed))
    fast = sample(chains, chain, length, generator(seed, 1))
    assert torch.equal(fast, slow_sample(chains, chain, length, generator(seed, 1)))


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 8), st.sampled_from([0.3, 1.0, 10.0, 100.0]), st.integers(0, 10**6))
def test_the_stationary_distribution_solves_its_equation(vocab, alpha, seed):
    chains = Markov(vocab=vocab, K=3, alpha=alpha, chain_seed=seed).chains()
    for P, pi in zip(chains.P, chains.pi):
        torch.testing.assert_close(pi @ P, pi)
        torch.testing.assert_close(pi, solved_stationary(P), atol=1e-7, rtol=1e-5)


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 6), st.sampled_from([1, 3, None]), ALPHAS, st.integers(0, 10**6))
def test_no_concentration_gives_nan(vocab, K, alpha, seed):
    task = Markov(vocab=vocab, K=K, alpha=alpha, length=2, batch_size=4, chain_seed=seed)
    tokens, chain, chains = task.draw(seed, 0)
    assert chains.log_P.isfinite().all() and chains.log_pi.isfinite().all()
    for p in (chains.P, chains.pi, chains.log_weights.exp()):
        torch.testing.assert_close(p.sum(-1), torch.ones_like(p.sum(-1)))
    assert tokens.shape == (4, 3) and ((tokens >= 0) & (tokens < vocab)).all()
    assert ((chain >= 0) & (chain < len(chains))).all()


def test_chains_that_leave_nothing_to_chance():
    chains = chains_of(
        torch.cat([torch.eye(3)[None], CYCLE, torch.tensor([[[0, 1, 0], [0, 1, 0], [0.5, 0.5, 0]]])])
    )
    third = [1 / 3] * 3
    torch.testing.assert_close(chains.pi, torch.tensor([third, third, [0, 1, 0]]).double())
    stays, turns, falls = (sample(chains, torch.full((50,), k), 9, generator(0)) for k in range(3))
    assert (stays == stays[:, :1]).all()
    assert torch.equal(turns, (turns[:, :1] + torch.arange(9)) % 3)
    assert (falls == 1).all(), "a state that is left for good has no place in π"


@pytest.mark.parametrize("start", ["stationary", "uniform"])
def test_frequencies_are_those_of_the_chain(start):
    weights = (1.0, 3.0, 0.0)
    task = Markov(vocab=4, K=3, length=20, batch_size=20_000, start=start, weights=weights)
    tokens, chain, chains = task.draw(0, 0)
    shares = torch.bincount(chain, minlength=3) / len(chain)
    assert (shares - torch.tensor([0.25, 0.75, 0.0])).abs().max() < 0.015
    for k in (0, 1):
        mine = tokens[chain == k]
        first = torch.bincount(mine[:, 0], minlength=4) / len(mine)
        expected = chains.pi[k] if start == "stationary" else torch.full((4,), 0.25)
        assert (first - expected).abs().max() < 0.025
        pairs = torch.bincount((4 * mine[:, :-1] + mine[:, 1:]).flatten(), minlength=16).view(4, 4)
        assert (pairs / pairs.sum(1, keepdim=True) - chains.P[k]).abs().max() < 0.025


def test_rows_are_dirichlet():
    for alpha in (0.2, 1.0, 5.0):
        P = dirichlet_rows(4000, 4, alpha, 1).exp().flatten(0, 1)
        variance = (1 / 4) * (3 / 4) / (4 * alpha + 1)
        assert (P.mean(0) - 0.25).abs().max() < 0.01
        assert (P.var(0) / variance - 1).abs().max() < 0.05
    tiny = dirichlet_rows(300, 5, 0.01, 1)
    assert tiny.isfinite().all() and tiny.min() < -800, "logs reach where probabilities cannot"


def test_relabelled_states_have_the_relabelled_stationary_distribution():
    log_P, order = dirichlet_rows(5, 6, 0.1, 3), torch.tensor([4, 0, 5, 2, 1, 3])
    log_pi = log_stationary(log_P[:, order][:, :, order])
    torch.testing.assert_close(log_pi, log_stationary(log_P)[:, order])


def test_a_batch_is_a_pure_function_of_seed_and_step():
    for task in (Markov(K=9), Markov(K=9).fresh()):
        assert isinstance(task, Task)
        first, again = task.batch(3, 7), Markov(K=task.K).batch(3, 7)
        assert torch.equal(first.inputs, again.inputs) and first.mask is None
        assert first.inputs.shape == first.targets.shape == (64, 64)
        assert torch.equal(first.inputs[:, 1:], first.targets[:, :-1])
        others = (task.batch(3, 8), task.batch(4, 7), task.batch(7, 3))
        assert not any(torch.equal(first.inputs, other.inputs) for other in others)


def test_chains_have_a_seed_of_their_own():
    task = Markov(K=8)
    assert torch.equal(task.chains().P, Markov(K=8, start="uniform", batch_size=3).chains().P)
    assert torch.equal(task.chains().P[:3], Markov(K=3).chains().P), "fewer chains are the first of more"
    assert not torch.equal(task.chains().P, Markov(K=8, chain_seed=1).chains().P)
    assert hash(task) == hash(Markov(K=8)) and task == Markov(K=8), "what was drawn is no part of the task"


def test_fresh_sequences_have_a_chain_each_and_never_the_same():
    task = Markov(K=4, weights=(1, 2, 3, 4)).fresh()
    one, two = task.draw(0, 0), task.draw(0, 1)
    assert one.chain.tolist() == list(range(64)) and len(one.chains) == 64
    rows = torch.cat([one.chains.P, two.chains.P, Markov(K=64).chains().P]).flatten(1)
    assert len(rows.unique(dim=0)) == 192


def test_chains_land_on_the_default_device():
    task = Markov(K=4)
    here = task.chains()
    with torch.device("meta"):
        assert task.chains().log_P.is_meta and task.chains() is task.chains()
    assert task.chains() is here and not here.log_P.is_meta


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("K", [4, None])
def test_batches_are_made_on_a_gpu(K):
    task = Markov(K=K)
    with torch.device("cuda"):
        tokens, chain, chains = task.draw(0, 0)
    assert tokens.is_cuda and chain.is_cuda and chains.log_P.is_cuda and tokens.max() < 5
    torch.testing.assert_close(chains.P.cpu(), task.draw(0, 0).chains.P)


def test_a_model_trains_on_it():
    task = Markov(vocab=3, K=2, length=8, batch_size=4)
    model = Transformer(TransformerConfig(d_vocab=3, n_ctx=8, d_model=8, n_heads=1))
    run = train(model, task, TrainConfig(steps=3), device="cpu")
    assert np.isfinite(run.losses).all()
    with pytest.raises(ValueError, match="the task uses 5 tokens"):
        train(model, Markov(length=8), TrainConfig(steps=3))


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"K": 0}, "K must be at least 1; got 0; K=None draws"),
        ({"vocab": 1}, "vocab must be at least 2"),
        ({"length": 1}, "length must be at least 2"),
        ({"chain_seed": -1}, "chain_seed must be at least 0"),
        ({"alpha": 0.0}, "alpha.*must be positive; got 0"),
        ({"alpha": float("nan")}, "alpha.*must be positive; got nan"),
        ({"start": "first"}, "start must be one of stationary, uniform"),
        ({"K": 2, "weights": (1.0,)}, "weights are K=2 finite numbers.*got 1 in 1 … 1"),
        ({"K": 2, "weights": (1.0, -1.0)}, "at least 0, not all 0; got 2 in -1 … 1"),
        ({"K": 2, "weights": (0.0, 0.0)}, "not all 0"),
        ({"K": None, "weights": (1.0,)}, "weights are K=0"),
    ],
)
def test_impossible_tasks_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        Markov(**{**wrong})


@pytest.mark.parametrize(
    "P, message",
    [
        (torch.full((2, 3, 3), 0.3), "row 0 of chain 0 is .*sum 0.9; divide each row by its sum"),
        (torch.tensor([[[0.5, 0.5], [1.5, -0.5]]]), "row 1 of chain 0"),
        (torch.full((1, 2, 2), float("nan")), "sum to one"),
    ],
)
def test_what_is_no_chain_is_refused(P, message):
    with pytest.raises(ValueError, match=message):
        chains_of(P)


def test_other_misuse_is_refused():
    with pytest.raises(ValueError, match="every sequence has its own chain"):
        Markov(K=None).chains()
    with pytest.raises(ValueError, match="start must be one of"):
        chains_of(CYCLE, start="end")
