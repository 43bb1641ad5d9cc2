"""The processes that are measured, each in an environment of its own, and the probe of the machine."""

import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import torch

from benchmarks import variants
from benchmarks.worker import without_paths

PATIENCE = 300.0
QUIET = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "WANDB_MODE": "disabled",
    "JAX_PLATFORMS": "cpu",
    "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1",
}


@dataclass(frozen=True)
class Cell:
    """One number of the table: a variant on a shape, within a part of the command."""

    part: str
    shape: str
    variant: str

    @property
    def key(self) -> str:
        return f"{self.part}/{self.shape}/{self.variant}"


class WorkerError(RuntimeError):
    """A measuring process failed, or did not answer."""


class Crew:
    """The processes of one cell: nearly always one; orders go to all, answers come from all."""

    def __init__(self, cell: Cell, threads: int):
        self.size = variants.find(cell.part, cell.shape, cell.variant).crew
        each = max(1, threads // self.size)
        spec = {"part": cell.part, "shape": cell.shape, "variant": cell.variant}
        spec |= {"threads": each, "crew": self.size}
        counts = {"OMP_NUM_THREADS": str(each), "MKL_NUM_THREADS": str(each)}
        extra = variants.find(cell.part, cell.shape, cell.variant).environment
        self.scratch = tempfile.TemporaryDirectory()
        self.errors = open(Path(self.scratch.name) / "errors", "w")
        extra = {**extra, "TORCHINDUCTOR_CACHE_DIR": self.scratch.name}
        self.workers = [
            subprocess.Popen(
                [
                    sys.executable,
                    str(Path(__file__).parent),
                    "--worker",
                    json.dumps({**spec, "member": member}),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self.errors,
                text=True,
                env={**os.environ, **QUIET, **counts, **extra},
            )
            for member in range(self.size)
        ]

    def hear(self) -> list[dict]:
        """One answer from each process; `WorkerError` with what went wrong."""
        answers = []
        for worker in self.workers:
            ready, _, _ = select.select([worker.stdout], [], [], PATIENCE)
            line = worker.stdout.readline() if ready else ""
            answers.append(json.loads(line) if line else {"error": f"no answer; {self.last_words()}"})
        for answer in answers:
            if "error" in answer:
                raise WorkerError(answer["error"])
        return answers

    def last_words(self) -> str:
        """The last line that the processes wrote to stderr."""
        written = Path(self.errors.name).read_text(errors="replace").strip().splitlines()
        return without_paths(written[-1]) if written else "nothing on stderr"

    def ask(self, **order) -> list[dict]:
        for worker in self.workers:
            print(json.dumps(order), file=worker.stdin, flush=True)
        return self.hear()

    def run(self, steps: int) -> tuple[float, float]:
        """Seconds and steps a second of a block, summed over the processes."""
        answers = self.ask(do="run", steps=steps)
        seconds = max(answer["seconds"] for answer in answers)
        return seconds, answers[0]["steps"] / seconds

    def steps_for(self, seconds: float) -> int:
        """How many steps take about `seconds`; warms up on the way."""
        steps, spent = 1, self.run(1)[0]
        while spent < seconds / 2 and steps < 10**6:
            steps = max(steps + 1, int(steps * min(8.0, 0.8 * seconds / max(spent, 1e-6))))
            spent = self.run(steps)[0]
        return max(1, round(steps * seconds / spent))

    def end(self) -> None:
        for worker in self.workers:
            worker.kill()
            worker.wait()
            with contextlib.suppress(OSError):
                worker.stdin.close()
            worker.stdout.close()
        self.errors.close()
        self.scratch.cleanup()


def bandwidth(megabytes: int = 64) -> float:
    """GB/s of copying memory, best of three: what tells one state of the machine from another."""
    source = torch.ones(megabytes * 250_000)
    target, best = torch.empty_like(source), float("inf")
    for _ in range(3):
        start = perf_counter()
        target.copy_(source)
        best = min(best, perf_counter() - start)
    return 2 * megabytes / 1e3 / best
