"""One file a record: the recipe that makes it.

A recipe is a module of this package with

    NAME = "induction_104"                 the record it makes
    COST = "5 seeds × 2 min on one core"   said before it starts
    SEEDS = (0, 1, 2, 3, 4)

    def configs(scale): ...                list of dicts (JSON values), one for each kind of run;
                                           scale is "book" or "paper"
    def unit(config, seed): ...            one piece of work → dict of arrays; saved as soon as it is done,
                                           so a piece should take less than 5 minutes
    def assemble(pieces): ...              list of Piece(config, seed, arrays), in order → dict of arrays
    def probe(record): ...                 at most 10 s: repeat a small part of one seed →
                                           Probe(what, measured, low, high), the range from the record
"""

import importlib
import inspect
import pkgutil
from difflib import get_close_matches
from types import ModuleType
from typing import NamedTuple

import numpy as np


class Piece(NamedTuple):
    """One finished unit of a recipe."""

    config: dict
    seed: int
    arrays: dict[str, np.ndarray]


class Probe(NamedTuple):
    """A part of a record computed again: it should lie between `low` and `high`, read from the record."""

    what: str
    measured: float
    low: float
    high: float

    def holds(self) -> bool:
        """Whether the record can still be made: low ≤ measured ≤ high."""
        return bool(self.low <= self.measured <= self.high)


def every() -> dict[str, ModuleType]:
    """The recipes of the package by the name of their record."""
    modules = [importlib.import_module(f"{__name__}.{m.name}") for m in pkgutil.iter_modules(__path__)]
    return {module.NAME: module for module in modules if hasattr(module, "NAME")}


def find(name: str) -> ModuleType:
    """The recipe of a record; `KeyError` names the nearest ones."""
    known = every()
    if name not in known:
        near = get_close_matches(name, known, cutoff=0.4) or sorted(known)
        raise KeyError(f"no recipe makes {name!r}; the nearest are {', '.join(near) or 'none yet'}")
    return known[name]


def source(recipe: ModuleType) -> str:
    """The text of a recipe: what its cached pieces and its record depend on."""
    return inspect.getsource(recipe)
