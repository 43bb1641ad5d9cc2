"""Edges: against a slow twin in which every node is computed by hand from its own version of the stream."""

import dataclasses
import random

import pytest
import torch
from hand_built import induction_model
from test_patching import hand_built_case

from iclkit import circuits
from iclkit.model import Transformer, TransformerConfig

PLAIN = TransformerConfig(d_vocab=11, n_ctx=12, n_layers=2, d_model=8, n_heads=2)
CONFIGS = [
    PLAIN,
    dataclasses.replace(PLAIN, d_mlp=8),
    dataclasses.replace(PLAIN, d_mlp=8, layer_norm=True),
    dataclasses.replace(PLAIN, n_layers=3, layer_norm=True),
]
CLEAN = torch.randint(11, (3, 7), generator=torch.Generator().manual_seed(0))
CORRUPTED = torch.randint(11, (3, 7), generator=torch.Generator().manual_seed(1))
every_config = pytest.mark.parametrize("config", CONFIGS)


def metric(logits: torch.Tensor) -> torch.Tensor:
    return (logits[:, -1, 3] - logits[:, -1, 5]).mean()


class SlowTwin:
    """Every node by itself. `edges` are pairs of single senders and single inputs: ("L0H1", "L1H0.k")."""

    def __init__(self, model: Transformer, tokens, edges=(), other: "SlowTwin | None" = None):
        self.model, self.edges, self.other, c = model, set(edges), other, model.config
        self.wrote = {"Emb": model.W_E[tokens] + model.W_pos[: tokens.shape[1]]}
        for layer, block in enumerate(model.blocks):
            heads = {f"L{layer}H{h}": self.head(block, f"L{layer}H{h}", h) for h in range(c.n_heads)}
            self.wrote |= heads
            if c.d_mlp:
                x = self.norm(block.ln2 if c.layer_norm else None, self.stream(f"MLP{layer}"))
                mlp = block.mlp
                self.wrote[f"MLP{layer}"] = (x @ mlp.W_in + mlp.b_in).relu() @ mlp.W_out + mlp.b_out
        self.logits = self.norm(model.ln_final if c.layer_norm else None, self.stream("Out")) @ model.W_U

    def stream(self, receiver: str) -> torch.Tensor:
        return sum((self.other if (s, receiver) in self.edges else self).wrote[s] for s in list(self.wrote))

    def head(self, block, name: str, h: int) -> torch.Tensor:
        attn, c = block.attn, self.model.config
        q, k, v = (
            self.norm(block.ln1 if c.layer_norm else None, self.stream(f"{name}.{kind}")) @ W[h]
            for kind, W in zip("qkv", (attn.W_Q, attn.W_K, attn.W_V))
        )
        written = torch.zeros_like(self.wrote["Emb"])
        for query in range(q.shape[1]):
            scores = (k[:, : query + 1] @ q[:, query, :, None])[..., 0] / c.d_head**0.5
            written[:, query] = (scores.softmax(1)[..., None] * v[:, : query + 1]).sum(1) @ attn.W_O[h]
        return written

    @staticmethod
    def norm(ln, x: torch.Tensor) -> torch.Tensor:
        if ln is None:
            return x
        return (x - x.mean(-1, keepdim=True)) / (
            x.var(-1, correction=0, keepdim=True) + 1e-5
        ).sqrt() * ln.w + ln.b


def single_edges(model: Transformer) -> list[tuple[str, str]]:
    """All edges between single senders and single inputs, written out here a second time."""
    c, senders, found = model.config, ["Emb"], []
    for layer in range(c.n_layers):
        heads = [f"L{layer}H{h}" for h in range(c.n_heads)]
        found += [(s, f"{head}.{kind}") for s in senders for head in heads for kind in "qkv"]
        senders += heads
        if c.d_mlp:
            found += [(s, f"MLP{layer}") for s in senders]
            senders.append(f"MLP{layer}")
    return found + [(s, "Out") for s in senders]


