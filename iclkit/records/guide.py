"""The decision guide of chapter 402: one row a lever, dose and setting; every number is read from a record.

rows = guide({name: load(name) for name in RECORDS})
table(rows)                       Markdown: what keeps in-context learning first, what harms it last
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from iclkit.records.claims.c301 import LAST, variant
from iclkit.records.claims.c401 import FLIP, GAIN, ICL, LATE, late, lean
from iclkit.records.recipes.coopetition_301 import EVALUATORS, MODEL
from iclkit.tasks import FewShot

RECORDS = ("levers_401", "matched_401", "coopetition_301", "omniglot_301", "starts_304", "markov_401")
TRAIN = EVALUATORS.index("Train")
LATE_FLIP, LEAN = "late Flip", "lean to 2-Gen"
DEFAULT = f"synthetic exemplars, {MODEL['n_layers']} layers"  # the setting of chapter 301, at any length
OUTCOMES = ("up", "depends on the seed", "no change", "down")


class Lever(NamedTuple):
    """What to do, what it takes, and the dose of the run without the lever, read from its config."""

    do: str
    takes: str
    instead: Callable[[dict], object] = lambda config: None


def decay(config: dict) -> float:
    return config["training"]["weight_decay"]


LEVERS = {
    "matched": Lever("show the very item asked for: a class has one item in a sequence", "exact copies"),
    "features": Lever(
        "{dose} features, not {instead}",
        "a look at the inputs",
        lambda config: {"principal": "plain"}.get(config["source"]["features"], config["source"]["features"]),
    ),
    "composites": Lever(
        "two drawings are a class: {dose:,} classes, not {instead:,}; more items of each, wider inputs",
        "more data, larger tables",
        lambda config: config["model"]["d_vocab"],
    ),
    "classes": Lever(
        "{dose:,} classes, not {instead:,}", "data and tables", lambda config: config["source"]["n_classes"]
    ),
    "exemplars": Lever(
        "items a class: {dose}, not {instead}", "data", lambda config: config["source"]["n_exemplars"]
    ),
    "spread": Lever(
        "spread within a class {dose:g}, not {instead:g}",
        "other data",
        lambda config: config["source"]["spread"],
    ),
    "bursty": Lever(
        "{dose:.0%} of the sequences bursty, not {instead:.0%}",
        "other sequences",
        lambda config: config["task"].get("bursty", FewShot.bursty),
    ),
    "zipf": Lever(
        "classes by Zipf's law, exponent {dose:g}, not {instead:g}",
        "rare classes are rare",
        lambda config: config["task"].get("zipf", FewShot.zipf),
    ),
    "heads": Lever(
        "heads a layer: {dose}, not {instead}", "parameters", lambda config: config["model"]["n_heads"]
    ),
    "4 layers": Lever("4 layers, not {instead}", "parameters", lambda config: config["model"]["n_layers"]),
    "warm-up": Lever(
        "warm-up of {dose:,} updates, not {instead:,}", "nothing", lambda config: config["training"]["warmup"]
    ),
    "tables' rate": Lever(
        "learning rate of label table and unembedding × {dose:g}, not × {instead:g}",
        "nothing",
        lambda config: dict(config["training"]["rates"])["_W_U"],
    ),
    "decay everywhere": Lever(
        "weight decay {dose:g} on all weights, not {instead:g}", "a dose to find", decay
    ),
    "decay tables": Lever(
        "weight decay {dose:g} on embeddings and unembedding, not {instead:g}", "a dose to find", decay
    ),
    "decay attention": Lever("weight decay {dose:g} on attention, not {instead:g}", "a dose to find", decay),
    "forbidden": Lever("no attention from a label to the item before it", "a mask"),
    "start": Lever("start from {dose:,} updates on data that the weights alone answer", "a first training"),
    "decay of chains": Lever(
        "weight decay {dose:g} on all weights, not {instead:g}", "a dose to find", decay
    ),
    "width of chains": Lever(
        "width {dose}, not {instead}", "parameters", lambda config: config["model"]["d_model"]
    ),
    "K of chains": Lever("{dose} training chains, not {instead}", "data", lambda config: config["K"]),
}


class Change(NamedTuple):
    """Of a change, one value a seed: median, lowest and highest."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values) -> "Change":
        return cls(float(np.median(values)), float(np.min(values)), float(np.max(values)))

    def __str__(self) -> str:
        return f"{signed(self.median)} ({signed(self.low)} to {signed(self.high)})"


