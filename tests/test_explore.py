"""Interactive figures: frames for the book, live drawing for a notebook, clear errors."""

import importlib

import ipywidgets as widgets
import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import pytest

module = importlib.import_module("iclkit.explore")
explore = module.explore


@pytest.fixture(autouse=True)
def build(monkeypatch):
    monkeypatch.setenv("ICLKIT_BUILD", "1")
    monkeypatch.setattr(module, "_drawn_bytes", 0)
    yield
    plt.close("all")


def draw(step, head=0):
    figure, ax = plt.subplots(figsize=(2, 1))
    ax.plot([0, step + head])
    return figure


def alt(**chosen):
    return "a line to " + " and ".join(f"{name}={value}" for name, value in chosen.items())


def below(widget):
    """A widget and all below it, in the order shown."""
    return [widget, *(w for child in getattr(widget, "children", ()) for w in below(child))]


def images(made):
    return [w.value for w in below(made.box) if isinstance(w, widgets.HTML) and w.value.startswith("<img")]


def test_every_frame_is_drawn_once_with_its_words():
    calls = []

    def counted(step):
        calls.append(step)
        return draw(step)

    made = explore(counted, step=[0, 10, 200], alt=alt)
    assert calls == [0, 10, 200]
    assert [image.split('"')[1] for image in images(made)] == [f"a line to step={s}" for s in calls]
    assert len(set(images(made))) == 3
    assert plt.get_fignums() == []


def test_words_are_escaped():
    (image,) = images(explore(draw, step=[1], alt=lambda step: 'x < "y" & z'))
    assert 'alt="x &lt; &quot;y&quot; &amp; z"' in image


def test_one_control_links_play_slider_text_and_frames():
    made = explore(draw, step=[0, 1000, 2000], alt=alt)
    (row, frames) = made.box.children
    (label, play, slider, text) = row.children
    assert "step" in label.value and [child.value for child in text.children][1] == (
        '<span class="icl-value">1,000</span>'
    )
    assert (play.max, slider.max, len(frames.children)) == (2, 2, 3)
    assert isinstance(frames, widgets.Stack) and slider.description == ""


def test_two_controls_nest_stacks():
    made = explore(draw, step=[0, 1, 2], head=[0, 1], alt=alt)
    frames = made.box.children[-1]
    assert [len(stack.children) for stack in frames.children] == [3, 3]
    assert [w.value.split('"')[1] for w in frames.children[1].children] == [
        f"a line to step={s} and head=1" for s in range(3)
    ]


def test_frames_are_the_same_at_every_build():
    first, second = (images(explore(draw, step=[0, 1], alt=alt)) for _ in range(2))
    assert first == second


def test_the_text_form_is_short_and_stable():
    one, two = (explore(draw, step=[0, 1], head=[0, 2], alt=alt) for _ in range(2))
    assert repr(one) == repr(two) == "explore(step: 2 values from 0 to 1, head: 2 values from 0 to 2)"
    bundle = one._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "application/vnd.jupyter.widget-view+json"}
    assert bundle["text/plain"] == repr(one)


@pytest.mark.parametrize("values", [{}, {"a": [1], "b": [1], "c": [1]}, {"step": []}, {"step": [1, 1]}])
def test_impossible_controls_are_refused(values):
    with pytest.raises(ValueError, match="one or two controls|each once"):
        explore(draw, alt=alt, **values)


def test_too_many_frames_are_refused_before_any_is_drawn():
    def never(**chosen):
        raise AssertionError("drawn")

    with pytest.raises(ValueError, match=r"9 × 5 = 45 frames; at most 40"):
        explore(never, step=range(9), head=range(5), alt=alt)


def test_a_heavy_page_is_refused(monkeypatch):
    monkeypatch.setattr(module, "MOST_BYTES", 3000)
    explore(draw, step=[0], alt=alt)
    with pytest.raises(ValueError, match="weigh more"):
        explore(draw, step=[1], alt=alt)


def test_draw_must_return_its_figure():
    with pytest.raises(TypeError, match="return figure"):
        explore(lambda step: None, step=[1], alt=alt)


def test_live_draws_at_every_move_and_shows(monkeypatch):
    monkeypatch.delenv("ICLKIT_BUILD")
    shown, displayed, drawn = [], [], []
    monkeypatch.setattr(plt, "show", lambda: shown.append(1))
    monkeypatch.setattr("IPython.display.display", displayed.append)

    def counted(step):
        drawn.append(step)
        return draw(step)

    many = list(range(100))
    assert explore(counted, step=many, alt=alt) is None
    (box,) = displayed
    slider = box.children[0]
    assert drawn == [0] and shown == [1]
    slider.value = 57
    assert drawn == [0, 57] and shown == [1, 1]


def test_live_needs_nothing_newer_than_ipywidgets_7(monkeypatch):
    monkeypatch.delenv("ICLKIT_BUILD")
    monkeypatch.delattr(widgets, "Stack")
    monkeypatch.setattr("IPython.display.display", lambda box: None)
    explore(draw, step=[0, 1], alt=alt)


def test_numbers_and_strings_are_shown_as_text():
    assert [module._text(value) for value in (1000, 0.5, "none", True)] == ["1,000", "0.5", "none", "True"]
