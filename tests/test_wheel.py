"""The built wheel, installed elsewhere, finds its records, its scorecard and its checks."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """A folder that holds nothing but what the wheel brought."""
    place = tmp_path_factory.mktemp("wheel")
    source = place / "source"
    source.mkdir()
    shutil.copytree(ROOT / "iclkit", source / "iclkit", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    pip = [sys.executable, "-m", "pip", "--quiet"]
    offline = ["--no-deps", "--no-index", "--no-build-isolation"]
    subprocess.run([*pip, "wheel", *offline, "-w", str(place), str(source)], check=True)
    (wheel,) = place.glob("iclkit-*.whl")
    subprocess.run([*pip, "install", *offline, "--target", str(place / "site"), str(wheel)], check=True)
    return place / "site"


def test_it_finds_what_it_ships(installed, tmp_path):
    shipped = sorted(p.name for p in (ROOT / "iclkit" / "records" / "data").iterdir() if p.suffix == ".npz")
    checks = sorted(p.stem for p in (ROOT / "iclkit" / "checks").glob("c[0-9]*.py"))
    script = f"""
import json, pathlib, iclkit
from iclkit import checks, records
folder = pathlib.Path(iclkit.__file__).parent
assert folder.parent == pathlib.Path({str(installed)!r}), folder
for name in {shipped!r}:
    assert records.load(name.removesuffix(".npz")).meta["seeds"] is not None
json.loads((folder / "records" / "scorecard.json").read_text())
for name in {checks!r}:
    assert getattr(checks, name).ex1
print("found", len({shipped!r}), "records")
"""
    run = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout == f"found {len(shipped)} records\n" and shipped
