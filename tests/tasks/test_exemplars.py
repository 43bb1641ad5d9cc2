"""Exemplars: what ImageLike's equation promises, and what a source refuses."""

import dataclasses

import pytest
import torch

from iclkit.tasks import Exemplars, Given, ImageLike, generator
from iclkit.tasks.exemplars import drawn

SMALL = ImageLike(n_classes=400, n_exemplars=10, d_features=64, rank=6, spread=0.3)


def everything(source):
    classes = torch.arange(source.n_classes)[:, None].expand(-1, source.n_exemplars)
    return source.vectors(classes, torch.arange(source.n_exemplars).expand_as(classes))


def test_an_exemplar_is_its_equation():
    s = dataclasses.replace(SMALL, seed=3)
    centre = torch.randn(400, 6, generator=generator(3, 0))[17]
    noise = torch.randn(400, 10, 6, generator=generator(3, 1))[17, 4]
    R = torch.randn(6, 64, generator=generator(3, 2))
    x = torch.relu((centre + 0.3 * noise) / (1 + 0.3**2) ** 0.5 @ R)
    x = x * 4 / (R.square().sum() / 2).sqrt()
    got = s.vectors(torch.tensor([17]), torch.tensor([4]))[0]
    assert torch.allclose(got, x, atol=1e-5)


@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("norm", [1.0, 4.0])
def test_norm_and_mean_are_as_said(centred, norm):
    x = everything(ImageLike(n_classes=3000, n_exemplars=2, rank=12, norm=norm, centred=centred))
    assert x.square().sum(-1).mean().sqrt().item() == pytest.approx(norm, rel=0.02)
    common = x.mean((0, 1)).norm().item() / norm
    assert common < 0.06 if centred else common > 0.5
    assert centred or (x >= 0).all()


def test_classes_hold_together_and_spread_loosens_them():
    def within(spread):
        x = everything(dataclasses.replace(SMALL, spread=spread, centred=True))
        return ((x - x.mean(1, keepdim=True)).square().sum() / (x - x.mean((0, 1))).square().sum()).item()

    assert within(0.0) < 1e-10
    assert within(0.2) < within(0.6) < within(2.0) < 0.9


def test_rank_is_the_dimension_before_the_relu():
    def dimensions(rank):
        x = everything(dataclasses.replace(SMALL, rank=rank, centred=True)).flatten(0, 1)
        energy = torch.linalg.svdvals(x).square()
        return ((energy / energy.sum()).cumsum(0) < 0.8).sum().item()

    assert dimensions(2) < dimensions(6) < dimensions(20)


def test_exemplars_depend_on_their_seed_alone():
    assert torch.equal(everything(SMALL), everything(dataclasses.replace(SMALL)))
    assert not torch.allclose(everything(SMALL), everything(dataclasses.replace(SMALL, seed=1)), atol=0.5)
    alone = SMALL.vectors(torch.tensor(5), torch.tensor(2))
    assert torch.allclose(everything(SMALL)[5, 2], alone, atol=1e-6)


def test_exemplars_are_drawn_on_the_cpu_whatever_the_default_device():
    wanted = drawn(SMALL, torch.device("cpu"))
    drawn.cache_clear()
    with torch.device("meta"):
        got = drawn(SMALL, torch.device("cpu"))
    assert all(torch.equal(one, other) for one, other in zip(wanted, got))


def test_a_given_table_is_read_row_by_row_and_named_by_its_content():
    table = torch.randn(4, 3, 5, generator=generator(0))
    source = Given(table)
    assert (source.n_classes, source.n_exemplars, source.d_features) == (4, 3, 5)
    assert torch.equal(everything(source), table)
    assert isinstance(source, Exemplars) and isinstance(SMALL, Exemplars)
    other = Given(table + 1)
    assert repr(source) == repr(Given(table.clone())) != repr(other) and "[4, 3, 5]" in repr(source)


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"n_classes": 0}, "n_classes must be at least 1; got 0"),
        ({"rank": True}, "rank must be a whole number"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"spread": -0.1}, "expected spread ≥ 0 and norm > 0"),
        ({"norm": float("inf")}, "expected spread ≥ 0 and norm > 0"),
    ],
)
def test_impossible_exemplars_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        ImageLike(**wrong)


@pytest.mark.parametrize("source", [SMALL, Given(torch.zeros(400, 10, 2))])
def test_exemplars_out_of_range_are_refused(source):
    zero = torch.tensor([0])
    for classes, indices, message in (
        (zero + 400, zero, r"classes of exemplars must lie in 0 … 399; got 400"),
        (zero - 1, zero, "classes of exemplars must lie"),
        (zero, zero + 10, "indices of exemplars must lie in 0 … 9; got 10"),
    ):
        with pytest.raises(ValueError, match=message):
            source.vectors(classes, indices)


def test_a_table_must_be_one():
    for table, message in (
        (torch.zeros(3, 2), r"float32 tensor \[class exemplar feature\]"),
        (torch.zeros(3, 2, 4).double(), "float64"),
        (torch.full((3, 2, 4), float("nan")), "finite"),
    ):
        with pytest.raises(ValueError, match=message):
            Given(table)
