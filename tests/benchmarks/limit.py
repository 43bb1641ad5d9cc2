"""The limit: the model's own matrix products, forward and backward, back to back and nothing else.

    y = x W               1 product forward    2 backward   dx = dy Wᵀ, dW = xᵀ dy
    s = q kᵀ, z = p v     2 batched products   4 backward   dp = dz vᵀ, dv = pᵀ dz, dq = ds k, dk = dsᵀ q

Each product has operands and a result of its own, made beforehand. Attention's are whole squares: the half
above the diagonal, which a causal kernel may skip, is counted.
"""

import torch
from torch import Tensor

from benchmarks.shapes import Shape


def weight_sizes(shape: Shape) -> list[tuple[int, int]]:
    """(inputs, outputs) of every weight that multiplies activations; q, k and v are one product."""
    c = shape.model
    inner = c.n_heads * c.d_head
    layer = [(c.d_model, 3 * inner), (inner, c.d_model)]
    layer += [(c.d_model, c.d_mlp), (c.d_mlp, c.d_model)] if c.d_mlp else []
    return layer * c.n_layers + [(c.d_model, c.d_vocab_out)]


def flops(shape: Shape) -> float:
    """Multiplications and additions of these products in one step.

    6 N Σ n_in n_out  +  12 layers batch head seq² d_head,   with N = batch · seq
    """
    c, task = shape.model, shape.task
    rows = task.batch_size * task.length
    linear = 6 * rows * sum(a * b for a, b in weight_sizes(shape))
    return linear + 12 * c.n_layers * c.n_heads * c.d_head * rows * task.length


def has_bfloat16() -> bool:
    """Whether this processor multiplies bfloat16 in hardware; elsewhere it is many times slower."""
    known = torch.cpu.get_capabilities()
    return any(known.get(name) for name in ("avx512_bf16", "amx_bf16", "bf16"))


class Products:
    """All products of one step."""

    parameters, stride = None, 1

    def __init__(self, shape: Shape, dtype: torch.dtype = torch.float32):
        c, task = shape.model, shape.task
        rows, squares = task.batch_size * task.length, task.batch_size * c.n_heads

        def made(*sizes: int) -> Tensor:
            return torch.randn(sizes).to(dtype)

        linear = [(made(rows, a), made(a, b), made(rows, b)) for a, b in weight_sizes(shape)]
        side = (squares, task.length, c.d_head)
        qkvz = [tuple(made(*side) for _ in range(4)) for _ in range(c.n_layers)]
        patterns = [made(squares, task.length, task.length) for _ in range(c.n_layers)]
        pairs = [pair for x, w, dy in linear for pair in ((x, w), (dy, w.T), (x.T, dy))]
        batched = [
            pair
            for (q, k, v, dz), p in zip(qkvz, patterns)
            for pair in ((q, k.mT), (p, v), (dz, v.mT), (p.mT, dz), (p, k), (p.mT, q))
        ]
        self.linear = [(a, b, torch.mm(a, b)) for a, b in pairs]
        self.batched = [(a, b, torch.bmm(a, b)) for a, b in batched]

    @torch.no_grad()
    def advance(self) -> float:
        for a, b, out in self.linear:
            torch.mm(a, b, out=out)
        for a, b, out in self.batched:
            torch.bmm(a, b, out=out)
        return 0.0


def build(shape: Shape, batches, precision: str = "float32") -> Products:
    """The products in one precision; `ValueError` for bfloat16 where the processor has none."""
    if precision == "bfloat16" and not has_bfloat16():
        raise ValueError("this processor has no bfloat16 products")
    return Products(shape, getattr(torch, precision))


class Batches:
    """Making one batch of the task after the other: what data cost, apart from the step."""

    parameters, stride = None, 1

    def __init__(self, shape: Shape, batches):
        self.task, self.made = shape.task, 0

    def advance(self) -> float:
        self.task.batch(0, self.made)
        self.made += 1
        return 0.0
