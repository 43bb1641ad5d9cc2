"""Every chapter keeps the contract of iclkit/notebooks/contract.py; the address stands in one place."""

import subprocess
import tomllib

import nbformat
import pytest

from iclkit import checks
from iclkit.notebooks.contract import PAGES, faults
from iclkit.notebooks.form import CHAPTERS, ROOT, is_setup, setup_source

FILES = sorted(CHAPTERS.glob("*.ipynb"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_chapter_keeps_the_contract(path):
    assert faults(path) == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_exercise_has_its_check(path):
    source = "\n".join(cell.source for cell in nbformat.read(path, 4).cells)
    number = path.stem[:3]
    if number in PAGES:
        assert "exercise" not in source and not hasattr(checks, f"c{number}")
        return
    module = getattr(checks, f"c{number}")
    there = {name for name, value in vars(module).items() if isinstance(value, checks.Exercise)}
    called = {name for name in there if f"checks.c{number}.{name}(" in source}
    assert there and called == there


def test_chapters_have_numbered_names():
    for path in FILES:
        number, _, slug = path.stem.partition("_")
        assert number.isdigit() and len(number) == 3 and number[0] in "123456" and slug, path.name
    assert len({path.stem[:3] for path in FILES}) == len(FILES)


def committed_files() -> list[str]:
    """What is tracked, or would be; without git everything outside hidden and build folders."""
    git = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(git, cwd=ROOT, capture_output=True, text=True)
    if listed.returncode == 0:
        return [name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]
    parts = [path.relative_to(ROOT) for path in ROOT.rglob("*") if path.is_file()]
    return [str(p) for p in parts if not any(part.startswith((".", "_build")) for part in p.parts[:-1])]


def test_the_address_stands_in_one_place():
    address = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]["Repository"]
    repository = address.split("://")[1].split("/", 1)[1]
    found = []
    for name in committed_files():
        text = (ROOT / name).read_bytes()
        if name.endswith(".ipynb"):
            cells = nbformat.read(ROOT / name, 4).cells
            kept = [cell.source for cell in cells if not (is_setup(cell) and cell.source == setup_source())]
            text = "\n".join(kept).encode()
        if repository.encode() in text:
            found.append(name)
    assert found == ["pyproject.toml"], f"{repository} also stands in {found}"
