"""Many models of one shape, trained together.

    stacked      one step for all M: `[model, tokens, width]` products, one optimiser
    processes    one process a core, one thread each, a model at a time
    loop         one model after the other, here

All three give the numbers of M separate calls of `train`. Which is fastest depends on the arithmetic in one
update: `choose` holds the rule that was measured (`tests/benchmarks`).
"""

import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from pickle import PicklingError

import numpy as np
import torch
from joblib import Parallel, cpu_count, delayed, parallel_config
from joblib.parallel import get_active_backend

from iclkit.environment import find_device, progress_bar, quick_steps
from iclkit.model import Transformer, TransformerConfig
from iclkit.stepping import cross_entropy, is_plain
from iclkit.tasks import Task
from iclkit.training import Run, TrainConfig, batch_on, check_fit, check_updates, fit

WAYS = ("stacked", "processes", "loop")
SMALL = 0.2e9  # FLOP in one update of one model, below which its calls cost more than its arithmetic
WORTH = 600e9  # FLOP of all updates together, above which starting processes is repaid


def train_many(
    models: Iterable[Transformer],
    tasks: Task | Iterable[Task],
    configs: TrainConfig | Iterable[TrainConfig] | None = None,
    *,
    how: str | None = None,
    measures: Mapping[str, Callable[[Transformer], object]] | None = None,
    measure_at: Iterable[int] | None = None,
    checkpoint_at: Iterable[int] = (),
    loss: Callable = cross_entropy,
    precision: str = "float32",
    compile: bool = False,
    folder: str | Path | None = None,
    device: str | torch.device | None = None,
    progress: bool | None = None,
) -> list[Run]:
    """Train `models` in place, each on its task with its config, and return their `Run`s in order.

    One task or config serves all. Seeds, learning rate, betas, decay, warm-up, schedule, clipping, initial
    weights and task data may differ; stacked models share shape, number of steps and shape of batch, in
    float32. `how` overrules the measured rule; the rest is as in `train`. A model that diverges does not
    harm the others: its last loss is NaN or infinite, and a warning names it.
    Raises `ValueError` for lists that do not match, an unknown `how`, and models that cannot be stacked.
    """
    if how is not None and how not in WAYS:
        raise ValueError(f"how must be None or one of {', '.join(WAYS)}; got {how!r}")
    jobs = matched(models, tasks, TrainConfig() if configs is None else configs)
    options = {
        "measures": measures,
        "measure_at": None if measure_at is None else check_updates("measure_at", measure_at),
        "checkpoint_at": check_updates("checkpoint_at", checkpoint_at),
        "loss": loss,
        "precision": precision,
        "compile": compile,
        "device": find_device(device),
        "strict": False,
    }
    how = decide(how, jobs, folder, options)
    if how == "stacked":
        runs = fit(*zip(*jobs), folder=folder, progress=progress, **options)
    else:
        runs = apart(how, jobs, folder, progress, options)
    if lost := [index for index, run in enumerate(runs) if not np.isfinite(run.losses[-1])]:
        warnings.warn(
            f"models {lost} of {len(runs)} diverged: their last loss is not finite. The others are unharmed; "
            "lower the lr of those, or set clip",
            stacklevel=2,
        )
    return runs


def matched(models, tasks, configs) -> list[tuple[Transformer, Task, TrainConfig]]:
    """A task and a config for each model, a single one serving all; refuses what cannot be trained."""
    if isinstance(models, Transformer) or not isinstance(models, Iterable):
        got = "a single Transformer: see train" if isinstance(models, Transformer) else repr(models)
        raise TypeError(f"models are a list, one for each run; got {got}")
    models, several = list(models), {"tasks": tasks, "configs": configs}
    for name, given in several.items():
        single = isinstance(given, (str, Mapping, Task)) or not isinstance(given, Iterable)
        several[name] = [given] * len(models) if single else list(given)
        if not models or len(several[name]) != len(models):
            raise ValueError(
                f"expected at least one model and one of {name} for all or one for each; "
                f"got {len(models)} models and {len(several[name])} {name}"
            )
    jobs = list(zip(models, *several.values()))
    for job in jobs:
        check_fit(*job)
    if len({id(next(model.parameters())) for model in models}) < len(models):
        raise ValueError("models share their weights; make a new one for each run: Transformer(config, seed)")
    return jobs


