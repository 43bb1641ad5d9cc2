"""The toy model on two numbers a vector against its twin, which builds every tensor and differentiates."""

import numpy as np
import pytest
import torch

from iclkit.minimal.coopetition import DIMS, OUTCOMES, Path, Start, Times, descend, draw, outcomes, start

SMALL = (3, 4, 5, 6)


def by_tensors(seed, dims, alpha, mu1, mu2, lr, steps, hold=""):
    """M1, M2 and C before each step of descent on full vectors, [step 3]: tensors built, autograd."""
    vectors, (at, bt, ct, dt) = draw(seed, dims)
    vectors = [v.requires_grad_() for v in vectors]

    def product(u, v, w):
        return torch.einsum("i,j,k->ijk", u, v, w)

    seen = []
    for _ in range(steps + 1):
        a, b, c, d = vectors
        M1 = (product(at, bt, ct) - product(a, b, c)).square().mean() / 2
        M2 = (product(dt, bt, ct) - product(d, b, c)).square().mean() / 2
        C = torch.outer(a, d).square().mean() / 2
        loss = (M1 + mu1) * (M2 + mu2) + alpha * C
        seen.append([M1.item(), M2.item(), C.item()])
        with torch.no_grad():
            for name, v, g in zip("abcd", vectors, torch.autograd.grad(loss, vectors)):
                v -= lr * g * (name not in hold)
    return np.array(seen)


@pytest.mark.parametrize(
    "dims, alpha, mu1, mu2, lr, steps, hold",
    [
        (SMALL, 0.1, 0.1, 0.0, 0.5, 300, ""),
        (SMALL, 0.7, 0.0, 0.3, 0.2, 300, ""),
        (SMALL, 0.0, 0.5, 0.1, 0.5, 100, "bc"),
        (DIMS, 0.1, 0.1, 0.0, 1.0, 40, ""),
    ],
)
def test_agrees_with_tensors_and_autograd(dims, alpha, mu1, mu2, lr, steps, hold):
    path = descend(start([3, 4], dims), alpha, mu1, mu2, lr, steps, every=1, hold=hold)
    for run, seed in enumerate((3, 4)):
        full = by_tensors(seed, dims, alpha, mu1, mu2, lr, steps, hold)
        assert np.ptp(full[:, 0]) > 1e-3
        np.testing.assert_allclose(np.stack(path.losses)[:, run].T, full, rtol=1e-8, atol=1e-10)


def test_settings_and_runs_are_stacked_and_go_as_they_would_alone():
    begun, A, U = start(range(3), SMALL), np.array([0.0, 0.2]), np.array([0.0, 0.1, 0.4])
    stacked = descend(begun, alpha=A[:, None, None], mu1=U[:, None], steps=200, every=50)
    assert stacked.losses.M1.shape == (2, 3, 3, 5)
    for i, alpha in enumerate(A):
        for j, mu1 in enumerate(U):
            alone = descend(start([2], SMALL), alpha, mu1, steps=200, every=50)
            np.testing.assert_allclose(stacked.vectors[:, :, i, j, 2], alone.vectors[:, :, 0], rtol=1e-12)


