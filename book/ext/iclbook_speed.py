"""The page on speed, filled at build time from the shipped results of the benchmark."""

import importlib
import sys
from pathlib import Path

from docutils import nodes
from iclbook_pages import _parsed
from sphinx.util.docutils import SphinxDirective


def setup(app):
    app.add_directive("icl-speed", Speed)


class Speed(SphinxDirective):
    """One block of the results, such as `steps`: the functions in tests/benchmarks/page.py."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        page, results = benchmarks(Path(self.env.srcdir))
        for file in (page.__file__, results.__file__, results.SHIPPED):
            self.env.note_dependency(str(file))
        return _parsed(self, page.BLOCKS[self.arguments[0]](results.read()))


def benchmarks(source: Path):
    """The modules that read and print the results, from the checkout's tests."""
    sys.path.insert(0, str(source / "tests"))
    try:
        return importlib.import_module("benchmarks.page"), importlib.import_module("benchmarks.results")
    finally:
        sys.path.pop(0)
