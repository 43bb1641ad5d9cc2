"""The exemplar–label task to look at: sequences of drawings and labels, one a row.

✎ 12   ✎ 40   ✎ → 12
"""

import os
from collections.abc import Mapping

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from iclkit.figures import COLOURS, GREY
from iclkit.tasks.exemplars import Exemplars
from iclkit.tasks.fewshot import FewShot
from iclkit.tasks.omniglot import omniglot
from iclkit.tasks.strokes import Strokes


def pictures() -> Exemplars:
    """Exemplars with pictures: Omniglot's where `ICLKIT_OMNIGLOT` names its folder, else our own strokes."""
    return omniglot() if os.environ.get("ICLKIT_OMNIGLOT") else Strokes()


def show_sequences(
    tasks: FewShot | Mapping[str, FewShot], seed: int = 0, step: int = 0, row: int = 0
) -> Figure:
    """Draw one sequence of each task, the query last; the label that is the answer is blue, others orange.

    `tasks` is one task or {name: task}; those that differ in `mix` alone show the same classes. The sequence
    is the one that `task.draw(seed, step)` has in `row`. The figure names the source of its drawings.
    Raises `ValueError` for exemplars without pictures, and for tasks of different sizes.
    """
    tasks = tasks if isinstance(tasks, Mapping) else {"": tasks}
    if not tasks or len({task.pairs for task in tasks.values()}) != 1:
        raise ValueError(f"expected tasks of as many pairs each; got {[t.pairs for t in tasks.values()]}")
    pairs = next(iter(tasks.values())).pairs
    figure, axes = plt.subplots(
        len(tasks), 2 * pairs + 2, figsize=(1.05 * (2 * pairs + 2), 1.2 * len(tasks) + 0.35), squeeze=False
    )
    for (name, task), cells in zip(tasks.items(), axes):
        classes, indices, labels, answers = (part[row].tolist() for part in task.draw(seed, step))
        for place, cell in enumerate(cells):
            cell.set(xticks=[], yticks=[])
            cell.spines[:].set_visible(not place % 2)
            if not place % 2:
                item = place // 2
                picture = drawing(task.exemplars, classes[item], indices[item])
                cell.imshow(1 - picture, cmap="gray", vmin=0, vmax=1)
                height, width = picture.shape
            else:
                last = place == 2 * pairs + 1
                label = answers if last else labels[place // 2]
                cell.text(
                    0.5, 0.5, f"→ {label}" if last else label, ha="center", va="center", fontsize=15,
                    transform=cell.transAxes, color=COLOURS[0] if label == answers else COLOURS[1],
                )  # fmt: skip
                cell.set_box_aspect(height / width)
        cells[0].set_ylabel(name)
    for cell, title in zip(axes[0], ["exemplar", "label"] * pairs + ["query", "answer"]):
        cell.set_title(title, fontsize=9)
    figure.supxlabel(f"drawings: {sources(tasks.values())}", fontsize=8, color=GREY)
    return figure


def drawing(source: Exemplars, class_: int, index: int):
    """One picture, as an array; `ValueError` when this source has none."""
    if not hasattr(source, "picture"):
        raise ValueError(f"these exemplars have no pictures; take pictures() as the source; got {source!r}")
    return source.picture(class_, index).numpy()


def sources(tasks) -> str:
    """In words, where the drawings come from."""
    found = []
    for task in tasks:
        source = task.exemplars
        while hasattr(source, "base"):
            source = source.base
        found.append("strokes made by this code" if isinstance(source, Strokes) else "Omniglot")
    return ", ".join(dict.fromkeys(found))
