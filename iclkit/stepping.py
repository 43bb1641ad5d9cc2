"""How one update is computed: by hand where the derivative is written out, by autograd everywhere else.

Both give the same numbers to rounding; `train` chooses, and a reader need not know. By hand covers plain
models (positions absolute, shortformer or none) that nobody hooks into; see `iclkit.fast`.
"""

import copy
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import cache

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from iclkit.fast.graph import Replayed
from iclkit.fast.step import Step
from iclkit.hooks import HookFn, Name, Taps
from iclkit.model import ACTIVATIONS, MLP, Transformer, TransformerConfig
from iclkit.pairs import PairInputs, answers_last, pair_transformer, reads_as_built
from iclkit.tasks import Batch

PRECISIONS = ("float32", "bfloat16")
BY_HAND = ("absolute", "shortformer", "none")


def cross_entropy(logits: Tensor, batch: Batch) -> Tensor:
    """Mean −log p(target) in nats over the positions that count."""
    for name, part in (("targets", batch.targets), ("mask", batch.mask)):
        if part is not None and part.shape != logits.shape[:2]:
            wanted, got = tuple(logits.shape[:2]), tuple(part.shape)
            raise ValueError(f"a batch's {name} must be [batch seq] as its inputs are, {wanted}; got {got}")
    if batch.targets.is_floating_point():
        raise ValueError(
            f"targets are whole numbers, a token or class each; got {batch.targets.dtype}. "
            "To predict other values, give train a loss(logits, batch)"
        )
    try:
        losses = F.cross_entropy(
            logits.flatten(0, 1), batch.targets.flatten(), reduction="none", ignore_index=-sys.maxsize
        )
    except IndexError:
        low, high, vocab = int(batch.targets.min()), int(batch.targets.max()), logits.shape[-1]
        raise ValueError(
            f"targets must lie in 0 … {vocab - 1}; got {low} … {high}; "
            "set d_vocab_out to what the task predicts"
        ) from None
    if batch.mask is None:
        return losses.mean()
    if batch.mask.dtype != torch.bool:
        raise ValueError(f"a batch's mask must be bool, True where a target counts; got {batch.mask.dtype}")
    return losses[batch.mask.flatten()].mean()


class ByHand:
    """M models of one shape, their derivative written out (`iclkit.fast`)."""

    def __init__(
        self,
        models: Sequence[Transformer],
        configs: Sequence,
        device: torch.device,
        loss: Callable,
        record: bool = False,
    ):
        self.models, self.loss = list(models), loss
        self.here = device == next(models[0].parameters()).device
        working = self.models if self.here else [copy.deepcopy(model).to(device) for model in models]
        self.inner = Step(working, list(configs), None if loss is cross_entropy else loss)
        if record:
            self.inner = Replayed(self.inner)

    def step(self, batches: Sequence[Batch], step: int) -> Float[Tensor, " model"]:
        """Losses before update number `step`, which this call makes."""
        for model, batch in zip(self.inner.models, batches):
            check_inputs(model, batch.inputs)
            odd = not fits(batch) or answers_last(model)
            if self.loss is cross_entropy and odd or len(batches) > 1 and strays(model, batch):
                self.loss(model(batch.inputs), batch)
        try:
            return self.inner(list(batches))
        except (IndexError, RuntimeError):
            for model, batch in zip(self.inner.models, batches):
                self.loss(model(batch.inputs), batch)
            raise

    def publish(self) -> None:
        """Bring the weights to the models that the caller holds."""
        if not self.here:
            for model, working in zip(self.models, self.inner.models):
                model.load_state_dict(working.state_dict())

    def close(self) -> None:
        """Leave the models with their trained weights, in memory of their own."""
        self.inner.release()
        self.publish()

    def state(self) -> dict[str, Tensor]:
        """The optimiser's memory, by model, moment and weight."""
        return self.inner.optimiser_state()

    def load(self, state: dict[str, Tensor]) -> None:
        """Take back what `state` gave, the models' own weights having been loaded by the caller."""
        if not self.here:
            for model, working in zip(self.models, self.inner.models):
                working.load_state_dict(model.state_dict())
        self.inner.load_optimiser_state(state)


