"""Figures draw what they are given, name their axes, and refuse what does not fit."""

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch

from iclkit import figures

pytestmark = pytest.mark.usefixtures("house_style")


def test_attention_shows_the_pattern_with_tokens():
    pattern = 0.5 * torch.eye(4, requires_grad=True)
    ax = figures.attention(pattern, torch.tensor([7, 8, 7, 8]), title="L1H4")
    (image,) = ax.images
    np.testing.assert_array_equal(image.get_array(), 0.5 * np.eye(4))
    assert image.get_clim() == (0, 1)
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["7", "8", "7", "8"]
    assert "key" in ax.get_xlabel() and "query" in ax.get_ylabel() and ax.get_title() == "L1H4"


def test_attention_draws_into_the_axes_it_is_given():
    _, ax = plt.subplots()
    assert figures.attention(np.eye(3), ax=ax) is ax


@pytest.mark.parametrize("shape", [(4,), (2, 3), (1, 4, 4)])
def test_attention_refuses_other_shapes(shape):
    with pytest.raises(ValueError, match="query key"):
        figures.attention(np.zeros(shape))


def test_attention_refuses_tokens_of_another_length():
    with pytest.raises(ValueError, match="4 positions but tokens has 3"):
        figures.attention(np.eye(4), "abc")


def test_attention_grid_has_a_panel_a_head():
    patterns = torch.rand(2, 3, 5, 5)
    figure = figures.attention_grid(patterns, "abcde")
    np.testing.assert_array_equal(figure.axes[4].images[0].get_array(), patterns[1, 1])
    assert [ax.get_title() for ax in figure.axes] == [f"L{i}H{j}" for i in range(2) for j in range(3)]
    with pytest.raises(ValueError, match="layer head query key"):
        figures.attention_grid(torch.rand(3, 5, 5))


def test_heatmap_puts_white_at_zero_for_both_signs():
    image = figures.heatmap(np.array([[-1.0, 3.0]]), xlabel="key", rows=["a"], cols=["b", "c"]).images[0]
    assert image.get_clim() == (-3, 3)
    assert figures.heatmap(np.array([[0.0, 3.0]])).images[0].get_clim() == (0, 3)
    assert figures.heatmap(np.zeros((2, 2))).images[0].get_clim() == (0, 1)
    with pytest.raises(ValueError, match="two axes"):
        figures.heatmap(np.zeros(3))


def test_curves_draw_seeds_faint_and_their_mean_strong():
    ys = np.arange(12.0).reshape(3, 4)
    ax = figures.curves(np.arange(4), {"loss": ys, "one": ys[0]}, baselines={"uniform": 2.0})
    faint = [line for line in ax.lines if line.get_alpha() == 0.25]
    strong = [line for line in ax.lines if line.get_linewidth() == 2.0]
    assert len(faint) == 3 and len(strong) == 2
    np.testing.assert_array_equal(strong[0].get_ydata(), ys.mean(axis=0))
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["loss", "one"]
    assert [text.get_text() for text in ax.texts] == ["uniform"]


def test_curves_refuse_another_number_of_points():
    with pytest.raises(ValueError, match="4 points; got shape"):
        figures.curves(np.arange(4), {"loss": np.zeros((3, 5))})


def test_long_token_lists_name_every_other_position():
    ax = figures.attention(np.eye(64), range(64))
    assert [tick.get_text() for tick in ax.get_xticklabels()] == [str(i) for i in range(0, 64, 2)]


def test_the_colours_are_distinct_and_the_background_is_light():
    assert len(set(figures.COLOURS)) == 8
    assert matplotlib.colors.to_rgb(plt.rcParams["figure.facecolor"]) == (1, 1, 1)


def test_a_circuit_has_every_edge_and_shows_the_kept_ones():
    nodes = ["Emb", "Att0", "MLP0", "Out"]
    ax = figures.circuit(nodes, {("Emb", "Att0"): 1.0, ("Att0", "Out"): 0.5}, title="kept")
    widths = [text.arrow_patch.get_linewidth() for text in ax.texts if hasattr(text, "arrow_patch")]
    assert sorted(widths) == pytest.approx([0.7] * 4 + [1.85, 3.0])
    assert [text.get_text() for text in ax.texts if not hasattr(text, "arrow_patch")] == nodes
    plain = figures.circuit(nodes, [("Emb", "Out")])
    assert max(t.arrow_patch.get_linewidth() for t in plain.texts if hasattr(t, "arrow_patch")) == 3.0
    with pytest.raises(ValueError, match=r"\('Out', 'Emb'\) is no edge"):
        figures.circuit(nodes, [("Out", "Emb")])
