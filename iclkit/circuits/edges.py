"""Path patching: corrupt single edges of the graph that a transformer is.

    Emb ─┬─→ Att0 ─┬─→ MLP0 ─┬─→ Att1 ─┬─→ MLP1 ─┬─→ Out        every node reads the sum of all earlier ones
         └─────────┴─────────┴─────────┴─────────┘

Each node reads its own version of the residual stream: over a patched edge it receives what the sender wrote
in the corrupted run, over every other edge what the sender writes now. No edge patched is the clean run; all
edges patched is the corrupted run.

    senders     Emb (token and absolute position)   Att0 (a layer's heads)   L0H1 (one head)   MLP0
    receivers   Att1   L1H2   MLP1   Out, and one kind of input alone:   Att1.q   L1H2.k   L1H2.v

Sources: Wang et al. 2022 (https://arxiv.org/abs/2211.00593) for path patching; here MLPs between sender and
receiver are frozen as heads are, so that the path patched is the edge itself.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

import torch
from torch import Tensor

from iclkit.circuits.heads import check_head, label
from iclkit.circuits.patching import Metric, normalised, same_shape
from iclkit.hooks import HookFn, Name
from iclkit.model import Transformer

Edge = tuple[str, str]
HOW = ("resample", "mean")
NODE = re.compile(r"(Emb|Out)|Att(\d+)(?:\.([qkv]))?|L(\d+)H(\d+)(?:\.([qkv]))?|MLP(\d+)")


def nodes(model: Transformer) -> list[str]:
    """`["Emb", "Att0", "MLP0", …, "Out"]`, in the order they act."""
    mlp, layers = bool(model.config.d_mlp), range(model.config.n_layers)
    return ["Emb", *(n for layer in layers for n in [f"Att{layer}", f"MLP{layer}"][: 1 + mlp]), "Out"]


def all_edges(model: Transformer) -> list[Edge]:
    """Every pair of `nodes`, earlier → later: 15 for two layers with MLPs, 6 without."""
    names = nodes(model)
    return [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]


def patch_edges(model: Transformer, clean: Tensor, corrupted: Tensor, edges: Iterable[Edge]) -> Tensor:
    """Logits of the clean run with these edges carrying the corrupted run's values.

    patch_edges(model, clean, corrupted, [("L0H0", "L1H0.k"), ("Emb", "Out")])
    """
    return edge_patcher(model, clean, corrupted)(edges)


def edge_patcher(
    model: Transformer, clean: Tensor, corrupted: Tensor, how: str = "resample"
) -> Callable[[Iterable[Edge]], Tensor]:
    """`patch_edges` with the corrupted run done once: a function `edges → logits`.

    `how="mean"` patches with what senders write in the corrupted runs on average, place by place.
    """
    wrote = stand_ins(model, clean, corrupted, how)

    @torch.no_grad()
    def patched(edges: Iterable[Edge]) -> Tensor:
        return model.run_with_hooks(clean, _hooks(model, _by_receiver(model, edges), wrote))

    return patched


def ablate_edges(
    model: Transformer, edges: Iterable[Edge], fwd_hooks: Iterable[tuple[Name, HookFn]] = ()
) -> Callable[[Tensor], Tensor]:
    """A function with the model's signature, `inputs → logits`, in which these edges carry nothing.

    ablate_edges(model, [("Att0", "Out"), ("Att0", "Att1.q")])     layer 0 reaches the keys and values alone

    `fwd_hooks` act in the same run, such as a pattern that is imposed.
    """
    _check_layers(model)
    into, fwd_hooks = _by_receiver(model, edges), list(fwd_hooks)

    @torch.no_grad()
    def ablated(inputs: Tensor) -> Tensor:
        return model.run_with_hooks(inputs, [*fwd_hooks, *_hooks(model, into, defaultdict(float))])

    return ablated


@torch.no_grad()
def path_patch(
    model: Transformer,
    clean: Tensor,
    corrupted: Tensor,
    sender: str,
    receivers: str | Iterable[str],
    metric: Metric,
) -> float:
    """The metric when only the direct paths sender → receivers are corrupted: 1 = clean, 0 = corrupted.

    Everything else that the receivers read stays as in the clean run; what comes after them is computed anew.
    path_patch(model, clean, corrupted, "L0H0", ["L1H0.k"], metric)
    """
    receivers = [receivers] if isinstance(receivers, str) else list(receivers)
    scaled = normalised(metric, model(clean), model(corrupted))
    return scaled(patch_edges(model, clean, corrupted, [(sender, receiver) for receiver in receivers]))


@torch.no_grad()
def stand_ins(model: Transformer, clean: Tensor, corrupted: Tensor, how: str) -> dict[str, Tensor]:
    """What every single sender wrote in the corrupted run, or the batch's mean: `[batch seq d_model]`."""
    same_shape(clean, corrupted)
    _check_layers(model)
    if how not in HOW:
        raise ValueError(f"how must be one of {', '.join(HOW)}; got {how!r}")
    wrote = _by_sender(model, model.run_with_cache(corrupted, _output_points(model))[1])
    if how == "mean":
        wrote = {sender: x.mean(0, keepdim=True).expand_as(x) for sender, x in wrote.items()}
    return wrote


