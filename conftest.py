"""Tests see the chapters as a build does: figures as frames, no progress bars, one thread a kernel."""

import os

os.environ["ICLKIT_BUILD"] = "1"
os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_collectstart(collector):
    """Committed chapters keep only the text of an output: nbval compares no HTML and no Markdown."""
    if collector.path.suffix == ".ipynb":
        collector.skip_compare += ("text/html", "text/markdown")
