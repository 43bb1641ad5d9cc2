"""Ideal observers against loops over prefixes and chains; what relabelling and order must not change."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from iclkit import TrainConfig, Transformer, TransformerConfig, train
from iclkit.predictors import (
    CELLS,
    PHASES,
    UNDECIDED,
    Distances,
    Gen,
    Mem,
    divergence,
    phase,
    predictors,
)
from iclkit.tasks import Chains, Markov, chains_of

ALPHAS = st.sampled_from([0.01, 0.1, 1.0, 10.0, 100.0])
SEEDS = st.integers(0, 10**6)


def case(vocab=4, K=5, alpha=1.0, length=9, seed=0, weights=None, fresh=False, start="stationary"):
    task = Markov(vocab, K, alpha, length, 6, start, weights, seed)
    return task, (task.fresh() if fresh else task).batch(seed, 1).inputs


def slow_gen(order, vocab, alpha, prefix):
    """Count by looking, smooth as the formulas say."""
    if order == 1:
        a = vocab * alpha + 1 - 1 / vocab
        return [(prefix.count(j) + a) / (len(prefix) + vocab * a) for j in range(vocab)]
    follows = [b for a, b in zip(prefix, prefix[1:]) if a == prefix[-1]]
    return [(follows.count(j) + alpha) / (len(follows) + vocab * alpha) for j in range(vocab)]


def slow_mem(order, chains, prefix):
    """Posterior and prediction, one chain and one token after the other, in Python's floats."""
    scores = []
    for k in range(len(chains)):
        if order == 1:
            steps = [chains.log_pi[k, x] for x in prefix]
        else:
            steps = [chains.log_start[k, prefix[0]]]
            steps += [chains.log_P[k, i, j] for i, j in zip(prefix, prefix[1:])]
        scores.append(math.fsum([chains.log_weights[k].item(), *(step.item() for step in steps)]))
    top = max(scores)
    weights = [math.exp(score - top) for score in scores]
    posterior = [weight / math.fsum(weights) for weight in weights]
    rows = [chains.pi[k] if order == 1 else chains.P[k, prefix[-1]] for k in range(len(chains))]
    return posterior, [
        math.fsum(w * row[j].item() for w, row in zip(posterior, rows)) for j in range(rows[0].shape[0])
    ]


def close(fast, slow):
    torch.testing.assert_close(fast.exp(), torch.tensor(slow, dtype=torch.float64), atol=1e-9, rtol=1e-9)


@settings(max_examples=20, deadline=None)
@given(st.sampled_from([1, 2]), st.integers(2, 6), ALPHAS, st.integers(2, 20), SEEDS)
def test_gen_agrees_with_counting_by_hand(order, vocab, alpha, length, seed):
    _, tokens = case(vocab, 3, alpha, length, seed, fresh=True)
    fast = Gen(order, vocab, alpha)(tokens)
    for row, sequence in enumerate(tokens.tolist()):
        close(fast[row], [slow_gen(order, vocab, alpha, sequence[: n + 1]) for n in range(length)])


@pytest.mark.parametrize("order", [1, 2])
@settings(max_examples=15, deadline=None)
@given(
    st.integers(2, 5),
    st.sampled_from([(3, (1.0, 5.0, 0.5)), (4, (3.0, 1.0, 0.0, 2.0)), (1, None)]),
    ALPHAS,
    st.integers(2, 12),
    st.sampled_from(["stationary", "uniform"]),
    st.booleans(),
    SEEDS,
)
def test_mem_agrees_with_enumerating_chains(order, vocab, mixture, alpha, length, start, fresh, seed):
    task, tokens = case(vocab, mixture[0], alpha, length, seed, mixture[1], fresh, start)
    chains = task.chains()
    mem = Mem(order, chains)
    fast, posterior = mem(tokens), mem.log_posterior(tokens)
    for row, sequence in enumerate(tokens.tolist()):
        slow = [slow_mem(order, chains, sequence[: n + 1]) for n in range(length)]
        close(posterior[row], [posterior for posterior, _ in slow])
        close(fast[row], [prediction for _, prediction in slow])


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 6), st.sampled_from([1, 7]), ALPHAS, st.sampled_from([2, 30]), st.booleans(), SEEDS)
def test_every_answer_is_a_distribution(vocab, K, alpha, length, fresh, seed):
    task, tokens = case(vocab, K, alpha, length, seed, fresh=fresh)
    for predictor in predictors(task).values():
        answer = predictor(tokens)
        assert answer.shape == (6, length, vocab) and not answer.isnan().any()
        torch.testing.assert_close(answer.exp().sum(-1), torch.ones(6, length).double())
        if isinstance(predictor, Mem):
            posterior = predictor.log_posterior(tokens)
            assert posterior.shape == (6, length, K) and not posterior.isnan().any()
            torch.testing.assert_close(posterior.exp().sum(-1), torch.ones(6, length).double())


