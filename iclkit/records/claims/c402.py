"""The claim of chapter 402: is there a lever that keeps in-context learning wherever we tried it?"""

from collections.abc import Iterable

from iclkit.records.claims import VERDICTS, Measured, claim
from iclkit.records.claims.c401 import GAIN, STAYS
from iclkit.records.guide import DEFAULT, LATE_FLIP, OUTCOMES, RECORDS, Row, guide


def holds(row: Row) -> bool:
    """Whether every seed gains, or had Flip above STAYS without the lever and keeps it within GAIN."""
    pairs = zip(row.without, row.changes)
    return all(change > GAIN or (plain > STAYS and change >= -GAIN) for plain, change in pairs)


def everywhere(rows: Iterable[Row], good) -> bool:
    """Whether in every setting of these rows some dose is good; false for no rows."""
    by_setting: dict[str, bool] = {}
    for row in rows:
        by_setting[row.where] = by_setting.get(row.where, False) or good(row)
    return bool(by_setting) and all(by_setting.values())


def sorted_out(rows: list[Row]) -> tuple[list[str], list[str]]:
    """The levers that lift Flip in every seed of the default setting, and those that hold elsewhere too."""
    keep, hold = [], []
    for lever in dict.fromkeys(row.lever for row in rows):
        mine = [row for row in rows if row.lever == lever]
        here = [row for row in mine if row.where.startswith(DEFAULT)]
        if everywhere(here, lambda row: row.direction == 1):
            keep.append(lever)
            hold += [lever] * everywhere([row for row in mine if row not in here], holds)
    return keep, hold


@claim(
    "T6",
    finding="A decision guide for practice",
    chapter="402",
    theirs="not asked there",
    unit="levers that lift late Flip in every seed of the default setting",
    records=list(RECORDS),
)
def t6(*records):
    """Reproduced when one of these levers holds in every other setting it was measured in, at least one."""
    rows = [row for row in guide(dict(zip(RECORDS, records, strict=True))) if row.measure == LATE_FLIP]
    keep, hold = sorted_out(rows)
    verdict = VERDICTS[0] if hold else VERDICTS[1] if keep else VERDICTS[2]
    here = [row for row in rows if row.where.startswith(DEFAULT)]
    named = {which: [row.name for row in here if row.outcome == which] for which in OUTCOMES}
    told = "; ".join(
        f"{which}: {', '.join(dict.fromkeys(names)) or 'none'}"
        for which, names in (
            ("in every setting", hold),
            ("up in every seed", named["up"]),
            ("down in every seed", named["down"]),
            ("depends on the seed", named["depends on the seed"]),
            (f"no seed moves by more than {GAIN}", named["no change"]),
        )
    )
    return Measured(float(len(keep)), None, None, min(row.seeds for row in rows), verdict, told)
