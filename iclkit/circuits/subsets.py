"""Every subset of the edges: which part of the graph suffices, and which is the smallest?

    kept edge      carries what its sender writes now
    other edge     carries what the sender wrote in the corrupted run (or there on average: `how="mean"`)

    subset number   0                   nothing kept: the corrupted run
                    Σ 2^i               edge i of `all_edges(model)` kept, for each i in the sum
                    2^edges − 1         everything kept: the clean run

A node's value depends on the edges before it alone. So the subsets are a tree: two layers with MLPs need 2
runs of Att0, 8 of MLP0, 64 of Att1, 1,024 of MLP1 and 32,768 of Out, the last two at one place. LayerNorms
belong to their readers and are computed anew.
Source: Gibson, Cui & Reddy 2026 (https://arxiv.org/abs/2604.12151) patch every connection between layers.
"""

from collections.abc import Callable, Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from iclkit.circuits.edges import Edge, all_edges, nodes, stand_ins
from iclkit.hooks import NO_TAPS
from iclkit.model import Transformer
from iclkit.tasks.base import check_whole

MOST = 15


@torch.no_grad()
def every_subset(
    model: Transformer,
    clean: Tensor,
    corrupted: Tensor,
    measure: Callable[[Float[Tensor, "subset batch vocab"]], Float[Tensor, " subset"]],
    how: str = "resample",
) -> Float[Tensor, " subsets"]:
    """`measure` of the last position's logits with each subset of edges kept, by the subset's number.

    every_subset(model, clean, corrupted, lambda logits: logits[..., 3].mean(1))      [2 ** 15]
    Raises `ValueError` for models of more than 15 edges, and for a measure that is no number a subset.
    """
    if (number := len(all_edges(model))) > MOST:
        raise ValueError(f"this model has {number} edges and 2^{number} subsets; at most {MOST} are tried")
    other = _by_node(model, stand_ins(model, clean, corrupted, how))
    first = model.run_with_cache(clean, [("resid_pre", 0)])[1]["resid_pre", 0]
    values = torch.zeros(2**number)
    for numbers, logits in _runs(model, first[None], other, torch.zeros(1, dtype=torch.int64)):
        found = torch.as_tensor(measure(logits))
        if found.shape != numbers.shape or not found.isfinite().all():
            raise ValueError(
                f"measure gives a finite number for each of {len(numbers)} subsets, from their logits "
                f"[subset batch vocab], as logits[..., 3].mean(1) does; got {list(found.shape)}: {found}"
            )
        values[numbers] = found.float()
    return values


def edges_in(model: Transformer, subset: int) -> list[Edge]:
    """The edges that a subset's number stands for; `ValueError` for a number that no subset has."""
    edges = all_edges(model)
    check_whole("subset", subset)
    if not 0 <= subset < 2 ** len(edges):
        raise ValueError(f"this model's subsets are 0 … 2^{len(edges)} − 1; got {subset}")
    return [edge for bit, edge in enumerate(edges) if subset >> bit & 1]


def smallest(shares: Float[Tensor, " subsets"], least: float = 0.9) -> list[int]:
    """The numbers of the subsets with fewest edges among those with a share ≥ `least`, the best one first."""
    _check_shares(shares)
    sizes = torch.tensor([bin(subset).count("1") for subset in range(len(shares))])
    enough = shares >= least
    if not enough.any():
        raise ValueError(f"no subset reaches {least:g}; the best share is {shares.max():.3g}")
    fewest = (enough & (sizes == sizes[enough].min())).nonzero()[:, 0]
    return fewest[shares[fewest].argsort(descending=True)].tolist()


def without_each(shares: Float[Tensor, " subsets"]) -> Float[Tensor, " edges"]:
    """The share that is left when one edge alone is cut, for each edge."""
    _check_shares(shares)
    whole = len(shares) - 1
    return shares[[whole ^ (1 << bit) for bit in range(whole.bit_length())]]


def _check_shares(shares: Tensor) -> None:
    if shares.dim() != 1 or len(shares) < 2 or len(shares) & (len(shares) - 1) or not shares.isfinite().all():
        raise ValueError(
            "expected a finite share for each of 2^edges subsets, as every_subset gives them; "
            f"got {list(shares.shape)}: {shares}"
        )


def _runs(model: Transformer, now: Tensor, other: Tensor, number: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Subset numbers and their logits, given what the first nodes write: `now` [sender batch seq d_model]."""
    name = nodes(model)[len(now)]
    if name in ("Out", f"MLP{model.config.n_layers - 1}"):
        now, other = now[:, :, -1:], other[:, :, -1:]
    kept = torch.arange(2 ** len(now))[:, None] >> torch.arange(len(now)) & 1
    gap = (now - other[: len(now)]).flatten(1)
    streams = (kept.to(gap) @ gap).unflatten(1, now.shape[1:]) + other[: len(now)].sum(0)
    bits = torch.tensor([1 << all_edges(model).index((sender, name)) for sender in nodes(model)[: len(now)]])
    numbers = number + kept @ bits
    wrote = _node(model, name, streams.flatten(0, 1)).unflatten(0, streams.shape[:2])
    if name == "Out":
        yield numbers, wrote[:, :, -1]
        return
    for variant, each in zip(wrote, numbers):
        yield from _runs(model, torch.cat([now, variant[None]]), other, each)


def _node(model: Transformer, name: str, stream: Float[Tensor, "batch seq d_model"]) -> Tensor:
    """What a node writes when it reads this stream."""
    if name == "Out":
        return model.ln_final(stream, NO_TAPS) @ model.W_U
    block = model.blocks[int(name[3:])]
    if name.startswith("Att"):
        return block.attn(stream, block.ln1, model.positions, NO_TAPS)
    return block.mlp(block.ln2(stream, NO_TAPS), NO_TAPS)


def _by_node(model: Transformer, wrote: dict[str, Tensor]) -> Float[Tensor, "sender batch seq d_model"]:
    """What was written by node: the heads of a layer are summed."""
    found = []
    for name in nodes(model)[:-1]:
        heads = [f"L{name[3:]}H{head}" for head in range(model.config.n_heads)]
        found.append(sum(wrote[head] for head in heads) if name.startswith("Att") else wrote[name])
    return torch.stack(found)
