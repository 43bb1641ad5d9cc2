"""Run a student's answer safely: errors with their line, a time limit, one line printed."""

import linecache
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import update_wrapper

import torch

from iclkit.checks.comparing import Wrong
from iclkit.environment import building


class CheckFailed(AssertionError):
    """A solution printed in the book fails its own check; raised while the book is built."""


class _TooSlow(BaseException):
    """Raised inside the answer when its time is over; no `except Exception` of the student's stops it."""


@dataclass(frozen=True)
class Result:
    """What a check found: did the answer pass, and the one line to print."""

    passed: bool
    message: str


class Exercise:
    """One exercise's check. Call it with an answer to print a line; `result(answer)` hands it back instead.

    While the book is built (`ICLKIT_BUILD=1`) an answer that fails raises `CheckFailed`; a reader's answer
    never raises.
    """

    def __init__(self, check: Callable[[Callable], str], seconds: float, points: float):
        self.check, self.seconds, self.points = check, seconds, points
        update_wrapper(self, check)

    def __call__(self, answer) -> None:
        result = self.result(answer)
        line = f"{'✓' if result.passed else '✗'} {self.__name__}: {result.message}"
        if building() and not result.passed:
            raise CheckFailed(line)
        print(line)

    def result(self, answer) -> Result:
        """Check an answer: the time limit and every error of the answer become a message."""
        try:
            said = _within(self.seconds, lambda: self.check(_Answer(answer) if _is_code(answer) else answer))
        except Wrong as wrong:
            return Result(False, " ".join(str(wrong).split()))
        except _TooSlow:
            return Result(
                False, f"took more than {self.seconds:g} s; is there an endless loop, or one too many?"
            )
        except Exception as error:
            if _is_code(answer):
                raise
            kind = "nothing (None)" if answer is None else f"a value of type {type(answer).__name__}"
            return Result(
                False,
                f"expected what the task asks for, such as your function, uncalled; got {kind}: {error}",
            )
        return Result(True, said)


def exercise(seconds: float = 5.0, points: float = 1.0) -> Callable[[Callable[[Callable], str]], Exercise]:
    """Make a function of the answer a check: it raises `Wrong`, as `same` does, or says what is good.

    `seconds` is the time limit for the whole check, `points` its weight in grading.
    """
    return lambda check: Exercise(check, seconds, points)


class _Answer:
    """A student's function: its errors, and a change of its inputs in place, become `Wrong`."""

    def __init__(self, function: Callable):
        self._function = function

    def __getattr__(self, name: str):
        return getattr(self._function, name)

    def __call__(self, *arguments, **named):
        given = [a for a in (*arguments, *named.values()) if isinstance(a, torch.Tensor)]
        before = [tensor.detach().clone() for tensor in given]
        try:
            answer = self._function(*arguments, **named)
        except NotImplementedError:
            raise Wrong("not written yet: replace `raise NotImplementedError` by your code") from None
        except Wrong:
            raise
        except SystemExit:
            raise Wrong("calls exit(); return the answer instead") from None
        except Exception as error:
            raise Wrong(f"{type(error).__name__}: {error}{_line(error, self._function)}") from None
        if any(not torch.equal(a, b) for a, b in zip(given, before)):
            raise Wrong("changes its input in place; work on a copy, such as x.clone()")
        return answer


def _is_code(answer) -> bool:
    return callable(answer) and not isinstance(answer, torch.nn.Module)


def _line(error: Exception, function: Callable) -> str:
    """The last line of the student's own code on the way to the error."""
    file = getattr(getattr(function, "__code__", None), "co_filename", None)
    found, step = "", error.__traceback__
    while step is not None:
        if step.tb_frame.f_code.co_filename == file:
            text = linecache.getline(file, step.tb_lineno).strip()
            found = (
                f", in line {step.tb_lineno} of its cell: {text}" if text else f", in line {step.tb_lineno}"
            )
        step = step.tb_next
    return found or ", when it was called"


def _within(seconds: float, work: Callable):
    """`work()`, stopped after `seconds`: by an alarm in the main thread, elsewhere by no longer waiting."""
    if threading.current_thread() is threading.main_thread() and hasattr(signal, "setitimer"):
        return _alarmed(seconds, work)
    outcome: dict = {}

    def run():
        try:
            outcome["value"] = work()
        except BaseException as error:
            outcome["error"] = error

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        raise _TooSlow
    if "error" in outcome:
        raise outcome["error"]
    return outcome["value"]


def _alarmed(seconds: float, work: Callable):
    def stop(*_):
        raise _TooSlow

    handler = signal.signal(signal.SIGALRM, stop)
    timer = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        return work()
    finally:
        signal.setitimer(signal.ITIMER_REAL, *timer)
        signal.signal(signal.SIGALRM, handler)
