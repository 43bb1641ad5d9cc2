"""The same model in plain JAX and in equinox, the whole step under one jit, AdamW from optax."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks.shapes import TRAINING, Shape
from iclkit.model import TransformerConfig

STRIDE = 32


def first_weights(c: TransformerConfig, key) -> dict:
    """Nested dictionaries of arrays, drawn from `key`."""
    keys, d = iter(jax.random.split(key, 64)), c.d_model

    def matrix(*shape):
        return jax.random.normal(next(keys), shape) * shape[0] ** -0.5

    def norm():
        return {"w": jnp.ones(d), "b": jnp.zeros(d)}

    def layer():
        weights = {"ln1": norm(), "qkv": matrix(d, 3 * d), "out": matrix(d, d)}
        if c.d_mlp:
            weights |= {"ln2": norm(), "w_in": matrix(d, c.d_mlp), "b_in": jnp.zeros(c.d_mlp)}
            weights |= {"w_out": matrix(c.d_mlp, d), "b_out": jnp.zeros(d)}
        return weights

    weights = {"layers": [layer() for _ in range(c.n_layers)], "norm": norm()}
    weights["unembed"] = matrix(d, c.d_vocab_out)
    if not c.embedded:
        weights |= {"embed": matrix(c.d_vocab, d), "place": matrix(c.n_ctx, d)}
    return weights


def normalised(x, norm):
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * norm["w"] + norm["b"]


def forward(weights: dict, inputs, heads: int):
    """Logits `[batch seq vocab]`."""
    x = weights["embed"][inputs] + weights["place"] if "embed" in weights else inputs
    batch, seq, d = x.shape
    mask = jnp.where(jnp.tril(jnp.ones((seq, seq), bool)), 0.0, -jnp.inf)
    for layer in weights["layers"]:
        qkv = (normalised(x, layer["ln1"]) @ layer["qkv"]).reshape(batch, seq, 3, heads, d // heads)
        q, k, v = qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2]
        scores = jnp.einsum("bqhe,bkhe->bhqk", q, k) * (d // heads) ** -0.5 + mask
        z = jnp.einsum("bhqk,bkhe->bqhe", jax.nn.softmax(scores), v).reshape(batch, seq, d)
        x = x + z @ layer["out"]
        if "w_in" in layer:
            hidden = jax.nn.relu(normalised(x, layer["ln2"]) @ layer["w_in"] + layer["b_in"])
            x = x + hidden @ layer["w_out"] + layer["b_out"]
    return normalised(x, weights["norm"]) @ weights["unembed"]


def cross_entropy(logits, targets):
    return optax.softmax_cross_entropy_with_integer_labels(logits, targets).mean()


def adamw():
    t = TRAINING
    decays = lambda weights: jax.tree.map(lambda w: w.ndim >= 2, weights)  # noqa: E731
    return optax.adamw(t.lr, *t.betas, weight_decay=t.weight_decay, mask=decays)


def in_jax(batches) -> list:
    return [(jnp.asarray(b.inputs.numpy()), jnp.asarray(b.targets.numpy().astype(np.int32))) for b in batches]


class Jitted:
    """A jitted function (state, batch) → (state, loss), fed the batches in turn."""

    def __init__(self, step, state, batches, parameters: int, stride: int = 1):
        self.step, self.state, self.parameters, self.stride = step, state, parameters, stride
        self.batches = itertools.cycle(batches)

    def advance(self):
        self.state, loss = self.step(self.state, next(self.batches))
        return loss


def size(weights) -> int:
    return sum(leaf.size for leaf in jax.tree.leaves(eqx.filter(weights, eqx.is_inexact_array)))


def one_step(c: TransformerConfig, optimiser):
    """(weights, moments), (inputs, targets) → the same after one step, and the loss before it."""

    def step(state, batch):
        weights, moments = state
        inputs, targets = batch
        loss, grads = jax.value_and_grad(
            lambda w: cross_entropy(forward(w, inputs, c.n_heads), targets)
        )(weights)  # fmt: skip
        updates, moments = optimiser.update(grads, moments, weights)
        return (optax.apply_updates(weights, updates), moments), loss

    return step


def plain_jax(shape: Shape, batches) -> Jitted:
    """One call a step."""
    c, optimiser = shape.model, adamw()
    weights = first_weights(c, jax.random.key(0))
    step = jax.jit(one_step(c, optimiser), donate_argnums=0)
    return Jitted(step, (weights, optimiser.init(weights)), in_jax(batches), size(weights))


def scanned(shape: Shape, batches) -> Jitted:
    """One call for `STRIDE` steps, the batches of a call stacked."""
    c, optimiser = shape.model, adamw()
    weights = first_weights(c, jax.random.key(0))
    step = jax.jit(lambda state, many: jax.lax.scan(one_step(c, optimiser), state, many), donate_argnums=0)

    def last(state, many):
        state, losses = step(state, many)
        return state, losses[-1]

    few = list(itertools.islice(itertools.cycle(in_jax(batches)), STRIDE))
    stacked = jax.tree.map(lambda *parts: jnp.stack(parts), *few)
    return Jitted(last, (weights, optimiser.init(weights)), [stacked], size(weights), STRIDE)


def vmapped(shape: Shape, batches_of_each: list[list]) -> Jitted:
    """Eight models in one jitted step."""
    c, optimiser = shape.model, adamw()
    weights = jax.vmap(lambda key: first_weights(c, key))(
        jax.random.split(jax.random.key(0), len(batches_of_each))
    )
    state = (weights, jax.vmap(optimiser.init)(weights))
    together = list(zip(*(in_jax(batches) for batches in batches_of_each)))
    stacked = [jax.tree.map(lambda *parts: jnp.stack(parts), *few) for few in together]
    every = jax.jit(jax.vmap(one_step(c, optimiser)), donate_argnums=0)

    def mean(state, batch):
        state, losses = every(state, batch)
        return state, losses.mean()

    return Jitted(mean, state, stacked, size(weights))


class EquinoxLayer(eqx.Module):
    """equinox's own attention, norms and linear maps, for one sequence `[seq d_model]`."""

    ln1: eqx.nn.LayerNorm
    attention: eqx.nn.MultiheadAttention
    ln2: eqx.nn.LayerNorm | None
    mlp: eqx.nn.MLP | None

    def __init__(self, c: TransformerConfig, key):
        one, two = jax.random.split(key)
        self.ln1 = eqx.nn.LayerNorm(c.d_model)
        self.attention = eqx.nn.MultiheadAttention(c.n_heads, c.d_model, key=one)
        self.ln2 = eqx.nn.LayerNorm(c.d_model) if c.d_mlp else None
        self.mlp = eqx.nn.MLP(c.d_model, c.d_model, c.d_mlp, 1, key=two) if c.d_mlp else None

    def __call__(self, x):
        y, causal = jax.vmap(self.ln1)(x), jnp.tril(jnp.ones((len(x), len(x)), bool))
        x = x + self.attention(y, y, y, mask=causal)
        return x if self.mlp is None else x + jax.vmap(self.mlp)(jax.vmap(self.ln2)(x))


