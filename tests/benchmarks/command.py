"""The command: which cells there are, in which order, and where the results go."""

import argparse
import hashlib
import importlib.metadata
import json
import os
import platform
import re
import signal
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import torch
from tqdm import tqdm

import iclkit
from benchmarks import page, variants
from benchmarks.blocks import Group, Plan
from benchmarks.crews import Cell, Crew, WorkerError
from benchmarks.results import SHIPPED, Store
from benchmarks.shapes import SHAPES
from benchmarks.work import work_of
from iclkit.environment import cache_folder

PARTS = ("steps", "many", "scaling", "shares")
ROUNDS = {"scaling": 3}
MANY_SHAPES = ("repeats", "markov", "few-shot")
LIBRARIES = "torch numpy transformers x-transformers transformer-lens jax jaxlib equinox optax".split()
FEATURES = ("avx2", "avx512_f", "avx512_bf16", "amx_bf16", "neon", "sve")


def main(arguments: list[str] | None = None) -> int:
    """Measure what is asked and not measured yet; print it; write the file of results."""
    options = parsed(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    plan = Plan(options.rounds, options.seconds, options.threads)
    torch.set_num_threads(plan.threads)
    about = describe(plan)
    path = cache_folder() / "benchmarks" / f"{fingerprint(about)}.json"
    if options.anew:
        path.unlink(missing_ok=True)
    store = Store(path, about, labels())
    measure(groups_of(options), store, plan)
    if "shares" in options.parts:
        take_shares(options.shapes, store, plan)
        count_work(options.shapes, store)
    print(page.as_text(store))
    whole = options.parts == list(PARTS) and options.shapes == list(SHAPES) and not options.variants
    if target := options.results or (SHIPPED if whole else None):
        store.save(target)
        print(f"written to {target}")
    return 0


def measure(groups: list[list[Cell]], store: Store, plan: Plan) -> None:
    """Group after group, behind a bar that counts blocks."""
    plans = [replace(plan, rounds=min(plan.rounds, ROUNDS.get(cells[0].part, 10**6))) for cells in groups]
    blocks = sum(len(cells) * one.rounds for cells, one in zip(groups, plans))
    print(f"{blocks} blocks of {plan.seconds:g} s, {plan.threads} threads; load now {os.getloadavg()[0]:.1f}")
    with tqdm(total=blocks, unit="block", mininterval=1) as bar:
        for cells, one in zip(groups, plans):
            bar.set_postfix_str(f"{cells[0].part} {cells[0].shape.partition('=')[0]}")
            before = bar.n
            Group(cells, store, one).measure(lambda key: bar.update())
            bar.update(before + len(cells) * one.rounds - bar.n)


def parsed(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python tests/benchmarks", description=main.__doc__)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--shapes", nargs="+", choices=list(SHAPES), default=list(SHAPES))
    known = list(variants.ONE | variants.MANY)
    parser.add_argument("--variants", nargs="+", choices=known, help="only these (default: all)")
    parser.add_argument("--rounds", type=int, default=Plan.rounds)
    parser.add_argument("--seconds", type=float, default=Plan.seconds, help="of a block, about")
    parser.add_argument("--threads", type=int, default=Plan.threads)
    parser.add_argument("--anew", action="store_true", help="forget what was measured in this setting")
    parser.add_argument("--results", type=Path, help="file to write; a run of everything is shipped")
    return parser.parse_args(arguments)


def groups_of(options: argparse.Namespace) -> list[list[Cell]]:
    """The cells, those that are measured together side by side."""
    groups = []
    if "steps" in options.parts:
        for shape in options.shapes:
            able = [key for key, one in variants.ONE.items() if not one.only or shape in one.only]
            groups.append([Cell("steps", shape, key) for key in able])
    if "many" in options.parts:
        several = [shape for shape in MANY_SHAPES if shape in options.shapes]
        groups += [[Cell("many", shape, key) for key in variants.MANY] for shape in several]
    if "scaling" in options.parts:
        for axis, (values, who) in variants.AXES.items():
            groups.append([Cell("scaling", f"{axis}={value}", key) for value in values for key in who])
    wanted = options.variants or list(variants.ONE | variants.MANY)
    groups = [[cell for cell in group if cell.variant in wanted] for group in groups]
    return [group for group in groups if group]


def take_shares(shapes: list[str], store: Store, plan: Plan) -> None:
    """Where the time of our own step goes, on each shape."""
    for shape in shapes:
        if shape in store.data["shares"]:
            continue
        crew = Crew(Cell("steps", shape, "ours"), plan.threads)
        try:
            crew.hear()
            store.data["shares"][shape] = crew.ask(do="shares", steps=crew.steps_for(plan.seconds))[0]
            store.save()
        except WorkerError as error:
            print(f"shares of {shape}: {error}", file=sys.stderr)
        finally:
            crew.end()


def count_work(shapes: list[str], store: Store) -> None:
    """What a step of each shape asks of a GPU."""
    counted = store.data.setdefault("work", {})
    for shape in shapes:
        if shape not in counted:
            counted[shape] = work_of(shape)
            store.save()


def labels() -> dict:
    """Keys to printed names."""
    names = {key: one.label for key, one in (variants.ONE | variants.MANY).items()}
    return names | {key: shape.name for key, shape in SHAPES.items()}


def describe(plan: Plan) -> dict:
    """Date, protocol, versions and the kind of machine: no names, no paths."""
    versions = {"python": platform.python_version(), "iclkit": iclkit.__version__}
    for name in LIBRARIES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    known = torch.cpu.get_capabilities()
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "load": round(os.getloadavg()[0], 2),
        "rounds": plan.rounds,
        "seconds": plan.seconds,
        "threads": plan.threads,
        "versions": versions,
        "machine": {
            "processor": processor(),
            "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
            "features": [name for name in FEATURES if known.get(name)],
            "system": f"{platform.system()} {platform.machine()}",
        },
        "code": code_hash(),
    }


def processor() -> str:
    """The processor's model, such as "AMD EPYC"."""
    information = Path("/proc/cpuinfo")
    if information.exists() and (found := re.search(r"model name\s*:\s*(.+)", information.read_text())):
        return found[1].strip()
    if sys.platform == "darwin":
        asked = subprocess.run(["sysctl", "-n", "machdep.cpu.brand_string"], capture_output=True, text=True)
        return asked.stdout.strip()
    return platform.processor() or "unknown"


def code_hash() -> str:
    """A hash of what is timed: this folder, and of the package what a training step may use."""
    package, here = Path(iclkit.__file__).parent, Path(__file__).parent
    apart = ("records", "checks", "circuits", "notebooks", "__pycache__")
    files = [file for file in package.rglob("*.[pch]*") if file.parent.name not in apart]
    files += [file for file in here.glob("*.py") if file.name not in ("page.py", "rule.py", "work.py")]
    return hashlib.sha256(b"".join(file.read_bytes() for file in sorted(files))).hexdigest()[:16]


def fingerprint(about: dict) -> str:
    """What makes a run this run: everything described but the date and the load."""
    kept = {key: value for key, value in about.items() if key not in ("date", "load")}
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()[:16]
