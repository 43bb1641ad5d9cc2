"""What models are trained on: one file a task."""

from iclkit.tasks.base import Batch, Task, generator
from iclkit.tasks.markov import Chains, Markov, chains_of
from iclkit.tasks.repeats import Repeats, repeated_tokens

__all__ = ["Batch", "Chains", "Markov", "Repeats", "Task", "chains_of", "generator", "repeated_tokens"]
