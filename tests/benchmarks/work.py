"""What one step asks of a GPU, counted on the CPU: kernels to start, bytes to move, arithmetic to do.

    time ≥ max(kernels · start, bytes / bandwidth, FLOP / peak)

A count, not a measurement: every operation that makes or fills a tensor is one kernel, and every tensor it
reads or writes crosses the memory bus once. `python tests/benchmarks/gpu.py` measures where there is a GPU.
"""

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from benchmarks.shapes import SHAPES, TRAINING
from iclkit.ensemble import update_flop
from iclkit.fast import step as by_hand
from iclkit.model import Transformer

PAIR = 2


class Count(TorchDispatchMode):
    """Operations that are no views, and the bytes of the tensors they read and write."""

    def __init__(self):
        super().__init__()
        self.kernels = self.bytes = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        output = function(*args, **(kwargs or {}))
        read, written = tensors((args, kwargs)), tensors(output)
        memory = {tensor.untyped_storage().data_ptr() for tensor in read}
        views = all(tensor.untyped_storage().data_ptr() in memory for tensor in written)
        if function._schema.is_mutable or not (function.is_view or views):
            self.kernels += 1
            self.bytes += sum(tensor.numel() * tensor.element_size() for tensor in read + written)
        return output


def tensors(tree) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def work_of(shape: str) -> dict:
    """Kernels of a stacked step, and bytes and FLOP for each of its models, the whole batch at once."""
    one, tokens = SHAPES[shape], by_hand.TOKENS
    step = by_hand.Step([Transformer(one.model, seed) for seed in range(PAIR)], [TRAINING] * PAIR)
    batches = [one.task.batch(seed, 0) for seed in range(PAIR)]
    try:
        by_hand.TOKENS = 10**9
        step(batches)
        with Count() as count:
            step(batches)
    finally:
        by_hand.TOKENS = tokens
        step.release()
    flop = update_flop(one.model, tuple(batches[0].targets.shape))
    return {"kernels": count.kernels, "bytes": count.bytes // PAIR, "flop": flop}
