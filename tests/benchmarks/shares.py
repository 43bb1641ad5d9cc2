"""Where the time of a step goes, by kind of operation, as the PyTorch profiler sees it.

The profiler slows every operation by a few microseconds, so steps of many small operations look more like
those than they are. "Python and dispatch" is the time between operations.
"""

import re
from time import perf_counter

KINDS = {
    "matrix products": r"(mm|bmm|addmm|baddbmm|linear|mkldnn)(_|$)",
    "fused attention": r"scaled_dot_product|flash",
    "softmax and loss": r"softmax|nll_loss|cross_entropy",
    "layer norm": r"layer_norm",
    "optimiser": r"adam",
    "gathering and scattering": r"embedding|index|gather|scatter",
    "copies and zeros": r"copy|clone|cat$|stack|zero|fill|empty|contiguous",
    "element by element": r"add|mul|sub|div|relu|gelu|threshold|sum|mean|where|mask|pow|sqrt|neg|sigmoid",
}


def kind_of(operation: str) -> str:
    """The kind of an operation such as `aten::native_layer_norm_backward`; views and the like are "other"."""
    if not operation.startswith(("aten::", "iclkit::", "mkl")):
        return "other operations"
    name = operation.split("::")[-1].removesuffix("_backward").strip("_")
    return next((kind for kind, pattern in KINDS.items() if re.search(pattern, name)), "other operations")


def shares_of(trainer, steps: int) -> dict:
    """Shares of the profiled time by kind, and the ten operations that take most of it."""
    from torch.profiler import ProfilerActivity, profile

    for _ in range(3):
        trainer.advance()
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        start = perf_counter()
        for _ in range(steps):
            trainer.advance()
        seconds = perf_counter() - start
    spent = {event.key: event.self_cpu_time_total / 1e6 / seconds for event in profiled.key_averages()}
    kinds = dict.fromkeys([*KINDS, "other operations"], 0.0)
    for operation, share in spent.items():
        kinds[kind_of(operation)] += share
    kinds["Python and dispatch"] = max(0.0, 1 - sum(kinds.values()))
    return {
        "kinds": {kind: round(share, 4) for kind, share in kinds.items()},
        "operations": {key: round(spent[key], 4) for key in sorted(spent, key=spent.get, reverse=True)[:10]},
    }
