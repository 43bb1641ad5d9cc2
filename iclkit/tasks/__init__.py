"""What models are trained on: one file a task."""

from iclkit.tasks.base import Batch, Task, generator
from iclkit.tasks.composite import Composite
from iclkit.tasks.exemplars import Exemplars, Given, ImageLike
from iclkit.tasks.fewshot import FewShot, evaluate, evaluators, in_context_accuracy
from iclkit.tasks.markov import Chains, Markov, chains_of
from iclkit.tasks.pictures import pictures, show_sequences
from iclkit.tasks.repeats import Repeats, repeated_tokens
from iclkit.tasks.strokes import Strokes

__all__ = [
    "Batch",
    "Chains",
    "Composite",
    "Exemplars",
    "FewShot",
    "Given",
    "ImageLike",
    "Markov",
    "Repeats",
    "Strokes",
    "Task",
    "chains_of",
    "evaluate",
    "evaluators",
    "generator",
    "in_context_accuracy",
    "pictures",
    "repeated_tokens",
    "show_sequences",
]
