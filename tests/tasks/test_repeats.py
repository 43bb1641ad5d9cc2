"""Repeated strings: the vectorised sampler against a loop, and what every batch must satisfy."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from iclkit.tasks import Repeats, generator, repeated_tokens
from iclkit.tasks.repeats import BOS, later_copies, lay_out

PLACEMENTS = st.sampled_from(["fill", "burst", "spread"])


def slow_layout(period: int, starts: list[int], length: int) -> tuple[list[int], list[int]]:
    place, copy = [0] * length, [-1] * length
    for number, start in enumerate(starts):
        for index in range(period):
            if start + index < length:
                place[start + index], copy[start + index] = index, number
    return place, copy


@settings(max_examples=60, deadline=None)
@given(PLACEMENTS, st.integers(0, 10**6), st.integers(0, 10**6))
def test_layout_agrees_with_its_slow_twin(placement, seed, step):
    task = Repeats(length=40, min_period=3, max_period=9, batch_size=8, placement=placement, copies=3)
    random = generator(seed, step)
    period = torch.randint(3, 10, (8,), generator=random)
    starts = task.starts(period, torch.rand(8, 3, generator=random, dtype=torch.float64))
    place, copy = lay_out(period, starts, 40)
    for row in range(8):
        slow_place, slow_copy = slow_layout(int(period[row]), starts[row].tolist(), 40)
        assert copy[row].tolist() == slow_copy
        assert [p for p, c in zip(place[row].tolist(), slow_copy) if c >= 0] == [
            p for p, c in zip(slow_place, slow_copy) if c >= 0
        ]


@settings(max_examples=40, deadline=None)
@given(PLACEMENTS, st.integers(0, 10**6))
def test_what_the_mask_keeps_is_settled_by_an_earlier_copy(placement, seed):
    task = Repeats(
        vocab=9, length=40, min_period=3, max_period=9, batch_size=16, placement=placement, repeats_only=True
    )
    inputs, targets, mask = task.batch(seed, 0)
    assert (inputs[:, 0] == BOS).all() and (inputs[:, 1:] >= 1).all() and (targets < 9).all()
    assert torch.equal(inputs[:, 1:], targets[:, :-1])
    assert mask.any(1).all()
    tokens = targets.tolist()
    for row in range(16):
        marked = [t for t in range(40) if mask[row, t]]
        shifts = [
            d for d in range(3, 41) if all(t >= d and tokens[row][t] == tokens[row][t - d] for t in marked)
        ]
        assert shifts or placement == "spread"


@pytest.mark.parametrize("placement", ["burst", "spread"])
def test_copies_fit_and_do_not_overlap(placement):
    task = Repeats(length=40, min_period=5, max_period=9, placement=placement, copies=4)
    period = torch.randint(5, 10, (500,), generator=generator(1))
    starts = task.starts(period, torch.rand(500, 4, generator=generator(2), dtype=torch.float64))
    assert (starts >= 0).all() and (starts[:, -1] + period <= 40).all()
    gaps = starts[:, 1:] - starts[:, :-1] - period[:, None]
    assert (gaps >= 0).all() and ((gaps == 0).all() if placement == "burst" else (gaps > 0).any())


def test_a_batch_is_a_pure_function_of_seed_and_step():
    task = Repeats()
    first, again = task.batch(3, 7), task.batch(3, 7)
    assert torch.equal(first.inputs, again.inputs) and first.mask is None
    assert not torch.equal(first.inputs, task.batch(3, 8).inputs)
    assert not torch.equal(first.inputs, task.batch(4, 7).inputs)
    assert not torch.equal(task.batch(1, 0).inputs, task.batch(0, 1).inputs)


def test_periods_and_symbols_are_uniform():
    task = Repeats(vocab=5, length=20, min_period=2, max_period=4, batch_size=6000)
    targets = task.batch(0, 0).targets
    counts = torch.bincount(targets.flatten(), minlength=5)[1:].double()
    assert (counts / counts.sum() - 0.25).abs().max() < 0.01
    period = [next(p for p in (2, 3, 4) if torch.equal(row[p:], row[:-p])) for row in targets]
    shares = torch.bincount(torch.tensor(period), minlength=5)[2:] / 6000
    chance = [1 / 3 + 1 / 3 / 16, 1 / 3, 1 / 3]  # a string of 3 or 4 equal symbols also has period 2
    assert (shares - torch.tensor(chance)).abs().max() < 0.04


def test_the_probe_is_one_distinct_string_again_and_again():
    probe = repeated_tokens(vocab=20, period=7, copies=3, batch=50, seed=1)
    assert probe.shape == (50, 22) and (probe[:, 0] == BOS).all()
    string = probe[:, 1:8]
    assert torch.equal(probe[:, 1:], string.repeat(1, 3)) and (string >= 1).all()
    assert all(len(set(row)) == 7 for row in string.tolist())
    settled = later_copies(7, 3)
    assert settled.sum() == 13 and not settled[7] and settled[8]


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"vocab": 2}, "expected 3 or more"),
        ({"min_period": 9, "max_period": 8}, "1 ≤ min_period ≤ max_period"),
        ({"max_period": 64}, "leaves no room"),
        ({"placement": "burst", "copies": 3}, "leaves no room"),
        ({"placement": "pile"}, "placement must be one of"),
        ({"batch_size": 0}, "batch_size ≥ 1"),
    ],
)
def test_impossible_tasks_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        Repeats(**{"max_period": 24, **wrong})


def test_impossible_probes_are_refused():
    with pytest.raises(ValueError, match="needs vocab ≥ 65"):
        repeated_tokens(vocab=64, period=64)
    with pytest.raises(ValueError, match="at least 0"):
        generator(-1)
