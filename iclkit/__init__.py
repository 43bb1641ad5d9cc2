"""Models, tasks and circuit tools of *In-Context Learning, Circuit by Circuit*."""

from importlib.metadata import version

from iclkit import checks, circuits, figures, records, tasks
from iclkit.ensemble import train_many
from iclkit.environment import scale
from iclkit.explore import explore
from iclkit.model import Transformer, TransformerConfig
from iclkit.opening import begin
from iclkit.records import quoted
from iclkit.sweep import SweepError, grid, sweep
from iclkit.tasks import Repeats, repeated_tokens
from iclkit.training import Run, TrainConfig, train

__version__ = version("iclkit")

__all__ = [
    "Repeats",
    "Run",
    "SweepError",
    "TrainConfig",
    "Transformer",
    "TransformerConfig",
    "begin",
    "checks",
    "circuits",
    "explore",
    "figures",
    "grid",
    "quoted",
    "records",
    "repeated_tokens",
    "scale",
    "sweep",
    "tasks",
    "train",
    "train_many",
]
