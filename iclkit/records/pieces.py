"""One piece of work and its file: KEY.npz, written whole under a lock, with where it came from.

    KEY.npz        the arrays, `_seconds`, and `_about`: config, versions, function
    KEY.lock       held by whoever is at it; opened by the kernel when its holder dies
    KEY.started    which sweep began it and how often; there only while it runs, or when its worker died
    KEY/           the run's own folder, if it takes one

Whatever the engine, a piece is done by `attempt`, in the process that computes it.
"""

import dataclasses
import errno
import hashlib
import inspect
import io
import json
import shutil
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import NamedTuple

import numpy as np
from filelock import FileLock, Timeout

from iclkit.environment import one_thread
from iclkit.records.store import versions, write_whole

FULL = (errno.ENOSPC, errno.EDQUOT)
LIVES = 2
TAKEN = ("_about", "_seconds", "allow_pickle", "file")  # by the file itself, and by NumPy's savez


class Failed(Exception):
    """A run raised; the message is its traceback."""


class Job(NamedTuple):
    """One call: its file, its arguments, and what the file says of them (a dict of JSON values)."""

    file: Path
    arguments: tuple
    about: dict


class Outcome(NamedTuple):
    """What became of a job: `done`, `failed`, `busy` (somebody else is at it) or `unwritable`, and why."""

    file: Path
    state: str
    why: str = ""


def attempt(run: Callable, job: Job, sweep: str, wait: bool) -> Outcome:
    """Do a job unless it is done; if somebody else is at it, `wait` for them or say so.

    A job whose worker died `LIVES` times in this `sweep` has failed: it is not begun again.
    """
    lock, started = job.file.with_suffix(".lock"), job.file.with_suffix(".started")
    try:
        job.file.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(lock).acquire(timeout=-1 if wait else 0, poll_interval=0.2):
            if not read(job.file):
                deaths = starts(job, sweep)
                if deaths >= LIVES:
                    started.unlink()
                    return Outcome(job.file, "failed", f"its worker died {LIVES} times; out of memory?")
                started.write_text(f"{sweep} {deaths + 1}")
                try:
                    write_whole(job.file, packed(job, run, *worked(run, job)))
                except Failed as failed:
                    return Outcome(job.file, "failed", str(failed))
                finally:
                    started.unlink(missing_ok=True)
            tidy(job.file)
        return Outcome(job.file, "done")
    except Timeout:
        return Outcome(job.file, "busy")
    except OSError as error:
        return Outcome(job.file, "unwritable", str(error))


def starts(job: Job, sweep: str) -> int:
    """How often this sweep began a job without ending it: by now, or by its worker's death."""
    try:
        by, count = job.file.with_suffix(".started").read_text().split()
        return int(count) if by == sweep else 0
    except (OSError, ValueError):
        return 0


def tidy(file: Path) -> None:
    """Remove what stands beside a finished piece; who still waits for its lock then finds the piece."""
    shutil.rmtree(file.with_suffix(""), ignore_errors=True)
    half_written = file.parent.glob(f"{file.name}.*.partial")
    for left in (*half_written, file.with_suffix(".started"), file.with_suffix(".lock")):
        with suppress(OSError):
            left.unlink()


def untidy(file: Path) -> bool:
    """Whether who made this piece is still at it, or died between saving it and tidying up."""
    return any(file.with_suffix(beside).exists() for beside in (".started", ".lock"))


def read(file: Path) -> tuple[dict[str, np.ndarray], dict] | None:
    """Arrays and description of a finished piece; None when missing or damaged: it is made again."""
    try:
        with np.load(file, allow_pickle=False) as npz:
            arrays = {name: npz[name] for name in npz.files}
        about = json.loads(str(arrays.pop("_about", "{}")))
        return arrays, {**about, "seconds": float(arrays.pop("_seconds"))}
    except Exception:
        return None


def key(*ingredients: str | int | dict) -> str:
    """A short name for what a piece depends on (JSON values)."""
    return hashlib.sha256(json.dumps(ingredients, sort_keys=True).encode()).hexdigest()[:16]


def as_json(config) -> dict:
    """A config as JSON values; `TypeError` or `ValueError` for what has none: an array, a function, NaN."""
    try:
        values = json.loads(json.dumps({"": config}, default=_plain, allow_nan=False))[""]
    except ValueError:
        raise ValueError(
            f"configs hold finite numbers (None or a string for others); got {config!r:.300}"
        ) from None
    if not isinstance(values, dict):
        raise TypeError(f"a config is a dict or a dataclass; got {config!r:.300}")
    return values


def _plain(value):
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(
        "configs hold numbers, strings, lists, dicts and dataclasses (array.tolist() and str(path) make such); "
        f"got {value!r:.300}"
    )


def worked(run: Callable, job: Job) -> tuple[dict[str, np.ndarray], float]:
    """The arrays of a run and its seconds; `Failed` with its traceback, unless what failed is a full disk."""
    own = {"folder": job.file.with_suffix("")} if "folder" in inspect.signature(run).parameters else {}
    start = monotonic()
    try:
        with one_thread():
            found = run(*job.arguments, **own)
        if not isinstance(found, Mapping):
            raise TypeError(f"a run returns a dict of arrays or numbers; got {type(found).__name__}")
        if other := [name for name in found if not isinstance(name, str) or name in TAKEN]:
            raise ValueError(f"arrays are named by strings other than {', '.join(TAKEN)}; got {other[0]!r}")
        arrays = {name: np.asarray(array) for name, array in found.items()}
        for name, array in arrays.items():
            if array.dtype.hasobject:
                raise ValueError(f"array {name!r} holds objects, which need pickle; give numbers or strings")
    except (Exception, SystemExit) as error:
        if isinstance(error, OSError) and error.errno in FULL:
            raise
        raise Failed(traceback.format_exc()) from None
    return arrays, monotonic() - start


def packed(job: Job, run: Callable, arrays: dict[str, np.ndarray], seconds: float) -> bytes:
    """A finished piece as the bytes of its file."""
    about = {**job.about, "function": f"{run.__module__}.{run.__qualname__}", "versions": versions()}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, _seconds=seconds, _about=json.dumps(about), **arrays)
    return buffer.getvalue()
