"""Checks of chapter 102: the copying score, K-composition, and short paths."""

import torch

from iclkit.checks import Wrong, exercise, same
from iclkit.circuits import path_expansion
from iclkit.model import Transformer, TransformerConfig
from iclkit.tasks import generator, repeated_tokens


def weights(seed: int, *shapes: tuple[int, int]) -> list[torch.Tensor]:
    """Gaussian matrices of the given shapes."""
    random = generator(102, seed)
    return [torch.randn(shape, generator=random) for shape in shapes]


@exercise(seconds=5)
def ex1(answer):
    """The copying score of one head."""
    for seed in range(4):
        W_E, W_V, W_O, W_U = weights(seed, (12, 8), (8, 3), (3, 8), (8, 12))
        W_U = W_U if seed < 2 else W_E.T  # two heads of any kind, two of one sign
        W_O = W_O if seed < 2 else (-1) ** seed * W_V.T
        values = torch.linalg.eigvals(W_E @ W_V @ W_O @ W_U)
        alone, size = torch.linalg.eigvals(W_V @ W_O), values.abs().sum()
        want = values.real.sum() / size
        got = answer(W_E, W_V, W_O, W_U)
        if isinstance(got, torch.Tensor) and got.is_complex():
            raise Wrong("the score is complex; the sum of all eigenvalues is real, take its real part")
        mistakes = {
            "the score is 1 for every head; above the line λ keeps its sign": torch.ones(()),
            "this is the trace; divide it by the sum of |λ|": values.real.sum(),
            "these are the eigenvalues of W_V W_O alone; the full circuit goes from tokens to tokens": (
                alone.real.sum() / alone.abs().sum()
            ),
            "divide by the sum of |λ|, not of the real parts' sizes": values.real.sum()
            / values.real.abs().sum(),
            "this is the share of positive eigenvalues; weigh each by its size": (values.real > 1e-4)
            .float()
            .mean(),
        }
        same(got, want, rtol=1e-3, atol=1e-4, name="the score", mistakes=mistakes)
    return "two heads of mixed sign, one that copies and one that takes back"


@exercise(seconds=5)
def ex2(answer):
    """K-composition of two heads."""
    for seed in range(3):
        W_V, W_O, W_Q, W_K = weights(seed, (8, 3), (3, 8), (8, 3), (8, 3))
        OV, QK = W_V @ W_O, W_Q @ W_K.T
        size = OV.norm() * QK.norm()
        turned = (W_Q.T @ W_V @ W_O @ W_K).norm()
        mistakes = {
            "this is Q-composition: what OV writes meets W_Q first, and should meet W_K": (OV @ QK).norm()
            / size,
            "the product is turned round; a norm does not allow it": turned / size,
            "product and norms are turned round; norms do not allow it": (
                turned / ((W_O @ W_V).norm() * (W_K.T @ W_Q).norm())
            ),
            "the later head's matrix comes first; the earlier head writes before it is read": (
                (QK.T @ OV).norm() / size
            ),
            "this is the norm of the product; divide by both norms": (OV @ QK.T).norm(),
            "‖W_V‖ ‖W_O‖ is not ‖W_V W_O‖; multiply first, then take the norm": (
                (OV @ QK.T).norm() / (W_V.norm() * W_O.norm() * W_Q.norm() * W_K.norm())
            ),
            "this is the largest singular value; take the root of the sum of squares of all entries": (
                torch.linalg.matrix_norm(OV @ QK.T, 2)
                / (torch.linalg.matrix_norm(OV, 2) * torch.linalg.matrix_norm(QK, 2))
            ),
            "the square of the score; take the root": ((OV @ QK.T).norm() / size) ** 2,
        }
        same(answer(W_V, W_O, W_Q, W_K), (OV @ QK.T).norm() / size, name="the score", mistakes=mistakes)
    return "in the order of reading, on three random pairs"


@exercise(seconds=10)
def ex3(answer):
    """Logits of all paths through at most `order` heads."""
    for layers, seed in ((2, 0), (3, 1)):
        shape = TransformerConfig(10, 12, layers, 16, 2, positions="shortformer", init_scale=2.0)
        model, tokens = Transformer(shape, seed), repeated_tokens(10, 5, 2, batch=3, seed=seed)
        with torch.no_grad():
            paths = path_expansion(model, tokens)
            for order in (layers, *range(layers)):
                mistakes = wrong_orders(model, tokens, paths, order)
                want = upto(paths, order)
                same(answer(model, tokens, order), want, atol=1e-4, name=f"order {order}", mistakes=mistakes)
    return "orders 0 to 3 of models with two and three layers"


def upto(paths: dict, order: int, least: int = 0) -> torch.Tensor:
    """The sum of the paths through `least` … `order` heads; zeros when there are none."""
    kept = [x for name, x in paths.items() if least <= name.count("L") <= order]
    return sum(kept, torch.zeros_like(paths["direct"]))


def wrong_orders(model: Transformer, tokens, paths: dict, order: int) -> dict:
    """What likely mistakes lead to."""
    silent = [
        (("z", layer), lambda z, hook: torch.zeros_like(z)) for layer in range(order, model.config.n_layers)
    ]
    return {
        "these are the paths through exactly that many heads; shorter ones belong too": upto(
            paths, order, order
        ),
        "the direct path is missing": upto(paths, order, 1),
        "one order too few: paths through exactly `order` heads belong too": upto(paths, order - 1),
        "later layers are silenced; a path may begin in any layer": model.run_with_hooks(tokens, silent),
        "nothing is left out": upto(paths, model.config.n_layers),
        "one order too many; did you count the arrows? A path with one arrow has two heads": (
            upto(paths, order + 1)
        ),
    }
