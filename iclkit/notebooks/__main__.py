"""`python -m iclkit.notebooks run [NAME …|all] [--jobs 2]`, `python -m iclkit.notebooks check [NAME …]`."""

import argparse
import sys
from pathlib import Path

from iclkit.notebooks.contract import faults
from iclkit.notebooks.execute import run
from iclkit.notebooks.form import CHAPTERS


def chapters(names: list[str]) -> list[Path]:
    """The chapters whose file names begin with any of `names`; all of them for no name or `all`."""
    if not CHAPTERS.is_dir():
        sys.exit(
            f"there are no chapters at {CHAPTERS}; install the package from a checkout: pip install -e ."
        )
    every = sorted(CHAPTERS.glob("*.ipynb"))
    if not names or names == ["all"]:
        return every
    begins = [Path(name).name for name in names]
    found = [path for path in every if path.name.startswith(tuple(begins))]
    if unknown := [name for name in begins if not any(path.name.startswith(name) for path in every)]:
        sys.exit(f"no chapter begins with {', '.join(unknown)}; there are {', '.join(p.stem for p in every)}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m iclkit.notebooks", description=__doc__)
    parser.add_argument("command", choices=["run", "check"])
    parser.add_argument("names", nargs="*", help="beginnings of chapter names, such as 104; default: all")
    parser.add_argument("--jobs", type=int, default=1, help="chapters run at a time (default 1)")
    options = parser.parse_args()
    if options.jobs < 1:
        parser.error(f"--jobs must be at least 1; got {options.jobs}")
    paths = chapters(options.names)
    if options.command == "run":
        return int(any(outcome.error for outcome in run(paths, options.jobs)))
    found = [f"{path.name}: {fault}" for path in paths for fault in faults(path)]
    print("\n".join(found) or f"{len(paths)} chapters keep the contract")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
