"""Train one model; keep what happened; resume after a kill.

AdamW (Loshchilov & Hutter 2019, https://arxiv.org/abs/1711.05101) on batches that are a pure function of
(seed, step). A run that stops and resumes ends with the same numbers as one that never stopped.
"""

import copy
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from iclkit.environment import find_device, progress_bar, quick_steps
from iclkit.hooks import HookFn, Name
from iclkit.model import Transformer
from iclkit.saving import RunFolder, encoded
from iclkit.stepping import build_stepper, cross_entropy
from iclkit.tasks import Batch, Task
from iclkit.tasks.base import check_whole
from iclkit.training_config import PAIRED, TrainConfig


@dataclass
class Run:
    """What a training run leaves: the model, its loss at each update, measures at `steps`, checkpoints."""

    model: Transformer
    config: TrainConfig
    losses: np.ndarray
    steps: np.ndarray
    history: dict[str, np.ndarray | list]
    checkpoints: dict[int, dict[str, Tensor]] = field(repr=False, default_factory=dict)

    def at(self, step: int) -> Transformer:
        """The model as it was after `step` updates; `KeyError` names the checkpoints there are."""
        if step not in self.checkpoints:
            raise KeyError(f"no checkpoint at step {step}; this run kept {sorted(self.checkpoints)}")
        model = copy.deepcopy(self.model)
        model.load_state_dict(self.checkpoints[step])
        return model.to(next(self.model.parameters()).device).eval()


def train(
    model: Transformer,
    task: Task,
    config: TrainConfig | None = None,
    *,
    measures: Mapping[str, Callable[[Transformer], object]] | None = None,
    measure_at: Iterable[int] | None = None,
    checkpoint_at: Iterable[int] = (),
    fwd_hooks: Iterable[tuple[Name, HookFn]] = (),
    loss: Callable[[Tensor, Batch], Tensor] = cross_entropy,
    precision: str = "float32",
    compile: bool = False,
    folder: str | Path | None = None,
    device: str | torch.device | None = None,
    progress: bool | None = None,
) -> Run:
    """Train `model` in place on `task` and return the `Run`.

    `measures` are functions of the model, called after the numbers of updates in `measure_at` (by default 50
    evenly spaced ones); `fwd_hooks` act during training too. With `folder`, the run is saved there every
    minute and resumes from there. Runs on CUDA when present, else on the CPU; `device="mps"` on request;
    measures see the model on the device it came from, and there it returns. `precision="bfloat16"` computes
    products in bfloat16 where the device can; `compile` pays 10–30 s first for faster updates.
    Raises `ValueError` for what does not fit model or machine, `FloatingPointError` when the loss diverges.
    """
    (run,) = fit(
        [model],
        [task],
        [config or TrainConfig()],
        measures=measures,
        measure_at=measure_at,
        checkpoint_at=checkpoint_at,
        folder=folder,
        device=device,
        progress=progress,
        fwd_hooks=fwd_hooks,
        loss=loss,
        precision=precision,
        compile=compile,
    )
    check_finite(run.losses[-1], run.config, len(run.losses) - 1)
    return run


def fit(
    models: Sequence[Transformer],
    tasks: Sequence[Task],
    configs: Sequence[TrainConfig],
    *,
    measures=None,
    measure_at=None,
    checkpoint_at=(),
    folder=None,
    device=None,
    progress=None,
    strict=True,
    **how,
) -> list[Run]:
    """Train models in one stack, a task and a config each: `train` for one, `train_many` for more.

    `strict` stops soon after a loss has diverged; `how` goes to `build_stepper`.
    """
    for job in zip(models, tasks, configs):
        check_fit(*job)
    if not isinstance(measures, Mapping | None):
        raise TypeError(f"measures are a dict, name → function of the model; got {measures!r}")
    steps, measures = quick_steps(configs[0].steps), dict(measures or {})
    measure_at = None if measure_at is None else check_updates("measure_at", measure_at)
    measure_at = even_steps(steps, 50) if measure_at is None else {s for s in measure_at if s <= steps}
    checkpoint_at = {s for s in check_updates("checkpoint_at", checkpoint_at) if s <= steps}
    device = find_device(device)
    stepper = build_stepper(models, configs, device, **how)
    at = np.array(sorted(measure_at), int)
    runs = [
        Run(model, config, np.zeros(0), at, {name: [] for name in measures})
        for model, config in zip(models, configs)
    ]
    losses = torch.zeros(len(models), steps, device=device)
    try:
        about = [describe(run, task, measures, how) for run, task in zip(runs, tasks)] if folder else []
        store = RunFolder(folder, about) if folder else None
        done = store.resume(runs, stepper, losses) if store else 0
        if done == 0:
            observe(runs, stepper, measures, measure_at, checkpoint_at, 0)
            if store:
                encoded(runs[0].history)
        for step in progress_bar(range(done, steps), progress, initial=done, total=steps):
            batches = [batch_on(device, task, c.seed, step) for task, c in zip(tasks, configs)]
            losses[:, step] = stepper.step(batches, step)
            if strict and step % 100 == 0 and device.type == "cpu":
                check_finite(losses[0, step], configs[0], step)
            observe(runs, stepper, measures, measure_at, checkpoint_at, step + 1)
            if store and (step + 1 == steps or store.due()):
                store.save(runs, stepper, losses, step + 1)
    finally:
        stepper.close()
    for run, row in zip(runs, losses.cpu().numpy()):
        run.losses = row
        run.history = {name: np.array(values) for name, values in run.history.items()}
        run.model.eval()
    return runs


