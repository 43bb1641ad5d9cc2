"""The transformer: what must hold for every configuration it accepts, and what it refuses."""

import dataclasses
import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from iclkit.model import Transformer, TransformerConfig
from iclkit.positions import SCHEMES

SMALL = TransformerConfig(d_vocab=11, n_ctx=12, n_layers=2, d_model=8, n_heads=2)

configs = st.builds(
    dataclasses.replace,
    st.just(SMALL),
    positions=st.sampled_from(sorted(SCHEMES)),
    n_layers=st.integers(0, 3),
    d_mlp=st.sampled_from([0, 16]),
    layer_norm=st.booleans(),
    smeared_keys=st.booleans(),
    tied=st.booleans(),
    act=st.sampled_from(["relu", "gelu"]),
)


def built(config: TransformerConfig, seed: int = 0) -> Transformer:
    """A model whose zero-initialised parts are random too, so that no part hides."""
    model = Transformer(config, seed).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.ndim < 2 or name.endswith("b_rel"):
                weight.add_(torch.randn(weight.shape, generator=torch.Generator().manual_seed(seed)) * 0.3)
    return model


def tokens(seed: int = 0, batch: int = 3, seq: int = 10) -> torch.Tensor:
    return torch.randint(SMALL.d_vocab, (batch, seq), generator=torch.Generator().manual_seed(seed))


@settings(max_examples=40, deadline=None)
@given(configs, st.integers(0, 9), st.integers(1, 9))
def test_a_token_changes_no_earlier_logit(config, seed, place):
    model, before = built(config), tokens(seed)
    after = before.clone()
    after[:, place] = (after[:, place] + 1) % config.d_vocab
    old, new = model(before), model(after)
    torch.testing.assert_close(old[:, :place], new[:, :place])
    assert (old[:, place] - new[:, place]).abs().max() > 1e-4


@settings(max_examples=40, deadline=None)
@given(configs)
def test_looking_changes_nothing(config):
    model, x = built(config), tokens()
    logits, cache = model.run_with_cache(x)
    torch.testing.assert_close(logits, model(x), atol=1e-5, rtol=1e-5)
    split, _ = model.run_with_cache(x, names=[lambda name: True])
    torch.testing.assert_close(split, model(x), atol=1e-5, rtol=1e-5)
    for layer in range(config.n_layers):
        pattern = cache["pattern", layer]
        torch.testing.assert_close(pattern.sum(-1), torch.ones(3, 2, 10))
        assert (pattern.triu(1) == 0).all()


@settings(max_examples=20, deadline=None)
@given(configs)
def test_the_residual_stream_is_a_sum(config):
    model, x = built(config), tokens()
    _, cache = model.run_with_cache(x)
    total = cache["embed"]
    if config.positions == "absolute":
        total = total + cache["pos_embed"]
    for layer in range(config.n_layers):
        torch.testing.assert_close(cache["result", layer].sum(2), cache["attn_out", layer])
        total = total + cache["attn_out", layer]
        total = total + cache["mlp_out", layer] if config.d_mlp else total
        torch.testing.assert_close(total, cache["resid_post", layer], atol=1e-5, rtol=1e-5)


def slow_attention(model: Transformer, x: torch.Tensor) -> torch.Tensor:
    """One attention-only layer with absolute positions and smeared keys, one number at a time."""
    attn, (batch, seq) = model.blocks[0].attn, x.shape
    logits = torch.zeros(batch, seq, model.config.d_vocab)
    for b in range(batch):
        resid = [model.W_E[x[b, t]] + model.W_pos[t] for t in range(seq)]
        for t in range(seq):
            out = resid[t].clone()
            for h in range(model.config.n_heads):
                a = torch.sigmoid(attn.smear[h])
                keys = [r @ attn.W_K[h] for r in resid]
                keys = [a * keys[j] + (1 - a) * keys[max(j - 1, 0)] for j in range(seq)]
                q = resid[t] @ attn.W_Q[h]
                weights = torch.stack([q @ keys[j] / model.config.d_head**0.5 for j in range(t + 1)]).softmax(0)
                for j in range(t + 1):
                    out = out + weights[j] * (resid[j] @ attn.W_V[h] @ attn.W_O[h])
            logits[b, t] = out @ model.W_U
    return logits