class EquinoxModel(eqx.Module):
    """Embedding, layers, final norm, unembedding, for one sequence."""

    embed: eqx.nn.Embedding | None
    place: jax.Array | None
    layers: list
    norm: eqx.nn.LayerNorm
    unembed: eqx.nn.Linear

    def __init__(self, c: TransformerConfig, key):
        keys = jax.random.split(key, c.n_layers + 3)
        self.embed = None if c.embedded else eqx.nn.Embedding(c.d_vocab, c.d_model, key=keys[0])
        shape = (c.n_ctx, c.d_model)
        self.place = None if c.embedded else jax.random.normal(keys[1], shape) * c.d_model**-0.5
        self.layers = [EquinoxLayer(c, one) for one in keys[3:]]
        self.norm = eqx.nn.LayerNorm(c.d_model)
        self.unembed = eqx.nn.Linear(c.d_model, c.d_vocab_out, use_bias=False, key=keys[2])

    def __call__(self, inputs):
        x = inputs if self.embed is None else jax.vmap(self.embed)(inputs) + self.place
        for layer in self.layers:
            x = layer(x)
        return jax.vmap(self.unembed)(jax.vmap(self.norm)(x))


def equinox(shape: Shape, batches) -> Jitted:
    """`filter_jit` around the whole step, the model mapped over the batch."""
    optimiser, model = adamw(), EquinoxModel(shape.model, jax.random.key(0))

    @eqx.filter_jit(donate="all-except-first")
    def step(batch, state):
        model, moments = state
        inputs, targets = batch
        loss, grads = eqx.filter_value_and_grad(
            lambda m: cross_entropy(jax.vmap(m)(inputs), targets)
        )(model)  # fmt: skip
        updates, moments = optimiser.update(grads, moments, eqx.filter(model, eqx.is_inexact_array))
        return (eqx.apply_updates(model, updates), moments), loss

    state = (model, optimiser.init(eqx.filter(model, eqx.is_inexact_array)))
    return Jitted(lambda state, batch: step(batch, state), state, in_jax(batches), size(model))
