"""Which way trains many models fastest, from few-shot to Markov sizes: what `iclkit.ensemble.choose` goes by.

`python -m benchmarks.rule` from tests/, on a quiet machine, three minutes. Timed are whole calls of
`train_many`, batches made on the way, the pool of processes already up; starting that is timed alone. Every
way gets a block in turn, round after round. The results go to rule.json, the table to the screen.
"""

import os
import sys
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import perf_counter

import torch
from joblib.externals.loky import get_reusable_executor
from tqdm import tqdm

from benchmarks.blocks import Plan
from benchmarks.command import describe
from benchmarks.crews import bandwidth
from benchmarks.results import SHIPPED, Results, Store
from benchmarks.shapes import SHAPES, MarkovChains, Vectors
from iclkit.ensemble import cpu_count, train_many, update_flop
from iclkit.model import Transformer
from iclkit.tasks import Repeats
from iclkit.training import TrainConfig

FILE = SHIPPED.with_name("rule.json")
COUNTS = (2, 8)
THREADS = (1, 2)
WAYS = {"processes": ("processes", 1)} | {
    f"{how}, {threads} thread{'s' * (threads > 1)}": (how, threads)
    for threads in THREADS
    for how in ("stacked", "loop")
}


def rungs() -> dict:
    """Shapes of model and batch, from little arithmetic to much, by name."""
    few, repeats, markov = SHAPES["few-shot"], SHAPES["repeats"], SHAPES["markov"]
    longer = replace(few.model, n_ctx=17)
    return {
        "few-shot, 5 positions": few,
        "few-shot, 17 positions": replace(few, model=longer, task=Vectors(length=17)),
        "few-shot, 17, MLP": replace(few, model=replace(longer, d_mlp=256), task=Vectors(length=17)),
        "repeats, 32 sequences": replace(repeats, task=Repeats(batch_size=32)),
        "repeats, 64 sequences": repeats,
        "Markov, 32 sequences": replace(markov, task=MarkovChains(batch_size=32)),
        "Markov, 64 sequences": markov,
    }


def flop_of(shape) -> int:
    """FLOP of one update of one model."""
    return update_flop(shape.model, tuple(shape.batches(1)[0].targets.shape))


def seconds(shape, count: int, way: str, steps: int) -> float:
    """What one call of `train_many` takes for `count` new models."""
    how, threads = WAYS[way]
    models = [Transformer(shape.model, seed) for seed in range(count)]
    configs = [TrainConfig(steps=steps, seed=seed) for seed in range(count)]
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        start = perf_counter()
        train_many(models, shape.task, configs, how=how, device="cpu", progress=False)
        return perf_counter() - start
    finally:
        torch.set_num_threads(before)


def steps_for(shape, count: int, way: str, wanted: float) -> int:
    """How many updates of each model take about `wanted` seconds; warms up on the way."""
    steps, spent = 2, seconds(shape, count, way, 2)
    while spent < wanted / 2 and steps < 10**5:
        steps = max(steps + 1, int(steps * min(8.0, 0.8 * wanted / spent)))
        spent = seconds(shape, count, way, steps)
    return max(2, round(steps * wanted / spent))


def start_seconds(times: int = 3) -> list[float]:
    """What the first call with processes takes beyond the second, new processes each time."""
    shape, found = SHAPES["few-shot"], []
    for _ in range(times):
        get_reusable_executor().shutdown(wait=True, kill_workers=True)
        first, second = (seconds(shape, cpu_count(), "processes", 2) for _ in range(2))
        found.append(round(first - second, 3))
    return found


def measure(store: Store, plan: Plan, shapes: dict, counts=COUNTS) -> None:
    """Blocks of every way for every shape and number of models; rates are updates of a model a second."""
    store.put("rule/start/processes", seconds=start_seconds())
    with tqdm(total=len(shapes) * len(counts) * plan.rounds * len(WAYS), unit="block", mininterval=1) as bar:
        for name, shape in shapes.items():
            for count in counts:
                cells = {way: f"rule/{count} × {name}/{way}" for way in WAYS}
                steps = {way: steps_for(shape, count, way, plan.seconds) for way in WAYS}
                for key in cells.values():
                    store.put(key, flop=flop_of(shape), models=count, blocks=[])
                for _ in range(plan.rounds):
                    for way, key in cells.items():
                        before = bandwidth()
                        spent = seconds(shape, count, way, steps[way])
                        store.add_block(key, count * steps[way] / spent, before, bandwidth())
                        bar.update()


def report(results: Results) -> list[str]:
    """For each shape: rates, processes ÷ each other way, and the FLOP after which starting them is repaid."""
    start = median(results.cell("rule", "start", "processes")["seconds"])
    lines = [f"starting the processes: {start:.2f} s", f"{'model updates a second':32}{'MFLOP':>9}"]
    lines[1] += "".join(f"{way:>20}" for way in WAYS) + "".join(f"{f'repaid, {t} thr.':>16}" for t in THREADS)
    for name in results.keys("rule")[0]:
        if name == "start":
            continue
        rates = {way: results.rate("rule", name, way).median for way in WAYS}
        flop = results.cell("rule", name, "processes")["flop"]
        line = f"{name:32}{flop / 1e6:9.0f}"
        for way, rate in rates.items():
            ratio = results.ratio("rule", name, "processes", way)
            line += f"{f'{rate:.4g} ({ratio.median:.2f})':>20}"
        for threads in THREADS:
            others = [rates[way] for way, (how, t) in WAYS.items() if how != "processes" and t == threads]
            line += f"{repaid(start, flop, max(others), rates['processes']):>16}"
        lines.append(line)
    return [*lines, "(in brackets: processes ÷ this way)", *crossings(results)]


def repaid(start: float, flop: float, other: float, processes: float) -> str:
    """Total FLOP at which n ÷ other = start + n ÷ processes; "never" where processes are no faster."""
    saved = 1 / other - 1 / processes
    return f"{start / saved * flop:.1e}" if saved > 0 else "never"


def crossings(results: Results) -> list[str]:
    """Between which FLOP an update stacking stops to beat processes."""
    lines = []
    for count in COUNTS:
        names = [n for n in results.keys("rule")[0] if n.startswith(f"{count} ×")]
        for way in [way for way in WAYS if way.startswith("stacked")]:
            wins, losses = [], []
            for name in names:
                won = results.ratio("rule", name, way, "processes").median >= 1
                (wins if won else losses).append(results.cell("rule", name, way)["flop"])
            lines.append(
                f"{count} models, {way}: faster than processes up to {max(wins, default=0):.2g} FLOP an "
                f"update, slower from {min(losses, default=float('inf')):.2g}"
            )
    return lines


def main(path: Path = FILE) -> int:
    plan = Plan(rounds=3, seconds=0.4, threads=max(THREADS))
    print(f"load of the machine now: {os.getloadavg()[0]:.1f}")
    beside = path.with_suffix(".new")
    beside.unlink(missing_ok=True)
    store = Store(beside, describe(plan), {})
    measure(store, plan, rungs())
    beside.replace(path)
    print(*report(store), f"written to {path.name}", sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