@settings(max_examples=20, deadline=None)
@given(ALPHAS, SEEDS, st.permutations(range(5)), st.permutations(range(4)))
def test_names_of_states_and_order_of_chains_do_not_matter(alpha, seed, states, order):
    task, tokens = case(5, 4, alpha, 12, seed, (1.0, 2.0, 3.0, 4.0))
    old, states, order = task.chains(), torch.tensor(states), torch.tensor(order)
    new = Chains(
        old.log_P[order][:, states][:, :, states],
        old.log_start[order][:, states],
        old.log_pi[order][:, states],
        old.log_weights[order],
    )
    renamed = states.argsort()[tokens]
    for number in (1, 2):
        for before, after in (
            (Gen(number, 5, alpha), Gen(number, 5, alpha)),
            (Mem(number, old), Mem(number, new)),
        ):
            torch.testing.assert_close(after(renamed).exp(), before(tokens).exp()[..., states])
        posterior = Mem(number, old).log_posterior(tokens)[..., order]
        torch.testing.assert_close(Mem(number, new).log_posterior(renamed).exp(), posterior.exp())


@pytest.mark.parametrize("name", PHASES)
def test_answers_look_at_the_past_alone_and_parts_are_the_whole(name):
    task, tokens = case(K=300, length=40)
    predictor = predictors(task)[name]
    whole = predictor(tokens)
    torch.testing.assert_close(predictor(tokens[:, :17]), whole[:, :17])
    torch.testing.assert_close(predictor(tokens, (-1, 0, 5)), whole[:, [-1, 0, 5]])
    many = tokens.repeat(1 + CELLS // (6 * 40 * 300), 1)[: 2 * len(tokens) + CELLS // (40 * 300)]
    torch.testing.assert_close(predictor(many)[-1], whole[(len(many) - 1) % 6])


def test_with_one_chain_memory_is_the_chain():
    task, tokens = case(K=1)
    chains = task.chains()
    torch.testing.assert_close(Mem(1, chains)(tokens), chains.log_pi[0].expand(6, 9, 4))
    torch.testing.assert_close(Mem(2, chains)(tokens), chains.log_P[0][tokens])


def test_chains_that_leave_nothing_to_chance():
    stays, turns = torch.eye(3), torch.eye(3).roll(1, 1)
    mem = Mem(2, chains_of(torch.stack([stays, turns])))
    tokens = torch.tensor([[0, 0, 0], [1, 2, 0]])
    assert mem.log_posterior(tokens).exp().argmax(-1)[:, 1:].tolist() == [[0, 0], [1, 1]]
    assert mem(tokens).exp()[:, 1:].argmax(-1).tolist() == [[0, 0], [0, 1]]
    torch.testing.assert_close(mem(tokens).exp()[:, 0], torch.tensor([[0.5, 0.5, 0], [0, 0.5, 0.5]]).double())
    assert divergence(mem(tokens), mem(tokens)) == 0
    with pytest.raises(
        ValueError, match=r"none of the K=2 chains can make the first 3 states of \[0, 0, 1\]"
    ):
        mem(torch.tensor([[0, 0, 1]]))
    falls = Mem(1, chains_of(torch.tensor([[[0, 1, 0], [0, 1, 0], [0.5, 0.5, 0]]])))
    with pytest.raises(ValueError, match="can make the first 1 states"):
        falls(torch.tensor([[2, 1]]))


def test_smoothing_matches_the_spread_of_stationary_distributions():
    """Laplace's +1 costs: 1-Gen's a is that of Dirichlet rows, and predicts better than its neighbours."""
    task = Markov(10, None, 1.0, 32, 4000)
    tokens, chain, chains = task.draw(0, 0)
    rows = chains.P[chain, tokens[:, -2]]
    seen = torch.nn.functional.one_hot(tokens[:, :-1], 10).sum(1).double()
    losses = {a: -(rows * ((seen + a) / (32 + 10 * a)).log()).sum(1).mean().item() for a in (1, 3, 10.9, 40)}
    assert Gen(1, 10).smoothing == pytest.approx(10.9)
    assert min(losses, key=losses.get) == 10.9
    assert losses[1] - losses[10.9] == pytest.approx(2.351 - 2.292, abs=0.01)


@pytest.mark.parametrize(
    "tokens, message",
    [
        (torch.tensor([[0], [1]]), r"at least two states; got \[2, 1\]"),
        (torch.zeros(0, 5).long(), r"at least two states; got \[0, 5\]"),
        (torch.tensor([[0, 4]]), "states are 0 … 3; got tokens from 0 to 4"),
        (torch.tensor([[0, -1]]), "states are 0 … 3; got tokens from -1 to 0"),
        (torch.tensor([[0, 1]]).to(torch.int32), "in torch.int64; got torch.int32"),
    ],
)
def test_what_is_no_sequence_is_refused(tokens, message):
    for predictor in predictors(Markov(4, 3)).values():
        with pytest.raises(ValueError, match=message):
            predictor(tokens)


@pytest.mark.parametrize(
    "wrong, message",
    [
        (lambda: Gen(3, 4), "order is 1 .* or 2"),
        (lambda: Mem(0, Markov(4, 3).chains()), "order is 1 .* or 2"),
        (lambda: Gen(1, 1), "vocab ≥ 2"),
        (lambda: Gen(1, 4, 0.0), "positive alpha"),
        (lambda: predictors(Markov(K=None)), "every sequence has its own chain"),
    ],
)
def test_impossible_observers_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        wrong()


def test_distances_agree_with_a_loop():
    task = Markov(vocab=3, K=4, length=10)
    measure = Distances(task, 40, positions=(3, -1))
    model = Transformer(TransformerConfig(d_vocab=3, n_ctx=10, d_model=8, n_heads=1, d_mlp=8))
    ours = measure(model)
    assert ours.shape == (2, 5)
    for row, tokens in enumerate(measure.tokens):
        assert tokens.shape == (40, 10)
        q = model(tokens).softmax(-1)
        for column, observer in enumerate([*predictors(task).values(), lambda x: torch.zeros(*x.shape, 3)]):
            p = observer(tokens).softmax(-1)
            terms = [
                (p[n, t, j] * (p[n, t, j] / q[n, t, j]).log()).item()
                for n in range(40)
                for t in (3, 9)
                for j in range(3)
            ]
            assert ours[row, column].item() == pytest.approx(sum(terms) / 80, abs=1e-6)


@pytest.mark.parametrize("alpha", [0.01, 1.0])
def test_each_observer_is_at_no_distance_from_itself_and_names_its_phase(alpha):
    task = Markov(vocab=5, K=4, alpha=alpha, length=40)
    measure = Distances(task, 200)
    for column, (name, observer) in enumerate(predictors(task).items()):
        distances = measure(observer)
        assert distances[:, column].abs().max() < 1e-9 and not distances.isnan().any()
        assert measure.phase(distances) == name or alpha < 1, "nearly certain chains look alike to both"
    guess = measure(lambda tokens: torch.zeros(*tokens.shape, 5))
    assert guess[:, 4].abs().max() < 1e-9 and measure.phase(guess) == UNDECIDED
    torch.testing.assert_close(measure.apart[:, 0, 4], guess[:, 0])


def test_where_chains_are_many_one_point_memory_says_nothing_of_its_own():
    task = Markov(K=500)
    measure = Distances(task, 400)
    assert measure.apart[0, 2, 0] < 0.01 < measure.apart[0, 3, 1]
    assert measure.phase(measure(Mem(1, task.chains()))) == "1-Gen"


@pytest.mark.parametrize(
    "training, fresh, expected",
    [
        ((0.3, 0.1, 0.3, 0.01), (0.2, 0.28, 0.22, 0.13), "2-Mem"),
        ((0.24, 0.066, 0.23, 0.053), (0.16, 0.116, 0.16, 0.19), "2-Mem"),  # training chains decide Mem
        ((0.21, 0.058, 0.21, 0.061), (0.14, 0.106, 0.14, 0.19), "2-Gen"),  # fresh chains decide Gen
        ((0.21, 0.061, 0.21, 0.058), (0.14, 0.106, 0.14, 0.19), UNDECIDED),  # the two disagree
        ((0.21, 0.058, 0.21, 0.081), (0.12, 0.106, 0.14, 0.19), UNDECIDED),  # on fresh chains too near
        ((0.02, 0.2, 0.01, 0.3), (0.1, 0.2, 0.03, 0.3), "1-Mem"),
        ((0.01, 0.2, 0.02, 0.3), (0.01, 0.2, 0.02, 0.3), "1-Gen"),
        ((float("nan"),) * 4, (float("nan"),) * 4, UNDECIDED),
    ],
)
def test_the_rule_that_names_a_phase(training, fresh, expected):
    distances, apart = torch.tensor([[*training, 0.4], [*fresh, 0.4]]), 1 - torch.eye(5).expand(2, 5, 5)
    assert phase(distances, apart) == expected
    assert phase(distances.numpy().tolist(), apart) == expected


def test_distances_are_a_measure_of_training():
    task = Markov(vocab=3, K=2, length=8, batch_size=4)
    model = Transformer(TransformerConfig(d_vocab=3, n_ctx=8, d_model=8, n_heads=1))
    run = train(model, task, TrainConfig(steps=2), measures={"kl": Distances(task, 20)}, device="cpu")
    assert run.history["kl"].shape == (3, 2, 5)


def test_other_models_and_shapes_are_refused():
    model = Transformer(TransformerConfig(d_vocab=7, n_ctx=8, d_model=8, n_heads=1))
    with pytest.raises(ValueError, match="answers over 7 symbols, the task has 3 states"):
        Distances(Markov(vocab=3, K=2, length=8), 20)(model)
    with pytest.raises(ValueError, match=r"expected distances \[2, 5\].*got \[2, 4\]"):
        phase(torch.ones(2, 4), torch.ones(2, 5, 5))