@dataclass(frozen=True)
class Row:
    """One lever at one dose in one setting: `changes` of `measure` by seed, against the same seed `without`.

    `where` is the setting of the run without the lever, `instead` its dose. `icl` and `train`, the changes of
    late ICL and of late Train accuracy on unmatched data, are None for Markov chains.
    """

    lever: str
    dose: object
    instead: object
    where: str
    record: str
    measure: str
    without: tuple[float, ...]
    changes: tuple[float, ...]
    icl: Change | None = None
    train: Change | None = None

    @property
    def flip(self) -> Change:
        return Change.of(self.changes)

    @property
    def seeds(self) -> int:
        return len(self.changes)

    @property
    def chapter(self) -> str:
        return self.record.rpartition("_")[2]

    @property
    def name(self) -> str:
        return self.lever if self.dose is None else f"{self.lever} {self.dose}"

    @property
    def direction(self) -> int:
        """+1 or −1 when the measure changes that way by more than GAIN in every seed, else 0."""
        return int(self.flip.low > GAIN) - int(self.flip.high < -GAIN)

    @property
    def outcome(self) -> str:
        """One of OUTCOMES; "no change": by no more than GAIN in any seed."""
        still = all(abs(change) <= GAIN for change in self.changes)
        return {1: "up", -1: "down", 0: "no change" if still else "depends on the seed"}[self.direction]


def guide(records: Mapping) -> list[Row]:
    """All rows, from the records of RECORDS by name; ValueError names one that is missing."""
    if missing := [name for name in RECORDS if name not in records]:
        raise ValueError(
            f"the guide needs the records {', '.join(RECORDS)}; {', '.join(missing)} is missing: "
            f"add iclkit.records.load({missing[0]!r})"
        )
    given = {name: records[name] for name in RECORDS}
    for name, record in given.items():
        if getattr(record, "name", name) != name:
            raise ValueError(f"expected the record {name} under its name; got {record.name}")
    return [
        *of_levers(given["levers_401"]),
        of_matched(given["matched_401"], given["coopetition_301"]),
        *of_drawings(given["omniglot_301"]),
        *of_starts(given["starts_304"]),
        *of_chains(given["markov_401"]),
    ]


def compared(lever: str, with_, without, record: str, where: str, dose=None, instead=None, looks=LATE) -> Row:
    """The row of two sets of runs `[seed look 5]`, paired by seed; ValueError where they cannot be."""
    if len(with_) != len(without):
        raise ValueError(
            f"{record}, {lever}: runs are paired by seed; expected as many with the lever as without, "
            f"got {len(with_)} and {len(without)}"
        )
    plain = late(without, FLIP, looks)
    flip, icl, train = (late(with_, e, looks) - late(without, e, looks) for e in (FLIP, ICL, TRAIN))
    seeds = tuple(plain.tolist()), tuple(flip.tolist())
    return Row(lever, dose, instead, where, record, LATE_FLIP, *seeds, Change.of(icl), Change.of(train))


def setting(config: dict) -> str:
    """Synthetic exemplars in words: how many layers, how many updates."""
    layers, updates = config["model"]["n_layers"], config["looks"][-1]
    return f"synthetic exemplars, {layers} layers, {updates:,} updates"


def of_levers(record) -> Iterator[Row]:
    """Every variant against the default; matched exemplars with four layers against four layers."""
    configs = {config["variant"]: config for config in record.meta["config"]}
    for name, config in configs.items():
        if name == "default":
            continue
        deep = name == "4 layers matched"
        against, lever = ("4 layers", "matched") if deep else ("default", config["lever"])
        plain = configs[against]
        pair = variant(record, name), variant(record, against)
        instead = LEVERS[lever].instead(plain)
        yield compared(lever, *pair, "levers_401", setting(plain), config["dose"], instead)