def test_the_forward_agrees_with_its_slow_twin():
    model = built(dataclasses.replace(SMALL, n_layers=1, smeared_keys=True))
    with torch.no_grad():
        torch.testing.assert_close(model(tokens()), slow_attention(model, tokens()), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("scheme", ["rotary", "relative"])
def test_relative_schemes_see_distance_only(scheme):
    model = built(dataclasses.replace(SMALL, positions=scheme, n_layers=1))
    _, cache = model.run_with_cache(torch.full((1, 12), 3))
    scores = cache["attn_scores", 0][0]
    for shift in range(1, 12):
        for query in range(shift, 12):
            torch.testing.assert_close(scores[:, query, query - shift], scores[:, shift, 0], atol=1e-5, rtol=1e-4)
    assert (scores[:, 11, 11] - scores[:, 11, 0]).abs().max() > 1e-3


def test_shortformer_positions_never_enter_the_stream():
    model = built(dataclasses.replace(SMALL, positions="shortformer"))
    same, _ = model.run_with_cache(torch.full((1, 12), 3), fwd_hooks=[(("pattern", 0), uniform)])
    torch.testing.assert_close(same[0, 0], model(torch.full((1, 1), 3))[0, 0])
    _, cache = model.run_with_cache(torch.full((1, 12), 3), fwd_hooks=[(("pattern", 0), uniform)])
    assert cache["resid_post", 0].std(1).max() < 1e-6


def uniform(pattern, hook):
    return torch.ones_like(pattern).tril() / torch.arange(1, pattern.shape[-1] + 1)[:, None]


def test_one_part_switched_on_leaves_the_others_as_they_were():
    plain, more = Transformer(SMALL, 5), Transformer(dataclasses.replace(SMALL, smeared_keys=True, d_mlp=8), 5)
    shared = dict(plain.named_parameters())
    assert shared.keys() < dict(more.named_parameters()).keys()
    assert all(torch.equal(weight, more.get_parameter(name)) for name, weight in shared.items())
    assert not torch.equal(plain.W_E, Transformer(SMALL, 6).W_E)


def test_hooks_touch_one_call_and_leave_nothing():
    model, x = built(SMALL), tokens()
    clean = model(x)
    seen = []
    touched = model.run_with_hooks(x, [(("z", 0), lambda z, hook: seen.append(hook.layer()) or z * 0)])
    assert seen == [0] and (touched - clean).abs().max() > 1e-3
    with pytest.raises(RuntimeError, match="on purpose"):
        model.run_with_hooks(x, [(("z", 0), lambda z, hook: (_ for _ in ()).throw(RuntimeError("on purpose")))])
    torch.testing.assert_close(model(x), clean)


def test_hooks_run_in_order_and_the_cache_sees_their_result():
    model, x = built(SMALL), tokens()
    hooks = [(("z", 0), lambda z, hook: z * 0), (("z", 0), lambda z, hook: z + 1)]
    _, cache = model.run_with_cache(x, fwd_hooks=hooks)
    assert (cache["z", 0] == 1).all()


def test_split_inputs_reach_one_head_alone():
    model, x = built(SMALL), tokens()

    def silence_head_1(read, hook):
        read = read.clone()
        read[:, :, 1] = 0
        return read

    _, before = model.run_with_cache(x)
    _, after = model.run_with_cache(x, fwd_hooks=[(("k_input", 1), silence_head_1)])
    torch.testing.assert_close(before["pattern", 1][:, 0], after["pattern", 1][:, 0])
    assert (before["pattern", 1][:, 1] - after["pattern", 1][:, 1]).abs().max() > 1e-4


def test_an_embedded_model_takes_vectors():
    vectors = torch.randn(2, 7, 8)
    model = Transformer(dataclasses.replace(SMALL, embedded=True, d_vocab_out=5))
    assert model(vectors).shape == (2, 7, 5) and model.W_E is None
    with pytest.raises(ValueError, match=r"takes float \[batch seq 8\]"):
        model(tokens())


def test_a_tied_model_reads_out_with_its_embedding():
    model = Transformer(dataclasses.replace(SMALL, tied=True))
    assert torch.equal(model.W_U, model.W_E.T) and "_W_U" not in dict(model.named_parameters())


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"d_model": 9}, "does not divide by n_heads"),
        ({"n_layers": -1}, "n_layers must be"),
        ({"n_heads": 0}, "n_heads must be"),
        ({"d_vocab": True}, "d_vocab must be"),
        ({"positions": "sinus"}, "positions must be one of absolute"),
        ({"act": "tanh"}, "act must be one of"),
        ({"positions": "rotary", "d_head": 3}, "d_head must be even"),
        ({"tied": True, "d_vocab_out": 3}, "tied"),
        ({"init_scale": 0.0}, "init_scale must be positive"),
    ],
)
def test_impossible_shapes_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(SMALL, **{"d_head": None, **wrong})


@pytest.mark.parametrize(
    "inputs, message",
    [
        (torch.full((1, 3), 11), "tokens must lie in 0 … 10"),
        (torch.full((1, 3), -1), "tokens must lie in 0 … 10"),
        (torch.zeros(1, 13, dtype=torch.long), "longer than n_ctx=12"),
        (torch.zeros(5, dtype=torch.long), r"takes int \[batch seq\]"),
        (torch.zeros(1, 3), r"takes int \[batch seq\]"),
    ],
)
def test_unusable_inputs_are_refused(inputs, message):
    with pytest.raises(ValueError, match=message):
        Transformer(SMALL).embed(inputs)


def test_an_unknown_name_brings_the_nearest_right_one():
    model, x = Transformer(SMALL), tokens()
    with pytest.raises(KeyError, match=r"nearest: .*blocks.1.attn.hook_pattern"):
        model.run_with_hooks(x, [("blocks.1.attn.hook_patern", lambda t, hook: None)])
    with pytest.raises(KeyError, match="blocks.0.attn.hook_pattern"):
        model.run_with_hooks(x, [(("pattern", 7), lambda t, hook: None)])
    with pytest.raises(KeyError, match="no activation name satisfies"):
        model.run_with_hooks(x, [(lambda name: False, lambda t, hook: None)])
    _, cache = model.run_with_cache(x)
    with pytest.raises(KeyError, match="only on request"):
        cache["q_input", 0]
    with pytest.raises(ValueError, match=r"returned \(1,\); expected None or a tensor"):
        model.run_with_hooks(x, [(("z", 0), lambda z, hook: torch.zeros(1))])


def test_every_name_is_passed_and_no_other():
    for norm, d_mlp, scheme in itertools.product([True, False], [0, 8], sorted(SCHEMES)):
        model = Transformer(dataclasses.replace(SMALL, layer_norm=norm, d_mlp=d_mlp, positions=scheme))
        _, cache = model.run_with_cache(tokens(), names=[lambda name: True])
        assert set(cache) == set(model.hook_names)
