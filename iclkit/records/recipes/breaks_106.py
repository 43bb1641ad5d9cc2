"""Where induction breaks (chapter 106): one test a case, attention at the right key, and two repairs.

Models: `varied` (periods 12 … 31: the standard model, from part1_models) and `fixed` (period 21 alone).
"""

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from iclkit.model import Transformer, TransformerConfig
from iclkit.records.models import load_model
from iclkit.records.recipes import Piece, Probe
from iclkit.tasks import generator
from iclkit.tasks.repeats import BOS, Repeats
from iclkit.training import TrainConfig, train

NAME = "breaks_106"
COST = "2 models × 3 seeds × 10 to 30 s on one core"
SEEDS = (0, 1, 2)
CONFIG = TransformerConfig(64, 64, 2, d_model=64, n_heads=1, positions="shortformer", layer_norm=True)
FIXED = Repeats(vocab=64, length=64, min_period=21, max_period=21, batch_size=32)
KINDS = ("varied", "fixed")
PERIODS = (2, 3, 4, 5, 6, 8, 10, 12, 14, 17, 20, 21, 22, 25, 28, 31, 34, 38, 42, 46, 50, 54, 58)
STARTS = tuple(range(0, 40, 3))
RUNS = (1, 2, 3, 4, 5)
REPAIRS = ("as trained", "L1H0 without positions", "L0H0 steady", "both")
OFFSETS = (16, 21, 26)


def distinct(batch: int, length: int, seed: int) -> Int[Tensor, "batch length"]:
    """Random strings in which no symbol occurs twice."""
    return torch.rand(batch, 63, generator=generator(seed, 106)).argsort(1)[:, :length] + 1


def late_copy(period: int, start: int = 0, batch: int = 128, seed: int = 0) -> Int[Tensor, "batch seq"]:
    """BOS, `start` symbols of noise, then a string of `period` symbols twice; cut after 64 tokens.

    BOS  k x u | q f a z | q f a z        all symbols of one copy and of the noise are distinct
    """
    string = distinct(batch, start + period, seed)
    return with_bos(torch.cat([string, string[:, start:]], 1))[:, :64]


