"""What surrounds a run: is the book being built, at which scale, and does anybody watch?"""

import os
import sys
from collections.abc import Iterable
from contextlib import contextmanager
from pathlib import Path

import torch
from tqdm.auto import tqdm


def building() -> bool:
    """Whether the book or its tests are being made (`ICLKIT_BUILD=1`) rather than read."""
    return os.environ.get("ICLKIT_BUILD", "0") not in ("", "0")


def scale(book, paper, cost: str = ""):
    """The dial of a chapter: `book`, or `paper` (its cost printed first) if `ICLKIT_SCALE=paper`."""
    name = scale_name()
    if name == "paper" and cost:
        print(f"paper scale: {cost}")
    return paper if name == "paper" else book


def scale_name() -> str:
    """The value of `ICLKIT_SCALE`: book, paper or quick."""
    name = os.environ.get("ICLKIT_SCALE", "book")
    if name not in ("book", "paper", "quick"):
        raise ValueError(f"ICLKIT_SCALE must be book, paper or quick; got {name!r}")
    return name


def quick_steps(steps: int) -> int:
    """`steps`, or 2 % of them with `ICLKIT_SCALE=quick`, for smoke tests only."""
    return max(1, steps // 50) if scale_name() == "quick" else steps


def find_device(wanted: str | torch.device | None = None) -> torch.device:
    """The device asked for, else CUDA when present, else the CPU; `ValueError` for one that is not here."""
    cuda, mps = torch.cuda.is_available(), torch.backends.mps.is_available()
    here = [name for name, present in (("cpu", True), ("cuda", cuda), ("mps", mps)) if present]
    try:
        device = torch.device(("cuda" if cuda else "cpu") if wanted is None else wanted)
    except RuntimeError:
        raise ValueError(f"device must be None or one of {', '.join(here)}; got {wanted!r}") from None
    if device.type in ("cuda", "mps") and device.type not in here:
        raise ValueError(
            f"this PyTorch ({torch.__version__}) finds no {device.type}, only {', '.join(here)}; "
            "leave device out, or install PyTorch's build for that device"
        )
    return device


def cache_folder() -> Path:
    """Where checkpoints, finished pieces and downloads live: `ICLKIT_CACHE`, or ~/.cache/iclkit."""
    return Path(os.environ.get("ICLKIT_CACHE") or Path.home() / ".cache" / "iclkit")


@contextmanager
def one_thread():
    """Torch computes on one thread inside: the same sums in the same order, whatever the machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def progress_bar(items: Iterable, wanted: bool | None = None, **options) -> Iterable:
    """`items` behind a bar in a terminal or notebook; silent in CI, in builds, and into files."""
    if wanted is None:
        watched = sys.stderr.isatty() or "ipykernel" in sys.modules
        wanted = watched and not building() and not os.environ.get("CI")
    return tqdm(items, disable=not wanted, leave=False, **options)
