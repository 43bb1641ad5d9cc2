"""What heads do in exemplar–label sequences: where the query looks, and what comes of looking there.

    x₁   y₁   x₂   y₂   x_q → y₂            copying     the query looks at the label that is the answer
         └─ 1−s ───┴─ s ──┘                 imposing    we say where it looks, and read the answer
    x₁ ← y₁                                 layer 0     a label looks at its exemplar, or at itself

Layers count from 0; the paper's "layer 1" and "layer 2" are L0 and L1. Every measure takes a batch of
`FewShot` whose context holds the answer: all evaluators but IWL. `fwd_hooks` act while attention is measured.
Source: Singh et al. 2025 (https://arxiv.org/abs/2503.05631), sections 3–5 and figures 2, 3a and 14.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from iclkit.circuits.edges import ablate_edges, nodes
from iclkit.circuits.heads import check_head, label
from iclkit.hooks import HookFn, Name
from iclkit.model import Transformer
from iclkit.tasks.base import Batch
from iclkit.tasks.fewshot import in_context_accuracy

Hooks = Iterable[tuple[Name, HookFn]]
PARTS = ("correct", "other", "exemplars", "itself")


class LabelAttention(NamedTuple):
    """Attention from label positions to the exemplar just before, and to themselves."""

    previous: Float[Tensor, " head"]
    itself: Float[Tensor, " head"]


def induction_strength(
    model: Transformer, batch: Batch, layer: int | None = None, fwd_hooks: Hooks = ()
) -> Float[Tensor, " head"]:
    """Attention from the query to the correct label, minus that to another label; −1 … 1, for each head.

        Flip    A b | B a | A → b      attention to b − attention to a: + copies by context, − by its weights

    Several tokens of one label count together; of several other labels we take the mean. `layer` None is the
    last. `ValueError` where the answer is absent (IWL), or is the only label.
    """
    correct, alike = correct_places(batch), same_label(batch)
    others = (~alike.tril(-1).any(2)).sum(1) - 1
    if not others.all():
        raise ValueError(
            "induction strength compares labels: a context of this batch has no other label than the answer; "
            "give more pairs, or a smaller burst"
        )
    seen = query_row(model, batch, layer, fwd_hooks)[:, :, 1::2]
    rival = (seen * ~correct[:, None]).sum(2) / others[:, None]
    return ((seen * correct[:, None]).sum(2) - rival).mean(0)


def query_attention(
    model: Transformer, batch: Batch, layer: int | None = None, fwd_hooks: Hooks = ()
) -> Float[Tensor, "place head part"]:
    """Attention from the query to each of `PARTS`, which sum to 1, by the pair that bears the correct label.

        x₁         y₁       x₂         y₂     x_q → y₂            place 1 (the second pair)
        exemplars  other    exemplars  correct  itself

    Means over the sequences of each place; `.mean(0)` weighs places equally. `layer` None is the last.
    """
    correct, row = correct_places(batch), query_row(model, batch, layer, fwd_hooks)
    labels, itself = row[:, :, 1::2], row[:, :, -1]
    right = (labels * correct[:, None]).sum(2)
    parts = (right, labels.sum(2) - right, row[:, :, 0:-1:2].sum(2), itself)
    return over_places(torch.stack(parts, 2), correct)


def label_attention(
    model: Transformer, batch: Batch, layer: int = 0, fwd_hooks: Hooks = ()
) -> LabelAttention:
    """How much label positions attend to the exemplar before them, and to themselves, for each head.

    Means over label positions and over the sequences of each correct place, then over places.
    """
    correct, seen = correct_places(batch), pattern_of(model, batch, layer, fwd_hooks)
    previous = seen.diagonal(-1, 2, 3)[..., 0::2].mean(2)
    itself = seen.diagonal(0, 2, 3)[..., 1::2].mean(2)
    return LabelAttention(*(over_places(part, correct).mean(0) for part in (previous, itself)))


@torch.no_grad()
def impose_attention(
    model: Transformer,
    batch: Batch,
    heads: Iterable[int],
    strength: float,
    alone: bool = False,
    layer: int | None = None,
) -> Float[Tensor, "batch _ label"]:
    """Logits when the query of these heads attends `strength` to the correct label, the rest to the others.

        x₁  y₁   x₂  y₂  x_q → y₂
        0  1−s   0   s    0          shared evenly where several tokens are correct, or several are not

    All else is kept. With `alone`, what these heads write is all that the output reads: embeddings and other
    heads still feed queries, keys and values, but their direct paths to the output are cut.
    """
    layer, heads = last_layer(model, layer), list(heads)
    if not 0 <= strength <= 1:
        raise ValueError(f"strength is a share of attention, 0 … 1; got {strength}")
    correct = correct_places(batch)
    if correct.all(1).any():
        raise ValueError("a context of this batch has no other label than the answer to share attention with")
    hook = query_sees(model, layer, heads, shared(correct, strength))
    cut = direct_paths(model, {label(layer, head) for head in heads}) if alone else []
    return ablate_edges(model, cut, [hook])(batch.inputs)


def imposed_accuracy(
    model: Transformer,
    batch: Batch,
    strengths: Iterable[float] = tuple(i / 10 for i in range(11)),
    alone: bool = False,
    layer: int | None = None,
) -> Float[Tensor, "head strength"]:
    """In-context accuracy when each head by itself attends as `impose_attention` says, for each strength."""
    strengths, heads = list(strengths), range(model.config.n_heads)

    def accuracy(head: int, strength: float) -> float:
        return in_context_accuracy(impose_attention(model, batch, [head], strength, alone, layer), batch)

    return torch.tensor([[accuracy(head, strength) for strength in strengths] for head in heads])


def path_ablations(model: Transformer) -> dict[str, Callable[[Tensor], Tensor]]:
    """A two-layer model with one path after another taken away; each is a function `inputs → logits`.

        whole       nothing is removed
        direct      layer 0 → output; layer 1's queries, keys and values are as before
        Q, K, V     that, and layer 0 → layer 1's queries (keys, values) alone
        QKV         all three: layer 0 is ablated
        layer 1     layer 1 → output
        Emb         embeddings → output
        Emb alone   all but the embeddings → output

    What is removed is set to zero, and all that reads it is computed anew.
    """
    if model.config.n_layers != 2:
        raise ValueError(
            f"these paths are those of two layers; this model has {model.config.n_layers}: "
            "name its edges yourself with ablate_edges"
        )
    first, second = [n for n in nodes(model) if n[-1] == "0"], [n for n in nodes(model) if n[-1] == "1"]
    direct = [(a, b) for a in first for b in [*second[1:], "Out"]]
    into = {kind: [(a, f"Att1.{kind.lower()}") for a in first] for kind in "QKV"}
    cuts = {"direct": direct} | {kind: direct + into[kind] for kind in "QKV"}
    cuts["QKV"] = direct + [edge for kind in "QKV" for edge in into[kind]]
    cuts["layer 1"] = [(a, "Out") for a in second]
    cuts["Emb"] = direct_paths(model, set(nodes(model)[1:-1]))
    cuts["Emb alone"] = direct_paths(model, {"Emb"})
    return {"whole": model} | {name: ablate_edges(model, edges) for name, edges in cuts.items()}


def query_sees(
    model: Transformer, layer: int, heads: Iterable[int], row: Float[Tensor, "batch key"]
) -> tuple[Name, HookFn]:
    """A hook that gives the last position of these heads this row of attention."""
    heads = list(heads)
    for head in heads:
        check_head(model, layer, head)

    def see(pattern, hook):
        pattern = pattern.clone()
        pattern[:, heads, -1] = row[:, None]
        return pattern

    return ("pattern", layer), see


def direct_paths(model: Transformer, kept: set[str]) -> list[tuple[str, str]]:
    """The edges into the output from all but the nodes or heads that are `kept`."""
    senders = []
    for node in nodes(model)[:-1]:
        split = node.startswith("Att") and node not in kept
        heads = [label(int(node[3:]), head) for head in range(model.config.n_heads)] if split else [node]
        senders += [sender for sender in heads if sender not in kept]
    return [(sender, "Out") for sender in senders]


def shared(correct: Bool[Tensor, "batch pair"], strength: float) -> Float[Tensor, "batch key"]:
    """A row of attention: `strength` on the correct labels, the rest on the others, evenly."""
    row = torch.zeros(len(correct), 2 * correct.shape[1] + 1, device=correct.device)
    right, wrong = (x / x.sum(1, keepdim=True) for x in (correct, ~correct))
    row[:, 1::2] = strength * right + (1 - strength) * wrong
    return row


def correct_places(batch: Batch) -> Bool[Tensor, "batch pair"]:
    """Which pairs bear the answer to the query; `ValueError` where none does, or the batch holds no pairs.

    x₁ y₁ x₂ y₂ x_q → y₂         False True
    """
    inputs, targets = batch.inputs, batch.targets
    fits = inputs.ndim == 3 and inputs.shape[1] >= 3 and inputs.shape[1] % 2
    if not fits or (inputs[:, 1::2, -1] < 0).any() or (inputs[:, 0::2, -1] >= 0).any():
        raise ValueError(
            "expected a batch of exemplar–label pairs and a query, as FewShot.batch makes: "
            f"x₁ y₁ … x_q, [batch 2·pairs+1 d_features+1]; got inputs of shape {tuple(inputs.shape)}"
        )
    correct = inputs[:, 1::2, -1].long() == targets[:, -1:]
    if absent := int((~correct.any(1)).sum()):
        raise ValueError(
            f"the answer is absent from the context in {absent} of {len(correct)} sequences (as in IWL), so "
            "no label there is the correct one; use Train, ICL, Flip or CIWL, with bursty=1"
        )
    return correct


def same_label(batch: Batch) -> Bool[Tensor, "batch pair pair"]:
    """Whether two pairs bear the same label."""
    labels = batch.inputs[:, 1::2, -1]
    return labels[:, :, None] == labels[:, None, :]


def over_places(
    values: Float[Tensor, "batch ..."], correct: Bool[Tensor, "batch pair"]
) -> Float[Tensor, "pair ..."]:
    """Means over the sequences whose correct label stands in each pair."""
    if empty := [place for place, has in enumerate(correct.any(0)) if not has]:
        raise ValueError(
            f"no sequence of this batch has the correct label in pair {empty[0]}; give a larger batch"
        )
    return torch.stack([values[group].mean(0) for group in correct.unbind(1)])


def query_row(
    model: Transformer, batch: Batch, layer: int | None = None, fwd_hooks: Hooks = ()
) -> Float[Tensor, "batch head key"]:
    """The query's attention in one layer."""
    return pattern_of(model, batch, last_layer(model, layer), fwd_hooks)[:, :, -1]


@torch.no_grad()
def pattern_of(
    model: Transformer, batch: Batch, layer: int, fwd_hooks: Hooks = ()
) -> Float[Tensor, "batch head query key"]:
    """The pattern of one layer; `ValueError` for a layer the model lacks."""
    check_head(model, layer, 0)
    return model.run_with_cache(batch.inputs, [("pattern", layer)], fwd_hooks)[1]["pattern", layer]


def last_layer(model: Transformer, layer: int | None) -> int:
    return model.config.n_layers - 1 if layer is None else layer
