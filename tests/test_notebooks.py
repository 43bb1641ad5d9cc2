"""Executing chapters: form, a failure leaves the file alone; each rule of the contract, broken."""

import copy

import nbformat
import nbformat.v4 as v4
import pytest

from iclkit.notebooks import __main__ as command
from iclkit.notebooks.contract import MOVEMENTS, PAGES, faults
from iclkit.notebooks.execute import execute, run
from iclkit.notebooks.form import METADATA, ROOT, SETUP_TAGS, is_setup, normalise, setup_source

PICTURE = """\
import matplotlib.pyplot as plt
plt.plot([1, 2])
plt.show()
"""


def write(path, *cells):
    notebook = v4.new_notebook(cells=[v4.new_code_cell(c) if isinstance(c, str) else c for c in cells])
    nbformat.write(notebook, path)
    return path


def test_a_chapter_is_executed_and_brought_into_form(tmp_path, monkeypatch):
    monkeypatch.delenv("ICLKIT_BUILD", raising=False)
    path = write(tmp_path / "101_x.ipynb", "import os\nprint(os.environ['ICLKIT_BUILD'])", PICTURE, "1 + 1")
    assert not execute(path).error
    first = path.read_bytes()
    notebook = nbformat.read(path, 4)
    assert [cell.execution_count for cell in notebook.cells] == [1, 2, 3]
    assert notebook.cells[0].outputs[0].text == "1\n"
    assert list(notebook.cells[1].outputs[0].data) == ["text/plain"]
    assert notebook.cells[2].outputs[0].data == {"text/plain": "2"}
    assert notebook.metadata == METADATA
    assert not execute(path).error and path.read_bytes() == first, "a second run changes nothing"
    assert [p.name for p in tmp_path.iterdir()] == ["101_x.ipynb"]


def test_a_chapter_that_fails_is_left_alone_and_reported(tmp_path, capsys):
    good, bad = write(tmp_path / "101_good.ipynb", "1"), write(tmp_path / "102_bad.ipynb", "1", "1 / 0")
    before = bad.read_bytes()
    outcomes = run([good, bad], jobs=2)
    assert [bool(outcome.error) for outcome in outcomes] == [False, True]
    assert bad.read_bytes() == before and good.read_bytes() != before
    said = capsys.readouterr().out
    assert "cell 2 of 2" in said and "1 / 0" in said and "ZeroDivisionError" in said
    assert "FAILED" in said and "left as it was" in said


def test_what_is_no_notebook_is_reported(tmp_path):
    path = tmp_path / "101_x.ipynb"
    path.write_text("{")
    assert "no notebook" in execute(path).error and path.read_text() == "{"


@pytest.mark.parametrize("text", [b"hello", b"", b"[]", b"{}", b"3", b"\xff\xfe", b'{"nbformat": 9}'])
def test_whatever_is_no_notebook_is_one_line_of_run_and_check(tmp_path, text):
    path = tmp_path / "101_x.ipynb"
    path.write_bytes(text)
    assert "this is no notebook" in execute(path).error and path.read_bytes() == text
    assert len(faults(path)) == 1 and "git checkout -- 101_x.ipynb" in faults(path)[0]


def test_names_of_cells_follow_from_their_source():
    notebook = v4.new_notebook(cells=[v4.new_code_cell(source) for source in ("a", "b", "a")])
    normalise(notebook)
    names = [cell.id for cell in notebook.cells]
    assert names[2] == names[0] + "-2" and len(set(names)) == 3
    notebook.cells.insert(0, v4.new_code_cell("new"))
    normalise(notebook)
    assert [cell.id for cell in notebook.cells[1:]] == names
    nbformat.validate(notebook)


def test_an_old_setup_cell_is_written_anew():
    old = v4.new_code_cell(setup_source().replace("@v", "@v0.0.0-old"))
    notebook = v4.new_notebook(cells=[old])
    normalise(notebook)
    assert is_setup(notebook.cells[0]) and notebook.cells[0].source == setup_source()
    assert notebook.cells[0].metadata.tags == SETUP_TAGS


