"""Looking at a model and touching it: named points in the forward pass.

Every activation of a `Transformer` passes one named point. Whoever wants to see or to replace it says so for
one call; when the call ends, nothing is left behind. Names are TransformerLens's.
"""

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

OUTSIDE = {"embed": "hook_embed", "pos_embed": "hook_pos_embed"}
IN_BLOCK = (
    "resid_pre",
    "q_input",
    "k_input",
    "v_input",
    "attn_out",
    "resid_mid",
    "mlp_in",
    "mlp_out",
    "resid_post",
)
IN_ATTENTION = ("q", "k", "v", "attn_scores", "pattern", "z", "result")
IN_MLP = {"pre": "mlp.hook_pre", "post": "mlp.hook_post"}
ON_REQUEST = ("hook_q_input", "hook_k_input", "hook_v_input", "hook_mlp_in")


@dataclass(frozen=True)
class Hook:
    """The place a hook function is called from: `hook.name`, `hook.layer()`."""

    name: str

    def layer(self) -> int:
        """The layer of this point; `ValueError` for a point outside the blocks."""
        parts = self.name.split(".")
        if parts[0] != "blocks":
            raise ValueError(
                f"{self.name!r} lies outside the layers; expected a name that starts with 'blocks.'"
            )
        return int(parts[1])


Name = str | tuple[str, int] | Callable[[str], bool]
HookFn = Callable[[Tensor, Hook], Tensor | None]


def full_name(name: str | tuple[str, int]) -> str:
    """The full name of a point: `("pattern", 1)` is `"blocks.1.attn.hook_pattern"`; full ones pass."""
    if isinstance(name, str):
        return OUTSIDE.get(name, name)
    if not isinstance(name, (tuple, list)) or len(name) != 2:
        raise KeyError(
            "an activation is named by its full name or by (name, layer), such as ('pattern', 1); "
            f"got {name!r}"
        )
    short, layer = name
    if short in IN_BLOCK:
        return f"blocks.{layer}.hook_{short}"
    if short in IN_ATTENTION:
        return f"blocks.{layer}.attn.hook_{short}"
    if short in IN_MLP:
        return f"blocks.{layer}.{IN_MLP[short]}"
    return f"blocks.{layer}.{short}"


def resolve(name: Name, known: tuple[str, ...], whose: str = "this model has") -> list[str]:
    """All points that `name` stands for; `KeyError` with the nearest right names when there is none."""
    if callable(name):
        found = [point for point in known if name(point)]
        if not found:
            raise KeyError(f"no activation name satisfies the given predicate; this model has {list(known)}")
        return found
    full = full_name(name)
    if full in known:
        return [full]
    wanted = full.split(".")[-1]
    near = difflib.get_close_matches(full, known, 3, 0.5)
    near += [
        point for point in known if point.split(".")[-1].removeprefix("hook_") == wanted.removeprefix("hook_")
    ]
    hint = f"nearest: {', '.join(dict.fromkeys(near))}" if near else f"known: {', '.join(known)}"
    raise KeyError(f"{whose} no activation named {name!r}; {hint}")


def resolve_all(names: Iterable[Name], known: tuple[str, ...]) -> list[str]:
    """The points of several names; `ValueError` for a single name, which is no list of names."""
    if isinstance(names, str):
        raise ValueError(f"expected a list of names, such as [{names!r}]; got {names!r}")
    return [point for name in names for point in resolve(name, known)]


def hook_names(config) -> tuple[str, ...]:
    """The names of all points a model of this shape has, in the order the forward passes them."""
    norm = ("hook_scale", "hook_normalized") if config.layer_norm else ()
    names = ["hook_embed"] + ["hook_pos_embed"] * (config.positions == "absolute")
    for layer in range(config.n_layers):
        block = f"blocks.{layer}"
        names += [f"{block}.hook_{n}" for n in ("resid_pre", "q_input", "k_input", "v_input")]
        names += [f"{block}.ln1.{n}" for n in norm]
        names += [f"{block}.attn.hook_{n}" for n in ("q", "k", "v", "attn_scores", "pattern", "z", "result")]
        names += [f"{block}.hook_attn_out"]
        if config.d_mlp:
            names += [f"{block}.hook_resid_mid", f"{block}.hook_mlp_in"] + [f"{block}.ln2.{n}" for n in norm]
            names += [f"{block}.mlp.hook_pre", f"{block}.mlp.hook_post", f"{block}.hook_mlp_out"]
        names += [f"{block}.hook_resid_post"]
    return tuple(names + [f"ln_final.{n}" for n in norm])


class Taps:
    """The functions that one forward call passes its activations through.

    `taps(name, x)` gives x to each function registered for that name, in order; a returned tensor replaces x.
    """

    def __init__(self, known: tuple[str, ...] = (), fwd_hooks: Iterable[tuple[Name, HookFn]] = ()):
        self.functions: dict[str, list[HookFn]] = {}
        for pair in fwd_hooks:
            if not isinstance(pair, (tuple, list)) or len(pair) != 2 or not callable(pair[1]):
                raise ValueError(f"fwd_hooks is a list of pairs (name, function); got {pair!r} in it")
            name, function = pair
            for point in resolve(name, known):
                self.functions.setdefault(point, []).append(function)

    def wants(self, *names: str) -> bool:
        """Whether anybody looks at one of these points."""
        return any(name in self.functions for name in names)

    def __call__(self, name: str, tensor: Tensor) -> Tensor:
        for function in self.functions.get(name, ()):
            replaced = function(tensor, Hook(name))
            if replaced is None:
                continue
            fits = isinstance(replaced, Tensor) and replaced.shape == tensor.shape
            if not fits or replaced.dtype != tensor.dtype:
                got = tuple(replaced.shape) if isinstance(replaced, Tensor) else type(replaced).__name__
                raise ValueError(
                    f"the hook at {name!r} returned {replaced.dtype if fits else got}; "
                    f"expected None or a tensor of {tuple(tensor.shape)}, {tensor.dtype}"
                )
            tensor = replaced
        return tensor


NO_TAPS = Taps()


class ActivationCache(Mapping[str | tuple[str, int], Tensor]):
    """What one run left behind: `cache["pattern", 1]`, or `cache["blocks.1.attn.hook_pattern"]`."""

    def __init__(self, activations: dict[str, Tensor]):
        self.activations = activations

    def __getitem__(self, name: str | tuple[str, int]) -> Tensor:
        full = full_name(name)
        if full in self.activations:
            return self.activations[full]
        if full.split(".")[-1] in ON_REQUEST:
            raise KeyError(f"{full!r} is kept only on request: run_with_cache(tokens, names=[{full!r}])")
        return self.activations[resolve(name, tuple(self.activations), "this cache holds")[0]]

    def __iter__(self) -> Iterator[str]:
        return iter(self.activations)

    def __len__(self) -> int:
        return len(self.activations)

    def __repr__(self) -> str:
        return f"ActivationCache({len(self)} activations: {', '.join(self)})"

    def stack(self, short: str, n_layers: int) -> Tensor:
        """One activation of every layer, `[layer ...]`: `cache.stack("pattern", 2)`."""
        return torch.stack([self[short, layer] for layer in range(n_layers)])
