"""One causal transformer, small enough to read and to open.

Row vectors throughout, as in TransformerLens: `x @ W`. With residual stream x, head h of a layer computes

    q = x W_Q,  k = x W_K,  v = x W_V            pattern = softmax(q kᵀ / √d_head + mask)
    x ← x + Σ_h pattern_h v_h W_O_h              x ← x + act(x W_in + b_in) W_out + b_out
    logits = x W_U

Sources: Vaswani et al. 2017 (https://arxiv.org/abs/1706.03762); Elhage et al. 2021
(https://transformer-circuits.pub/2021/framework/index.html) for reading it as a sum.
"""

import math
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from iclkit.hooks import NO_TAPS, ON_REQUEST, ActivationCache, HookFn, Name, Taps, hook_names, resolve_all
from iclkit.norms import LayerNorm, NoNorm
from iclkit.positions import SCHEMES

ACTIVATIONS = {"relu": F.relu, "gelu": F.gelu}


@dataclass(frozen=True)
class TransformerConfig:
    """The shape of a `Transformer`; every field is refused at construction when it is impossible.

    `d_mlp=0` is attention only; `positions` is one of absolute, shortformer (into queries and keys only,
    https://arxiv.org/abs/2012.15832), relative (a learned bias per head and distance), rotary
    (https://arxiv.org/abs/2104.09864), none; `smeared_keys` mixes each key with the one before it
    (Olsson et al. 2022, https://arxiv.org/abs/2209.11895); `embedded` models take vectors instead of tokens.
    """

    d_vocab: int = 64
    n_ctx: int = 64
    n_layers: int = 2
    d_model: int = 64
    n_heads: int = 4
    d_head: int | None = None
    d_mlp: int = 0
    positions: str = "absolute"
    layer_norm: bool = False
    smeared_keys: bool = False
    tied: bool = False
    d_vocab_out: int | None = None
    embedded: bool = False
    act: str = "relu"
    init_scale: float = 1.0

    def __post_init__(self):
        for name in ("d_vocab", "n_ctx", "n_layers", "d_model", "n_heads", "d_mlp"):
            value, least = getattr(self, name), 0 if name in ("d_mlp", "n_layers") else 1
            if type(value) is not int or value < least:
                raise ValueError(f"{name} must be a whole number of at least {least}; got {value!r}")
        if self.d_head is None:
            if self.d_model % self.n_heads:
                raise ValueError(
                    f"d_model={self.d_model} does not divide by n_heads={self.n_heads}; "
                    "choose a multiple, or give d_head"
                )
            object.__setattr__(self, "d_head", self.d_model // self.n_heads)
        if self.d_vocab_out is None:
            object.__setattr__(self, "d_vocab_out", self.d_vocab)
        for name in ("d_head", "d_vocab_out"):
            if type(getattr(self, name)) is not int or getattr(self, name) < 1:
                raise ValueError(f"{name} must be a whole number of at least 1; got {getattr(self, name)!r}")
        flags = ((name, (False, True)) for name in ("layer_norm", "smeared_keys", "tied", "embedded"))
        for name, known in (("positions", SCHEMES), ("act", ACTIVATIONS), *flags):
            if (value := getattr(self, name)) not in list(known):
                raise ValueError(f"{name} must be one of {', '.join(map(str, known))}; got {value!r}")
        if self.positions == "rotary" and self.d_head % 2:
            raise ValueError(f"rotary positions turn pairs: d_head must be even; got {self.d_head}")
        if self.tied and (self.embedded or self.d_vocab_out != self.d_vocab):
            raise ValueError("a tied unembedding needs token inputs and d_vocab_out equal to d_vocab")
        if not (isinstance(self.init_scale, (int, float)) and 0 < self.init_scale < math.inf):
            raise ValueError(f"init_scale must be positive and finite; got {self.init_scale!r}")


class Attention(nn.Module):
    """All heads of one layer: where to look (W_Q, W_K) and what to move (W_V, W_O)."""

    def __init__(self, config: TransformerConfig, layer: int):
        super().__init__()
        c, self.layer = config, layer
        shape = (c.n_heads, c.d_model, c.d_head)
        self.W_Q, self.W_K, self.W_V = (nn.Parameter(torch.empty(shape)) for _ in range(3))
        self.W_O = nn.Parameter(torch.empty(c.n_heads, c.d_head, c.d_model))
        self.smear = nn.Parameter(torch.zeros(c.n_heads)) if c.smeared_keys else None
        self.at = {
            n: f"blocks.{layer}.attn.hook_{n}"
            for n in ("q", "k", "v", "attn_scores", "pattern", "z", "result")
        }
        self.into = {n: f"blocks.{layer}.hook_{n}_input" for n in "qkv"}
        self.register_buffer(
            "future", torch.ones(c.n_ctx, c.n_ctx, dtype=torch.bool).triu(1), persistent=False
        )

    def forward(self, resid: Float[Tensor, "batch seq d_model"], ln, positions, taps: Taps):
        q, k, v = self.project(resid, ln, positions, taps)
        z = taps(self.at["z"], self.mix(q, k, v, positions, taps))
        if taps.wants(self.at["result"]):
            return taps(self.at["result"], torch.einsum("bshe,hed->bshd", z, self.W_O)).sum(2)
        return torch.einsum("bshe,hed->bsd", z, self.W_O)

    def project(self, resid, ln, positions, taps: Taps):
        """Queries, keys and values, `[batch seq head d_head]` each."""
        if taps.wants(*self.into.values()):
            split = resid.unsqueeze(2).expand(-1, -1, self.W_Q.shape[0], -1)
            x_q, x_k, x_v = (ln(taps(name, split), taps) for name in self.into.values())
            equation = "bshd,hde->bshe"
        else:
            x_q = x_k = x_v = ln(resid, taps)
            equation = "bsd,hde->bshe"
        q = taps(self.at["q"], torch.einsum(equation, positions.into_qk(x_q), self.W_Q))
        k = torch.einsum(equation, positions.into_qk(x_k), self.W_K)
        k = taps(self.at["k"], k if self.smear is None else smeared(k, self.smear))
        v = taps(self.at["v"], torch.einsum(equation, x_v, self.W_V))
        return q, k, v

    def mix(self, q, k, v, positions, taps: Taps) -> Float[Tensor, "batch seq head d_head"]:
        """pattern · v: fused when nobody looks at scores or pattern, explicit otherwise; both agree."""
        q, k, v = positions.rotate(q).transpose(1, 2), positions.rotate(k).transpose(1, 2), v.transpose(1, 2)
        seq, bias = q.shape[2], positions.bias(self.layer, q.shape[2])
        if bias is None and not taps.wants(self.at["attn_scores"], self.at["pattern"]):
            return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
        scores = q @ k.transpose(2, 3) / math.sqrt(q.shape[3])
        scores = scores if bias is None else scores + bias
        scores = taps(self.at["attn_scores"], scores.masked_fill(self.future[:seq, :seq], -torch.inf))
        return (taps(self.at["pattern"], scores.softmax(-1)) @ v).transpose(1, 2)


def smeared(k: Float[Tensor, "batch seq head d_head"], smear: Float[Tensor, " head"]):
    """k_j ← σ(a) k_j + (1 − σ(a)) k_{j−1}, one a per head; the first key is unchanged."""
    keep = torch.sigmoid(smear)[:, None]
    before = torch.cat([k[:, :1], k[:, :-1]], 1)
    return keep * k + (1 - keep) * before


class MLP(nn.Module):
    """act(x W_in + b_in) W_out + b_out."""

    def __init__(self, config: TransformerConfig, layer: int):
        super().__init__()
        self.W_in = nn.Parameter(torch.empty(config.d_model, config.d_mlp))
        self.b_in = nn.Parameter(torch.zeros(config.d_mlp))
        self.W_out = nn.Parameter(torch.empty(config.d_mlp, config.d_model))
        self.b_out = nn.Parameter(torch.zeros(config.d_model))
        self.act, self.name = ACTIVATIONS[config.act], f"blocks.{layer}.mlp"

    def forward(
        self, x: Float[Tensor, "batch seq d_model"], taps: Taps
    ) -> Float[Tensor, "batch seq d_model"]:
        pre = taps(f"{self.name}.hook_pre", x @ self.W_in + self.b_in)
        return taps(f"{self.name}.hook_post", self.act(pre)) @ self.W_out + self.b_out


class Block(nn.Module):
    """One layer: attention reads the residual stream and adds to it, then (with `d_mlp`) the MLP does."""

    def __init__(self, config: TransformerConfig, layer: int):
        super().__init__()
        self.name = f"blocks.{layer}"
        norm = LayerNorm if config.layer_norm else (lambda name, d_model: NoNorm())
        self.ln1 = norm(f"{self.name}.ln1", config.d_model)
        self.attn = Attention(config, layer)
        if config.d_mlp:
            self.ln2 = norm(f"{self.name}.ln2", config.d_model)
        self.mlp = MLP(config, layer) if config.d_mlp else None

    def forward(self, resid: Float[Tensor, "batch seq d_model"], positions, taps: Taps):
        resid = taps(f"{self.name}.hook_resid_pre", resid)
        resid = resid + taps(f"{self.name}.hook_attn_out", self.attn(resid, self.ln1, positions, taps))
        if self.mlp is not None:
            resid = taps(f"{self.name}.hook_resid_mid", resid)
            x = self.ln2(taps(f"{self.name}.hook_mlp_in", resid), taps)
            resid = resid + taps(f"{self.name}.hook_mlp_out", self.mlp(x, taps))
        return taps(f"{self.name}.hook_resid_post", resid)


def stacked(name: str) -> property:
    """One attention weight of all layers, `[layer head …]`, read only."""
    return property(lambda self: torch.stack([getattr(block.attn, name) for block in self.blocks]))


class Transformer(nn.Module):
    """A causal transformer; position t sees positions 0 … t.

        tokens  BOS  c  a  t  c  a      int   [batch seq]        (or vectors [batch seq d_model] if embedded)
        logits   c   a  t  c  a  t      float [batch seq d_vocab_out], the scores of the next token

    Weights are drawn from `seed` alone, each parameter from its own stream, so that switching one part on
    leaves the others as they were. Standard deviation: `init_scale` / √(number of inputs).
    """

    def __init__(self, config: TransformerConfig, seed: int = 0):
        super().__init__()
        c = self.config = config
        self.W_E = None if c.embedded else nn.Parameter(torch.empty(c.d_vocab, c.d_model))
        self.positions = SCHEMES[c.positions](c)
        self.blocks = nn.ModuleList(Block(c, layer) for layer in range(c.n_layers))
        self.ln_final = LayerNorm("ln_final", c.d_model) if c.layer_norm else NoNorm()
        self._W_U = None if c.tied else nn.Parameter(torch.empty(c.d_model, c.d_vocab_out))
        self.hook_names = hook_names(c)
        self.initialise(seed)

    @torch.no_grad()
    def initialise(self, seed: int) -> None:
        """Draw every weight matrix anew from `seed`; vectors (biases, gains, smears) keep their constants."""
        for name, weight in self.named_parameters():
            if weight.ndim < 2 or name.endswith("b_rel"):
                continue
            fan_in = weight[0].numel() if name in ("W_E", "positions.W_pos") else weight.shape[-2]
            if name.endswith("W_O"):
                fan_in *= weight.shape[0]
            generator = torch.Generator().manual_seed(zlib.crc32(f"{seed} {name}".encode()))
            weight.copy_(
                torch.randn(weight.shape, generator=generator) * self.config.init_scale / fan_in**0.5
            )

    def forward(
        self, inputs: Int[Tensor, "batch seq"] | Float[Tensor, "batch seq d_model"], taps: Taps = NO_TAPS
    ):
        resid = self.positions.into_residual(taps("hook_embed", self.embed(inputs)), taps)
        for block in self.blocks:
            resid = block(resid, self.positions, taps)
        return self.ln_final(resid, taps) @ self.W_U

    def embed(self, inputs) -> Float[Tensor, "batch seq d_model"]:
        """Rows of W_E for tokens; the vectors themselves for an `embedded` model."""
        self.check(inputs)
        if self.config.embedded:
            return inputs
        try:
            return F.embedding(inputs, self.W_E)
        except IndexError:
            vocab, got = self.config.d_vocab, f"{int(inputs.min())} … {int(inputs.max())}"
            raise ValueError(f"tokens must lie in 0 … {vocab - 1} (d_vocab={vocab}); got {got}") from None

    def check(self, inputs) -> None:
        """`ValueError` for inputs of a shape or type that this model does not take."""
        c, tensor = self.config, isinstance(inputs, Tensor)
        kinds = (self.W_U.dtype,) if c.embedded else (torch.int64, torch.int32)
        fits = tensor and inputs.ndim == 2 + c.embedded and inputs.dtype in kinds
        if not fits or (c.embedded and inputs.shape[2] != c.d_model):
            wanted = f"float [batch seq {c.d_model}]" if c.embedded else "int [batch seq]"
            got = f"{inputs.dtype} of shape {tuple(inputs.shape)}" if tensor else type(inputs).__name__
            raise ValueError(f"this model takes {wanted}, a tensor of {kinds[0]}; got {got}")
        if inputs.shape[1] > c.n_ctx:
            raise ValueError(
                f"a sequence of {inputs.shape[1]} is longer than n_ctx={c.n_ctx}; cut it or enlarge n_ctx"
            )

    def run_with_hooks(self, inputs: Tensor, fwd_hooks: Iterable[tuple[Name, HookFn]] = ()) -> Tensor:
        """Logits, with `fn(tensor, hook) → tensor | None` called at each named point, for this call alone."""
        return self(inputs, Taps(self.hook_names, fwd_hooks))

    def run_with_cache(
        self,
        inputs: Tensor,
        names: Iterable[Name] | None = None,
        fwd_hooks: Iterable[tuple[Name, HookFn]] = (),
    ) -> tuple[Tensor, ActivationCache]:
        """Logits and the activations at `names` (None: all but the split inputs), after `fwd_hooks`."""
        if names is None:
            names = [name for name in self.hook_names if not name.endswith(ON_REQUEST)]
        kept: dict[str, Tensor] = {}

        def keep(tensor, hook):
            kept[hook.name] = tensor

        points = dict.fromkeys(resolve_all(names, self.hook_names))
        logits = self(inputs, Taps(self.hook_names, [*fwd_hooks, *((point, keep) for point in points)]))
        return logits, ActivationCache(kept)

    def hooked(self, fwd_hooks: Iterable[tuple[Name, HookFn]]) -> Callable[[Tensor], Tensor]:
        """A function with the model's signature that applies these hooks at every call."""
        return partial(self, taps=Taps(self.hook_names, fwd_hooks))

    def to_transformer_lens(self):
        """A TransformerLens `HookedTransformer` with the same logits (needs `transformer-lens` 3.x)."""
        from iclkit.lens import to_transformer_lens

        return to_transformer_lens(self)

    W_Q, W_K, W_V, W_O = (stacked(name) for name in ("W_Q", "W_K", "W_V", "W_O"))

    @property
    def W_U(self) -> Float[Tensor, "d_model d_vocab_out"]:
        return self.W_E.T if self.config.tied else self._W_U

    @property
    def W_pos(self) -> Float[Tensor, "n_ctx d_model"] | None:
        return getattr(self.positions, "W_pos", None)