def fits(batch: Batch) -> bool:
    """Whether there is a target, and a place in the mask, for every input."""
    return all(part is None or part.shape == batch.inputs.shape[:2] for part in batch[1:])


def check_inputs(model: Transformer, inputs: Tensor) -> None:
    """`ValueError` for inputs that the model does not take, whether tokens, vectors or exemplars and labels."""
    if hasattr(model, "pairs"):
        model.pairs.check(inputs)
        inputs = inputs[..., :1].expand(*inputs.shape[:2], model.config.d_model)  # the shape of what is read
    model.check(inputs)


def strays(model: Transformer, batch: Batch) -> bool:
    """Whether a token lies outside the model's table, and so, in a stack, in another model's."""
    if model.config.embedded or batch.inputs.is_cuda or not batch.inputs.numel():
        return False
    low, high = batch.inputs.aminmax()
    return bool(low < 0 or high >= model.config.d_vocab)


class ByAutograd:
    """One model of any kind, with hooks, in float32 or bfloat16, compiled or not."""

    def __init__(
        self, model: Transformer, config, device, loss, fwd_hooks=(), precision="float32", compile=False
    ):
        self.models, self.config, self.loss, self.precision = [model], config, loss, precision
        self.here = device == next(model.parameters()).device
        self.working = model if self.here else copy.deepcopy(model).to(device)
        hooks = list(fwd_hooks)
        if precision == "bfloat16":
            hooks.append((is_pattern, look))
        taps = Taps(model.hook_names, hooks)
        self.forward = lambda inputs: self.working(inputs, taps)
        if compile:
            mode = "reduce-overhead" if device.type == "cuda" else "default"
            self.forward = torch.compile(self.forward, mode=mode, dynamic=False)
        self.optimiser = build_optimiser(self.working, config)

    def step(self, batches: Sequence[Batch], step: int) -> Float[Tensor, " model"]:
        (batch,) = batches
        for group in self.optimiser.param_groups:
            group["lr"] = self.config.lr_at(step) * group["factor"]
        with torch.autocast(batch.inputs.device.type, torch.bfloat16, enabled=self.precision == "bfloat16"):
            logits = self.forward(batch.inputs)
        value = self.loss(logits.float() if self.precision == "bfloat16" else logits, batch)
        self.optimiser.zero_grad(set_to_none=True)
        value.backward()
        if self.config.clip is not None:
            torch.nn.utils.clip_grad_norm_(self.working.parameters(), self.config.clip)
        self.optimiser.step()
        return value.detach()[None]

    def publish(self) -> None:
        if not self.here:
            self.models[0].load_state_dict(self.working.state_dict())

    close = publish

    def state(self) -> dict[str, Tensor]:
        return {
            f"0/{moment}/{name}": value
            for name, weight in self.working.named_parameters()
            for moment, value in self.optimiser.state.get(weight, {}).items()
        }

    def load(self, state: dict[str, Tensor]) -> None:
        if not self.here:
            self.working.load_state_dict(self.models[0].state_dict())
        weights, fused = dict(self.working.named_parameters()), self.optimiser.defaults["fused"]
        for key, value in state.items():
            _, moment, name = key.split("/", 2)
            weight = weights[name]
            like = weight if moment != "step" else torch.empty((), device=weight.device if fused else "cpu")
            self.optimiser.state[weight][moment] = torch.empty_like(like).copy_(value)


def is_pattern(name: str) -> bool:
    return name.endswith("hook_pattern")


def look(tensor: Tensor, hook) -> None:
    """Nothing; a pattern that somebody looks at is computed by an explicit softmax, bfloat16's faster way."""


