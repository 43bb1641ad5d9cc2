"""What every committed chapter keeps to; a broken rule is one line: which cell, and how to mend it."""

import re
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path

from iclkit.notebooks.form import METADATA, ROOT, SETUP_TAGS, is_setup, normalise, read, setup_source

MOVEMENTS = (
    "Prediction",
    "Roll our own",
    "Experiment",
    "Mechanism",
    "Play",
    "Ours and theirs",
    "Exercises",
    "What we know now",
)
PAGES = {"402": ("What we would do", "What nobody knows yet")}  # no exercises; these headings instead
TAGS = {"hide-cell", "nbval-ignore-output", "exercise", "solution", "check"}
MOST_LINES, MOST_BYTES, FEWEST_EXERCISES = 15, 100_000, 3
MYST = re.compile(r"\{[a-z][\w:+-]*\}`|^\s*(`{3,}|:{3,}|~{3,})\s*\{|^\([\w-]+\)=\s*$", re.M)
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)[^)]*\)")


def faults(path: Path, root: Path = ROOT) -> list[str]:
    """Every way in which a chapter breaks the contract; empty for a good one."""
    try:
        notebook = read(path)
    except ValueError as error:
        return [str(error)]
    headings = PAGES.get(path.name[:3], MOVEMENTS)
    found = [*opening(notebook, root), *movements(notebook, headings)]
    if headings is MOVEMENTS:
        found += exercises(notebook, path)
    for number, cell in enumerate(notebook.cells, 1):
        rules = code_cell(cell) if cell.cell_type == "code" else markdown_cell(cell, path)
        found += [f"cell {number}: {fault}" for fault in rules]
    return found + list(committed(notebook, path, root))


def opening(notebook, root: Path) -> Iterator[str]:
    """Title and the reader's bargain first, the setup cell second, the dial before any training."""
    cells = notebook.cells
    first = cells[0].source if cells and cells[0].cell_type == "markdown" else ""
    if not re.match(r"# \S", first):
        yield "cell 1 must be Markdown and begin with the title: # Title"
    for word, example in [
        ("prerequisites", "Prerequisites: chapter 101"),
        ("minutes", "Minutes: 1 on two cores"),
        ("claims", "Claims: I3, I4 (or: none)"),
    ]:
        if word not in first.lower():
            yield f"cell 1 must name its {word}, such as: {example}"
    setups = [cell for cell in cells if is_setup(cell)]
    if [cell for cell in cells if cell.cell_type == "code"][:1] != setups or not setups:
        yield "the first code cell, and no other, must be the setup cell"
    elif setups[0].source != setup_source(root) or setups[0].metadata.get("tags") != SETUP_TAGS:
        yield "the setup cell is not the canonical one; python -m iclkit.notebooks run writes it anew"
    code = "\n".join(cell.source for cell in cells if cell.cell_type == "code")
    if re.search(r"\btrain\(", code) and "iclkit.scale(" not in code:
        yield "a chapter that trains needs the dial: scale = iclkit.scale(book=…, paper=…, cost=…)"


def movements(notebook, headings=MOVEMENTS) -> Iterator[str]:
    """The headings of the movements, or of a page, each once, in order."""
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    titles = re.findall(r"^## (.+?)\s*$", text, re.M)
    found = [title for title in titles if title in headings]
    for name in headings:
        if found.count(name) != 1:
            yield f"expected one heading '## {name}', found {found.count(name)}"
    if sorted(found, key=headings.index) != found:
        yield f"the movements must come in the order {', '.join(headings)}"


