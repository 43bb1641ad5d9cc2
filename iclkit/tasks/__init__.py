"""What models are trained on: one file a task."""

from iclkit.tasks.base import Batch, Task, generator
from iclkit.tasks.repeats import Repeats, repeated_tokens

__all__ = ["Batch", "Repeats", "Task", "generator", "repeated_tokens"]
