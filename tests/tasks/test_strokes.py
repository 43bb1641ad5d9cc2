"""Strokes: one picture against a slow twin, what depends on what, and what is refused."""

import math

import pytest
import torch

from iclkit.tasks import Exemplars, FewShot, Strokes, generator
from iclkit.tasks import strokes as module
from iclkit.tasks.omniglot import oriented

SMALL = Strokes(characters=12, n_exemplars=6, d_features=20)


def everything(source):
    classes = torch.arange(source.n_classes)[:, None].expand(-1, source.n_exemplars)
    return source.vectors(classes, torch.arange(source.n_exemplars).expand_as(classes))


def slow_picture(source, character, index):
    """The same drawing, point by point and pixel by pixel."""
    strokes = module.controls(generator(source.seed, character)).tolist()
    count = 6 + 2 * 5 * len(strokes)
    chances = torch.rand(count, generator=generator(source.seed, character, 1 + index), dtype=torch.float64)
    moves = [source.wobble * (2 * chance - 1) for chance in chances.tolist()]
    (a, b, c, d), (right, down), apart = moves[:4], moves[4:6], iter(moves[6:])
    line = []
    for stroke in strokes:
        moved = [[value + 0.06 * next(apart) for value in control] for control in stroke]
        for step in range(128):
            u = step / 127
            t = (u + (1 - math.cos(math.pi * u)) / 2) / 2
            share = [math.comb(4, k) * t**k * (1 - t) ** (4 - k) for k in range(5)]
            x, y = (sum(s * control[axis] for s, control in zip(share, moved)) for axis in (0, 1))
            line.append((x + 0.15 * (x * a + y * c) + 0.05 * right, y + 0.15 * (x * b + y * d) + 0.05 * down))
    picture = torch.zeros(28, 28)
    for row in range(28):
        for column in range(28):
            near = min(math.hypot(14 + 19 * x - column - 0.5, 14 + 19 * y - row - 0.5) for x, y in line)
            picture[row, column] = round(255 * min(1, max(0, 1.2 - near))) / 255
    return picture


@pytest.mark.parametrize("character, index", [(0, 0), (3, 5), (7, 1)])
def test_a_picture_is_its_slow_twin(character, index):
    assert torch.allclose(
        SMALL.picture(8 * character, index), slow_picture(SMALL, character, index), atol=1e-6
    )


def test_a_picture_depends_on_seed_character_and_exemplar_alone():
    more = Strokes(characters=30, n_exemplars=9, d_features=5)
    for class_, index in ((0, 0), (93, 5)):
        assert torch.equal(SMALL.picture(class_, index), more.picture(class_, index))
    pictures = [SMALL.picture(8 * c, i) for c in range(12) for i in range(6)]
    pictures += [Strokes(characters=12, seed=1).picture(8 * c, 0) for c in range(12)]
    assert len({tuple(picture.flatten().tolist()) for picture in pictures}) == len(pictures)
    torch.rand(3)
    assert torch.equal(SMALL.picture(0, 0), pictures[0])


def test_pictures_are_ink_on_paper_with_room_around():
    for character in range(12):
        picture = SMALL.picture(8 * character, 0)
        assert picture.shape == (28, 28) and 0 == picture.min() and picture.max() > 0.99
        assert 0.02 < picture.mean() < 0.4
        edge = torch.cat([picture[0], picture[-1], picture[:, 0], picture[:, -1]])
        assert edge.max() == 0
    still = Strokes(characters=1, wobble=0.0)
    assert torch.equal(still.picture(0, 0), still.picture(0, 7))


def test_a_wild_wobble_leaves_the_picture_and_nothing_else():
    wild = Strokes(characters=3, n_exemplars=4, wobble=30.0)
    assert all(
        0 <= wild.picture(8 * c, i).min() and wild.picture(8 * c, i).max() <= 1
        for c in range(3)
        for i in range(4)
    )


def test_lines_are_whole():
    """No gap: along a curve, ink never fades (a dotted line would)."""
    for character in range(12):
        with torch.device("cpu"):
            strokes = module.controls(generator(0, character))
        line = module.CURVE @ strokes  # as wide as the picture: 19 pixels of 1
        steps = 19 * line.diff(dim=1).norm(dim=-1)
        assert steps.max() < 1.4  # pixels: two points so far apart still touch at half ink


@pytest.mark.parametrize("orientation", range(8))
def test_class_8c_plus_o_is_character_c_in_orientation_o(orientation):
    assert torch.equal(SMALL.picture(16 + orientation, 3), oriented(SMALL.picture(16, 3), orientation))


def test_features_are_principal_components_of_the_pictures():
    full = Strokes(characters=2, n_exemplars=2, d_features=40)  # 32 pictures span at most 31 dimensions
    x = everything(full).flatten(0, 1)
    pictures = torch.stack([full.picture(c, i) for c in range(16) for i in range(2)]).flatten(1)
    between = torch.cdist(pictures, pictures)
    scale = 4 / (pictures - pictures.mean(0)).square().sum(-1).mean().sqrt()
    assert torch.allclose(torch.cdist(x, x), scale * between, atol=1e-2)
    assert x.square().sum(-1).mean().sqrt().item() == pytest.approx(4, rel=1e-4)


def test_drawings_of_one_character_are_alike_and_wobble_loosens_them():
    def within(wobble):
        x = everything(Strokes(characters=12, n_exemplars=6, d_features=20, wobble=wobble))
        return ((x - x.mean(1, keepdim=True)).square().sum() / x.square().sum()).item()

    assert within(0.0) < 1e-8 < within(0.3) < within(1.0) < 0.7


def test_strokes_are_a_source_that_a_task_takes():
    assert isinstance(SMALL, Exemplars) and (SMALL.n_classes, SMALL.n_exemplars) == (96, 6)
    batch = FewShot(SMALL, batch_size=4).batch(0, 0)
    assert batch.inputs.shape == (4, 5, 21)
    assert repr(SMALL).startswith("Strokes(characters=12, n_exemplars=6")


def test_strokes_are_drawn_on_the_cpu_whatever_the_default_device():
    wanted = module.drawn(SMALL, 4, [2])
    with torch.device("meta"):
        assert torch.equal(module.drawn(SMALL, 4, [2]), wanted)


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"characters": 0}, "characters must be at least 1; got 0"),
        ({"n_exemplars": True}, "n_exemplars must be a whole number"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"d_features": 785}, "pictures have 784 pixels; got d_features=785"),
        ({"wobble": -1}, "expected wobble ≥ 0 and norm > 0"),
        ({"norm": 0.0}, "expected wobble ≥ 0 and norm > 0"),
    ],
)
def test_impossible_strokes_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        Strokes(**wrong)


def test_what_is_not_there_is_refused():
    with pytest.raises(ValueError, match=r"classes of exemplars must lie in 0 … 95; got 96"):
        SMALL.picture(96, 0)
    with pytest.raises(ValueError, match=r"indices of exemplars must lie in 0 … 5; got -1"):
        SMALL.vectors(torch.tensor([0]), torch.tensor([-1]))