def test_the_two_strategies_may_change_their_names():
    begun = start(range(4), (5, 4, 3, 5))
    other = Start(begun.vectors[[3, 1, 2, 0]], begun.lengths[[3, 1, 2, 0]], begun.dims)
    one = descend(begun, mu1=0.3, mu2=0.1, lr=0.2, steps=500).losses
    two = descend(other, mu1=0.1, mu2=0.3, lr=0.2, steps=500).losses
    assert np.ptp(one.M1, axis=-1).min() > 0.1
    np.testing.assert_allclose(one.M1, two.M2, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(one.C, two.C, rtol=1e-9, atol=1e-12)


def test_a_vector_in_its_plane_keeps_its_length_and_its_overlap():
    begun = start([0, 7])
    for run, seed in enumerate((0, 7)):
        for v, target, turned, length in zip(*draw(seed), begun.vectors[..., run], begun.lengths[:, run]):
            assert np.hypot(*turned) == pytest.approx(v.norm().item())
            assert turned[0] * length == pytest.approx((v @ target).item())


def test_targets_are_a_place_of_rest_when_nothing_competes():
    begun = start(range(3), SMALL)
    truth = {name: (length, 0 * length) for name, length in zip("abcd", begun.lengths)}
    path = descend(begun.put(**truth), alpha=0.0, steps=50, every=1)
    assert np.abs(np.stack(path.losses)[:2]).max() < 1e-12
    np.testing.assert_allclose(path.end("b"), truth["b"], atol=1e-12)


def rising_and_falling():
    """b, c and d at their targets, a on its way to its own and back: M1 / ignorance = (1 − u)²."""
    steps, u = np.arange(0, 110, 10), np.array([0, 0, 0.5, 1, 1, 1, 1, 0.5, 0, 0, 0])
    begun = start(range(2), SMALL)
    vectors = np.zeros((4, 2, 2, len(steps)))
    vectors[:, 0] = begun.lengths[..., None]
    vectors[0, 0, 0] *= u  # run 0 rises and falls
    vectors[0, 0, 1] *= np.minimum(u, 0.1)  # run 1 never learns ICL
    vectors[3, 0] *= steps > 65
    return Path(steps, vectors, begun)


def test_times_are_read_off_the_shares():
    path = rising_and_falling()
    np.testing.assert_allclose(path.shares[0][0], [1, 1, 0.25, 0, 0, 0, 0, 0.25, 1, 1, 1], atol=1e-12)
    np.testing.assert_allclose(path.times.icl, [10 + 20 / 3, np.nan])
    np.testing.assert_allclose(path.times.lost, [70 + 10 / 3, np.nan])
    np.testing.assert_allclose(path.times.ciwl, [65, 65])


def test_outcomes_are_those_of_a_budget():
    times = rising_and_falling().times
    assert outcomes(times).tolist() == ["ICL rises and falls", "CIWL alone"]
    assert outcomes(times, until=50).tolist() == ["ICL held", "stuck"]
    assert set(outcomes(Times(*np.full((3, 2), np.nan)))) == {OUTCOMES[0]}


def test_without_a_rest_of_mu1_icl_is_kept_and_with_one_it_is_lost():
    found = descend(start([2, 3]), mu1=np.array([0.0, 0.1])[:, None], steps=3000)
    assert outcomes(found.times).tolist() == [["ICL held"] * 2, ["ICL rises and falls"] * 2]


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda s: descend(s, alpha=-0.1), "finite α, μ₁ and μ₂, at least 0; got -0.1, 0.1, 0.0"),
        (lambda s: descend(s, mu1=np.nan), "finite α"),
        (lambda s: descend(s, lr=0), "lr > 0"),
        (lambda s: descend(s, steps=10, every=20), "1 ≤ every ≤ steps"),
        (lambda s: descend(s, alpha=np.ones(3)), r"of the 2 runs, as A\[:, None\]; got \[3\]"),
        (lambda s: descend(s, alpha=np.ones((2, 3))), "of the 2 runs"),
        (lambda s: descend(s, hold="ax"), "called a, b, c, d; got 'x'"),
        (lambda s: s.put(e=(0, 0)), "called a, b, c, d; got 'e'"),
        (lambda s: s.put(a=0.0), r"expected a as \(along, across\), numbers or \[2 2\]; got \[\]"),
        (lambda s: start([]), "at least one seed"),
        (lambda s: start([-1]), "whole numbers of at least 0"),
        (lambda s: start([0], (20, 20, 20)), "lengths of a, b, c, d"),
        (lambda s: start([0], (20, 20, 20, 1)), "each at least 2"),
        (lambda s: Start(s.vectors[:3], s.lengths), r"expected vectors \[4 2 run\]"),
        (lambda s: Start(s.vectors, 0 * s.lengths), "length above 0"),
    ],
)
def test_says_what_is_wrong(call, message):
    with pytest.raises(ValueError, match=message):
        call(start(range(2)))


def test_a_run_that_runs_away_is_named():
    with pytest.raises(FloatingPointError, match="lower lr=300"):
        descend(start(range(2)), lr=300.0, steps=200)