def of_matched(record, plain) -> Row:
    """Matched exemplars beside the runs of chapter 301, to the end of these; late are its LAST looks."""
    pair = record["accuracy"], plain["accuracy"]
    return compared("matched", *pair, "matched_401", setting(plain.meta["config"][0]), looks=LAST)


def of_drawings(record) -> Iterator[Row]:
    """Levers on Omniglot."""
    configs = {config["variant"]: config for config in record.meta["config"]}
    for lever, name, against in (
        ("matched", "characters, matched", "characters"),
        ("matched", "composites, matched", "composites"),
        ("features", "characters", "characters, plain features"),
        ("composites", "composites", "characters"),
    ):
        pair = variant(record, name), variant(record, against)
        where = f"Omniglot, {against}, {configs[against]['looks'][-1]:,} updates"
        dose, instead = (LEVERS[lever].instead(configs[which]) for which in (name, against))
        yield compared(lever, *pair, "omniglot_301", where, dose, instead)


def of_starts(record) -> Iterator[Row]:
    """Ordinary training from CIWL-only weights of each age against age 0, late in its own, shorter length."""
    plain, *runs = record["start_accuracy"]
    config = record.meta["config"][0]
    where = setting(config | {"looks": [config["start"]]})
    for age, run in zip(record["age"].tolist()[1:], runs):
        yield compared("start", run, plain, "starts_304", where, age)


def of_chains(record) -> Iterator[Row]:
    """Levers on Markov chains: each dose against the default at the same K, each K against the first."""
    leans, configs = lean(record), record.meta["config"]
    at = {config["variant"]: number for number, config in enumerate(configs)}
    first = configs[0]["K"]
    for number, config in enumerate(configs[1:], 1):
        K = first if config["lever"] == "default" else config["K"]
        plain = at[f"default K={K}"]
        lever = "K of chains" if config["lever"] == "default" else f"{config['lever']} of chains"
        dose = config["K"] if config["lever"] == "default" else config["dose"]
        instead = LEVERS[lever].instead(configs[plain])
        where = f"Markov chains, K = {K}, {config['looks'][-1]:,} updates"
        seeds = tuple(leans[plain].tolist()), tuple((leans[number] - leans[plain]).tolist())
        yield Row(lever, dose, instead, where, "markov_401", LEAN, *seeds)


class Table(str):
    """Markdown that a notebook shows as a table, and as itself where there is only text."""

    def __repr__(self) -> str:
        return str(self)

    def _repr_markdown_(self) -> str:
        return str(self)


def table(rows: list[Row]) -> Table:
    """The rows as a Markdown table: in the order of OUTCOMES, Flip before leans, the largest change first."""
    order = sorted(rows, key=lambda r: (OUTCOMES.index(r.outcome), r.measure != LATE_FLIP, -r.flip.median))
    lines = [
        "| what to do | takes | Flip without | late Flip | late ICL | Train | seeds | where, record |",
        "|---|---|---|---|---|---|---|---|",
    ]
    return Table("\n".join([*lines, *map(line, order)]))


def line(row: Row) -> str:
    """One row of the table."""
    lever, lead = LEVERS[row.lever], "" if row.measure == LATE_FLIP else "lean "
    do = lever.do.format(dose=row.dose, instead=row.instead)
    cells = [do, lever.takes, f"{lead}{signed(np.median(row.without), plus='')}", f"{lead}{row.flip}"]
    cells += ["–" if change is None else str(change) for change in (row.icl, row.train)]
    cells += [f"{row.outcome}, {row.seeds}", f"{row.where}; {row.record}"]
    return "| " + " | ".join(cells) + " |"


def signed(value: float, plus: str = "+") -> str:
    """A number with its sign and two digits: +.34, −1.20, and .00 without one."""
    text = f"{abs(value):.2f}".removeprefix("0")
    return text if text == ".00" else f"{'−' if value < 0 else plus}{text}"
