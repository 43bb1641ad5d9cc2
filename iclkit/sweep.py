"""Many runs, a record each: what is done is skipped, what was interrupted goes on, what fails is reported.

    configs = grid(TrainConfig(steps=600), lr=[1e-3, 3e-3], seed=range(5))      10 configs
    records = sweep(run, configs, folder="rates")                               run(config) → dict of arrays

joblib hands the configs to processes, one a core, or to the cluster that `joblib.parallel_config` names
around the call. Who computes a config writes its file, whole, so a kill anywhere loses only what was running.
"""

import dataclasses
import inspect
import itertools
import json
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from difflib import get_close_matches
from pathlib import Path

from joblib import Parallel, delayed, parallel_config
from joblib.parallel import get_active_backend

from iclkit.environment import cache_folder, progress_bar
from iclkit.records.pieces import LIVES, Job, Outcome, as_json, attempt, key, read, starts, untidy
from iclkit.records.store import Record, versions

FORMAT = 1
UNSEEN = "it ended well on a worker, but its file is not here: do all machines see this folder?"


class SweepError(RuntimeError):
    """Some runs are not done: `failures` are pairs (config, traceback), `records` are those of the others."""

    def __init__(self, message: str, records: Sequence[Record] = (), failures: Sequence[tuple] = ()):
        super().__init__(message)
        self.records, self.failures = list(records), list(failures)


def grid(base, /, **axes) -> list:
    """Every combination of the axes' values, the last axis fastest, each put into a copy of `base`.

    `base` is a dict or a dataclass. Raises `ValueError` for a field it does not have and for an axis without
    values, `TypeError` for an axis that lists nothing.
    """
    made = dataclasses.is_dataclass(base) and not isinstance(base, type)
    if not (made or isinstance(base, Mapping)):
        raise TypeError(f"base is a dict or an instance of a dataclass, such as TrainConfig(); got {base!r}")
    known = [field.name for field in dataclasses.fields(base)] if made else list(base)
    for name, axis in axes.items():
        if name not in known:
            near = get_close_matches(name, known, n=1, cutoff=0.4)
            hint = f"did you mean {near[0]!r}? The" if near else "the"
            raise ValueError(f"unknown field {name!r}; {hint} base has {', '.join(known)}")
        if (
            isinstance(axis, (str, Mapping))
            or not isinstance(axis, Iterable)
            or getattr(axis, "ndim", 1) == 0
        ):
            raise TypeError(f"an axis lists its values, as in {name}=[{axis!r}]; got {name}={axis!r}")
    axes = {name: list(axis) for name, axis in axes.items()}
    if empty := [name for name, axis in axes.items() if not axis]:
        raise ValueError(f"the axis {empty[0]} has no values")
    points = [dict(zip(axes, point)) for point in itertools.product(*axes.values())]
    return [dataclasses.replace(base, **point) if made else {**base, **point} for point in points]


def sweep(
    run: Callable,
    configs: Iterable,
    *,
    folder: str | Path | None = None,
    jobs: int | None = None,
    progress: bool | None = None,
) -> list[Record]:
    """Call `run(config)` for each config without a record in `folder`; all records, in the configs' order.

    `run` returns a dict of arrays or numbers. If it takes `seed`, it gets the config's; if it takes `folder`,
    it gets one of its own, for `train(folder=…)`, which is removed when the run is done. A record belongs to
    a config, the text of `run` (its whole file, unless that is a script or notebook) and iclkit's version.
    `jobs` are workers: all cores, or the whole cluster, by default; 1 stays in this process. Every run
    computes on one thread, so records do not depend on `jobs`. All machines that take part must see `folder`;
    it lies under `ICLKIT_CACHE` unless given.

    Raises `TypeError` or `ValueError` before anything runs for what cannot be swept; `SweepError` at the end
    for runs that failed, at once when the folder cannot be written.
    """
    if not inspect.isfunction(run):
        raise TypeError(f"run is a function made with def, run(config) → dict of arrays; got {run!r}")
    folder = Path(folder or cache_folder() / "sweeps" / run.__name__).expanduser().absolute()
    if isinstance(configs, (str, Mapping)) or not isinstance(configs, Iterable):
        raise TypeError(f"configs are a list of dicts or dataclasses, as grid gives; got {configs!r:.300}")
    seeded, work = "seed" in inspect.signature(run).parameters, []
    version, text = versions()["iclkit"], text_of(run)
    for config in configs:
        values = as_json(config)
        if seeded and "seed" not in values:
            raise ValueError(f"{run.__name__} takes a seed, so every config gives one; got {values}")
        file = folder / f"{key(FORMAT, version, text, values)}.npz"
        work.append(Job(file, (config, values["seed"]) if seeded else (config,), {"config": values}))
    return complete(run, work, f"runs of {run.__name__}", jobs, progress)


