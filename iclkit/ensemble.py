"""Many models of one shape, trained together.

    stacked      one step for all M: `[model, tokens, width]` products, one optimiser
    processes    one process a core, one thread each, a model at a time
    loop         one model after the other, here

All three give the numbers of M separate calls of `train`. Which is fastest depends on the arithmetic in one
update: `choose` holds the rule that was measured (`tests/benchmarks`).
"""

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from joblib import Parallel, cpu_count, delayed, parallel_config

from iclkit.environment import progress_bar
from iclkit.model import Transformer, TransformerConfig
from iclkit.stepping import cross_entropy, is_plain
from iclkit.tasks import Task
from iclkit.training import Run, TrainConfig, fit

WAYS = ("stacked", "processes", "loop")
SMALL = 0.2e9  # FLOP in one update of one model, below which its calls cost more than its arithmetic
WORTH = 600e9  # FLOP of all updates together, above which starting processes is repaid


def train_many(
    models: Sequence[Transformer],
    tasks: Task | Sequence[Task],
    configs: TrainConfig | Sequence[TrainConfig] | None = None,
    *,
    how: str | None = None,
    measures: Mapping[str, Callable[[Transformer], object]] | None = None,
    measure_at: Iterable[int] | None = None,
    checkpoint_at: Iterable[int] = (),
    loss: Callable = cross_entropy,
    folder: str | Path | None = None,
    device: str | torch.device | None = None,
    progress: bool | None = None,
) -> list[Run]:
    """Train `models` in place, each on its task with its config, and return their `Run`s in order.

    One task or config serves all. Seeds, learning rate, betas, decay, warm-up, schedule, clipping, initial
    weights and task data may differ; stacked models share shape, number of steps and shape of batch.
    `how` overrules the measured rule. With `folder`, runs are saved and resume as in `train`. A model that
    diverges does not harm the others: its last loss is NaN, and a warning names it.
    Raises `ValueError` for lists that do not match, an unknown `how`, and models that cannot be stacked.
    """
    models = list(models)
    tasks = matched("tasks", tasks, models, Task)
    configs = matched("configs", configs or TrainConfig(), models, TrainConfig)
    if how is not None and how not in WAYS:
        raise ValueError(f"how must be None or one of {', '.join(WAYS)}; got {how!r}")
    trouble = unlike(models, tasks, configs)
    how = how or choose(models, tasks, configs, stackable=trouble is None, device=device)
    if how == "stacked" and trouble:
        raise ValueError(f'{trouble}; train these with how="processes" or how="loop"')
    options = {
        "measures": measures,
        "measure_at": None if measure_at is None else list(measure_at),
        "checkpoint_at": list(checkpoint_at),
        "loss": loss,
        "device": device,
        "strict": False,
    }
    if how == "stacked":
        runs = fit(models, tasks, configs, folder=folder, progress=progress, **options)
    else:
        folders = [None if folder is None else Path(folder) / str(index) for index in range(len(models))]
        runs = apart(how, list(zip(models, tasks, configs, folders)), options, progress)
    lost = [index for index, run in enumerate(runs) if not np.isfinite(run.losses[-1])]
    if lost:
        warnings.warn(
            f"models {lost} of {len(runs)} diverged: their last loss is not finite. The others are unharmed; "
            "lower the lr of those, or set clip",
            stacklevel=2,
        )
    return runs


def apart(how: str, jobs: list[tuple], options: dict, progress: bool | None) -> list[Run]:
    """One model after the other, or one process a core."""
    if how == "loop":
        return [one(*job, options) for job in progress_bar(jobs, progress)]
    with parallel_config(backend="loky", n_jobs=min(cpu_count(), len(jobs)), inner_max_num_threads=1):
        results = Parallel(return_as="generator")(delayed(one)(*job, options) for job in jobs)
        runs = list(progress_bar(results, progress, total=len(jobs)))
    for run, (model, *_) in zip(runs, jobs):
        model.load_state_dict(run.model.state_dict())
        run.model = model.eval()
    return runs


def one(model: Transformer, task: Task, config: TrainConfig, folder: Path | None, options: dict) -> Run:
    return fit([model], [task], [config], folder=folder, progress=False, **options)[0]


def matched(name: str, given, models: list, kind: type) -> list:
    """A list as long as `models`; a single thing serves them all."""
    given = [given] * len(models) if isinstance(given, kind) else list(given)
    if not models or len(given) != len(models):
        raise ValueError(
            f"expected at least one model and one of {name} for all or one for each; "
            f"got {len(models)} models and {len(given)} {name}"
        )
    return given


def unlike(models: list[Transformer], tasks: list[Task], configs: list[TrainConfig]) -> str | None:
    """Why these cannot train in one stack; None when they can."""
    if len({id(model) for model in models}) < len(models):
        raise ValueError(
            "the same model stands twice in the list; make one for each run: Transformer(config, seed)"
        )
    if (shapes := {replace(model.config, init_scale=1.0) for model in models}) and len(shapes) > 1:
        return f"stacked models have one shape; got {len(shapes)} different ones"
    if len(lengths := {config.steps for config in configs}) > 1:
        return f"stacked models take the same number of steps; got {sorted(lengths)}"
    if plain := [index for index, model in enumerate(models) if not is_plain(model)]:
        return f"models {plain} have relative or rotary positions, smeared keys, or frozen or hooked weights"
    if len(batches := {batch_shape(task, config) for task, config in zip(tasks, configs)}) > 1:
        return f"stacked models see batches of one shape; got {sorted(batches)}"
    return None


def batch_shape(task: Task, config: TrainConfig) -> tuple[int, ...]:
    return tuple(task.batch(config.seed, 0).targets.shape)


def choose(models, tasks, configs, stackable: bool, device=None) -> str:
    """The fastest of `WAYS` by the measured rule: stack what is small or on a GPU, else a process a core."""
    on_gpu = torch.cuda.is_available() if device is None else torch.device(device).type != "cpu"
    if on_gpu or len(models) == 1 or cpu_count() == 1:
        return "stacked" if stackable else "loop"
    each = [update_flop(m.config, batch_shape(t, c)) for m, t, c in zip(models, tasks, configs)]
    total = sum(flop * config.steps for flop, config in zip(each, configs))
    if stackable and (max(each) < SMALL or total < WORTH):
        return "stacked"
    return "processes" if total >= WORTH else "loop"


def update_flop(config: TransformerConfig, shape: tuple[int, int]) -> float:
    """FLOP of one update: 6 · weights in products · tokens + 12 · layers · heads · d_head · seq · tokens."""
    c, (batch, seq) = config, shape
    width = c.n_heads * c.d_head
    weights = c.n_layers * (4 * c.d_model * width + 2 * c.d_model * c.d_mlp) + c.d_model * c.d_vocab_out
    return batch * seq * (6 * weights + 12 * c.n_layers * width * seq)
