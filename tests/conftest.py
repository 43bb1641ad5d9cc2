"""Shapes are checked in every test: the package is imported with jaxtyping and beartype switched on."""

import os

import pytest
import torch
from jaxtyping import install_import_hook

install_import_hook("iclkit", "shapes.checked")
torch.set_num_threads(1)


def missing(what: str, why: str) -> None:
    """Skip the calling test for want of `what`, or fail it where `ICLKIT_REQUIRE` lists that."""
    if what in os.environ.get("ICLKIT_REQUIRE", "").split(","):
        pytest.fail(f"{what} is required here (ICLKIT_REQUIRE) but {why}")
    pytest.skip(why)


@pytest.fixture
def house_style():
    """Figures in the book's style; afterwards none is open and Matplotlib's settings are as before."""
    import matplotlib.pyplot as plt

    from iclkit import figures

    with plt.rc_context():
        figures.use_style()
        yield
    plt.close("all")
