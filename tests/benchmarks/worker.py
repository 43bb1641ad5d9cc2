"""What a measuring process does: build one variant, then answer orders, one line of JSON each.

One process a variant: no allocator setting, thread pool or crash of one reaches another, and the peak memory
and first step of the process are the variant's.
"""

import json
import os
import re
import resource
import sys
from pathlib import Path
from time import perf_counter


def serve(spec: dict) -> None:
    """Build what `spec` says, then obey lines from stdin until it closes; answers go to the first stdout."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(**what) -> None:
        print(json.dumps(what), file=answers, flush=True)

    try:
        trainer = built(spec)
        answer(parameters=trainer.parameters, memory=peak_memory())
        for line in sys.stdin:
            order = json.loads(line)
            answer(**ORDERS[order.pop("do")](trainer, **order))
    except Exception as error:
        answer(error=clean(error))
    os._exit(0)


def built(spec: dict):
    """The trainer, its threads set before anything counts them."""
    if hasattr(os, "sched_setaffinity") and spec["crew"] == 1:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: spec["threads"]])
    import torch

    from benchmarks import variants

    torch.set_num_threads(spec["threads"])
    return variants.build(spec["part"], spec["shape"], spec["variant"], spec["member"])


def run(trainer, steps: int) -> dict:
    """At least `steps` steps, waited for: how many, seconds, the last loss."""
    calls, start = -(-steps // trainer.stride), perf_counter()
    for _ in range(calls):
        loss = trainer.advance()
    loss = float(loss)
    return {"seconds": perf_counter() - start, "steps": calls * trainer.stride, "loss": loss}


def memory(trainer) -> dict:
    return {"memory": peak_memory()}


def shares(trainer, steps: int) -> dict:
    from benchmarks.shares import shares_of

    return shares_of(trainer, steps)


ORDERS = {"run": run, "memory": memory, "shares": shares}


def peak_memory() -> float:
    """The most memory this process has held, in MB."""
    status = Path("/proc/self/status")
    if status.exists():
        return int(re.search(r"VmHWM:\s*(\d+)", status.read_text())[1]) / 1e3 * 1.024
    unit = 1e6 if sys.platform == "darwin" else 1e3
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def clean(error: Exception) -> str:
    """Kind and first line of an error, without paths."""
    first = (str(error).strip().splitlines() or [""])[0]
    return without_paths(f"{type(error).__name__}: {first}")


def without_paths(line: str) -> str:
    return re.sub(r"(/[\w.+-]+){2,}", "…", line.strip())[:300]
