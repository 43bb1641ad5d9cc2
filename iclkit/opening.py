"""How every chapter opens: one thread, one plot style, and the versions a reader may be asked for."""

import platform
from importlib.metadata import metadata, version
from urllib.parse import urlparse

import torch


def begin() -> None:
    """Set one thread and the plot style, then print versions, device and the site's address.

    With one thread a training run repeats bit for bit on one machine.
    """
    from iclkit.figures import use_style

    torch.set_num_threads(1)
    use_style()
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    print(
        f"iclkit {version('iclkit')}, torch {torch.__version__}, Python {platform.python_version()}, {device}"
    )
    print(f"This book: {site_address()}")


def site_address(repository: str | None = None) -> str:
    """Where GitHub Pages shows the site of `repository`, by default of the one this package came from."""
    if repository is None:
        urls = dict(entry.split(", ", 1) for entry in metadata("iclkit").get_all("Project-URL") or [])
        repository = urls["Repository"]
    owner, name = urlparse(repository).path.strip("/").split("/")
    return f"https://{owner.lower()}.github.io/{name}/"
