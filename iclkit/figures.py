"""One plot style and the few pictures every chapter draws: attention, heat maps, curves.

Each function takes arrays or tensors, draws, and hands back the Axes or Figure. None of them trains,
shows or saves. Colours are the colour-blind safe set of Okabe and Ito (https://jfly.uni-koeln.de/color/);
every figure has its own light background, so that it reads the same on a light and on a dark page.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
GREY = "#5F5F5F"

STYLE = {
    "figure.figsize": (6.4, 3.6),
    "figure.dpi": 100,
    "figure.facecolor": "white",
    "figure.constrained_layout.use": True,
    "savefig.facecolor": "white",
    "axes.facecolor": "white",
    "axes.edgecolor": "#333333",
    "axes.labelcolor": "#222222",
    "axes.prop_cycle": plt.cycler(color=COLOURS),
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 11,
    "axes.labelsize": 10,
    "font.size": 10,
    "legend.frameon": False,
    "text.color": "#222222",
    "xtick.color": "#222222",
    "ytick.color": "#222222",
    "image.interpolation": "nearest",
}


def use_style() -> None:
    """Set the book's plot style for every figure drawn from now on."""
    plt.rcParams.update(STYLE)


def to_numpy(values) -> np.ndarray:
    """Give a list, array or tensor as a NumPy array, detached and on the CPU."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
    return np.asarray(values)


def attention(pattern, tokens=None, ax: Axes | None = None, title: str | None = None) -> Axes:
    """Draw one attention pattern [query key]: row = the position that looks, column = where it looks.

    `tokens` names the positions. White is 0, dark blue is 1, in every picture alike.
    Raises ValueError when the pattern is not square or the tokens do not fit it.
    """
    pattern = to_numpy(pattern)
    if pattern.ndim != 2 or pattern.shape[0] != pattern.shape[1]:
        raise ValueError(
            f"pattern must be [query key] with as many queries as keys; got shape {pattern.shape}. "
            "Take one sequence and one head: cache['pattern', 1][0, head]"
        )
    names = None if tokens is None else [_token_name(token) for token in tokens]
    if names is not None and len(names) != len(pattern):
        raise ValueError(f"pattern has {len(pattern)} positions but tokens has {len(names)}")
    ax = ax or plt.subplots(figsize=(4.6, 4.2))[1]
    ax.imshow(pattern, cmap="Blues", vmin=0, vmax=1)
    ax.set(xlabel="key: attended to", ylabel="query: attending", title=title or "")
    _name_ticks(ax, names, names)
    return ax


def attention_grid(patterns, tokens=None) -> Figure:
    """Draw every head of every layer, patterns [layer head query key], one row of panels a layer.

    Raises ValueError when `patterns` has another number of axes.
    """
    patterns = to_numpy(patterns)
    if patterns.ndim != 4:
        raise ValueError(f"patterns must be [layer head query key]; got shape {patterns.shape}")
    layers, heads = patterns.shape[:2]
    figure, axes = plt.subplots(layers, heads, figsize=(2.1 * heads + 0.4, 2.2 * layers), squeeze=False)
    for layer in range(layers):
        for head in range(heads):
            ax = attention(patterns[layer, head], tokens, axes[layer, head], f"L{layer}H{head}")
            ax.tick_params(labelsize=6)
            ax.set_xlabel("key" if layer == layers - 1 else "")
            ax.set_ylabel("query" if head == 0 else "")
    return figure


def heatmap(matrix, ax: Axes | None = None, xlabel="", ylabel="", rows=None, cols=None) -> Axes:
    """Draw a matrix [row column] with its colour bar; one of both signs gets white at zero.

    `rows` and `cols` name its rows and columns. Raises ValueError when `matrix` has not two axes.
    """
    matrix = to_numpy(matrix)
    if matrix.ndim != 2:
        raise ValueError(f"matrix must have two axes [row column]; got shape {matrix.shape}")
    ax = ax or plt.subplots(figsize=(5.2, 4.2))[1]
    largest = float(np.nanmax(np.abs(matrix))) or 1.0
    if np.nanmin(matrix) < 0:
        image = ax.imshow(matrix, cmap="RdBu_r", vmin=-largest, vmax=largest, aspect="auto")
    else:
        image = ax.imshow(matrix, cmap="Blues", vmin=0, vmax=largest, aspect="auto")
    ax.figure.colorbar(image, ax=ax)
    ax.set(xlabel=xlabel, ylabel=ylabel)
    _name_ticks(ax, cols, rows)
    return ax


def curves(x, ys, ax: Axes | None = None, xlabel="", ylabel="", baselines=None) -> Axes:
    """Draw curves over x: each seed a faint line, their mean a strong one, baselines thin and named.

    `ys` is [seed x], [x], or {name: either}; `baselines` is {name: value}.
    Raises ValueError when a curve's last axis is not as long as x.
    """
    x = to_numpy(x)
    ax = ax or plt.subplots()[1]
    named = ys if isinstance(ys, dict) else {None: ys}
    for number, (name, values) in enumerate(named.items()):
        values = np.atleast_2d(to_numpy(values))
        if values.ndim != 2 or values.shape[1] != len(x):
            raise ValueError(
                f"curve {name or ''!r} must be [seed x] with {len(x)} points; got shape {values.shape}"
            )
        colour = COLOURS[number % len(COLOURS)]
        if len(values) > 1:
            ax.plot(x, values.T, color=colour, alpha=0.25, linewidth=0.9)
        ax.plot(x, values.mean(axis=0), color=colour, linewidth=2.0, label=name)
    for name, value in (baselines or {}).items():
        ax.axhline(value, color=GREY, linewidth=0.8, linestyle="--")
        ax.annotate(
            name, (1.0, value), xycoords=("axes fraction", "data"), xytext=(-2, 2),
            textcoords="offset points", ha="right", va="bottom", fontsize=8, color=GREY,
        )  # fmt: skip
    ax.set(xlabel=xlabel, ylabel=ylabel)
    if None not in named:
        ax.legend()
    return ax


def circuit(nodes, edges, ax: Axes | None = None, title: str | None = None) -> Axes:
    """Draw a model's graph: its nodes in a row, `edges` as strong arcs from left to right, all others faint.

    `edges` are pairs of nodes, as `iclkit.circuits.all_edges` names them, or {pair: strength in 0 … 1}.
    Arcs to the next node run straight, longer ones above. Raises ValueError for a pair that is no edge, a
    strength outside 0 … 1, and nodes that are not at least two different ones.
    """
    nodes = list(nodes)
    if len(nodes) < 2 or len(set(nodes)) < len(nodes):
        raise ValueError(f"expected at least two nodes, each of them once; got {nodes}")
    strength = dict(edges) if isinstance(edges, dict) else dict.fromkeys(map(tuple, edges), 1.0)
    pairs = [(a, b) for place, a in enumerate(nodes) for b in nodes[place + 1 :]]
    if unknown := [edge for edge in strength if edge not in pairs]:
        raise ValueError(
            f"{unknown[0]} is no edge between the nodes {', '.join(map(str, nodes))}, earlier to later"
        )
    if wrong := [f"{edge}: {share}" for edge, share in strength.items() if not 0 <= share <= 1]:
        raise ValueError(f"the strength of an edge lies in 0 … 1; got {', '.join(wrong)}")
    ax = ax or plt.subplots(figsize=(6.4, 1.9))[1]
    for a, b in sorted(pairs, key=lambda edge: strength.get(edge, 0)):
        start, end = nodes.index(a), nodes.index(b)
        share = float(strength.get((a, b), 0))
        ax.annotate(
            "", (end - 0.12, 0), (start + 0.12, 0),
            arrowprops={
                "arrowstyle": "-|>", "connectionstyle": f"arc3,rad={-0.5 * (end - start > 1)}",
                "color": COLOURS[0] if share else "#D9D9D9", "alpha": 0.25 + 0.75 * share if share else 1,
                "linewidth": 0.7 + 2.3 * share, "shrinkA": 8, "shrinkB": 8,
            },
        )  # fmt: skip
    for place, name in enumerate(nodes):
        ax.text(place, 0, name, ha="center", va="center", fontsize=9,
                bbox={"boxstyle": "round", "facecolor": "white", "edgecolor": "#333333"})  # fmt: skip
    ax.set(xlim=(-0.5, len(nodes) - 0.5), ylim=(-0.4, 1.4), title=title or "")
    ax.axis("off")
    return ax


def _token_name(token) -> str:
    return str(token.item()) if hasattr(token, "item") else str(token)


def _name_ticks(ax: Axes, columns, rows, most: int = 32) -> None:
    """Write names on the axes, at most `most` of them, evenly spaced."""
    shape = ax.images[-1].get_array().shape
    for names, set_ticks, length in ((columns, ax.set_xticks, shape[1]), (rows, ax.set_yticks, shape[0])):
        if names is None:
            continue
        names = list(names)
        if len(names) != length:
            raise ValueError(f"expected {length} names, one a row or column; got {len(names)}")
        places = range(0, len(names), -(-len(names) // most))
        set_ticks(list(places), [str(names[place]) for place in places], fontsize=8)
