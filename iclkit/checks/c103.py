"""Chapter 103: an induction head by hand."""

import torch
from torch import Tensor

from iclkit.checks import Wrong, exercise, same
from iclkit.model import Transformer, TransformerConfig
from iclkit.records.recipes.by_hand_103 import hand_built, second_copy
from iclkit.tasks import generator, repeated_tokens

WRITERS, READERS = ("W_E", "positions.W_pos", "W_O"), ("W_Q", "W_K", "W_V", "_W_U")


@exercise()
def ex1(look_back):
    for distance, n_ctx in ((1, 6), (2, 7), (5, 9)):
        want = torch.zeros(n_ctx, n_ctx)
        for place in range(distance, n_ctx):
            want[place, place - distance] = 1
        wrapped = torch.eye(n_ctx).roll(-distance, 1)
        same(
            look_back(distance, n_ctx),
            want,
            mistakes={
                "the first places ask for the last ones; they should ask for nothing": wrapped,
                "row t asks for t + distance: it looks ahead, not back": want.T,
                "the main diagonal: each place asks for itself": torch.eye(n_ctx),
            },
        )
    return "one 1 a row, at t − distance, for three distances"


@exercise(seconds=10)
@torch.no_grad()
def ex2(turn):
    config = TransformerConfig(d_vocab=11, n_ctx=9, n_layers=2, d_model=12, n_heads=2)
    tokens = torch.randint(11, (3, 9), generator=generator(2))
    R = torch.linalg.qr(torch.randn(12, 12, generator=generator(3))).Q
    model, before = Transformer(config, seed=1), Transformer(config, seed=1)
    turn(model, R)
    if torch.allclose(model.W_E, before.W_E):
        raise Wrong("W_E is unchanged; change the weights of the model in place, such as W.copy_(W @ R)")
    named = dict(before.named_parameters())
    for name, weight in model.named_parameters():
        last = name.split("attn.")[-1]
        want = named[name] @ R if last in WRITERS else R.T @ named[name]
        word = "writes to" if last in WRITERS else "reads from"
        shown = name.removeprefix("_")
        mistakes = {f"{shown} {word} the stream, but is unchanged": named[name]}
        if last in READERS:
            mistakes[f"{shown} reads the turned stream: it needs the transpose of R"] = R @ named[name]
        else:
            mistakes[f"{shown} is turned the other way: what it writes should become x R"] = named[name] @ R.T
        same(weight, want, rtol=1e-3, name=shown, mistakes=mistakes)
    same(model(tokens), before(tokens), rtol=1e-3, atol=1e-4, name="the logits")
    return "every vector of the stream is turned, and the logits are what they were"


@exercise(seconds=10)
@torch.no_grad()
def ex3(resting_head):
    model = hand_built()
    answer = resting_head()
    if not isinstance(answer, (tuple, list)) or len(answer) != 2:
        raise Wrong("return two tensors, W_K and W_V, in this order")
    W_K, W_V = answer
    for name, weight in (("W_K", W_K), ("W_V", W_V)):
        if not isinstance(weight, Tensor) or weight.shape != (192, 64):
            raise Wrong(f"{name} should be a tensor of shape [192, 64]; return W_K, W_V in this order")
        getattr(model.blocks[1].attn, name).copy_(weight[None])
    tokens = repeated_tokens(64, 20, batch=8, seed=3)[:, :-1]
    logits, cache = model.run_with_cache(tokens)
    rest = cache["pattern", 1][:, 0, :, 0]
    if rest[:, 2:21].min() < 0.8:
        raise Wrong(
            f"in the first copy BOS gets {rest[:, 20].mean():.2f} of the attention; it should get over 0.8"
        )
    if rest[:, 21:].max() > 0.2:
        raise Wrong("in the second copy the head still rests on BOS; a match must score higher than BOS does")
    if second_copy(model, 20, 3)[0] < 1:
        raise Wrong("the second copy is no longer right everywhere; does W_V still hand over the symbols?")
    if logits[:, 2:, 0].abs().max() > 0.5:
        raise Wrong("BOS is being predicted: W_V should hand over nothing from there")
    return "rests on BOS in the first copy, and is right in the second"


@exercise(seconds=20)
@torch.no_grad()
def ex4(pointer_heads):
    model = hand_built()
    heads = pointer_heads()
    if not isinstance(heads, (tuple, list)) or [isinstance(head, dict) for head in heads] != [True, True]:
        raise Wrong("return two dictionaries, first the head of layer 0, then that of layer 1")
    for block, weights in zip(model.blocks, heads):
        for name in ("W_Q", "W_K", "W_V", "W_O"):
            wanted = getattr(block.attn, name)[0]
            if not isinstance(weights.get(name), Tensor) or weights[name].shape != wanted.shape:
                raise Wrong(f"each head needs {name} of shape {list(wanted.shape)}")
            wanted.copy_(weights[name])
    for period in (2, 7, 19, 32):
        right, present = second_copy(model, period, 5)
        if present > 0.9:
            raise Wrong(
                "the present symbol is predicted again: L1H0 finds nothing, or asks for s instead of s + 1"
            )
        if right < 0.99:
            raise Wrong(f"period {period}: {right:.0%} of the second copy is right; it should be all")
    tokens = repeated_tokens(64, 12, batch=8, seed=6)[:, :-1]
    _, cache = model.run_with_cache(tokens)
    later = torch.arange(13, 24)
    if cache["pattern", 0][:, 0, later, later - 12].mean() < 0.3:
        raise Wrong(
            "right, but L0H0 does not look at the earlier copy of the present symbol: not by pointers"
        )
    written = cache["attn_out", 0][:, :, None]
    blind = model.run_with_hooks(tokens, [(("q_input", 1), lambda x, hook: x - written)])
    if (blind[:, later[:-1]].argmax(-1) == tokens[:, later[1:]]).float().mean() > 0.5:
        raise Wrong("right, but not through the queries: with L0H0 hidden from them it still works")
    return "right at every period tried, through the queries"