@every_config
@torch.no_grad()
def test_any_set_of_edges_agrees_with_the_slow_twin(config):
    model = Transformer(config)
    other, edges = SlowTwin(model, CORRUPTED), single_edges(model)
    patched = circuits.edge_patcher(model, CLEAN, CORRUPTED)
    draw = random.Random(0)
    for size in (0, 1, 1, 2, 3, 5, 8, len(edges) // 2, len(edges)):
        chosen = draw.sample(edges, size)
        slow = SlowTwin(model, CLEAN, chosen, other).logits
        torch.testing.assert_close(patched(chosen), slow, atol=1e-5, rtol=1e-4)


@every_config
@torch.no_grad()
def test_ablated_edges_carry_nothing(config):
    model = Transformer(config)
    nothing, edges, draw = SlowTwin(model, CLEAN), single_edges(model), random.Random(1)
    nothing.wrote = {sender: torch.zeros_like(x) for sender, x in nothing.wrote.items()}
    for size in (0, 1, 4, len(edges) // 2, len(edges)):
        chosen = draw.sample(edges, size)
        slow = SlowTwin(model, CLEAN, chosen, nothing).logits
        torch.testing.assert_close(circuits.ablate_edges(model, chosen)(CLEAN), slow, atol=1e-5, rtol=1e-4)


def test_ablated_edges_go_with_other_hooks_and_without_a_batch_of_their_own():
    model = Transformer(PLAIN)
    silent = (("result", 0), lambda result, hook: torch.zeros_like(result))
    ablated = circuits.ablate_edges(model, [("Att0", "Out")], [silent])
    for tokens in (CLEAN, CORRUPTED[:2, 1:]):
        expected = circuits.ablate(model, [(0, 0), (0, 1)])(tokens)
        torch.testing.assert_close(ablated(tokens), expected.detach(), atol=1e-5, rtol=1e-4)


@every_config
def test_no_edge_is_the_clean_run_and_all_edges_the_corrupted_one(config):
    model = Transformer(config)
    for edges, tokens in (
        ([], CLEAN),
        (circuits.all_edges(model), CORRUPTED),
        (single_edges(model), CORRUPTED),
    ):
        found = circuits.patch_edges(model, CLEAN, CORRUPTED, edges)
        torch.testing.assert_close(found, model(tokens).detach(), atol=1e-5, rtol=1e-4)


@every_config
def test_noising_some_edges_is_denoising_the_rest_only_for_edges_into_out(config):
    """Out is linear in what it reads, so there, and only there, the two directions mirror each other."""
    model = Transformer(dataclasses.replace(config, layer_norm=False))
    into_out = [edge for edge in circuits.all_edges(model) if edge[1] == "Out"]
    clean, corrupted = model(CLEAN), model(CORRUPTED)
    for edge in into_out:
        noise = circuits.patch_edges(model, CLEAN, CORRUPTED, [edge]) - clean
        denoise = circuits.patch_edges(model, CORRUPTED, CLEAN, [edge]) - corrupted
        torch.testing.assert_close(noise, -denoise, atol=1e-5, rtol=1e-4)


def test_the_fifteen_edges():
    model = Transformer(CONFIGS[1])
    assert circuits.nodes(model) == ["Emb", "Att0", "MLP0", "Att1", "MLP1", "Out"]
    assert len(set(circuits.all_edges(model))) == 15
    assert len(circuits.all_edges(Transformer(PLAIN))) == 6


def test_layers_are_their_heads_and_heads_their_inputs():
    model = Transformer(PLAIN)
    patched = circuits.edge_patcher(model, CLEAN, CORRUPTED)
    heads = [(f"L0H{a}", f"L1H{b}") for a in range(2) for b in range(2)]
    torch.testing.assert_close(patched([("Att0", "Att1")]), patched(heads))
    torch.testing.assert_close(
        patched([("Att0", "Att1"), ("L0H0", "L1H1.k")]), patched(heads)
    )  # counted once
    kinds = [("L0H0", f"Att1.{kind}") for kind in "qkv"]
    torch.testing.assert_close(patched([("L0H0", "Att1")]), patched(kinds))


@torch.no_grad()
def three_runs(model, sender: tuple[int, int], receiver: tuple[int, int], kind: str) -> torch.Tensor:
    """Path patching as first published: freeze all other heads, keep the receiver's input, patch it."""
    _, clean = model.run_with_cache(CLEAN)
    _, corrupted = model.run_with_cache(CORRUPTED)

    def freeze(z, hook):
        z = clean[hook.name].clone()
        if hook.layer() == sender[0]:
            z[:, :, sender[1]] = corrupted[hook.name][:, :, sender[1]]
        return z

    _, kept = model.run_with_cache(CLEAN, [(kind, receiver[0])], [(lambda n: n.endswith("hook_z"), freeze)])

    def put(x, hook):
        x = x.clone()
        x[:, :, receiver[1]] = kept[hook.name][:, :, receiver[1]]
        return x

    return model.run_with_hooks(CLEAN, [((kind, receiver[0]), put)])


@pytest.mark.parametrize("kind", ["q", "k", "v"])
@pytest.mark.parametrize("config", [PLAIN, CONFIGS[3]])
def test_path_patching_agrees_with_the_published_three_runs(config, kind):
    model = Transformer(config)
    last = config.n_layers - 1
    found = circuits.patch_edges(model, CLEAN, CORRUPTED, [("L0H1", f"L{last}H0.{kind}")])
    torch.testing.assert_close(found, three_runs(model, (0, 1), (last, 0), kind), atol=1e-5, rtol=1e-4)


def test_only_one_path_of_the_hand_built_previous_token_head_matters():
    clean, corrupted, metric = hand_built_case()
    model = induction_model()

    def effect(sender, receivers):
        return circuits.path_patch(model, clean, corrupted, sender, receivers, metric)

    assert (
        effect("L0H0", "L1H0.k") < 0.25
    )  # the place is lost; a uniform look still meets the answer at times
    for receivers in ("L1H0.q", "L1H0.v", "Out", ["L1H0.q", "L1H0.v", "Out"]):
        assert effect("L0H0", receivers) == pytest.approx(1, abs=1e-4)
    assert effect("Emb", "L1H0.v") == pytest.approx(0, abs=1e-4)  # what is copied
    assert effect("Emb", "L0H0.q") == pytest.approx(1, abs=1e-4)  # places are the same in both
    assert effect("L1H0", "Out") == pytest.approx(0, abs=1e-4)


def test_an_untrained_model_has_no_such_path():
    config = TransformerConfig(d_vocab=12, n_ctx=24, d_model=32, n_heads=4)
    clean, corrupted, metric = hand_built_case()

    def effect(model, tokens):
        return abs(1 - circuits.path_patch(model, clean, corrupted, "L0H0", "L1H0.k", metric))

    found = circuits.random_baseline(effect, config, None, range(5))
    assert found.mean < 0.2


def test_nothing_is_left_behind():
    model = Transformer(CONFIGS[2])
    before, patched = model(CLEAN), circuits.edge_patcher(model, CLEAN, CORRUPTED)
    first = patched([("Emb", "Att1")])
    with pytest.raises(ValueError):
        patched([("Out", "Att1")])
    assert torch.equal(patched([("Emb", "Att1")]), first)
    assert torch.equal(model(CLEAN), before)


def test_bad_input():
    model = Transformer(PLAIN)
    patched = circuits.edge_patcher(model, CLEAN, CORRUPTED)
    for edge, message in (
        (("L0H5", "Out"), "no head L0H5; this model has L0H0 … L1H1"),
        (("head", "Out"), "no node 'head'; it has Emb, Att0, Att1, Out"),
        (("MLP0", "Out"), "no node 'MLP0'"),
        (("Att2", "Out"), "no node 'Att2'"),
        (("Att1", "Att0"), "no edge Att1 → Att0"),
        (("L0H0", "L0H1.k"), "no edge L0H0 → L0H1.k"),
        (("Out", "Att1"), "'Out' cannot send"),
        (("L0H0.k", "Out"), "'L0H0.k' cannot send"),
        (("Emb", "Emb"), "no edge Emb → Emb"),
    ):
        with pytest.raises(ValueError, match=message):
            patched([edge])
        with pytest.raises(ValueError, match=message):
            circuits.ablate_edges(model, [edge])
    with pytest.raises(ValueError, match="n_layers=0"):
        circuits.ablate_edges(Transformer(dataclasses.replace(PLAIN, n_layers=0)), [])
    with pytest.raises(ValueError, match="one shape"):
        circuits.edge_patcher(model, CLEAN, CORRUPTED[:, 1:])
    with pytest.raises(ValueError, match="n_layers=0"):
        circuits.edge_patcher(Transformer(dataclasses.replace(PLAIN, n_layers=0)), CLEAN, CORRUPTED)
    with pytest.raises(ValueError, match="no effect to share out"):
        circuits.path_patch(model, CLEAN, CLEAN, "L0H0", "Out", metric)
