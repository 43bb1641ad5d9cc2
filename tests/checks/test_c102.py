"""The checks of chapter 102 accept right answers and name the mistakes of wrong ones."""

import torch
from checking import assert_check, solution, stub

from iclkit import checks


def test_copying_score():
    def large_side(W_E, W_V, W_O, W_U):
        values = torch.linalg.eigvals(W_E @ W_V @ W_O @ W_U)
        return (values.sum() / values.abs().sum()).real

    def unsigned(W_E, W_V, W_O, W_U):
        values = torch.linalg.eigvals(W_E @ W_V @ W_O @ W_U)
        return values.abs().sum() / values.abs().sum()

    def trace(W_E, W_V, W_O, W_U):
        return (W_E @ W_V @ W_O @ W_U).trace()

    def without_tokens(W_E, W_V, W_O, W_U):
        values = torch.linalg.eigvals(W_V @ W_O)
        return values.real.sum() / values.abs().sum()

    def complex_number(W_E, W_V, W_O, W_U):
        values = torch.linalg.eigvals(W_E @ W_V @ W_O @ W_U)
        return values.sum() / values.abs().sum()

    assert_check(
        checks.c102.ex1,
        right=[solution("102", 1), large_side],
        stub=stub("102", 1),
        wrong=[
            (unsigned, "keeps its sign"),
            (trace, "divide it by the sum"),
            (without_tokens, "from tokens to tokens"),
            (complex_number, "take its real part"),
        ],
    )


def test_k_composition():
    def by_singular_values(W_V, W_O, W_Q, W_K):
        def size(M):
            return torch.linalg.svdvals(M).square().sum().sqrt()

        return size(W_V @ W_O @ W_K @ W_Q.T) / size(W_V @ W_O) / size(W_Q @ W_K.T)

    def queries(W_V, W_O, W_Q, W_K):
        OV, QK = W_V @ W_O, W_Q @ W_K.T
        return (OV @ QK).norm() / (OV.norm() * QK.norm())

    def turned(W_V, W_O, W_Q, W_K):
        return (W_Q.T @ W_V @ W_O @ W_K).norm() / ((W_O @ W_V).norm() * (W_K.T @ W_Q).norm())

    def four_norms(W_V, W_O, W_Q, W_K):
        return bare(W_V, W_O, W_Q, W_K) / (W_V.norm() * W_O.norm() * W_Q.norm() * W_K.norm())

    def spectral(W_V, W_O, W_Q, W_K):
        def size(M):
            return torch.linalg.matrix_norm(M, 2)

        return size(W_V @ W_O @ W_K @ W_Q.T) / size(W_V @ W_O) / size(W_Q @ W_K.T)

    def bare(W_V, W_O, W_Q, W_K):
        return (W_V @ W_O @ W_K @ W_Q.T).norm()

    assert_check(
        checks.c102.ex2,
        right=[solution("102", 2), by_singular_values],
        stub=stub("102", 2),
        wrong=[
            (queries, "Q-composition"),
            (turned, "turned round"),
            (bare, "divide by both norms"),
            (four_norms, "multiply first"),
            (spectral, "largest singular value"),
            (lambda *weights: by_singular_values(*weights) ** 2, "square of the score"),
        ],
    )


def test_short_paths():
    def again_and_again(model, tokens, order):
        """Run with the patterns imposed, heads reading only what the run before has built."""
        _, cache = model.run_with_cache(tokens)
        layers, embed = range(model.config.n_layers), model.W_E[tokens]
        patterns = [cache["pattern", layer] for layer in layers]
        OV = model.W_V @ model.W_O
        outputs = [torch.zeros_like(embed) for _ in layers]
        for _ in range(order):
            streams = [embed + sum(outputs[:layer], torch.zeros_like(embed)) for layer in layers]
            outputs = [
                sum(
                    patterns[layer][:, h] @ streams[layer] @ OV[layer, h] for h in range(model.config.n_heads)
                )
                for layer in layers
            ]
        return (embed + sum(outputs)) @ model.W_U

    def first_layers_only(model, tokens, order):
        silent = [
            (("z", layer), lambda z, hook: torch.zeros_like(z))
            for layer in range(order, model.config.n_layers)
        ]
        return model.run_with_hooks(tokens, silent)

    def exactly(model, tokens, order):
        paths = checks.c102.path_expansion(model, tokens)
        return checks.c102.upto(paths, order, order)

    def whole(model, tokens, order):
        return model(tokens)

    def by_arrows(model, tokens, order):
        paths = checks.c102.path_expansion(model, tokens)
        return sum(x for name, x in paths.items() if name.count("→") <= order)

    def no_direct(model, tokens, order):
        return checks.c102.upto(checks.c102.path_expansion(model, tokens), order, 1)

    assert_check(
        checks.c102.ex3,
        right=[solution("102", 3), again_and_again],
        stub=stub("102", 3),
        wrong=[
            (first_layers_only, "later layers are silenced"),
            (exactly, "exactly that many heads"),
            (no_direct, "direct path is missing"),
            (whole, "nothing is left out"),
            (by_arrows, "count the arrows"),
        ],
    )
