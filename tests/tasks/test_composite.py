"""Composite classes: every pair once, used evenly; halves are the base's, and nothing is stored."""

import dataclasses

import pytest
import torch

from iclkit.tasks import Composite, Exemplars, FewShot, Given, ImageLike, Strokes, generator
from iclkit.tasks.composite import pair

BASE = Given(torch.randn(7, 3, 5, generator=generator(0)))


def pairs_of(source, classes=None):
    classes = torch.arange(source.n_classes) if classes is None else classes
    (left, _), (right, _) = source.parts(classes, torch.zeros_like(classes))
    return list(zip(left.tolist(), right.tolist()))


@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_numbers_name_every_pair_once(n):
    a, b = pair(torch.arange(n * n), n)
    assert sorted(zip(a.tolist(), b.tolist())) == [(i, j) for i in range(n) for j in range(n)]


def test_n_classes_make_every_one_of_n_squared_pairs():
    assert sorted(pairs_of(Composite(BASE, 49))) == [(a, b) for a in range(7) for b in range(7)]


@pytest.mark.parametrize("count", [7, 21, 25])
def test_every_class_stands_equally_often_on_either_side(count):
    for side in zip(*pairs_of(Composite(BASE, count, seed=4))):
        uses = [side.count(class_) for class_ in range(7)]
        assert max(uses) - min(uses) <= (count % 7 > 0)


def test_more_classes_keep_the_earlier_ones_and_seeds_give_others():
    few, many = Composite(BASE, 10), Composite(BASE, 40)
    assert pairs_of(few) == pairs_of(many)[:10]
    assert pairs_of(few) != pairs_of(dataclasses.replace(few, seed=1))
    assert pairs_of(few) == pairs_of(Composite(BASE, 10))


def test_an_exemplar_is_two_of_the_base_joined():
    """Slow twin: read the table, one exemplar after the other."""
    source = Composite(BASE, 20, seed=2)
    assert (source.n_classes, source.n_exemplars, source.d_features) == (20, 9, 10)
    for number, (a, b) in enumerate(pairs_of(source)):
        got = []
        for index in range(9):
            i, j = index % 3, (index % 3 + index // 3) % 3
            x = source.vectors(torch.tensor(number), torch.tensor(index))
            assert torch.allclose(x, torch.cat([BASE.table[a, i], BASE.table[b, j]]) / 2**0.5)
            got.append((i, j))
        assert len(set(got)) == 9


@pytest.mark.parametrize(
    "base", [ImageLike(n_classes=60, n_exemplars=4), Strokes(characters=4, n_exemplars=3, d_features=20)]
)
def test_norm_is_kept_over_every_base(base):
    source = Composite(base, base.n_classes)
    grid = torch.meshgrid(torch.arange(source.n_classes), torch.arange(source.n_exemplars), indexing="ij")
    every = torch.meshgrid(torch.arange(base.n_classes), torch.arange(base.n_exemplars), indexing="ij")
    norms = [
        s.vectors(*at).square().sum(-1).mean().sqrt().item() for s, at in ((source, grid), (base, every))
    ]
    assert norms[0] == pytest.approx(norms[1], rel=1e-4)


def test_principal_components_of_each_half_are_those_of_the_base():
    """Squared distances between composites are the mean of the halves' squared distances."""
    base = Strokes(characters=4, n_exemplars=3, d_features=20)
    source, at = Composite(base, 100), torch.arange(100)
    halves = [base.vectors(*part) for part in source.parts(at, at % 9)]
    x = source.vectors(at, at % 9)
    mean = sum(torch.cdist(half, half).square() for half in halves) / 2
    assert torch.allclose(torch.cdist(x, x).square(), mean, atol=1e-3)


def test_pictures_stand_side_by_side():
    base = Strokes(characters=4, n_exemplars=3, d_features=20)
    source = Composite(base, 500)
    (a, i), (b, j) = source.parts(torch.tensor(333), torch.tensor(7))
    picture = source.picture(333, 7)
    assert picture.shape == (28, 56)
    assert torch.equal(picture[:, :28], base.picture(int(a), int(i)))
    assert torch.equal(picture[:, 28:], base.picture(int(b), int(j)))
    with pytest.raises(ValueError, match="expected a base with pictures"):
        Composite(BASE, 9).picture(0, 0)


def test_a_composite_of_composites_is_a_source_for_a_task():
    source = Composite(Composite(BASE, 40), 1000)
    assert isinstance(source, Exemplars) and (source.n_exemplars, source.d_features) == (81, 20)
    assert FewShot(source, batch_size=4).batch(0, 0).inputs.shape == (4, 5, 21)


def test_millions_of_classes_cost_nothing():
    source = Composite(ImageLike(n_classes=5000, n_exemplars=20, d_features=8, rank=4), 25_000_000)
    last = torch.tensor([24_999_999])
    assert source.vectors(last, torch.tensor([399])).shape == (1, 16)


def test_what_cannot_be_is_refused():
    for arguments, message in (
        ((BASE, 50), "7 classes make 1 … 49 pairs; got n_classes=50"),
        ((BASE, 0), "got n_classes=0"),
        ((BASE, True), "n_classes must be a whole number"),
        ((BASE, 3, -1), "seed must be at least 0"),
    ):
        with pytest.raises(ValueError, match=message):
            Composite(*arguments)
    source, zero = Composite(BASE, 20), torch.tensor([0])
    with pytest.raises(ValueError, match=r"classes of exemplars must lie in 0 … 19; got 20"):
        source.vectors(zero + 20, zero)
    with pytest.raises(ValueError, match=r"indices of exemplars must lie in 0 … 8; got 9"):
        source.vectors(zero, zero + 9)