def exercises(notebook, path: Path) -> Iterator[str]:
    """Task with hint, stub, solution, check: at least three times, numbered from 1."""
    cells, number = notebook.cells, path.name[:3]
    stubs = [n for n, cell in enumerate(cells) if "exercise" in tags(cell)]
    if len(stubs) < FEWEST_EXERCISES:
        yield f"needs at least {FEWEST_EXERCISES} exercises, has {len(stubs)}"
    for k, at in enumerate(stubs, 1):
        task, stub, *after = cells[at - 1], cells[at], *cells[at + 1 : at + 3]
        if task.cell_type != "markdown" or "<details>" not in task.source or "minute" not in task.source:
            yield f"exercise {k}: the Markdown before the stub gives task, minutes and a <details> hint"
        if "raise NotImplementedError" not in stub.source:
            yield f"exercise {k}: the stub must raise NotImplementedError when called"
        if [tags(cell) for cell in after] != [["solution", "hide-cell"], ["check"]]:
            yield f"exercise {k}: after the stub come a cell tagged solution, hide-cell and one tagged check"
        elif f"checks.c{number}.ex{k}(" not in after[1].source:
            yield f"exercise {k}: the check cell must call checks.c{number}.ex{k}(…)"
    for tag in ("solution", "check"):
        if sum(tag in tags(cell) for cell in cells) != len(stubs):
            yield f"the number of cells tagged {tag} differs from the number of exercises ({len(stubs)})"


def code_cell(cell) -> Iterator[str]:
    """Length, tags, alt text, and what makes nbval or a reader stumble."""
    mine, lines = tags(cell), [line for line in cell.source.splitlines() if line.strip()]
    if unknown := set(mine) - TAGS:
        yield f"unknown tags {sorted(unknown)}; a chapter uses {sorted(TAGS)}"
    if re.search(r"nbval[-_](?!ignore-output)|NBVAL_", " ".join(mine) + cell.source):
        yield "the only nbval marker of a chapter is the tag nbval-ignore-output"
    if is_setup(cell):
        return
    if "nbval-ignore-output" in mine and not re.search(r"\btrain\(|\bprogress", cell.source):
        yield "nbval-ignore-output is for the setup cell and training logs; print fewer digits instead"
    if len(lines) > MOST_LINES and "solution" not in mine:
        yield f"{len(lines)} lines, at most {MOST_LINES}; split it"
    if lines and lines[-1].rstrip().endswith(";"):
        yield "ends in a semicolon, which nbval does not honour; write _ = … or plt.show()"
    shown = [output["data"].get("text/plain", "") for output in cell.outputs if "data" in output]
    pictures = "plt.show()" in cell.source or any(text.startswith("<Figure") for text in shown)
    if pictures and len(cell.metadata.get("mystnb", {}).get("image", {}).get("alt", "")) < 20:
        yield "draws a picture and needs alt text in its metadata: mystnb.image.alt"
    if "explore(" in cell.source and "def explore(" not in cell.source and "alt=" not in cell.source:
        yield "explore(…) needs alt=, a function that puts the picture into words"


def markdown_cell(cell, path: Path) -> Iterator[str]:
    """Ordinary Markdown that reads equally well on Colab; links that lead somewhere."""
    if match := MYST.search(cell.source):
        yield f"MyST syntax {match[0].strip()!r} works on the site alone; write ordinary Markdown"
    for target in LINK.findall(cell.source):
        if re.match(r"https://|#", target):
            continue
        file = (path.parent / target.split("#")[0]).resolve()
        if target.startswith(("/", "http:")) or file.suffix not in (".ipynb", ".md") or not file.exists():
            yield f"link {target!r} must be https, or relative to an existing .ipynb or .md file"


def committed(notebook, path: Path, root: Path) -> Iterator[str]:
    """Executed from top to bottom, in the form that `run` writes, and small."""
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    again = "run python -m iclkit.notebooks run " + path.name[:3]
    if [cell.execution_count for cell in code] != list(range(1, len(code) + 1)):
        yield f"is not executed from top to bottom; {again}"
    if any(output.output_type == "error" for cell in code for output in cell.outputs):
        yield "holds an error in its outputs"
    formed = deepcopy(notebook)
    normalise(formed, root)
    if formed != notebook or notebook.metadata != METADATA:
        yield f"is not in the form of the house (metadata, cell names, pictures kept); {again}"
    if path.stat().st_size > MOST_BYTES:
        yield f"has {path.stat().st_size:,} bytes, at most {MOST_BYTES:,}"


def tags(cell) -> list[str]:
    """The tags of a cell."""
    return list(cell.metadata.get("tags", []))
