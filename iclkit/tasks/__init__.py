"""What models are trained on: one file a task."""

from iclkit.tasks.base import Batch, Task, generator
from iclkit.tasks.exemplars import Exemplars, Given, ImageLike
from iclkit.tasks.fewshot import FewShot, evaluate, evaluators, in_context_accuracy
from iclkit.tasks.markov import Chains, Markov, chains_of
from iclkit.tasks.repeats import Repeats, repeated_tokens

__all__ = [
    "Batch",
    "Chains",
    "Exemplars",
    "FewShot",
    "Given",
    "ImageLike",
    "Markov",
    "Repeats",
    "Task",
    "chains_of",
    "evaluate",
    "evaluators",
    "generator",
    "in_context_accuracy",
    "repeated_tokens",
]
