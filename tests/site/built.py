"""The site, built once for all tests from a copy of the checkout, and a browser without a network."""

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from conftest import missing

ROOT = Path(__file__).parents[2]
FAILURES = Path(__file__).parent / "failures"
LOUD = ("error", "warning")
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
QUIET = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
QUIET += ["--disable-sync", "--no-first-run"]

SAMPLE = [
    "# A sample page\n\nMaths in the text, $x W_Q$, and on its own:\n\n$$\\sqrt{d_\\text{head}}$$",
    """import numpy as np
from iclkit import explore, figures
figures.use_style()""",
    """def curve(training_step):
    return figures.curves(np.arange(5), training_step * np.arange(5), xlabel="x", ylabel="y").figure
explore(curve, training_step=[0, 1, 2, 3], alt=lambda training_step: f"slope {training_step}")""",
    """def pattern(size, shift):
    return figures.attention(np.roll(np.eye(size), shift == "one", axis=1)).figure
explore(pattern, size=[3, 4, 5], shift=["none", "one"], alt=lambda size, shift: f"{size}, shift {shift}")""",
]


def notebook(path: Path, cells: list[str]) -> None:
    """Write a notebook: cells that begin with # are Markdown, the others code."""
    make = nbformat.v4
    made = [make.new_markdown_cell(c) if c.startswith("# ") else make.new_code_cell(c) for c in cells]
    path.parent.mkdir(exist_ok=True, parents=True)
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    nbformat.write(make.new_notebook(cells=made, metadata=kernel), path)


def checkout_files() -> list[str]:
    """Every file of the checkout that git tracks or would track."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [name for name in listed.split("\0") if name and (ROOT / name).is_file()]


def copy_checkout(target: Path, only: tuple[str, ...] = ("",)) -> None:
    """Copy the files of the checkout whose names begin with one of `only`."""
    for name in checkout_files():
        if name.startswith(only):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, target / name)


def build(folder: Path, *options: str, **environment: str) -> subprocess.CompletedProcess:
    """Run jupyter-book as a reader does."""
    program = Path(sys.executable).parent / "jupyter-book"
    command = [str(program if program.exists() else "jupyter-book"), "build", ".", *options]
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("ICLKIT_", "PYTEST_"))}
    return subprocess.run(
        command, cwd=folder, env=clean | environment, capture_output=True, text=True, timeout=3000
    )


def add_to_toc(folder: Path, name: str) -> None:
    with (folder / "_toc.yml").open("a") as toc:
        toc.write(f"  - caption: Sample\n    chapters:\n      - file: {name}\n")


@contextlib.contextmanager
def lock(path: Path):
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="session")
def site(tmp_path_factory) -> Path:
    """The folder of the built site: all pages of the book and one sample page with two interactive figures.

    ICLKIT_SITE names a site that such a build left, to look at it again. Test processes share one build,
    and the checkout's own store of executed chapters.
    """
    if os.environ.get("ICLKIT_SITE"):
        return Path(os.environ["ICLKIT_SITE"])
    base = tmp_path_factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    book = base / "book"
    with lock(base / "book.lock"):
        if not (book / "done").exists():
            shutil.rmtree(book, ignore_errors=True)
            copy_checkout(book)
            notebook(book / "sample/sample.ipynb", SAMPLE)
            add_to_toc(book, "sample/sample")
            cache = ROOT / "_build/.jupyter_cache"
            ran = build(book, "-W", "-n", "--keep-going", ICLKIT_BOOK_CACHE=str(cache))
            (book / "done").write_text(f"{ran.returncode}\n{ran.stdout[-6000:]}\n{ran.stderr[-6000:]}")
    code, report = (book / "done").read_text().split("\n", 1)
    assert code == "0", f"the book does not build:\n{report}"
    return book / "_build/html"


@pytest.fixture(scope="session")
def browser():
    """The system's Chromium."""
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        missing("browser", f"no browser here: none of {', '.join(BROWSERS)} is installed")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        missing("browser", "playwright is not installed")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=path, args=QUIET)
        yield opened
        opened.close()


@contextlib.contextmanager
def opened(browser, site: Path, page: str, **options):
    """Open a page from disk with the network cut; what it asked for and said is in `tab.heard`."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, reduced_motion="reduce", **options)
    tab = context.new_page()
    tab.heard = []
    tab.set_default_timeout(15_000)

    def pass_on(route):
        if route.request.url.startswith(("file:", "data:", "blob:")):
            route.continue_()
        else:
            tab.heard.append(f"asked the network for {route.request.url}")
            route.abort()

    tab.route("**/*", pass_on)
    tab.on("requestfailed", lambda request: tab.heard.append(f"did not get {request.url}"))
    tab.on("pageerror", lambda error: tab.heard.append(f"script error: {error}"))
    tab.on(
        "console",
        lambda said: said.type in LOUD and tab.heard.append(f"console: {said.text}"),
    )
    tab.goto((site / page).as_uri(), wait_until="load")
    if options.get("java_script_enabled", True):
        settle(tab)
    try:
        yield tab
    except BaseException:
        keep(tab, page)
        raise
    finally:
        context.close()


def settle(tab) -> None:
    """Wait until maths is typeset and every interactive figure is there."""
    tab.evaluate("window.MathJax && MathJax.startup ? MathJax.startup.promise.then(() => null) : null")
    views = tab.locator('script[type="application/vnd.jupyter.widget-view+json"]').count()
    tab.wait_for_function(f"document.querySelectorAll('.widget-vbox.icl-explore').length >= {views}")
    tab.wait_for_timeout(150)


def keep(tab, page: str) -> None:
    """Keep a picture of a page that failed."""
    FAILURES.mkdir(exist_ok=True)
    tab.screenshot(path=FAILURES / (page.replace("/", "_") + ".png"), full_page=True)


def pages(site: Path) -> list[str]:
    """Every page of the site by its path, without the one that only leads to the front page."""
    found = (path.relative_to(site).as_posix() for path in site.rglob("*.html"))
    return sorted(path for path in found if not path.startswith("_static/") and path != "index.html")
