"""A step recorded once and replayed: on a GPU, a small model's step is mostly waiting for calls to start."""

from collections.abc import Callable

import torch
from torch import Tensor

from iclkit.fast.step import Step
from iclkit.tasks import Batch

WARM = 3


class Replayed:
    """A `Step` whose kernels are captured in a CUDA graph after `WARM` ordinary updates.

        batch ──copy──▶ fixed buffers ──▶ [ zero · forward · backward · AdamW ] ──▶ losses

    Every batch has the first one's shape; every number that changes from step to step lives on the device.
    Source: PyTorch's CUDA graphs (https://pytorch.org/docs/stable/notes/cuda.html#cuda-graphs).
    """

    def __init__(self, step: Step, capture: Callable | None = None):
        self.step, self.capture, self.calls, self.replay = step, capture or capture_cuda, 0, None

    def __call__(self, batches: list[Batch]) -> Tensor:
        """Losses before the update; `ValueError` for a batch of another shape than the first."""
        self.calls += 1
        if self.calls <= WARM:
            return self.step(batches)
        optimiser = self.step.optimiser
        done = optimiser.steps
        if self.replay is None:
            self.buffers = [Batch(*(part if part is None else part.clone() for part in b)) for b in batches]
            self.replay = self.capture(lambda: self.step(self.buffers))
        for buffer, batch in zip(self.buffers, batches):
            fill(buffer, batch)
        losses = self.replay().clone()
        optimiser.steps = done + 1
        return losses

    def __getattr__(self, name: str):
        return getattr(self.step, name)


def fill(buffer: Batch, batch: Batch) -> None:
    """Copy a batch into the buffers that the recorded step reads."""
    for name, into, part in zip(Batch._fields, buffer, batch):
        if (into is None) != (part is None) or (part is not None and into.shape != part.shape):
            had, came = (None if x is None else tuple(x.shape) for x in (into, part))
            raise ValueError(
                f"a recorded step takes batches of one shape: {name} were {had}, now {came}; "
                "train without compile, or make the task's batches alike"
            )
        if part is not None:
            into.copy_(part)


def capture_cuda(function: Callable[[], Tensor]) -> Callable[[], Tensor]:
    """`function`'s kernels as one graph; calling the result runs them again on the same memory."""
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        output = function()

    def replay() -> Tensor:
        graph.replay()
        return output

    return replay
