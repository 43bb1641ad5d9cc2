"""Checks: one line, the likely mistake by name, never the answer, never a hang."""

import threading
import time

import nbformat
import nbformat.v4 as v4
import pytest
import torch
from checking import assert_check, solution, stub

from iclkit import checks
from iclkit.checks import CheckFailed, Wrong, exercise, same
from iclkit.tasks import generator


@exercise(seconds=0.5, points=2)
def ex1(answer):
    """Rows of a matrix to probabilities."""
    for seed in range(3):
        x = torch.randn(4, 6, generator=generator(1, seed))
        same(answer(x), x.softmax(-1), mistakes={"softmax runs over columns, not rows": x.softmax(0)})
    return "rows sum to one, on three random inputs"


def by_hand(x):
    e = (x - x.max(-1, keepdim=True).values).exp()
    return e / e.sum(-1, keepdim=True)


def unwritten(x):
    raise NotImplementedError


def endless(x):
    while True:
        try:
            time.sleep(0.01)
        except Exception:
            pass


def in_place(x):
    x -= x.max(-1, keepdim=True).values
    return by_hand(x)


def with_bug(x):
    y = x.exp()
    return y / y.summ(-1)


def leaves(x):
    raise SystemExit


@pytest.mark.parametrize("answer, kind", [(None, "None"), ("abc", "str"), (3, "int"), ({}, "dict")])
def test_an_answer_that_is_no_function_becomes_a_message(answer, kind):
    result = ex1.result(answer)
    assert not result.passed and kind in result.message and "your function" in result.message


def test_an_answer_that_leaves_becomes_a_message():
    assert "calls exit()" in ex1.result(leaves).message


def test_an_exercise_on_right_and_wrong_answers():
    wrong = [
        (lambda x: x.softmax(0), "columns, not rows"),
        (lambda x: None, "return"),
        (lambda x: "abc", "of type str"),
        (lambda x: x.softmax(-1)[:3], "shape [4, 6], yours has [3, 6]"),
        (lambda x: (x.softmax(-1) * 0).long(), "real numbers"),
        (lambda x: x.softmax(-1) / 0 * 0, "NaN"),
        (lambda x: -x.softmax(-1), "sign"),
        (lambda x: x.softmax(-1) + 1, "constant"),
        (lambda x: x.softmax(-1) / 2, "factor of 0.5"),
        (lambda x: x.softmax(-1) + torch.eye(4, 6), "differs in 4 of 24 places, first at index [0, 0]"),
        (lambda x, y: x, "TypeError"),
        (with_bug, "y / y.summ(-1)"),
        (in_place, "in place"),
        (endless, "endless loop"),
    ]
    assert_check(
        ex1, right=[lambda x: x.softmax(-1), by_hand, torch.nn.Softmax(-1)], stub=unwritten, wrong=wrong
    )
    assert ex1.points == 2 and ex1.__name__ == "ex1" and ex1.__doc__ == "Rows of a matrix to probabilities."


def test_one_line_is_printed_and_nothing_shown(monkeypatch, capsys):
    monkeypatch.delenv("ICLKIT_BUILD", raising=False)
    assert ex1(by_hand) is None and ex1(unwritten) is None
    assert capsys.readouterr().out.splitlines() == [
        "✓ ex1: rows sum to one, on three random inputs",
        "✗ ex1: not written yet: replace `raise NotImplementedError` by your code",
    ]


def test_a_solution_that_fails_breaks_the_build(monkeypatch, capsys):
    monkeypatch.setenv("ICLKIT_BUILD", "1")
    ex1(by_hand)
    with pytest.raises(CheckFailed, match="columns, not rows"):
        ex1(lambda x: x.softmax(0))


def test_an_error_of_the_check_itself_is_not_the_students():
    @exercise()
    def broken(answer):
        answer(torch.ones(2))
        return {}["key"]

    with pytest.raises(KeyError):
        broken.result(lambda x: x)


def test_the_time_limit_holds_outside_the_main_thread_and_leaves_no_alarm():
    found = []
    thread = threading.Thread(target=lambda: found.extend([ex1.result(endless), ex1.result(by_hand)]))
    start = time.monotonic()
    thread.start()
    thread.join(5)
    assert time.monotonic() - start < 3
    assert "endless" in found[0].message and found[1].passed
    assert ex1.result(by_hand).passed
    time.sleep(0.6)


@pytest.mark.parametrize("got", [3, 3.0, torch.tensor(3.0), torch.tensor([3.0])[0]])
def test_any_number_is_a_number(got):
    same(got, 3.0)
    with pytest.raises(Wrong, match="too small"):
        same(2.5, 3.0)


def test_transposed_and_never_the_answer():
    want = torch.randn(5, 5, generator=generator(1))
    with pytest.raises(Wrong, match="transposed"):
        same(want.T, want)
    with pytest.raises(Wrong) as told:
        same(torch.zeros(5, 5), want)
    assert not any(f"{abs(value):.3g}" in str(told.value) for value in want.flatten().tolist())


def test_a_factor_of_one_is_no_factor():
    want = torch.randn(50, generator=generator(1)).double()
    with pytest.raises(Wrong, match="factor of 2 "):
        same(2 * want, want)
    with pytest.raises(Wrong, match="places, first at"):
        same(1.0002 * want, want)


def test_a_mistake_that_happens_to_be_right_is_right():
    same(torch.ones(3), torch.ones(3), mistakes={"forgot the mask": torch.ones(3)})


def test_unknown_checks_list_the_known():
    with pytest.raises(AttributeError, match="no checks 'c999'"):
        checks.c999  # noqa: B018


def test_solutions_come_out_of_a_chapter(tmp_path):
    def code(source, *tags):
        return v4.new_code_cell(source, metadata={"tags": list(tags)})

    notebook = v4.new_notebook()
    notebook.cells = [
        code(
            "try:\n    import torch\nexcept ImportError:\n    %pip install x\n    import torch\n", "hide-cell"
        ),
        code("SIZE = 2\ndef twice(x):\n    return SIZE * x\nraise RuntimeError('experiments are not run')"),
        code("def f(x):\n    raise NotImplementedError", "exercise"),
        code("def f(x):\n    return twice(x)", "solution", "hide-cell"),
        code("checks.c199.ex1(f)", "check"),
    ]
    nbformat.write(notebook, tmp_path / "199_test.ipynb")
    assert solution("199", 1, tmp_path)(3) == 6
    with pytest.raises(NotImplementedError):
        stub("199", 1, tmp_path)(3)
