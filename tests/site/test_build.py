"""How the build behaves: a broken chapter stops it, the package's code is part of what it remembers."""

import importlib
import sys

import pytest
from built import ROOT, build, copy_checkout, notebook

TOC = "format: jb-book\nroot: small\nchapters:\n  - file: chapter\n"
SMALL = (
    "_config.yml",
    "pyproject.toml",
    "requirements.txt",
    "iclkit/",
    "book/ext/",
    "book/assets/",
    "book/vendor/",
)


@pytest.fixture
def small_book(tmp_path):
    """The book's configuration around one page and one notebook."""
    copy_checkout(tmp_path, SMALL)
    (tmp_path / "book/references.bib").write_text("")
    (tmp_path / "_toc.yml").write_text(TOC)
    (tmp_path / "small.md").write_text("# A small book\n")
    return tmp_path


def extension(name: str):
    sys.path.insert(0, str(ROOT / "book/ext"))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.pop(0)


def test_a_broken_chapter_stops_the_build(small_book):
    notebook(small_book / "chapter.ipynb", ["# A chapter", "raise RuntimeError('this chapter is broken')"])
    ran = build(small_book)
    assert ran.returncode != 0
    assert "this chapter is broken" in ran.stdout + ran.stderr


def test_an_edit_of_the_package_executes_again(small_book):
    cells = [
        "# A chapter",
        "import iclkit\nprint('mark', getattr(iclkit, 'MARK', 'none'))\nopen('ran', 'a').write('x')",
    ]
    cells[1] = cells[1].replace("open(", "_ = open(")
    notebook(small_book / "chapter.ipynb", cells)
    environment = small_book / "my environment"
    (environment / "lib").mkdir(parents=True)
    (environment / "pyvenv.cfg").write_text("home = /usr/bin\n")
    (environment / "lib/README.md").write_text("### Not a page\n# of the book {nonsense}`x`\n")

    def page():
        ran = build(small_book, "-W", "-n", "--keep-going")
        assert ran.returncode == 0, ran.stdout + ran.stderr
        assert not list((small_book / "_build/html").rglob("my environment"))
        return (small_book / "_build/html/chapter.html").read_text()

    assert "mark none" in page()
    assert "mark none" in page()
    assert (small_book / "ran").read_text() == "x", "an unchanged book must not execute its chapters again"
    with (small_book / "iclkit/__init__.py").open("a") as file:
        file.write("\nMARK = 'edited'\n")
    assert "mark edited" in page()
    assert (small_book / "ran").read_text() == "xx"


def test_execution_key_knows_package_and_pins(tmp_path):
    key = extension("iclbook_execute").execution_key
    (tmp_path / "iclkit/deep").mkdir(parents=True)
    code, pins = tmp_path / "iclkit/deep/a.py", tmp_path / "requirements.txt"
    code.write_text("a = 1")
    keys = [key(tmp_path)]
    pins.write_text("torch")
    keys.append(key(tmp_path))
    code.write_text("a = 2")
    keys.append(key(tmp_path))
    (tmp_path / "iclkit/record.npz").write_bytes(b"1")
    keys.append(key(tmp_path))
    assert len(set(keys)) == 4
    (tmp_path / "iclkit/deep/a.pyc").write_bytes(b"compiled")
    (tmp_path / "README.md").write_text("changed")
    assert key(tmp_path) == keys[-1]


def test_virtual_environments_stay_out(tmp_path):
    for name in ("venv", "deep/odd name"):
        (tmp_path / name / "lib").mkdir(parents=True)
        (tmp_path / name / "pyvenv.cfg").touch()

    class App:
        srcdir = tmp_path

    class Config:
        exclude_patterns = []

    extension("iclbook").leave_environments_out(App, Config)
    assert sorted(Config.exclude_patterns) == ["deep/odd name", "venv"]


ROW = {
    "id": "I9", "finding": "a | b", "chapter": "104", "theirs": "1–2 %", "ours": 0.41234, "unit": "nats",
    "low": 0.39, "high": 0.43, "seeds": 5, "scale": "book", "verdict": "partly", "why": "four of\nfive",
}  # fmt: skip


def test_scorecard_page_shows_whatever_there_is():
    lines = extension("iclbook_pages").scorecard_lines
    assert lines([], {}) == ["No claim has been measured yet."]
    linked = lines([ROW], {"104": "chapters/104_x"})
    (row,) = [line for line in linked if line.startswith("| I9")]
    assert "0.412 nats (0.39 to 0.43)" in row and "**partly**" in row
    assert "(/chapters/104_x.ipynb)" in row and row.replace("\\|", "").count("|") == 8
    assert linked[-1] == "- **I9** four of five."
    assert any(line.startswith("| I9 | 104 |") for line in lines([ROW], {}))


def test_noscript_takes_the_first_frame_of_nested_widgets():
    first = extension("iclbook_finish").first_image
    models = {
        "box": {"children": ["IPY_MODEL_label", "IPY_MODEL_stack"]},
        "label": {"value": "<span>step</span>"},
        "stack": {"children": ["IPY_MODEL_one", "IPY_MODEL_two"]},
        "one": {"value": '<img alt="one">'},
        "two": {"value": '<img alt="two">'},
    }
    assert first(models, "box") == '<img class="icl-still" alt="one">'
    assert first(models, "label") is None
