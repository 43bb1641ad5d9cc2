"""Numbers in the prose, held to what was measured."""

from typing import SupportsFloat

from iclkit.environment import building


class QuotedError(AssertionError):
    """The text states a number that the measurement does not bear out."""


def quoted(stated: SupportsFloat, measured: SupportsFloat, within: float) -> None:
    """Hold a number of the text to the one measured: |stated − measured| ≤ within.

    Silent when they agree. Otherwise the build of the book fails with `QuotedError`, and a reader's own run,
    with other seeds or another size, prints both numbers and goes on.
    Raises ValueError for a negative `within`.
    """
    stated, measured = float(stated), float(measured)
    if not within >= 0:
        raise ValueError(f"within must be a tolerance ≥ 0; got {within}")
    if abs(stated - measured) <= within + 1e-9 * max(1.0, abs(stated)):
        return
    message = f"the text says {stated:g} (± {within:g}), this run measured {measured:.4g}"
    if building():
        raise QuotedError(message + "; correct the text, or find out why the result changed")
    print(message)