def decide(how: str | None, jobs: list[tuple], folder: str | Path | None, options: dict) -> str:
    """`how` if it can be, else what goes on with the runs in `folder`, else the measured rule's choice."""
    if how in ("processes", "loop"):
        return how
    (models, _, configs), device = zip(*jobs), options["device"]
    batches = [tuple(batch_on(device, task, config.seed, 0).inputs.shape[:2]) for _, task, config in jobs]
    trouble = unlike(models, configs, batches, device)
    if options["precision"] != "float32" or (options["compile"] and device.type != "cuda"):
        trouble = "stacked models train in float32, and compiled only on CUDA"
    if how and trouble:
        raise ValueError(f'{trouble}; train these with how="processes" or how="loop"')
    begun = lambda pattern: folder is not None and any(Path(folder).glob(pattern))  # noqa: E731
    if how or (begun("run.safetensors") and not trouble):
        return "stacked"
    stackable = not trouble and not begun("[0-9]*/run.safetensors")
    return choose(models, configs, batches, stackable, device)


def unlike(models, configs, batches: list[tuple], device: torch.device) -> str | None:
    """Why these cannot train in one stack; None when they can."""
    if device.type not in ("cpu", "cuda"):
        return f"models train in one stack on cpu or cuda; got {device}"
    names = [field.name for field in fields(TransformerConfig) if field.name != "init_scale"]
    if differ := [name for name in names if len({getattr(model.config, name) for model in models}) > 1]:
        return f"stacked models have one shape; these differ in {', '.join(differ)}"
    if len(kinds := {f"{w.dtype} on {w.device}" for model in models for w in model.parameters()}) > 1:
        return f"stacked models have weights of one kind in one place; got {', '.join(sorted(kinds))}"
    if len(lengths := {int(config.steps) for config in configs}) > 1:
        return f"stacked models take the same number of steps; got {sorted(lengths)}"
    if len(set(batches)) > 1:
        return f"stacked models see batches of one shape; got {sorted(set(batches))}"
    if other := [index for index, model in enumerate(models) if not is_plain(model)]:
        return f"models {other} have relative or rotary positions, smeared keys, or frozen or hooked weights"
    return None


def choose(models, configs, batches: list[tuple], stackable: bool, device: torch.device) -> str:
    """The fastest of `WAYS` by the measured rule: stack what is small or on a GPU, else a process a core."""
    each = [update_flop(model.config, shape) for model, shape in zip(models, batches)]
    total = sum(flop * quick_steps(config.steps) for flop, config in zip(each, configs))
    alone = device.type != "cpu" or len(models) == 1 or cores() == 1 or total < WORTH
    if stackable and (alone or max(each) < SMALL):
        return "stacked"
    return "loop" if alone else "processes"


def update_flop(config: TransformerConfig, shape: tuple[int, int]) -> int:
    """FLOP of one update: 6 · weights in products · tokens + 12 · layers · heads · d_head · seq · tokens."""
    c, (batch, seq) = config, shape
    width = c.n_heads * c.d_head
    weights = c.n_layers * (4 * c.d_model * width + 2 * c.d_model * c.d_mlp) + c.d_model * c.d_vocab_out
    return batch * seq * (6 * weights + 12 * c.n_layers * width * seq)


def cores() -> int:
    """How many processes may compute: one within another pool's process, else one a core."""
    return 1 if get_active_backend()[0].nesting_level else cpu_count()


def apart(how: str, jobs: list[tuple], folder, progress: bool | None, options: dict) -> list[Run]:
    """One model after the other, here or in a process a core; with `folder`, in numbered folders."""
    folders = [None if folder is None else Path(folder) / str(index) for index in range(len(jobs))]
    if how == "loop":
        return [alone(*job, options) for job in progress_bar(list(zip(jobs, folders)), progress)]
    runs = []
    with parallel_config(backend="loky", n_jobs=min(cores(), len(jobs)), inner_max_num_threads=1):
        pool = Parallel(return_as="generator", max_nbytes=None)
    try:
        found = pool(delayed(alone)(*job, options) for job in zip(jobs, folders))
        for run, (model, _, _) in zip(progress_bar(found, progress, total=len(jobs)), jobs):
            model.load_state_dict(run.model.state_dict())
            run.model = model.eval()
            runs.append(run)
    except PicklingError as error:
        raise ValueError(
            f'a model, task, measure or loss cannot go to another process ({error}); use how="loop"'
        ) from error
    return runs


def alone(job: tuple, folder: Path | None, options: dict) -> Run:
    return fit(*([part] for part in job), folder=folder, progress=False, **options)[0]