def build_stepper(
    models: Sequence[Transformer],
    configs: Sequence,
    device: torch.device | str | None = None,
    fwd_hooks: Iterable[tuple[Name, HookFn]] = (),
    loss: Callable[[Tensor, Batch], Tensor] = cross_entropy,
    precision: str = "float32",
    compile: bool = False,
) -> ByHand | ByAutograd:
    """What makes the updates of these models: by hand when every one is plain, else by autograd (one model).

    `precision="bfloat16"` computes products in bfloat16 and keeps weights, moments and loss in float32;
    `compile` pays 10–30 s at the first step for a faster rest. Both go through autograd, but for plain models
    on CUDA, whose written-out step is recorded once as a CUDA graph.
    Raises `ValueError` for an unknown precision, or bfloat16 on a processor that has no such arithmetic.
    """
    device, fwd_hooks = torch.device(device or next(models[0].parameters()).device), list(fwd_hooks)
    if precision not in PRECISIONS:
        raise ValueError(f"precision must be one of {', '.join(PRECISIONS)}; got {precision!r}")
    if precision == "bfloat16" and not has_bfloat16(device):
        raise ValueError(
            f"this {device.type} device has no bfloat16 arithmetic of its own: the run would be slower, not "
            'faster; use precision="float32"'
        )
    record = compile and device.type == "cuda"
    special = (
        fwd_hooks or (compile and not record) or precision != "float32" or device.type not in ("cpu", "cuda")
    )
    if not special and all(is_plain(model) for model in models):
        return ByHand(models, configs, device, loss, record)
    if len(models) > 1:
        raise ValueError(
            "models train in one stack only without hooks, frozen weights or smeared keys, in float32, not "
            f'compiled, with positions {", ".join(BY_HAND)}; train these with how="processes" or "loop"'
        )
    return ByAutograd(models[0], configs[0], device, loss, fwd_hooks, precision, compile)


def is_plain(model: Transformer) -> bool:
    """Whether the written-out derivative is this model's: nothing it lacks, or frozen, hooked or replaced."""
    if type(model) is not Transformer or model.config.positions not in BY_HAND or model.config.smeared_keys:
        return False
    pairs = getattr(model, "pairs", None)
    if parts(model) != fresh(model.config, len(pairs.W_X) if isinstance(pairs, PairInputs) else None):
        return False
    modules, weights = list(model.modules()), list(model.parameters())
    hooked = bool(torch.nn.modules.module._has_any_global_hook())
    hooked |= not reads_as_built(model) or any("forward" in vars(m) for m in modules)
    hooked |= any(m._backward_hooks or m._backward_pre_hooks for m in modules)
    hooked |= any(w._backward_hooks or w._post_accumulate_grad_hooks for w in weights)
    known = all(m.act is ACTIVATIONS[model.config.act] for m in modules if isinstance(m, MLP))
    return known and not hooked and all(w.requires_grad and w.dtype == weights[0].dtype for w in weights)


def parts(model: Transformer) -> tuple[dict, dict]:
    """The kind of every part, and the shape of every weight, by name."""
    kinds = {name: type(module) for name, module in model.named_modules()}
    return kinds, {name: weight.shape for name, weight in model.named_parameters()}


@cache
def fresh(config: TransformerConfig, d_features: int | None) -> tuple[dict, dict]:
    """The parts of a model as it is built; one that reads exemplars and labels, for a number of features."""
    return parts(Transformer(config) if d_features is None else pair_transformer(config, d_features))


def has_bfloat16(device: torch.device) -> bool:
    """Whether products in bfloat16 run on this device's own arithmetic."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return device.type == "cpu" and torch.cpu._is_avx512_bf16_supported()


def build_optimiser(model: Transformer, config) -> torch.optim.Optimizer:
    """AdamW; matrices decay, vectors do not; a group for each factor that `rates` and `decays` ask for."""
    trained = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    if not trained:
        raise ValueError("this model has no weight to train; set requires_grad_(True) on some")
    groups = {}
    for name, weight in trained.items():
        decay = config.weight_decay * config.decay_of(name) if weight.ndim >= 2 else 0.0
        factor = config.rate_of(name)
        group = {"params": [], "weight_decay": decay, "factor": factor}
        groups.setdefault((weight.ndim < 2, decay, factor), group)["params"].append(weight)
    fused = weight.device.type in ("cpu", "cuda")
    return torch.optim.AdamW(list(groups.values()), lr=config.lr, betas=config.betas, fused=fused)