def complete(
    run: Callable, work: Sequence[Job], what: str, jobs: int | None = None, progress: bool | None = None
) -> list[Record]:
    """Do the jobs that have no file yet, and read them all; `SweepError` tells which failed, and how."""
    if jobs is not None and not (isinstance(jobs, int) and jobs >= 1):
        raise ValueError(f"jobs is a number of workers, at least 1, or None for all there are; got {jobs!r}")
    known = {job.file: job for job in work}
    left = {file: job for file, job in known.items() if not read(file) or untidy(file)}
    done = len(known) - len(left)
    bar = progress_bar(ends(run, left, jobs), progress, initial=done, total=len(known), desc=what)
    ended = {outcome.file: outcome for outcome in bar}
    found = {file: Record(file.stem, *contents) for file in known if (contents := read(file))}
    records = [found[job.file] for job in work if job.file in found]
    if len(found) == len(known):
        return records
    if full := [outcome.why for outcome in ended.values() if outcome.state == "unwritable"]:
        raise SweepError(
            f"{work[0].file.parent} cannot be written ({full[0]}); {len(found)} of {len(known)} {what} are "
            "kept there. Make room or choose another folder; the same call then goes on from here",
            records,
        )
    failures = [(job, ended[file].why or UNSEEN) for file, job in known.items() if file not in found]
    raise SweepError(
        f"{len(failures)} of {len(known)} {what} failed; the others are kept in {work[0].file.parent}, and "
        f"making them again does only what failed.\n{told(failures)}",
        records,
        [(job.about["config"], why) for job, why in failures],
    )


def told(failures: list[tuple[Job, str]], most: int = 10) -> str:
    """Each traceback once, under the jobs that ended with it: at most `most` of them are written out."""
    alike = {}
    for job, why in failures:
        about = ", ".join(f"{name} {json.dumps(value)}" for name, value in job.about.items())
        alike.setdefault(why, []).append(about)
    for who in alike.values():
        who[most:] = [f"and {len(who) - most} more: see failures of this error"] if who[most:] else []
    return "\n".join("\n".join(who) + f":\n{why}" for why, who in alike.items())


def ends(run: Callable, left: dict[Path, Job], jobs: int | None) -> Iterator[Outcome]:
    """How each job ended, as they end, until all have or the folder cannot be written.

    A worker's death is survived: what was running goes again, each job alone, so that one that kills its
    worker is known; then the rest goes on together. Raises what broke the pool if that helps nothing forward.
    """
    left, sweep, wait, broken, before = dict(left), uuid.uuid4().hex, False, False, None
    while left:
        suspects = [job for job in left.values() if broken and starts(job, sweep)]
        batch = suspects[:1] or list(left.values())
        given_up = suspects and starts(batch[0], sweep) >= LIVES
        workers, patient = 1 if given_up else jobs, wait or bool(suspects)
        try:
            with closing(engine(run, batch, sweep, patient, workers)) as outcomes:
                for outcome in outcomes:
                    if outcome.state != "busy":
                        del left[outcome.file]
                        yield outcome
                    if outcome.state == "unwritable":
                        return
            if left and not suspects:
                print(f"another sweep is at {len(left)} of these; waiting", file=sys.stderr, flush=True)
                wait = True
        except Exception:
            for file in [file for file in left if read(file)]:
                del left[file]
                yield Outcome(file, "done")
            now = len(left), sum(starts(job, sweep) for job in left.values())
            if now == before:
                raise
            broken, wait, before = True, False, now


def engine(run: Callable, batch: list[Job], sweep: str, wait: bool, jobs: int | None) -> Iterator[Outcome]:
    """Attempt the jobs of a batch: here if `jobs` is 1, else by joblib with the backend its caller chose."""
    if jobs == 1:
        yield from (attempt(run, job, sweep, wait) for job in batch)
        return
    backend, chosen = get_active_backend()
    local, streams = backend.supports_inner_max_num_threads, backend.supports_return_generator
    with parallel_config(backend="loky", inner_max_num_threads=1) if local else nullcontext():
        pool = Parallel(
            n_jobs=2 if len(batch) == 1 else jobs or chosen or -1,
            batch_size=1,
            pre_dispatch="n_jobs" if streams else "all",
            return_as="generator_unordered" if streams else "list",
        )
    yield from pool(delayed(attempt)(run, job, sweep, wait) for job in batch)


def text_of(run: Callable) -> str:
    """What a record depends on besides its config: the text of a function and its name."""
    module = inspect.getmodule(run)
    whole = module is not None and module.__name__ != "__main__"
    try:
        return f"{run.__qualname__}\n{inspect.getsource(module if whole else run)}"
    except OSError:
        raise TypeError(
            f"the text of {run.__name__} cannot be read; write it in a file or notebook"
        ) from None
