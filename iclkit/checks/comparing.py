"""Compare an answer with the right one, and name the likely mistake without telling the answer."""

from collections.abc import Mapping

import torch
from torch import Tensor


class Wrong(Exception):
    """An answer is wrong; the message says in one line what to look at."""


def same(
    got,
    want,
    rtol: float = 1e-4,
    atol: float = 1e-5,
    name: str = "the result",
    mistakes: Mapping[str, object] | None = None,
) -> None:
    """Raise `Wrong` unless |got − want| ≤ atol + rtol·|want|, with the same shape and kind of number.

    `mistakes` maps what a likely mistake is, in words, to the value it leads to. In this order the message is
    about: nothing returned, the type, a named mistake, the shape, the kind of number, NaN, and the values
    (transposed, sign, constant, factor, where). It never shows `want`.
    """
    if got is None:
        raise Wrong(f"{name} is None; does the function end with return?")
    want = torch.as_tensor(want)
    got = _tensor(got, want, name)
    for mistake, value in (mistakes or {}).items():
        value = torch.as_tensor(value)
        if not _close(value, want, rtol, atol) and _close(got, value, rtol, atol):
            raise Wrong(mistake)
    if got.shape != want.shape:
        raise Wrong(f"{name} should have shape {list(want.shape)}, yours has {list(got.shape)}")
    if _kind(got) != _kind(want):
        raise Wrong(f"{name} should hold {_kind(want)}, yours holds {_kind(got)} ({got.dtype})")
    if got.isnan().any() and not want.isnan().any():
        raise Wrong(f"{name} holds NaN, first at {_first(got.isnan())}; a division by 0, or a row all −inf?")
    if not _close(got, want, rtol, atol):
        raise Wrong(f"{name} {_difference(got, want, rtol, atol)}")


def _tensor(got, want: Tensor, name: str) -> Tensor:
    if type(got) is int and want.is_floating_point():
        got = float(got)
    try:
        return torch.as_tensor(got).detach().cpu()
    except (TypeError, ValueError, RuntimeError):
        kind = "a number" if want.ndim == 0 else "a tensor"
        raise Wrong(f"{name} should be {kind}, yours is of type {type(got).__name__}") from None


def _close(a: Tensor, b: Tensor, rtol: float, atol: float) -> bool:
    return a.shape == b.shape and torch.allclose(a.double(), b.double(), rtol, atol, equal_nan=True)


def _kind(values: Tensor) -> str:
    if values.dtype == torch.bool:
        return "truth values"
    return "real numbers" if values.is_floating_point() else "whole numbers"


def _first(where: Tensor) -> str:
    index = where.nonzero()[0].tolist()
    return f"index {index}" if index else "its one value"


def _difference(got: Tensor, want: Tensor, rtol: float, atol: float) -> str:
    """How two different tensors of one shape differ, in words."""
    a, b = got.double(), want.double()
    for axes in [(-1, -2)] if a.ndim >= 2 else []:
        if _close(a.transpose(*axes), b, rtol, atol):
            return "is right but transposed: rows and columns are exchanged"
    if _close(-a, b, rtol, atol):
        return "has the wrong sign"
    if a.numel() > 1:
        if _close(a - (a - b).mean(), b, rtol, atol):
            return "is off by one constant everywhere; is something added that should not be, or missing?"
        factor = (a * b).sum() / (b * b).sum()
        scaled = factor.isfinite() and abs(factor) > 1e-9 and abs(factor - 1) > 1e-3
        if scaled and _close(a / factor, b, rtol, atol):
            return f"is off by a factor of {factor.item():.4g} everywhere; a missing or doubled scale?"
    wrong = ~torch.isclose(a, b, rtol, atol, equal_nan=True)
    if a.ndim == 0:
        return f"is {got.item():.4g}, which is too {'large' if a > b else 'small'}"
    mine = got[tuple(wrong.nonzero()[0])].item()
    places = f"{wrong.sum()} of {wrong.numel()} places"
    return f"differs in {places}, first at {_first(wrong)}, where yours is {mine:.4g}"