def batch_on(device: torch.device, task: Task, seed: int, step: int) -> Batch:
    """A task's batch, made on the device where the model trains (random streams differ between devices)."""
    with device if device.type == "cuda" else nullcontext():
        batch = task.batch(seed, step)
    if not (isinstance(batch, Batch) and all(part is None or isinstance(part, Tensor) for part in batch)):
        raise TypeError(f"batch(seed, step) returns Batch(inputs, targets) of tensors; got {batch!r:.300}")
    if not batch.inputs.numel():
        raise ValueError(f"a batch holds one sequence or more; got inputs {tuple(batch.inputs.shape)}")
    return batch.to(device)


def check_finite(loss: Tensor | np.floating, config: TrainConfig, step: int) -> None:
    """`FloatingPointError` for a loss that is NaN or infinite."""
    if math.isfinite(loss):
        return
    if step == 0:
        raise FloatingPointError(
            f"the loss is {float(loss)} before the first update; are the weights and inputs finite, "
            "and does the batch's mask leave a target that counts?"
        )
    raise FloatingPointError(f"the loss at step {step} is {float(loss)}; lower lr={config.lr} or set clip")


def check_updates(name: str, steps: Iterable[int]) -> set[int]:
    """Numbers of updates; `ValueError` for one that cannot be."""
    if not isinstance(steps, Iterable):
        raise TypeError(f"{name} lists numbers of updates, as in [{steps!r}]; got {steps!r}")
    steps = list(steps)
    for step in steps:
        check_whole(f"each number in {name}", step)
        if step < 0:
            raise ValueError(f"{name} lists numbers of updates, at least 0; got {step}")
    return {int(step) for step in steps}


@torch.no_grad()
def observe(runs: Sequence[Run], stepper, measures, measure_at: set, checkpoint_at: set, step: int) -> None:
    """Take the measures and the checkpoints that are due after `step` updates."""
    if step not in checkpoint_at and not (measures and step in measure_at):
        return
    stepper.publish()
    for run in runs:
        for name, measure in measures.items() if step in measure_at else ():
            value = measure(run.model)
            run.history[name].append(
                value.tolist() if isinstance(value, (Tensor, np.ndarray, np.generic)) else value
            )
        if step in checkpoint_at:
            run.checkpoints[step] = copies(run.model)


def copies(model: Transformer) -> dict[str, Tensor]:
    """Every weight, copied to the CPU."""
    state = model.state_dict().items()
    return {
        name: weight.detach().cpu().clone(memory_format=torch.contiguous_format) for name, weight in state
    }


def even_steps(steps: int, count: int) -> set[int]:
    """About `count` evenly spaced numbers of updates, 0 and `steps` among them."""
    return {round(steps * i / count) for i in range(count + 1)}


def check_fit(model: Transformer, task: Task, config: TrainConfig) -> None:
    """Refuse what is no model, task or config, and a task whose tokens or sequences the model cannot take."""
    for part, kind in ((model, Transformer), (config, TrainConfig)):
        if not isinstance(part, kind):
            raise TypeError(f"expected a {kind.__name__} for each run; got {part!r:.300}")
    if isinstance(task, type) or not isinstance(task, Task):
        got = (
            f"the class {task.__name__}; make an instance of it"
            if isinstance(task, type)
            else type(task).__name__
        )
        raise TypeError(f"a task has batch(seed, step), as Repeats() does; got {got}")
    config.check_rates(name for name, _ in model.named_parameters())
    c = model.config
    vocab, length = getattr(task, "vocab", None), getattr(task, "length", None)
    if vocab is not None and not c.embedded and vocab > c.d_vocab:
        raise ValueError(
            f"the task uses {vocab} tokens, the model knows d_vocab={c.d_vocab}; set d_vocab={vocab}"
        )
    if length is not None and length > c.n_ctx:
        raise ValueError(
            f"the task's sequences have {length} tokens, the model sees n_ctx={c.n_ctx}; set n_ctx={length}"
        )


def describe(run: Run, task: Task, measures, how: dict) -> str:
    """What makes a run this run and no other, as JSON; without paces of their own, as before there were any."""
    training = asdict(run.config) | {"precision": how.get("precision", "float32")}
    return json.dumps(
        {
            "format": 2,
            "model": asdict(run.model.config),
            "first weights": round(float(sum(w.abs().sum() for w in run.model.state_dict().values())), 2),
            "task": repr(task),
            "training": {name: value for name, value in training.items() if name not in PAIRED or value},
            "measures": list(measures),
            "measured at": run.steps.tolist(),
        },
        sort_keys=True,
        default=np.generic.item,
    )
