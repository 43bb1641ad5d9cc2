"""Causal attention and its derivative, by rows of queries that see no key after themselves.

    z = softmax(q kᵀ / √d_head + mask) v            row blocks:   ▛      keys 0 … 63 for queries 0 … 63
                                                                  ▛▀▖    keys 0 … 127 for queries 64 … 127

The products above the blocks are never taken, and each block is small enough to stay in cache. For a handful
of positions, products of 5 × 5 matrices cost more in calls than in arithmetic: there sums over broadcast
products run along all sequences and heads at once.
"""

import math

import torch
from torch import Tensor

BLOCK, FEW = 64, 8
aten = torch.ops.aten


class Attention:
    """Forward and backward for sequences of `length`; keeps nothing between the two but what it returns."""

    def __init__(self, length: int, n_heads: int, d_head: int, like: Tensor):
        self.length, self.heads, self.d_head = length, n_heads, d_head
        self.scale, self.few = d_head**-0.5, length <= FEW
        self.mask = like.new_full((length, length), -math.inf).triu(1)
        self.forward = self.forward_few if self.few else self.forward_blocks
        self.backward = self.backward_few if self.few else self.backward_blocks

    def split(self, joined: Tensor, parts: int) -> Tensor:
        """`[… seq, parts · head · d_head]` to `[part, sequence and head, seq, d_head]`, contiguous.

        For a few positions, to `[part, d_head, seq, sequence and head]`.
        """
        x = joined.view(-1, self.length, parts, self.heads, self.d_head)
        if self.few:
            return x.permute(2, 4, 1, 0, 3).reshape(parts, self.d_head, self.length, -1)
        return x.permute(2, 0, 3, 1, 4).reshape(parts, -1, self.length, self.d_head)

    def join(self, split: Tensor, like: Tensor) -> Tensor:
        """The inverse of `split`."""
        parts = split.shape[0]
        if self.few:
            x = split.view(parts, self.d_head, self.length, -1, self.heads).permute(3, 2, 0, 4, 1)
        else:
            x = split.view(parts, -1, self.heads, self.length, self.d_head).permute(1, 3, 0, 2, 4)
        return x.reshape(*like.shape[:-1], parts * self.heads * self.d_head)

    def forward_blocks(self, qkv: Tensor) -> tuple[Tensor, tuple]:
        q, k, v = split = self.split(qkv, 3)
        q.mul_(self.scale)
        patterns, mixed = [], []
        for start in range(0, self.length, BLOCK):
            rows, seen = slice(start, start + BLOCK), slice(0, start + BLOCK)
            scores = torch.bmm(q[:, rows], k[:, seen].transpose(1, 2))
            scores[:, :, start:].add_(self.mask[rows, rows])
            patterns.append(aten._softmax.out(scores, -1, False, out=scores))
            mixed.append(torch.bmm(scores, v[:, seen]))
        z = mixed[0] if len(mixed) == 1 else torch.cat(mixed, 1)
        return self.join(z[None], qkv), (split, patterns)

    def backward_blocks(self, dz: Tensor, kept: tuple) -> Tensor:
        (q, k, v), patterns = kept
        dz_joined, (dz,) = dz, self.split(dz, 1)
        grads = dz.new_empty(3, *dz.shape)
        dq, dk, dv = grads
        last = len(patterns) - 1
        for block in range(last, -1, -1):
            pattern, start = patterns[block], block * BLOCK
            rows, seen = slice(start, start + BLOCK), slice(0, start + BLOCK)
            d = torch.bmm(dz[:, rows], v[:, seen].transpose(1, 2))
            d = aten._softmax_backward_data.out(d, pattern, -1, d.dtype, grad_input=d)
            torch.mul(torch.bmm(d, k[:, seen]), self.scale, out=dq[:, rows])
            if block == last:
                torch.bmm(pattern.transpose(1, 2), dz[:, rows], out=dv)
                torch.bmm(d.transpose(1, 2), q[:, rows], out=dk)
            else:
                dv[:, seen].add_(torch.bmm(pattern.transpose(1, 2), dz[:, rows]))
                dk[:, seen].add_(torch.bmm(d.transpose(1, 2), q[:, rows]))
        return self.join(grads, dz_joined)

    def forward_few(self, qkv: Tensor) -> tuple[Tensor, tuple]:
        q, k, v = split = self.split(qkv, 3)
        scores = (q[:, :, None] * k[:, None]).sum(0).mul_(self.scale).add_(self.mask[:, :, None])
        pattern = scores.softmax(1)
        return self.join((pattern * v[:, None]).sum(2)[None], qkv), (split, pattern)

    def backward_few(self, dz: Tensor, kept: tuple) -> Tensor:
        (q, k, v), pattern = kept
        dz_joined, (dz,) = dz, self.split(dz, 1)
        grads = dz.new_empty(3, *dz.shape)
        dz = dz[:, :, None]
        torch.sum(pattern * dz, 1, out=grads[2])
        d = (dz * v[:, None]).sum(0)
        d = aten._softmax_backward_data(d, pattern, 1, d.dtype).mul_(self.scale)
        torch.sum(d * k[:, None], 2, out=grads[0])
        torch.sum(d * q[:, :, None], 1, out=grads[1])
        return self.join(grads, dz_joined)