def two_continuations(batch: int = 512, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """Tokens [batch 35] that end in a symbol seen twice, and its two earlier positions, `first` and `last`.

    BOS  … x a b … y a c … a        distances from the end lie within what was trained, 11 … 30
    """
    random, row = generator(seed, 2), torch.arange(batch)
    first = torch.randint(4, 10, (batch,), generator=random)
    last = first + torch.randint(5, 11, (batch,), generator=random)
    tokens = with_bos(distinct(batch, 34, seed))
    tokens[row, last] = tokens[row, -1] = tokens[row, first]
    return tokens, first, last


def repeated_bigram(batch: int = 512, seed: int = 0) -> Int[Tensor, "batch seq"]:
    """A string of 20 symbols, twice, with one bigram at its places 5, 6 and 12, 13: … a b y … a b z …"""
    string = distinct(batch, 20, seed)
    string[:, 11:13] = string[:, 4:6]
    return with_bos(string.repeat(1, 2))


def with_run(length: int, batch: int = 512, seed: int = 0) -> Int[Tensor, "batch seq"]:
    """A string of 20 symbols, twice, with a run of one symbol from its place 9 on: … x a a a y …"""
    string = distinct(batch, 20, seed)
    string[:, 8 : 8 + length] = string[:, 8:9]
    return with_bos(string.repeat(1, 2))


def with_bos(symbols: Tensor) -> Tensor:
    return torch.cat([torch.full((len(symbols), 1), BOS), symbols], 1)


def without_positions(model: Transformer, layer: int = 1) -> list:
    """Hooks that take W_pos out of what a layer's queries and keys hold: only content is left to match."""
    attn, W_pos = model.blocks[layer].attn, model.positions.W_pos.detach()

    def taking_out(W):
        share = torch.einsum("sd,hde->she", W_pos, W.detach())
        return lambda x, hook: x - share[: x.shape[1]]

    return [(("q", layer), taking_out(attn.W_Q)), (("k", layer), taking_out(attn.W_K))]


def profile(model: Transformer, furthest: int = 9) -> Float[Tensor, " distance"]:
    """Mean attention of L0H0 to 0, 1, 2 … places back, at queries 10 … 27 without repeats; sums to 1."""
    _, cache = model.run_with_cache(with_bos(distinct(256, 62, 7)), [("pattern", 0)])
    pattern, query = cache["pattern", 0][:, 0].mean(0), torch.arange(10, 28)
    shares = torch.stack([pattern[query, query - back].mean() for back in range(furthest)])
    return shares / shares.sum()


def steady(model: Transformer) -> list:
    """A hook that gives L0H0 that one profile at every position."""
    shares = profile(model)

    def replace(pattern, hook):
        seq = pattern.shape[-1]
        back = torch.arange(seq)[:, None] - torch.arange(seq)
        same = torch.where((back >= 0) & (back < len(shares)), shares[back.clamp(0, len(shares) - 1)], 0.0)
        return (same / same.sum(-1, keepdim=True)).expand_as(pattern)

    return [(("pattern", 0), replace)]


def repairs(model: Transformer) -> dict[str, list]:
    """The four conditions of `REPAIRS` as hooks."""
    placeless, even = without_positions(model), steady(model)
    return dict(zip(REPAIRS, ([], placeless, even, placeless + even)))


def second_copy(model: Transformer, tokens: Tensor, period: int, start: int = 0, hooks=()) -> tuple:
    """Accuracy on the second copy after its first symbol, and L1H0's attention to the right key."""
    logits, cache = model.run_with_cache(tokens, [("pattern", 1)], fwd_hooks=list(hooks))
    query = torch.arange(start + period + 1, min(start + 2 * period, tokens.shape[1] - 1))
    right = logits[:, query].argmax(-1) == tokens[:, query + 1]
    return right.float().mean().item(), cache["pattern", 1][:, 0, query, query - period + 1].mean().item()


def ask_two(model: Transformer, seed: int, hooks=()) -> dict:
    """What follows a symbol with two continuations: shares of probability and attention, and a control."""
    tokens, first, last = two_continuations(seed=seed)
    row = torch.arange(len(tokens))
    logits, cache = model.run_with_cache(tokens, [("pattern", 1)], fwd_hooks=list(hooks))
    p, seen = logits[:, -1].softmax(-1), cache["pattern", 1][:, 0, -1]
    chance = torch.stack([p[row, tokens[row, place + 1]] for place in (first, last)])
    attended = torch.stack([seen[row, place + 1] for place in (first, last)])
    best = torch.stack([p.argmax(-1) == tokens[row, place + 1] for place in (first, last)]).float()
    single = tokens.clone()
    single[row, last] = distinct(len(tokens), 35, seed)[:, -1]
    once = model.run_with_hooks(single, list(hooks))[:, -1].softmax(-1)
    leaning = []
    for place in (first, last):
        told = tokens.clone()
        told[row, -2] = tokens[row, place - 1]
        q = model.run_with_hooks(told, list(hooks))[:, -1].softmax(-1)
        leaning.append(q[row, tokens[row, last + 1]].mean().item())
    return {
        "p": chance.mean(1), "attended": attended.mean(1), "accuracy": best.mean(),
        "p_larger": (chance.amax(0) / chance.sum(0)).mean(),
        "attended_larger": (attended.amax(0) / attended.sum(0)).mean(),
        "once": (once.argmax(-1) == tokens[row, first + 1]).float().mean(), "told": np.array(leaning),
    }  # fmt: skip


def ask_bigram(model: Transformer, seed: int, hooks=()) -> dict:
    """Accuracy after `a` (one continuation) and after `b` (two), at both places of the second copy."""
    tokens = repeated_bigram(seed=seed)
    right = (model.run_with_hooks(tokens, list(hooks))[:, :-1].argmax(-1) == tokens[:, 1:]).float().mean(0)
    return {"after_a": right[[25, 32]], "after_b": right[[26, 33]]}


def ask_run(model: Transformer, length: int, seed: int) -> dict:
    """At the last symbol of the run's second copy: is y predicted, where L1H0 looks, what a look is worth."""
    tokens = with_run(length, seed=seed)
    logits, cache = model.run_with_cache(tokens)
    end, run, row = 28 + length, slice(9, 9 + length), torch.arange(len(tokens))
    y, a = tokens[:, 9 + length], tokens[:, 9]
    toward = (model.W_U[:, y] - model.W_U[:, a]).T * model.ln_final.w
    written = torch.einsum("bshe,hed->bsd", cache["v", 1], model.blocks[1].attn.W_O)
    written = written - written.mean(-1, keepdim=True)
    worth = torch.einsum("bsd,bd->bs", written, toward) / cache["ln_final.hook_scale"][:, end]
    seen, p = cache["pattern", 1][:, 0, end], logits[:, end].softmax(-1)
    return {
        "exit": (logits[:, end].argmax(-1) == y).float().mean(),
        "p_y": p[row, y].mean(), "p_a": p[row, a].mean(),
        "seen_y": seen[:, 9 + length].mean(), "seen_a": seen[:, run].sum(1).mean(),
        "worth_y": worth[:, 9 + length].mean(), "worth_a": worth[:, run].mean(),
    }  # fmt: skip


def by_distance(model: Transformer, period: int, seed: int) -> Float[Tensor, " distance"]:
    """Mean attention of L1H0 to 0 … 31 places back, from the last third of the second copy."""
    _, cache = model.run_with_cache(late_copy(period, seed=seed), [("pattern", 1)])
    query = torch.arange(2 * period - period // 3, 2 * period + 1)
    return torch.stack([cache["pattern", 1][:, 0, query, (query - d).clamp(0)].mean() for d in range(32)])


def copies_back(model: Transformer, period: int, seed: int, back: int = 20) -> Tensor:
    """Share of the second copy's predictions that name whatever stands `back` places earlier."""
    tokens = late_copy(period, seed=seed)
    query = torch.arange(max(period, back) + 1, 2 * period)
    return (model(tokens)[:, query].argmax(-1) == tokens[:, query - back]).float().mean()


def trained(kind: str, seed: int) -> Transformer:
    """`varied` comes from the record of Part I's models; `fixed` is trained here."""
    if kind == "varied":
        return load_model("part1_models", "2L", seed)
    model = Transformer(CONFIG, seed)
    config = TrainConfig(steps=500, lr=3e-3, seed=seed)
    return train(model, FIXED, config, device="cpu", progress=False).model


def configs(scale: str) -> list[dict]:
    return [{"kind": kind} for kind in KINDS]


@torch.no_grad()
def measure(model: Transformer, seed: int) -> dict:
    """Every case of the chapter, for one model."""
    fixes = repairs(model)
    sweep = [
        [second_copy(model, late_copy(p, 0, seed=seed), p, 0, h) for p in PERIODS] for h in fixes.values()
    ]
    place = [
        [second_copy(model, late_copy(12, s, seed=seed), 12, s, h) for s in STARTS] for h in fixes.values()
    ]
    _, cache = model.run_with_cache(with_bos(distinct(256, 63, seed + 1)), [("pattern", 0)])
    found = {"period_sweep": sweep, "start_sweep": place}
    found["one_back"] = cache["pattern", 0][:, 0].diagonal(-1, 1, 2).mean(0)
    found["by_distance"] = torch.stack([by_distance(model, period, seed) for period in OFFSETS])
    found["copies_back"] = torch.stack([copies_back(model, period, seed) for period in OFFSETS])
    for name, hooks in (("two", []), ("two_repaired", fixes["both"])):
        found |= {f"{name}_{key}": value for key, value in ask_two(model, seed, hooks).items()}
    for name, hooks in (("bigram", []), ("bigram_repaired", fixes["both"])):
        found |= {f"{name}_{key}": value for key, value in ask_bigram(model, seed, hooks).items()}
    runs = [ask_run(model, length, seed) for length in RUNS]
    found |= {f"run_{key}": torch.stack([run[key] for run in runs]) for key in runs[0]}
    return {name: np.asarray(value, dtype=np.float32) for name, value in found.items()}


def unit(config: dict, seed: int) -> dict:
    return measure(trained(config["kind"], seed), seed)


def assemble(pieces: list[Piece]) -> dict:
    """`kind.name` [seed …] for every measure; sweeps are [seed repair place (accuracy, attention)]."""
    arrays = {
        "periods": np.array(PERIODS), "starts": np.array(STARTS), "runs": np.array(RUNS),
        "repairs": np.array(REPAIRS), "offsets": np.array(OFFSETS),
    }  # fmt: skip
    for kind in KINDS:
        found = [piece.arrays for piece in pieces if piece.config["kind"] == kind]
        arrays |= {f"{kind}.{name}": np.stack([f[name] for f in found]) for name in found[0]}
    return arrays


@torch.no_grad()
def probe(record) -> Probe:
    """The late copies of seed 0, once more."""
    stored = record["varied.start_sweep"][0, 0, -1, 0]
    measured = second_copy(trained("varied", 0), late_copy(12, STARTS[-1], seed=0), 12, STARTS[-1])[0]
    return Probe("accuracy on the last copies", measured, float(stored) - 0.01, float(stored) + 0.01)
