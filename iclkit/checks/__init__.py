"""Checks of the exercises: `checks.c104.ex1(answer)` prints one line, ✓ or what to look at.

A check is a function of the student's answer, in the module of its chapter, cPNN.py:

    @exercise(seconds=5)
    def ex1(answer):
        for seed in range(3):
            x = torch.randn(4, 6, generator=generator(1, seed))
            same(answer(x), x.softmax(-1), mistakes={"softmax over queries, not keys": x.softmax(0)})
        return "rows sum to one, on three random inputs"
"""

import importlib
import pkgutil

from iclkit.checks.comparing import Wrong, same
from iclkit.checks.running import CheckFailed, Exercise, Result, exercise

__all__ = ["CheckFailed", "Exercise", "Result", "Wrong", "exercise", "same"]


def __getattr__(name: str):
    """Import a chapter's checks when they are first asked for."""
    chapters = [module.name for module in pkgutil.iter_modules(__path__) if module.name[1:].isdigit()]
    if name in chapters:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"there are no checks {name!r}; the chapters with checks are {', '.join(chapters)}")