def _check_layers(model: Transformer) -> None:
    if not model.config.n_layers:
        raise ValueError("this model has no layers (n_layers=0), so its only edge is Emb → Out")


def _by_receiver(model: Transformer, edges: Iterable[Edge]) -> dict[str, set[str]]:
    """Which single senders are meant, for each single input that receives them."""
    into = defaultdict(set)
    for edge in edges:
        if not isinstance(edge, (tuple, list)) or len(edge) != 2:
            raise ValueError(f"edges are pairs (sender, receiver), such as [('Emb', 'Out')]; got {edge!r}")
        for sender, receiver in _atoms(model, *edge):
            into[receiver].add(sender)
    return into


def _output_points(model: Transformer) -> list[tuple[str, int]]:
    names = ["result", "mlp_out"] if model.config.d_mlp else ["result"]
    return [("resid_pre", 0), *((name, layer) for layer in range(model.config.n_layers) for name in names)]


def _by_sender(model: Transformer, cache) -> dict[str, Tensor]:
    """What every single sender wrote: Emb, each head, each MLP."""
    wrote = {"Emb": cache["resid_pre", 0]}
    for layer in range(model.config.n_layers):
        for head in range(model.config.n_heads):
            wrote[label(layer, head)] = cache["result", layer][:, :, head]
        if model.config.d_mlp:
            wrote[f"MLP{layer}"] = cache["mlp_out", layer]
    return wrote


def _hooks(model: Transformer, into: dict[str, set[str]], wrote: Mapping[str, Tensor | float]) -> list[tuple]:
    """Keep what senders write in this run, and give each receiver of `into` its own version of the stream."""
    now: dict[str, Tensor] = {}

    def keep(tensor, hook):
        if hook.name.endswith("hook_result"):
            now.update({label(hook.layer(), head): t for head, t in enumerate(tensor.unbind(2))})
        else:
            now["Emb" if hook.name.endswith("resid_pre") else f"MLP{hook.layer()}"] = tensor

    def change(receiver: str) -> Tensor | float:
        return sum((wrote[sender] - now[sender] for sender in sorted(into.get(receiver, ()))), 0.0)

    def into_heads(tensor, hook):
        kind = hook.name.removesuffix("_input")[-1]
        return torch.stack(
            [x + change(f"{label(hook.layer(), head)}.{kind}") for head, x in enumerate(tensor.unbind(2))], 2
        )

    def into_mlp(tensor, hook):
        return tensor + change(f"MLP{hook.layer()}")

    def into_out(tensor, hook):
        return tensor + change("Out")

    hooks = [(point, keep) for point in _output_points(model) if into]
    for layer in range(model.config.n_layers):
        if any(receiver.startswith(f"L{layer}H") for receiver in into):
            hooks += [((f"{kind}_input", layer), into_heads) for kind in "qkv"]
        hooks += [(("mlp_in", layer), into_mlp)] if f"MLP{layer}" in into else []
    return hooks + [(("resid_post", model.config.n_layers - 1), into_out)] * ("Out" in into)


def _atoms(model: Transformer, sender: str, receiver: str) -> list[Edge]:
    """An edge as edges between single senders and single inputs: Att0 is its heads, L1H0 its q, k and v."""
    senders, when = _parse(model, sender)
    receivers, then = _parse(model, receiver)
    if "." in sender or sender == "Out":
        raise ValueError(
            f"{sender!r} cannot send; expected Emb, a layer or head such as Att0 or L0H1, or MLP0"
        )
    if receiver == "Emb" or when >= then:
        raise ValueError(f"there is no edge {sender} → {receiver}: a node reads earlier ones only")
    if not receiver.startswith(("MLP", "Out")):
        receivers = [
            r if "." in r else f"{r}.{kind}" for r in receivers for kind in ("q" if "." in r else "qkv")
        ]
    return [(s, r) for s in senders for r in receivers]


def _parse(model: Transformer, name: str) -> tuple[list[str], int]:
    """The single nodes that a name stands for, and when they act."""
    c, match = model.config, NODE.fullmatch(name) if isinstance(name, str) else None
    end, att, att_kind, layer, head, _, mlp = match.groups() if match else [None] * 7
    at = next((int(n) for n in (att, layer, mlp) if n is not None), 0)
    if not match or at >= max(c.n_layers, 1) or (mlp and not c.d_mlp):
        raise ValueError(
            f"this model has no node {name!r}; it has {', '.join(nodes(model))}, single heads such as L0H0, "
            "and (to receive) their inputs such as Att0.q or L0H0.k"
        )
    if end:
        return [name], -1 if name == "Emb" else 2 * c.n_layers
    if mlp:
        return [name], 2 * at + 1
    if att:
        suffix = f".{att_kind}" if att_kind else ""
        return [label(at, h) + suffix for h in range(c.n_heads)], 2 * at
    check_head(model, at, int(head))
    return [name], 2 * at
