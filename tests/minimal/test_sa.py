"""The SA model against loops; its coefficients against derivatives of its loss."""

import math

import numpy as np
import pytest
import torch

from iclkit.minimal.sa import SA, Contexts, coefficients, contexts, descend, fallen, landscape, wait
from iclkit.predictors import Gen, divergence
from iclkit.tasks import Markov, generator

C = 4


def some(batch=20, seq=9, seed=0):
    return contexts(Markov(vocab=C, K=None, length=seq, batch_size=batch), seed)


def by_loops(tokens, beta, delta, direct, floor):
    """Both layers with their whole attention matrices, one sequence at a time."""
    answer = []
    for x in tokens.tolist():
        n = len(x)
        first = [[math.exp(delta * (key == query - 1)) for key in range(query + 1)] for query in range(n)]
        first = [[value / sum(row) for value in row] for row in first]
        s = [sum(share for share, state in zip(row, x) if state == x[-1]) for row in first]
        second = [math.exp(beta * value) for value in s]
        p = [floor / C] * C
        for m in range(n):
            p[x[m]] += (1 - floor) * (1 - direct) * second[m] / sum(second)
            p[x[m]] += (1 - floor) * direct * first[-1][m]
        answer.append(p)
    return torch.tensor(answer, dtype=torch.float64).log()


@pytest.mark.parametrize("beta, delta, direct", [(0, 0, 0), (2, 1.5, 0.1), (-1, 3, 0.5), (5, -2, 1)])
def test_agrees_with_loops(beta, delta, direct):
    tokens = some().tokens
    model = SA(C, float(beta), float(delta), direct, 0.02)
    assert torch.allclose(model(tokens)[:, 0], by_loops(tokens, beta, delta, direct, 0.02), atol=1e-12)


@pytest.mark.parametrize("seq", [2, 3, 30])
def test_gives_probabilities_of_the_last_place(seq):
    answer = SA(C, 3.0, 2.0)(some(seq=seq).tokens)
    assert answer.shape == (20, 1, C)
    assert torch.allclose(answer.exp().sum(-1), torch.ones(20, 1, dtype=torch.float64))


def test_renaming_states_renames_the_answer():
    tokens, names = some().tokens, torch.tensor([2, 0, 3, 1])
    model = SA(C, 3.0, 2.0)
    assert torch.allclose(model(names[tokens])[..., names], model(tokens))


def test_the_corners_count_states_and_transitions():
    tokens = some(batch=50, seq=200).tokens
    gens = [Gen(order, C, alpha=1e-9)(tokens, (-1,)).exp() for order in (1, 2)]
    states = tokens[..., None].eq(torch.arange(C)).double().mean(1, keepdim=True)
    assert torch.allclose(SA(C, floor=1e-9)(tokens).exp(), states)
    corner = SA(C, beta=1e3, delta=100.0, direct=0, floor=1e-9)(tokens).exp()
    seen = tokens[:, 0] != tokens[:, -1]  # the first place has only itself to attend to
    assert seen.sum() > 20 and torch.allclose(corner[seen], gens[1][seen], atol=1e-6)


@pytest.mark.parametrize("direct, floor", [(0.0, 0.01), (0.3, 0.05), (0.0, 0.2)])
def test_coefficients_are_the_derivatives_of_the_loss(direct, floor):
    data, point = some(batch=200, seq=15), torch.zeros(2, dtype=torch.float64, requires_grad=True)
    loss = SA(data.rows.shape[1], direct=direct, floor=floor).at(*point).loss(data)
    gradient = torch.autograd.grad(loss, point, create_graph=True)[0]
    found = coefficients(data, floor)
    expected = torch.tensor([-(1 - direct) * found["c_beta"].mean, -direct * found["c_delta"].mean])
    assert torch.allclose(gradient.float(), expected, atol=1e-7)
    if direct == 0:
        (mixed, _) = torch.autograd.grad(gradient[0], point)[0].flip(0)
        assert mixed.item() == pytest.approx(-found["mixed"].mean, abs=1e-9)


def test_errors_shrink_with_the_square_root_of_the_sequences():
    few, many = (coefficients(some(batch=n, seq=20))["mixed"] for n in (100, 10_000))
    assert many.error == pytest.approx(few.error / 10, rel=0.3)
    assert abs(few.mean - many.mean) < 4 * few.error and many.mean > 5 * many.error


def test_a_world_without_transitions_hardly_tilts():
    pi = torch.tensor([0.4, 0.3, 0.2, 0.1], dtype=torch.float64).expand(2000, -1)
    states = torch.multinomial(pi, 100, replacement=True, generator=generator(3))
    flat, steep = coefficients(Contexts(states, pi)), coefficients(some(batch=2000, seq=100))
    assert abs(flat["c_delta"].mean) < 4 * flat["c_delta"].error
    assert abs(flat["mixed"].mean) < 0.05 * steep["mixed"].mean


def test_descent_goes_down_the_landscape_and_repeats():
    data, model = some(batch=400, seq=40), SA(C)
    path = descend(model, data, lr=2.0, steps=300)
    assert (np.diff(path.losses) < 1e-9).all() and path.times[-1] == 600
    grid = landscape(model, data, [0, path.beta[-1]], [0, path.delta[-1]])
    assert grid[0, 0] == pytest.approx(path.losses[0]) and grid[1, 1] == pytest.approx(path.losses[-1])
    again, other = (descend(model, data, 2.0, 20, batch=8, seed=seed).beta for seed in (1, 2))
    assert np.array_equal(again, descend(model, data, 2.0, 20, batch=8, seed=1).beta)
    assert not np.array_equal(again, other)


def test_it_moves_from_one_generaliser_to_the_other():
    data = some(batch=1000, seq=60)
    path = descend(SA(C), data, lr=4.0, steps=200)
    start, end = SA(C)(data.tokens), SA(C, path.beta[-1], path.delta[-1])(data.tokens)
    far = [[divergence(Gen(n, C)(data.tokens, (-1,)), p).item() for n in (1, 2)] for p in (start, end)]
    assert far[0][0] < 0.5 * far[0][1] and far[1][1] < 0.5 * far[1][0]


@pytest.mark.parametrize("a, b, c", [(3e-3, 2e-4, 5e-3), (0.0, 1e-3, 1e-2), (2e-3, 0.0, 1e-3)])
def test_the_wait_agrees_with_small_steps(a, b, c):
    beta = delta = time = 0.0
    while beta < 1.5:
        step = 1e-3 / c
        beta, delta, time = beta + step * (a + c * delta), delta + step * (b + c * beta), time + step
    assert wait(a, b, c, level=1.5) == pytest.approx(time, rel=0.01)


def test_the_time_of_half_a_fall():
    times, losses = 10 * np.arange(5), np.array([2.0, 2.0, 1.5, 1.0, 1.0])
    assert fallen(times, losses) == 20
    assert fallen(times, losses, 0.75) == pytest.approx(25)
    assert fallen(times, losses, 0.25) == pytest.approx(15)


def test_says_what_is_wrong():
    with pytest.raises(ValueError, match="direct ≤ 1 and 0 < floor"):
        SA(C, direct=1.5)
    with pytest.raises(ValueError, match="needs some probability"):
        SA(C, floor=0)
    with pytest.raises(ValueError, match="at least two states"):
        SA(C)(torch.zeros(3, 1, dtype=torch.long))
    with pytest.raises(ValueError, match="not both 0, c > 0 and level > 0; got 0, 0, 1"):
        wait(0, 0, 1)
