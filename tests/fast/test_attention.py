"""Attention by blocks and by sums: the explicit softmax and its derivative, at every length."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from twins import LENGTHS, stream

from iclkit.fast.attention import Attention


def explicit(qkv: torch.Tensor, length: int, heads: int, d_head: int) -> torch.Tensor:
    """softmax(q kᵀ / √d_head + mask) v, as the equation says."""
    q, k, v = qkv.view(-1, length, 3, heads, d_head).permute(2, 0, 3, 1, 4)
    scores = q @ k.transpose(2, 3) / math.sqrt(d_head)
    future = torch.ones(length, length, dtype=torch.bool).triu(1)
    z = scores.masked_fill(future, -math.inf).softmax(-1) @ v
    return z.transpose(1, 2).reshape(*qkv.shape[:2], -1)


def drawn(models: int, sequences: int, length: int, width: int, seed: int, scale: float = 1.0):
    return torch.randn(models, sequences * length, width, generator=stream(seed), dtype=torch.float64) * scale


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(LENGTHS),
    st.integers(1, 3),
    st.integers(1, 3),
    st.sampled_from([(1, 1), (2, 3), (4, 8)]),
    st.sampled_from([0.1, 1.0, 30.0]),
)
def test_it_is_the_explicit_softmax_and_its_derivative(length, models, sequences, heads, scale):
    qkv = drawn(models, sequences, length, 3 * math.prod(heads), 0, scale)
    twin = qkv.clone().requires_grad_()
    attention = Attention(length, *heads, qkv)
    z, kept = attention.forward(qkv.clone())
    wanted = explicit(twin, length, *heads)
    torch.testing.assert_close(z, wanted, atol=1e-12, rtol=1e-10)
    dz = drawn(models, sequences, length, math.prod(heads), 1)
    wanted.backward(dz)
    torch.testing.assert_close(attention.backward(dz.clone(), kept), twin.grad, atol=1e-11, rtol=1e-9)


@pytest.mark.parametrize("length", [5, 9, 65, 130])
def test_a_position_feels_no_later_one(length):
    qkv, place = drawn(1, 2, length, 18, 0), length // 2
    changed = qkv.clone().view(2, length, 18)
    changed[:, place:] += 1.0
    attention = Attention(length, 2, 3, qkv)
    before, _ = attention.forward(qkv.clone())
    after, _ = attention.forward(changed.view(1, -1, 18))
    before, after = before.view(2, length, 6), after.view(2, length, 6)
    assert torch.equal(before[:, :place], after[:, :place])
    assert (before[:, place:] - after[:, place:]).abs().amax(-1).min() > 1e-2


@pytest.mark.parametrize("length", [5, 70])
def test_scores_far_apart_stay_finite_in_float32(length):
    qkv = drawn(1, 2, length, 18, 0, 1e4).float()
    attention = Attention(length, 2, 3, qkv)
    z, kept = attention.forward(qkv.clone())
    dqkv = attention.backward(torch.ones_like(z), kept)
    assert z.isfinite().all() and dqkv.isfinite().all()