def test_chapters_are_found_by_the_beginning_of_their_names(tmp_path, monkeypatch):
    monkeypatch.setattr(command, "CHAPTERS", tmp_path)
    for name in ("101_a", "104_b"):
        write(tmp_path / f"{name}.ipynb")
    assert [p.stem for p in command.chapters(["104"])] == ["104_b"]
    assert [p.stem for p in command.chapters(["all"])] == ["101_a", "104_b"]
    with pytest.raises(SystemExit, match="no chapter begins with 105; there are 101_a, 104_b"):
        command.chapters(["105"])
    with pytest.raises(SystemExit, match="no chapter begins with 105; there"):
        command.chapters(["104", "105"])


# --- the contract -------------------------------------------------------------------------------------


def exercise(k):
    return [
        v4.new_markdown_cell(
            f"**{k}.** Do it. *5 minutes.*\n<details><summary>Hint</summary>Think.</details>"
        ),
        v4.new_code_cell(f"def f{k}(x):\n    raise NotImplementedError", metadata={"tags": ["exercise"]}),
        v4.new_code_cell(f"def f{k}(x):\n    return x", metadata={"tags": ["solution", "hide-cell"]}),
        v4.new_code_cell(f"checks.c101.ex{k}(f{k})", metadata={"tags": ["check"]}),
    ]


def good_chapter():
    """A chapter that breaks no rule: opening, setup, one cell a movement, three exercises."""
    opening = "# A title\n\nPrerequisites: none. Minutes: 1 on two cores. Claims: none."
    cells = [
        v4.new_markdown_cell(opening),
        v4.new_code_cell("try:\n    import iclkit\nexcept ImportError:\n    1"),
    ]
    for name in MOVEMENTS[:-1]:
        cells.append(
            v4.new_markdown_cell(f"## {name}\n\nOf $x$ see [here](https://arxiv.org/abs/2209.11895).")
        )
    alt = {"mystnb": {"image": {"alt": "A line that rises from one to two."}}}
    cells.insert(5, v4.new_code_cell(PICTURE.rstrip(), metadata=alt))
    cells += [cell for k in (1, 2, 3) for cell in exercise(k)]
    notebook = v4.new_notebook(cells=[*cells, v4.new_markdown_cell("## What we know now")])
    return notebook


def finish(notebook, folder, name="101_x"):
    """Into form, as if executed, and onto disk."""
    normalise(notebook)
    for number, cell in enumerate((c for c in notebook.cells if c.cell_type == "code"), 1):
        cell.execution_count = number
    path = folder / f"{name}.ipynb"
    nbformat.write(notebook, path)
    return path


def test_a_good_chapter_has_no_faults(tmp_path):
    assert faults(finish(good_chapter(), tmp_path)) == []


def test_a_page_has_its_own_headings_and_no_exercises(tmp_path):
    cells = good_chapter().cells[:2] + [v4.new_markdown_cell(f"## {name}") for name in PAGES["402"]]
    page = v4.new_notebook(cells=cells)
    assert faults(finish(page, tmp_path, "402_x")) == []
    assert any("'## Prediction', found 0" in fault for fault in faults(finish(page, tmp_path)))
    assert any("at least 3 exercises" in fault for fault in faults(finish(page, tmp_path)))
    page.cells[-2:] = page.cells[:-3:-1]
    assert any("in the order" in fault for fault in faults(finish(page, tmp_path, "402_x")))
    page.cells.pop()
    assert any("found 0" in fault for fault in faults(finish(page, tmp_path, "402_x")))


def source(number, text):
    def change(notebook):
        notebook.cells[number]["source"] = text

    return change


def add(text, *tags, markdown=False):
    def change(notebook):
        make = v4.new_markdown_cell if markdown else v4.new_code_cell
        notebook.cells.insert(6, make(text, metadata={"tags": list(tags)} if tags else {}))

    return change


def drop(number):
    return lambda notebook: notebook.cells.pop(number)


