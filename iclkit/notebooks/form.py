"""The form every committed chapter has: one setup cell, one metadata, no pictures, small diffs."""

import hashlib
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
CHAPTERS = ROOT / "chapters"
SETUP_TAGS = ["hide-cell", "nbval-ignore-output"]
METADATA = {
    "accelerator": "GPU",
    "colab": {"gpuType": "T4"},
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
SETUP = """\
try:
    import iclkit
except ImportError:
    %pip install -q 'iclkit @ git+{address}@v{version}'
    import iclkit

import matplotlib.pyplot as plt
import numpy as np
import torch

iclkit.begin()
"""


def read(path: Path):
    """The notebook in a file; `ValueError` when it is none, whatever it is instead."""
    import nbformat

    try:
        return nbformat.read(path, as_version=4)
    except Exception as error:
        raise ValueError(
            f"this is no notebook: {str(error)[:300]}; "
            f"restore it, for instance by git checkout -- {path.name}"
        ) from None


def setup_source(root: Path = ROOT) -> str:
    """The setup cell, its address and version read from pyproject.toml, the one place where they stand."""
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    return SETUP.format(address=project["urls"]["Repository"], version=project["version"]).rstrip()


def is_setup(cell) -> bool:
    """Whether a cell is a chapter's setup cell, of this version of the package or of another."""
    return cell.cell_type == "code" and cell.source.startswith("try:\n    import iclkit\nexcept ImportError")


def normalise(notebook, root: Path = ROOT) -> None:
    """Bring a notebook into the form of the house, in place.

    Outputs keep their text and their execution counts; pictures, widgets and timing go. A cell is named by
    a hash of its source, so that an edit changes one name. The setup cell is written anew.
    """
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    notebook.metadata.clear()
    notebook.metadata.update(METADATA)
    seen: dict[str, int] = {}
    for cell in notebook.cells:
        if is_setup(cell):
            cell.source, cell.metadata["tags"] = setup_source(root), list(SETUP_TAGS)
        cell.metadata = {key: cell.metadata[key] for key in ("mystnb", "tags") if cell.metadata.get(key)}
        name = hashlib.sha256(cell.source.encode()).hexdigest()[:8]
        seen[name] = seen.get(name, 0) + 1
        cell["id"] = name if seen[name] == 1 else f"{name}-{seen[name]}"
        if cell.cell_type == "code":
            cell.outputs = [kept for kept in map(_without_pictures, cell.outputs) if kept is not None]


def _without_pictures(output):
    """An output with its text alone; None when it has none."""
    if "data" not in output:
        return output
    output["data"] = {kind: value for kind, value in output["data"].items() if kind == "text/plain"}
    output["metadata"] = {}
    return output if output["data"] else None
