"""Interactive figures: one call, three lives.

    explore(draw, step=[0, 100, 200], head=[0, 1], alt=alt)

- In the book (`ICLKIT_BUILD=1`) every frame is drawn once, and sliders choose among the frames in the
  reader's browser, without Python.
- In a running notebook `draw` is called again at every move of a control.
- Without JavaScript the book shows the first frame and its description.

    Box
    ├─ label │ Play │ IntSlider ──jslink──┐      one row a control
    │                 └──jslink── Stack of value texts
    └─ Stack of frames  <─────────────────┘      two controls: a Stack of Stacks
"""

import base64
import io
from collections.abc import Callable, Sequence
from html import escape

import ipywidgets as widgets
import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from iclkit.environment import building

MOST_FRAMES = 40
MOST_BYTES = 1_500_000
FRAME_DPI = 90
_drawn_bytes = 0


def explore(draw: Callable[..., Figure], *, alt: Callable[..., str], **values: Sequence):
    """Show `draw(**values)` under one or two controls, each a list of numbers or strings.

    `draw` makes and returns a new matplotlib Figure. `alt`, called with the same values, describes it in
    words for readers who do not see it. A name's underscores are shown as spaces.

    While the book is built at most 40 frames a figure (8 × 5 for two controls) and 1.5 MB of frames a
    page are allowed; a live notebook has no such limit.
    Raises ValueError for no or more than two controls, an empty or repeated list, or too many frames;
    TypeError when `draw` returns no Figure.
    """
    for name, function in (("draw", draw), ("alt", alt)):
        if not callable(function):
            raise ValueError(
                f"{name} must be a function of the controls' values; got {type(function).__name__}"
            )
    for name, choices in values.items():
        if isinstance(choices, str) or not hasattr(choices, "__iter__"):
            raise ValueError(f"{name} must be a list of values, such as [0, 100]; got {choices!r}")
    values = {name: list(choices) for name, choices in values.items()}
    if not 1 <= len(values) <= 2:
        raise ValueError(f"explore takes one or two controls, such as step=[0, 100]; got {list(values)}")
    for name, choices in values.items():
        if not choices or len(set(map(str, choices))) < len(choices):
            raise ValueError(f"{name} must list at least one value, each once; got {choices}")
    if building():
        return Frames(draw, alt, values)
    return live(draw, values)


def live(draw: Callable[..., Figure], values: dict[str, list]) -> None:
    """Show controls that call `draw` anew at every move; needs only what ipywidgets 7.7.1 has."""
    from IPython.display import display

    controls = {
        name: widgets.SelectionSlider(
            options=[(_text(value), value) for value in choices],
            description=_label(name),
            continuous_update=False,
            style={"description_width": "initial"},
        )
        for name, choices in values.items()
    }

    def show(**chosen):
        _figure(draw, chosen)
        plt.show()

    display(widgets.VBox([*controls.values(), widgets.interactive_output(show, controls)]))


class Frames:
    """Every frame drawn once, and the sliders that choose among them in a browser without Python."""

    def __init__(self, draw: Callable[..., Figure], alt: Callable[..., str], values: dict[str, list]):
        self.values = values
        number = 1
        for choices in values.values():
            number *= len(choices)
        limit = " × ".join(str(len(choices)) for choices in values.values())
        if number > MOST_FRAMES:
            raise ValueError(
                f"explore would draw {limit} = {number} frames; at most {MOST_FRAMES} fit a page. "
                "List fewer values"
            )
        self.box = self._build(draw, alt)

    def _build(self, draw, alt) -> widgets.VBox:
        names = list(self.values)
        inner, outer = names[0], names[1] if len(names) > 1 else None
        sliders, rows = {}, []
        for name in names:
            sliders[name], row = _control(_label(name), [_text(value) for value in self.values[name]])
            rows.append(row)

        def stack(**fixed):
            frames = [_frame(draw, alt, {inner: value, **fixed}) for value in self.values[inner]]
            made = widgets.Stack(frames, selected_index=0)
            widgets.jslink((sliders[inner], "value"), (made, "selected_index"))
            return made

        if outer is None:
            frames = stack()
        else:
            frames = widgets.Stack([stack(**{outer: v}) for v in self.values[outer]], selected_index=0)
            widgets.jslink((sliders[outer], "value"), (frames, "selected_index"))
        frames.add_class("icl-frames")
        box = widgets.VBox([*rows, frames])
        box.add_class("icl-explore")
        return box

    def __repr__(self) -> str:
        controls = ", ".join(
            f"{name}: {len(choices)} values from {choices[0]} to {choices[-1]}"
            for name, choices in self.values.items()
        )
        return f"explore({controls})"

    def _repr_mimebundle_(self, include=None, exclude=None) -> dict:
        view = {"version_major": 2, "version_minor": 0, "model_id": self.box.model_id}
        return {"text/plain": repr(self), "application/vnd.jupyter.widget-view+json": view}


def _control(label: str, texts: list[str]) -> tuple[widgets.IntSlider, widgets.HBox]:
    """One slider over the indices of `texts`, with a label, the chosen text and, from 3 values, Play."""
    last = len(texts) - 1
    slider = widgets.IntSlider(min=0, max=max(last, 1), readout=False, disabled=last == 0)
    shown = widgets.Stack(
        [widgets.HTML(f'<span class="icl-value">{escape(text)}</span>') for text in texts], selected_index=0
    )
    widgets.jslink((slider, "value"), (shown, "selected_index"))
    parts = [widgets.HTML(f'<span class="icl-label">{escape(label)}</span>'), slider, shown]
    if last >= 2:
        play = widgets.Play(min=0, max=last, interval=500, show_repeat=False)
        widgets.jslink((play, "value"), (slider, "value"))
        parts.insert(1, play)
    row = widgets.HBox(parts)
    row.add_class("icl-control")
    return slider, row


def _frame(draw, alt, chosen: dict) -> widgets.HTML:
    global _drawn_bytes
    described = alt(**chosen)
    if not isinstance(described, str) or not described.strip():
        raise ValueError(f"alt must return a description in words; got {described!r} for {chosen}")
    figure = _figure(draw, chosen)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=FRAME_DPI, metadata={"Software": None})
    plt.close(figure)
    data = base64.b64encode(buffer.getvalue()).decode()
    _drawn_bytes += len(data)
    if _drawn_bytes > MOST_BYTES:
        raise ValueError(
            f"the frames of this page weigh more than {MOST_BYTES / 1e6} MB; "
            "list fewer values or draw a smaller or plainer figure"
        )
    width, height = (round(FRAME_DPI * inches) for inches in figure.get_size_inches())
    words = escape(described, quote=True)
    return widgets.HTML(
        f'<img alt="{words}" width="{width}" height="{height}" src="data:image/png;base64,{data}">'
    )


def _figure(draw, chosen: dict) -> Figure:
    figure = draw(**chosen)
    if not isinstance(figure, Figure):
        raise TypeError(
            f"draw must return the matplotlib Figure it drew; got {type(figure).__name__}. "
            "End it with: return figure"
        )
    return figure


def _label(name: str) -> str:
    return name.replace("_", " ")


def _text(value) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