def alter(number, **changes):
    return lambda notebook: notebook.cells[number].update(changes)


BROKEN = [
    (source(0, "A title"), "begin with the title"),
    (source(0, "# T\n\nMinutes: 1. Claims: I1"), "prerequisites"),
    (drop(1), "setup cell"),
    (add("try:\n    import iclkit\nexcept ImportError:\n    1"), "and no other"),
    (add("run = train(model, task)"), "needs the dial"),
    (drop(2), "'## Prediction', found 0"),
    (source(3, "## Experiment"), "'## Experiment', found 2"),
    (lambda n: n.cells.insert(2, n.cells.pop(3)), "in the order"),
    (lambda n: [n.cells.pop(-2) for _ in range(4)], "at least 3 exercises, has 2"),
    (source(-5, "No hint. 5 minutes"), "<details>"),
    (source(-4, "def f3(x):\n    pass"), "NotImplementedError"),
    (source(-2, "checks.c102.ex3(f3)"), "checks.c101.ex3("),
    (alter(-3, metadata={"tags": ["solution"]}), "tagged solution, hide-cell"),
    (drop(-2), "cells tagged check differs"),
    (add("1", "mine"), "unknown tags ['mine']"),
    (add("1", "nbval-ignore-output"), "training logs"),
    (add("# NBVAL_SKIP\n1"), "only nbval marker"),
    (add("\n".join("x = 1" for _ in range(16))), "16 lines, at most 15"),
    (add("x = 1;"), "semicolon"),
    (add(PICTURE), "alt text"),
    (add("explore(draw, step=[1])"), "needs alt="),
    (add("See {cite}`olsson2022`.", markdown=True), "MyST syntax"),
    (add("```{note}\nx\n```", markdown=True), "MyST syntax"),
    (add("(a-label)=\n# x", markdown=True), "MyST syntax"),
    (add("[next](102_absent.ipynb)", markdown=True), "link '102_absent.ipynb'"),
    (add("[x](http://insecure.org)", markdown=True), "link 'http://insecure.org'"),
    (add("x " * 51_000, markdown=True), "bytes, at most 100,000"),
]


@pytest.mark.parametrize("change, part", BROKEN, ids=[part for _, part in BROKEN])
def test_each_broken_rule_is_named(tmp_path, change, part):
    notebook = copy.deepcopy(good_chapter())
    change(notebook)
    found = faults(finish(notebook, tmp_path))
    assert any(part in fault for fault in found), found


def spoil(notebook, change):
    change(notebook)
    return notebook


@pytest.mark.parametrize(
    "change, part",
    [
        (lambda n: n.cells[-2].update(execution_count=99), "not executed from top to bottom"),
        (lambda n: n.cells[1].update(execution_count=None), "not executed from top to bottom"),
        (lambda n: n.metadata.update(widgets={}), "form of the house"),
        (lambda n: n.cells[3].update(id="mine"), "form of the house"),
        (lambda n: n.cells[1].update(source=n.cells[1].source + "\n1"), "canonical"),
        (
            lambda n: n.cells[5].outputs.append(v4.new_output("display_data", data={"image/png": "QQ=="})),
            "form of the house",
        ),
        (
            lambda n: n.cells[5].outputs.append(v4.new_output("error", ename="E", evalue="", traceback=[])),
            "error in its outputs",
        ),
    ],
)
def test_each_broken_rule_of_the_file_is_named(tmp_path, change, part):
    path = finish(good_chapter(), tmp_path)
    nbformat.write(spoil(nbformat.read(path, 4), change), path)
    assert any(part in fault for fault in faults(path)), faults(path)


def test_the_setup_cell_takes_address_and_version_from_pyproject(tmp_path):
    text = (ROOT / "pyproject.toml").read_text()
    (tmp_path / "pyproject.toml").write_text(text.replace("OWNER", "someone").replace("0.1.0", "9.9.9"))
    assert "/someone/" in setup_source(tmp_path) and "@v9.9.9'" in setup_source(tmp_path)
