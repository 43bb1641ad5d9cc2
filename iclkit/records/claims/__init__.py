"""One function a claim: records → what we measured and whether it bears the claim out.

    @claim("I4", finding="One layer never does it", chapter="104", theirs="as stated", unit="prefix matching",
           records=["induction_104"])
    def i4(record):
        scores = record["prefix"][:, -1]
        return Measured.over(scores, good=scores < 0.1, why="highest prefix matching of one layer at the end")

The verdict follows from the rule in the function, never from a word typed by hand.
"""

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from iclkit.records.store import load

VERDICTS = ("reproduced", "partly", "not reproduced")
COLUMNS = "id finding chapter theirs ours low high seeds unit scale verdict why record".split()
_known: dict[str, "Claim"] = {}


def by_share(share: float, partly: float = 0.5) -> str:
    """The verdict when a claim holds in this share of seeds, or of its statements."""
    return VERDICTS[0] if share == 1 else VERDICTS[1] if share >= partly else VERDICTS[2]


@dataclass(frozen=True)
class Measured:
    """What a claim's function returns: a value with its spread, the verdict of the rule, and the reason."""

    ours: float | str
    low: float | None
    high: float | None
    seeds: int
    verdict: str
    why: str

    def __post_init__(self):
        if self.verdict not in VERDICTS:
            raise ValueError(f"verdict must be one of {', '.join(VERDICTS)}; got {self.verdict!r}")

    @classmethod
    def over(cls, values, good, why: str, partly: float = 0.5) -> "Measured":
        """The median and range of one value a seed; `good` says for which seeds the claim holds.

        Reproduced when it holds for every seed, partly when for a share of at least `partly`.
        """
        values, good = np.asarray(values, float), np.asarray(good, bool)
        if values.shape != good.shape or values.ndim != 1 or not len(values):
            raise ValueError(
                f"expected one value and one verdict a seed; got shapes {values.shape} and {good.shape}"
            )
        verdict = by_share(good.mean(), partly)
        held = f"{why}; holds for {good.sum()} of {len(good)} seeds"
        return cls(
            float(np.median(values)), float(values.min()), float(values.max()), len(values), verdict, held
        )


@dataclass(frozen=True)
class Claim:
    """A finding, the records it rests on, and the function that judges it."""

    id: str
    finding: str
    chapter: str
    theirs: str
    unit: str
    records: tuple[str, ...]
    judge: Callable[..., Measured]

    def row(self, folder: Path | None = None) -> dict:
        """The claim's row of the scorecard, from its records."""
        loaded = [load(name, folder) for name in self.records]
        measured = self.judge(*loaded)
        row = {column: getattr(self, column) for column in ("id", "finding", "chapter", "theirs", "unit")}
        row |= {key: getattr(measured, key) for key in ("ours", "low", "high", "seeds", "verdict", "why")}
        row |= {"scale": "paper" if all(r.meta["scale"] == "paper" for r in loaded) else "book"}
        row |= {"record": ", ".join(self.records)}
        return {column: row[column] for column in COLUMNS}


def claim(id: str, *, finding: str, chapter: str, theirs: str, unit: str, records: list[str]):
    """Make a function of records the judge of a claim; ValueError for an id that has one already."""

    def enter(judge: Callable[..., Measured]) -> Callable[..., Measured]:
        before = _known.get(id)
        if before and (before.judge.__module__, before.judge.__name__) != (judge.__module__, judge.__name__):
            raise ValueError(f"claim {id} is judged twice: by {before.judge} and by {judge}")
        _known[id] = Claim(id, finding, chapter, theirs, unit, tuple(records), judge)
        return judge

    return enter


def every() -> dict[str, Claim]:
    """All claims of the package by id: each module of this folder is read."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    return dict(_known)
