"""What models are trained on. A task is a frozen dataclass; a batch is a pure function of (seed, step)."""

from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor


class Batch(NamedTuple):
    """Inputs `[batch seq]`, the targets at each position, and (when not all count) which positions do."""

    inputs: Tensor
    targets: Tensor
    mask: Tensor | None = None

    def to(self, device: str | torch.device) -> "Batch":
        return Batch(*(part if part is None else part.to(device) for part in self))


@runtime_checkable
class Task(Protocol):
    """Anything with `batch(seed, step)`; the same arguments give the same batch on every machine."""

    def batch(self, seed: int, step: int) -> Batch: ...


def check_whole(name: str, value, least: int | None = None) -> None:
    """`ValueError` unless `value` is a whole number, of at least `least` where that is given."""
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool):
        raise ValueError(f"{name} must be a whole number; got {value!r}")
    if least is not None and value < least:
        raise ValueError(f"{name} must be at least {least}; got {value}")


def generator(*numbers: int) -> torch.Generator:
    """A random stream that is a pure function of its whole numbers, none negative: `generator(seed, step)`.

    Neighbouring numbers give unrelated streams (NumPy's `SeedSequence` mixes them). The stream lives on
    PyTorch's default device, as the tensors drawn from it do; CPU and GPU draw different numbers.
    """
    if any(number < 0 for number in numbers):
        raise ValueError(f"a random stream is named by whole numbers of at least 0; got {numbers}")
    low, high = np.random.SeedSequence(numbers).generate_state(2)
    return torch.Generator(torch.get_default_device()).manual_seed(int(high) << 32 | int(low))
