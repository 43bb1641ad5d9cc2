"""`python -m iclkit.records list`, `… scorecard`, `… make NAME [--scale paper] [--seeds 0 1] [--jobs 2] [--finished]`."""

import argparse
import sys
from pathlib import Path

from iclkit.records import store
from iclkit.records.making import MakingError, make
from iclkit.records.recipes import every


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m iclkit.records", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="the recipes, their cost, and the records there are")
    making = commands.add_parser("make", help="make records anew; resumes after a kill")
    making.add_argument("names", nargs="+", metavar="NAME")
    making.add_argument("--scale", choices=["book", "paper"], default="book")
    making.add_argument("--seeds", nargs="+", type=int)
    making.add_argument("--jobs", type=int, default=1, help="pieces at once, each in a process of its own")
    making.add_argument("--finished", action="store_true", help="of the pieces there are, nothing new")
    making.add_argument("--folder", type=Path, help="write there instead of into the package")
    commands.add_parser("scorecard", help="write scorecard.json from the records and the rules of the claims")
    options = parser.parse_args(arguments)
    if options.command == "make":
        return _make(options)
    if options.command == "scorecard":
        from iclkit.records.scorecard import write

        try:
            print(f"{len(write())} claims in the scorecard")
        except store.RecordError as error:
            print(error, file=sys.stderr)
            return 1
        return 0
    shipped = store.names()
    for name in sorted({*every(), *shipped}):
        cost = every()[name].COST if name in every() else "no recipe"
        print(f"{name:28} {'shipped' if name in shipped else 'not made':9} {cost}")
    return 0


def _make(options) -> int:
    for name in options.names:
        try:
            chosen = options.scale, options.seeds, options.folder
            record = make(name, *chosen, jobs=options.jobs, finished=options.finished)
        except (KeyError, ValueError, MakingError) as error:
            print(error.args[0], file=sys.stderr)
            return 1
        print(f"{record} in {record.meta['seconds']:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
