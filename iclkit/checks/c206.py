"""Checks of chapter 206: the pooled code, the zero of a line, the K that a head reaches, counting from φ."""

import numpy as np
import torch

from iclkit.checks import Wrong, exercise, same
from iclkit.minimal.capacity import by_line
from iclkit.minimal.recognition import HeadConfig, RecognitionHead, features, init
from iclkit.predictors import Gen
from iclkit.tasks import generator


@exercise(seconds=5)
def ex1(answer):
    """φ after the last place, `[batch d_phi]`, from tokens `[batch seq]` and W_enc `[9 d_phi]`."""
    for seed, d_phi in enumerate((2, 5)):
        weights = init(HeadConfig(3, d_phi, 4), seed)
        tokens = torch.randint(0, 3, (6, 11), generator=generator(206, 1, seed))
        codes = weights["W_enc"][3 * tokens[:, :-1] + tokens[:, 1:]]
        turned = weights["W_enc"][3 * tokens[:, 1:] + tokens[:, :-1]].mean(1)
        same(
            answer(tokens, weights["W_enc"]),
            RecognitionHead(HeadConfig(3, d_phi, 4), weights).phi(tokens)[:, -1],
            name="φ",
            mistakes={
                "a mean over the n − 1 pairs is asked for, not a sum": codes.sum(1),
                "there are n − 1 pairs in n states; divide by that": codes.sum(1) / 11,
                "row C·x_{m−1} + x_m of W_enc is the pair's code: the earlier state counts C times": turned,
                "pool over all pairs, not the last one alone": codes[:, -1],
            },
        )
    return "the mean code of all pairs, for two widths"


@exercise(seconds=5)
def ex2(answer):
    """K*₂ as the zero of the line through Δτ^(−1/2), one wait a K, NaN left out."""
    random = np.random.default_rng(206)
    for K_star in (30.0, 77.0):
        K = np.arange(4.0, 28, 2)
        wait = 4e4 * (K_star - K) ** -2 * np.exp(0.1 * random.standard_normal(len(K)))
        wait[[4, 9]] = np.nan
        there = np.isfinite(wait)
        slope, offset = np.polyfit(K[there], wait[there] ** -0.5, 1)
        direct = np.polyfit(K[there], wait[there], 1)
        filled = np.polyfit(K, np.where(there, wait, np.nanmax(wait)) ** -0.5, 1)
        same(
            answer(K, wait),
            by_line(K, wait)[0],
            name="K*₂",
            mistakes={
                "this is the line's slope; its zero is asked for": slope,
                "this is the line's value at K = 0; its zero is asked for": offset,
                "fit Δτ^(−1/2), not Δτ": -direct[1] / direct[0],
                "leave censored runs out; do not put a wait in their place": -filled[1] / filled[0],
                "the zero lies at −offset / slope": offset / slope,
            },
        )
    return "the line's zero, with censored runs, for two thresholds"


@exercise(seconds=5)
def ex3(answer):
    """2-Gen from a φ that holds the table of pair shares."""
    for seed, seq in enumerate((12, 40)):
        tokens = torch.randint(0, 3, (7, seq), generator=generator(206, 3, seed))
        seen, now = (part[:, -1] for part in features(tokens, 3))
        table = seq * seen.unflatten(1, (3, 3)) - seen.unflatten(1, (3, 3))
        row, column = (table * now[:, :, None]).sum(1), (table * now[:, None]).sum(2)
        same(
            answer(seen, now, seq),
            Gen(2, 3)(tokens, (-1,))[:, 0].exp().float(),
            name="the probabilities",
            mistakes={
                "n states make n − 1 pairs: shares times n − 1 are counts": smoothed(row * seq / (seq - 1)),
                "the row of the state now is asked for: pairs that begin with it": smoothed(column),
                "add 1 to each count, as Dirichlet(1) rows ask": row / row.sum(1, keepdim=True),
                "shares are not counts: multiply them by the number of pairs": smoothed(row / (seq - 1)),
            },
        )
    return "equal to the ideal 2-Gen, for two lengths"


def smoothed(counts):
    return (counts + 1) / (counts.sum(1, keepdim=True) + 3)


@exercise(seconds=60)
def ex4(answer):
    """Two different transition matrices that one number φ, by W_enc `[9 1]`, cannot tell apart in the mean."""
    W_enc = torch.linspace(-1, 1, 9)[:, None]
    found = answer(W_enc)
    if not isinstance(found, (tuple, list)) or len(found) != 2:
        raise Wrong("return two transition matrices, [3 3] each")
    matrices = [torch.as_tensor(matrix).double() for matrix in found]
    for matrix in matrices:
        if matrix.shape != (3, 3) or (matrix <= 0).any():
            raise Wrong("each matrix should be [3 3] with positive entries")
        if not torch.allclose(matrix.sum(1), torch.ones(3, dtype=torch.double), atol=1e-5):
            raise Wrong("the rows of a transition matrix sum to one")
    if (matrices[0] - matrices[1]).abs().max() < 0.1:
        raise Wrong("the two chains should differ by at least 0.1 in some entry")
    mean = [(pairs(matrix) * W_enc.double()[:, 0]).sum().item() for matrix in matrices]
    if abs(mean[0] - mean[1]) > 0.005:
        raise Wrong(f"their mean φ are {mean[0]:.3f} and {mean[1]:.3f}; they should be equal within 0.005")
    return f"two chains with one φ, {mean[0]:.3f}: no decoder tells them apart"


def pairs(matrix):
    """Long-run shares of the nine pairs."""
    pi = torch.linalg.matrix_power(matrix, 200)[0]
    return (pi[:, None] * matrix).flatten()
