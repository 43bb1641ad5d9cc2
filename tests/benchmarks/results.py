"""The results of a run: one JSON file, saved whole after every block; medians, ranges and ratios from it.

    about    date, threads, rounds, versions, machine, load before the run
    labels   the printed names of shapes and variants
    cells    "part/shape/variant": parameters, first (seconds of the first step), built and peak (MB),
             blocks [[steps a second, GB/s before, GB/s after], …], or error
    shares   shape: shares of a step's time by kind of operation

Standard library alone, so that the page of the book can read it too.
"""

import json
import math
from pathlib import Path
from statistics import median
from typing import NamedTuple

SHIPPED = Path(__file__).parent / "results.json"


class Spread(NamedTuple):
    """A median with the lowest and the highest value."""

    median: float
    low: float
    high: float


def spread(values) -> Spread | None:
    values = list(values)
    return Spread(median(values), min(values), max(values)) if values else None


class Results:
    """What a file of results says."""

    def __init__(self, data: dict):
        self.data, self.about, self.cells = data, data["about"], data["cells"]

    def label(self, key: str) -> str:
        return self.data["labels"].get(key, key)

    def keys(self, part: str) -> tuple[list[str], list[str]]:
        """The shapes and the variants of a part, in the order they were measured."""
        found = [key.split("/")[1:] for key in self.cells if key.startswith(part + "/")]
        return list(dict.fromkeys(s for s, _ in found)), list(dict.fromkeys(v for _, v in found))

    def cell(self, part: str, shape: str, variant: str) -> dict:
        return self.cells.get(f"{part}/{shape}/{variant}", {})

    def rates(self, part: str, shape: str, variant: str) -> list[float]:
        return [block[0] for block in self.cell(part, shape, variant).get("blocks", [])]

    def rate(self, part: str, shape: str, variant: str) -> Spread | None:
        """Steps a second; for several models, models × steps a second."""
        return spread(self.rates(part, shape, variant))

    def ratio(self, part: str, shape: str, one: str, other: str) -> Spread | None:
        """How many times as fast `one` is as `other`, block against block of the same round."""
        pairs = zip(self.rates(part, shape, one), self.rates(part, shape, other))
        return spread(a / b for a, b in pairs)

    def fastest(self, part: str, shape: str, among) -> str | None:
        """The variant among these with the highest median."""
        there = [variant for variant in among if self.rates(part, shape, variant)]
        return max(there, key=lambda variant: self.rate(part, shape, variant).median, default=None)

    def bandwidth(self) -> Spread | None:
        """GB/s of copying memory, over the probes around all blocks."""
        return spread(
            gb for cell in self.cells.values() for block in cell.get("blocks", []) for gb in block[1:]
        )

    def disturbed(self) -> tuple[int, int]:
        """Blocks beside a probe more than a fifth below the median probe, and all blocks."""
        blocks = [block for cell in self.cells.values() for block in cell.get("blocks", [])]
        least = 0.8 * self.bandwidth().median
        return sum(min(block[1:]) < least for block in blocks), len(blocks)

    def curve(self, axis: str, variant: str) -> list[tuple[int, float]]:
        """(value on the axis, milliseconds a step); a step over several models is one of each."""
        points = []
        for shape in self.keys("scaling")[0]:
            name, _, value = shape.partition("=")
            if name == axis and (rate := self.rate("scaling", shape, variant)):
                points.append((int(value), 1e3 * (int(value) if axis == "models" else 1) / rate.median))
        return sorted(points)

    def errors(self) -> list[tuple[str, str]]:
        return [(key, cell["error"]) for key, cell in self.cells.items() if "error" in cell]


def exponent(points) -> float | None:
    """p of y ≈ c xᵖ, by least squares in logarithms; None for fewer than two points."""
    logs = [(math.log(x), math.log(y)) for x, y in points]
    if len(logs) < 2:
        return None
    x0, y0 = (sum(part) / len(logs) for part in zip(*logs))
    return sum((x - x0) * (y - y0) for x, y in logs) / sum((x - x0) ** 2 for x, _ in logs)


def read(path: Path = SHIPPED) -> Results:
    return Results(json.loads(Path(path).read_text(encoding="utf-8")))


class Store(Results):
    """Results that are being written."""

    def __init__(self, path: Path, about: dict, labels: dict):
        self.path = Path(path)
        begun = json.loads(self.path.read_text(encoding="utf-8")) if self.path.exists() else {}
        super().__init__({"about": about, "cells": {}, "shares": {}, **begun, "labels": labels})

    def save(self, path: Path | None = None) -> None:
        """Write beside, then rename: a kill leaves the last whole file."""
        path = Path(path or self.path)
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(path.name + ".partial")
        beside.write_text(rendered(self.data), encoding="utf-8")
        beside.replace(path)

    def put(self, key: str, **values) -> None:
        self.cells.setdefault(key, {}).update(values)
        self.save()

    def add_block(self, key: str, *numbers: float) -> None:
        self.cells[key]["blocks"].append([float(f"{number:.5g}") for number in numbers])
        self.save()

    def begin(self, keys: list[str]) -> int:
        """The number of rounds that all of these cells have; what lies beyond is dropped."""
        alive = [self.cells.setdefault(key, {"blocks": []}) for key in keys]
        alive = [cell for cell in alive if "error" not in cell]
        done = min((len(cell["blocks"]) for cell in alive), default=0)
        for cell in alive:
            del cell["blocks"][done:]
        return done


def rendered(data: dict) -> str:
    """JSON, a line a cell."""
    lines = []
    for name, part in data.items():
        inner = [
            f"  {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in part.items()
        ]
        lines.append(f' "{name}": {{\n' + ",\n".join(inner) + "\n }")
    return "{\n" + ",\n".join(lines) + "\n}\n"
