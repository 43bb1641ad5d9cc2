"""Sequences to look at: what stands where is what the task draws, and the figure names its drawings."""

import matplotlib

matplotlib.use("Agg")
import numpy as np
import pytest
import torch

from iclkit import figures
from iclkit.tasks import Composite, FewShot, Given, ImageLike, Strokes, evaluators, pictures, show_sequences
from iclkit.tasks.omniglot import Drawings

SOURCE = Strokes(characters=5, n_exemplars=3, d_features=10)
pytestmark = pytest.mark.usefixtures("house_style")


def words(cell):
    return [text.get_text() for text in cell.texts]


def test_a_figure_shows_the_sequences_that_the_tasks_draw():
    tasks = evaluators(FewShot(SOURCE, batch_size=8))
    figure = show_sequences(tasks, seed=3, step=1, row=5)
    cells = np.array(figure.axes).reshape(5, 6)
    for (name, task), row in zip(tasks.items(), cells):
        classes, indices, labels, answers = (part[5].tolist() for part in task.draw(3, 1))
        for cell, class_, index in zip(row[0::2], classes, indices):
            np.testing.assert_allclose(cell.images[0].get_array(), 1 - SOURCE.picture(class_, index))
        assert [words(cell) for cell in row[1::2]] == [[str(label)] for label in labels] + [[f"→ {answers}"]]
        blue = [cell.texts[0].get_color() == figures.COLOURS[0] for cell in row[1::2]]
        assert blue == [label == answers for label in labels] + [True]
        assert row[0].get_ylabel() == name
    assert [cell.get_title() for cell in cells[0]] == ["exemplar", "label"] * 2 + ["query", "answer"]
    assert figure.get_supxlabel() == "drawings: strokes made by this code"


def test_one_task_needs_no_name_and_composites_show_both_halves():
    figure = show_sequences(FewShot(Composite(SOURCE, 99), pairs=3, batch_size=2))
    assert len(figure.axes) == 8 and figure.axes[0].images[0].get_array().shape == (28, 56)
    assert figure.get_supxlabel() == "drawings: strokes made by this code"


def test_drawings_of_a_folder_are_named_as_omniglots():
    images = torch.randint(256, (3, 2, 28, 28)).to(torch.uint8)
    source = Drawings(torch.randn(24, 2, 4), images)
    figure = show_sequences(FewShot(source, batch_size=1))
    assert figure.get_supxlabel() == "drawings: Omniglot"
    assert torch.equal(source.picture(9, 1), torch.rot90(images[1, 1], 1) / 255)
    with pytest.raises(ValueError, match="classes of exemplars must lie in 0 … 23"):
        source.picture(24, 0)


def test_strokes_stand_in_where_no_folder_is_named(monkeypatch):
    monkeypatch.delenv("ICLKIT_OMNIGLOT", raising=False)
    assert pictures() == Strokes()


@pytest.mark.parametrize("source", [ImageLike(n_classes=9), Given(torch.zeros(9, 2, 3))])
def test_exemplars_without_pictures_are_refused(source):
    with pytest.raises(ValueError, match=r"have no pictures; take pictures\(\) as the source"):
        show_sequences(FewShot(source))


def test_tasks_of_other_sizes_are_refused():
    with pytest.raises(ValueError, match=r"as many pairs each; got \[2, 3\]"):
        show_sequences({"two": FewShot(SOURCE), "three": FewShot(SOURCE, pairs=3)})
    with pytest.raises(ValueError, match=r"as many pairs each; got \[\]"):
        show_sequences({})
