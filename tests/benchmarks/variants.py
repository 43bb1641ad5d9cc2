"""Who is timed: every variant by a short key, what builds it, and where it cannot run."""

import importlib
from dataclasses import dataclass, field, replace

from benchmarks import shapes
from benchmarks.shapes import SHAPES, Shape
from iclkit.model import Transformer

BATCHES = 8
KEPT = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**40)}


@dataclass(frozen=True)
class Variant:
    """`build` names a function (shape, batches, **options) → trainer; `crew` counts its processes."""

    label: str
    build: str
    options: dict = field(default_factory=dict)
    only: tuple[str, ...] = ()
    environment: dict = field(default_factory=dict)
    crew: int = 1
    gap: str = ""


ONE = {
    "ours": Variant("iclkit", "ours:one"),
    "ours-bfloat16": Variant("iclkit, bfloat16", "ours:one", {"precision": "bfloat16"}),
    "ours-compiled": Variant("iclkit, compiled", "ours:one", {"compile": True}, only=("markov", "few-shot")),
    "plain": Variant("plain PyTorch", "plain:build"),
    "plain-kept": Variant("plain PyTorch, memory kept", "plain:build", environment=KEPT),
    "plain-compiled": Variant("plain PyTorch, compiled", "plain:build", {"compiled": True}),
    "hugging-face": Variant("Hugging Face GPT-2", "peers:hugging_face"),
    "x-transformers": Variant("x-transformers", "peers:x_transformers", gap="peers:norm_biases"),
    "transformer-lens": Variant("TransformerLens", "peers:transformer_lens"),
    "torch-encoder": Variant("torch.nn.TransformerEncoder", "peers:torch_encoder"),
    "jax": Variant("plain JAX, jit", "jaxed:plain_jax"),
    "jax-scan": Variant("plain JAX, jit, 32 steps a call", "jaxed:scanned", only=("few-shot",)),
    "equinox": Variant("equinox, jit", "jaxed:equinox"),
    "limit": Variant("matrix products alone, float32", "limit:build"),
    "limit-bfloat16": Variant("matrix products alone, bfloat16", "limit:build", {"precision": "bfloat16"}),
    "batches": Variant("making the batches (not a step)", "limit:Batches"),
}
MANY = {
    "stack": Variant("iclkit, one stack", "ours:Ours"),
    "stack-processes": Variant("iclkit, 2 processes of one thread", "ours:Ours", crew=2),
    "ours-loop": Variant("loop over iclkit", "ours:loop"),
    "loop": Variant("loop over plain PyTorch", "many:loop"),
    "processes": Variant("loop, 2 processes of one thread", "many:loop", crew=2),
    "vmap": Variant("torch.func.vmap of plain PyTorch", "many:Vmapped"),
    "jax-vmap": Variant("plain JAX, jit of vmap", "jaxed:vmapped"),
}
AXES = {
    "sequence": ((64, 128, 256, 512, 1024), ("ours", "plain")),
    "width": ((32, 64, 128, 256), ("ours", "plain")),
    "models": ((1, 2, 4, 8, 16), ("stack", "loop")),
    "chains": ((1, 16, 256, 4096), ("batches",)),
}


def called(name: str):
    """The function "module:function" of this package."""
    module, function = name.split(":")
    return getattr(importlib.import_module(f"benchmarks.{module}"), function)


def shape_of(key: str) -> tuple[Shape, int]:
    """The shape of a key and its number of models: `markov`, or a point of an axis such as `sequence=256`."""
    if key in SHAPES:
        return SHAPES[key], shapes.MANY
    axis, value = key.split("=")
    if axis == "models":
        return SHAPES["few-shot"], int(value)
    if axis == "chains":
        return replace(SHAPES["markov"], task=shapes.MarkovChains(K=int(value))), 1
    sizes = {"length": 128, "batch_size": 16, "d_model": 64}
    return shapes.markov(**sizes | {{"sequence": "length", "width": "d_model"}[axis]: int(value)}), 1


def models_of(part: str, shape: str) -> int:
    """How many models one step of a cell trains."""
    several = part == "many" or shape.startswith("models=")
    return shape_of(shape)[1] if several else 1


def find(part: str, shape: str, variant: str) -> Variant:
    """The variant of a key; the eight models and the axis `models` have a list of their own."""
    several = part == "many" or shape.startswith("models=")
    return (MANY if several else ONE)[variant]


def build(part: str, shape: str, variant: str, member: int = 0):
    """The trainer of one process: one model, or its share of the models, with batches made beforehand.

    Raises `ValueError` when it trains another number of parameters than ours, documented gaps aside.
    """
    chosen, (built, models) = find(part, shape, variant), shape_of(shape)
    make = called(chosen.build)
    if chosen is ONE.get(variant):
        mine, batches = [0], built.batches(BATCHES)
    else:
        mine = range(member, models, chosen.crew)
        batches = [built.batches(BATCHES, seed) for seed in mine]
    trainer, expected = make(built, batches, **chosen.options), len(mine) * parameters(built, chosen)
    if trainer.parameters not in (None, expected):
        raise ValueError(f"expected {expected} trained parameters; {chosen.label} has {trainer.parameters}")
    return trainer


def parameters(shape: Shape, variant: Variant) -> int:
    """How many parameters the variant must train: ours, less what its `gap` documents."""
    ours = sum(weight.numel() for weight in Transformer(shape.model).parameters())
    return ours - (called(variant.gap)(shape) if variant.gap else 0)
