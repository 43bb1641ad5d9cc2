"""Execute chapters top to bottom in fresh kernels, and write them only when they succeed."""

import os
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from time import monotonic

from iclkit.notebooks.form import ROOT, normalise, read
from iclkit.records.store import write_whole

BUILD = {"ICLKIT_BUILD": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
SECONDS = 300


@dataclass(frozen=True)
class Outcome:
    """What became of one chapter: `error` is empty when it ran and was written."""

    path: Path
    seconds: float
    error: str = ""


def execute(path: Path, root: Path = ROOT) -> Outcome:
    """Run one notebook, bring it into form, and replace the file; a notebook that fails is left untouched."""
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    os.environ.update(BUILD)
    os.environ.pop("ICLKIT_SCALE", None)
    start = monotonic()
    try:
        notebook = read(path)
    except ValueError as error:
        return Outcome(path, 0.0, str(error))
    normalise(notebook, root)
    try:
        client = NotebookClient(
            notebook,
            timeout=SECONDS,
            kernel_name="python3",
            record_timing=False,
            resources={"metadata": {"path": str(path.parent)}},
        )
        client.execute()
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
        return Outcome(path, monotonic() - start, f"{_where(notebook, error)}{error}")
    normalise(notebook, root)
    write_whole(path, (nbformat.writes(notebook) + "\n").encode())
    return Outcome(path, monotonic() - start)


def run(paths: list[Path], jobs: int = 1, root: Path = ROOT) -> list[Outcome]:
    """Execute chapters, `jobs` at a time, and print one line for each as it ends."""
    if jobs == 1 or len(paths) == 1:
        return [_told(execute(path, root)) for path in paths]
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        return [_told(outcome) for outcome in pool.map(execute, paths, [root] * len(paths))]


def _told(outcome: Outcome) -> Outcome:
    print(
        f"{'FAILED' if outcome.error else 'ok':6} {outcome.seconds:6.1f} s  {outcome.path.name}", flush=True
    )
    if outcome.error:
        print(f"{outcome.error}\nThe file was left as it was.", flush=True)
    return outcome


def _where(notebook, error) -> str:
    """Which cell was running: the first one with an error output, or else the last one that started."""
    started = [
        n for n, cell in enumerate(notebook.cells) if cell.get("execution_count") or cell.get("outputs")
    ]
    failed = [n for n in started if any(o.output_type == "error" for o in notebook.cells[n].outputs)]
    number = (failed or started[-1:] or [0])[0]
    return f"cell {number + 1} of {len(notebook.cells)}: {type(error).__name__}\n"
