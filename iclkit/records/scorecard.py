"""The scorecard: every claim's verdict, computed from the records by the rules in `claims`."""

import json
import math
from pathlib import Path

from iclkit.records import claims
from iclkit.records.store import DATA, names, write_whole

FILE = Path(__file__).parent / "scorecard.json"


def rows(folder: Path | None = None) -> list[dict]:
    """The rows of all claims whose records are there, in the order of the book."""
    there = set(names(folder or DATA))
    known = sorted(claims.every().values(), key=lambda claim: (claim.chapter, _order(claim.id)))
    return [claim.row(folder) for claim in known if there.issuperset(claim.records)]


def render(found: list[dict]) -> str:
    """The rows as the text of scorecard.json, numbers to four significant digits."""
    rounded = [{key: _rounded(value) for key, value in row.items()} for row in found]
    return json.dumps(rounded, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def write(folder: Path | None = None, file: Path = FILE) -> list[dict]:
    """Write scorecard.json anew from the records."""
    found = rows(folder)
    write_whole(file, render(found).encode())
    return found


def _rounded(value):
    if not isinstance(value, float):
        return value
    return float(f"{value:.4g}") if math.isfinite(value) else None


def _order(name: str) -> tuple[str, int]:
    return name[0], int(name[1:])
