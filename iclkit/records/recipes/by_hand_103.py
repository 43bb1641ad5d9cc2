"""An induction head written by hand (chapter 103): accuracy on the second copy, intact and broken on purpose."""

import math

import numpy as np
import torch

from iclkit.model import Transformer, TransformerConfig
from iclkit.records.recipes import Piece, Probe
from iclkit.tasks import repeated_tokens

NAME = "by_hand_103"
COST = "3 sets of strings × 12 s on one core; nothing is trained"
SEEDS = (0, 1, 2)
PERIODS = tuple(range(2, 33))
TEMPERATURES = (1, 2, 3, 4, 5, 6, 7, 8, 10, 14)
BETA, GAIN = 12.0, 10.0
BROKEN = ("intact", "without L1H0", "without L0H0", "layers swapped", "hidden from queries", "hidden from keys",
          "hidden from values", "strings with repeats inside")  # fmt: skip


def hand_built(order: tuple[int, int] = (0, 1)) -> Transformer:
    """Previous-token head and induction head in one-hot rooms of the stream: token, place, before.

    `order` says which of the two stands in layer 0 and which in layer 1.
    """
    size, every = 64, slice(None)
    token, place, before = slice(0, 64), slice(64, 128), slice(128, 192)
    sharp, eye = BETA * math.sqrt(size), torch.eye(size)
    one_back = torch.diag(torch.ones(size - 1), -1)
    heads = [
        {"W_Q": (place, sharp * one_back), "W_K": (place, eye), "W_V": (token, eye), "W_O": (before, eye)},
        {"W_Q": (token, sharp * eye), "W_K": (before, eye), "W_V": (token, eye), "W_O": (token, GAIN * eye)},
    ]
    model = Transformer(TransformerConfig(64, 64, 2, d_model=192, n_heads=1, d_head=size))
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
        model.W_E[:, token], model.positions.W_pos[:, place], model.W_U[token] = eye, eye, eye
        for block, number in zip(model.blocks, order):
            for name, (room, matrix) in heads[number].items():
                weight = getattr(block.attn, name)[0]
                weight[(every, room) if name == "W_O" else (room, every)] = matrix
    return model


def zero(activation, hook):
    return torch.zeros_like(activation)


def hidden_from(model: Transformer, into: str):
    """The model with L0H0's output taken out of what L1H0 reads for its q, k or v."""

    def predict(tokens):
        _, cache = model.run_with_cache(tokens, names=[("attn_out", 0)])
        written = cache["attn_out", 0][:, :, None]
        return model.run_with_hooks(tokens, [((f"{into}_input", 1), lambda x, hook: x - written)])

    return predict


def softened(model: Transformer, layers: tuple[int, ...], temperature: float):
    """The model with the attention scores of these layers divided by a temperature."""
    return model.hooked([(("attn_scores", layer), lambda s, hook: s / temperature) for layer in layers])


@torch.no_grad()
def second_copy(predict, period: int, seed: int, distinct: bool = True) -> tuple[float, float]:
    """Shares of the second copy's predictions that are right, and that name the present symbol again."""
    tokens = repeated_tokens(64, period, 2, batch=16, seed=seed, distinct=distinct)
    said = predict(tokens[:, :-1])[:, period + 1 :].argmax(-1)
    right, present = said == tokens[:, period + 2 :], said == tokens[:, period + 1 : -1]
    return right.float().mean().item(), present.float().mean().item()


def law(period: int, temperature: float) -> float:
    """The accuracy the circuit predicts with L1H0 softened: right while t < (g − 1) e^(β/τ) − 2g."""
    limit = (GAIN - 1) * math.exp(BETA / temperature) - 2 * GAIN
    return float(np.mean([t < limit for t in range(period + 1, 2 * period)]))


def configs(scale: str) -> list[dict]:
    return [{"periods": list(PERIODS)}]


def unit(config: dict, seed: int) -> dict:
    model, periods = hand_built(), config["periods"]
    predictors = {"intact": model, "layers swapped": hand_built((1, 0)), "strings with repeats inside": model}
    predictors |= {f"without L{layer}H0": model.hooked([(("z", layer), zero)]) for layer in (0, 1)}
    predictors |= {f"hidden from {name}": hidden_from(model, name[0]) for name in ("queries", "keys", "values")}
    shares = [
        [second_copy(predictors[name], period, seed, distinct=name != BROKEN[-1]) for period in periods]
        for name in BROKEN
    ]
    soft = [
        [[second_copy(softened(model, layers, t), p, seed)[0] for p in periods] for t in TEMPERATURES]
        for layers in ((0,), (1,), (0, 1))
    ]
    return {"shares": np.array(shares), "soft": np.array(soft)}


def assemble(pieces: list[Piece]) -> dict:
    """`right` and `present` [seed condition period], `soft` [seed L0|L1|both temperature period], `law`."""
    shares = np.stack([piece.arrays["shares"] for piece in pieces])
    return {
        "condition": np.array(BROKEN),
        "period": np.array(PERIODS),
        "temperature": np.array(TEMPERATURES),
        "right": shares[..., 0],
        "present": shares[..., 1],
        "soft": np.stack([piece.arrays["soft"] for piece in pieces]),
        "law": np.array([[law(period, t) for period in PERIODS] for t in TEMPERATURES]),
    }


def probe(record) -> Probe:
    measured = np.mean([second_copy(hand_built(), period, 7)[0] for period in PERIODS])
    intact = record["right"][:, 0]
    return Probe("accuracy of the intact model", float(measured), intact.min() - 0.01, intact.max())
