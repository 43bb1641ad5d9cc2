"""Direct logit attribution: the residual stream is a sum, so a logit is a sum of what each part wrote."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from iclkit.circuits.heads import label
from iclkit.circuits.scores import check_tokens
from iclkit.circuits.weights import unembedding
from iclkit.hooks import ActivationCache
from iclkit.model import Transformer


@torch.no_grad()
def direct_logit_attribution(
    cache: ActivationCache,
    model: Transformer,
    targets: Int[Tensor, "batch seq"],
    versus: Int[Tensor, "batch seq"] | None = None,
) -> dict[str, Float[Tensor, "batch seq"]]:
    """What each part adds to the logit of `targets` (minus that of `versus`), at every position.

        logit[target] = Σ_part  part · W_U[:, target]
        parts: "embed", "pos_embed", "L0H0", …, "mlp0", …, and "ln_final.b" where there is a LayerNorm

    The values sum to the logit. The scale of a final LayerNorm is frozen at its value in the run: each part
    is centred, divided by it and multiplied by the gain. `cache` comes from `model.run_with_cache(tokens)`.
    """
    parts = residual_parts(cache, model)
    for name, wanted in (("targets", targets), ("versus", versus)):
        if wanted is not None and wanted.shape != parts["embed"].shape[:2]:
            expected = tuple(parts["embed"].shape[:2])
            raise ValueError(
                f"expected {name} of shape {expected}, like the tokens; got {tuple(wanted.shape)}"
            )
        if wanted is not None:
            check_tokens(name, wanted, model.config.d_vocab_out)
    norm = model.ln_final if model.config.layer_norm else None
    scale = cache["ln_final.hook_scale"] if norm else 1.0

    def direction(W: Tensor) -> Tensor:
        return W.T[targets.long()] if versus is None else W.T[targets.long()] - W.T[versus.long()]

    toward = direction(unembedding(model))
    shares = {name: (part / scale * toward).sum(-1) for name, part in parts.items()}
    if norm:
        shares["ln_final.b"] = direction(model.W_U) @ norm.b
    return shares


def residual_parts(
    cache: ActivationCache, model: Transformer
) -> dict[str, Float[Tensor, "batch seq d_model"]]:
    """Everything that was added into the residual stream, by name; the values sum to the last resid_post."""
    c = model.config
    parts = {"embed": cache["embed"]}
    if c.positions == "absolute":
        parts["pos_embed"] = cache["pos_embed"]
    for layer in range(c.n_layers):
        result = cache["result", layer]
        parts |= {label(layer, head): result[:, :, head] for head in range(c.n_heads)}
        if c.d_mlp:
            parts[f"mlp{layer}"] = cache["mlp_out", layer]
    return parts
