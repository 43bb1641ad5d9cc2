"""Real pictures: the drawings of Omniglot as exemplars, each character in eight orientations.

    class     8 · character + orientation         0 … 3 quarter turns, 4 … 7 the same of the mirror image
    exemplar  one of the character's 20 drawings

Source: Lake et al. 2015 (https://doi.org/10.1126/science.aab3050), https://github.com/brendenlake/omniglot.
"""

import hashlib
import http.client
import io
import os
import urllib.request
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, UInt8
from torch import Tensor

from iclkit.environment import building, cache_folder
from iclkit.tasks.exemplars import Given, check_within

URL = "https://raw.githubusercontent.com/brendenlake/omniglot/master/python/"
SMALL = ("images_background_small1.zip", "images_background_small2.zip")
RUNS = "one-shot-classification/all_runs.zip"  # two drawings a character: fetched on request, never read
SHA256 = {
    SMALL[0]: "f38eb80f801274ac2b4dff5b24289016bfaba4a7d5bb50deebf27104ad6cb8a4",
    SMALL[1]: "3ccaa407515a8778e5d0861875af38b17e418f301ad5bb3b5a6b65d901a41c7f",
    RUNS: "437c1eeab0af8484112e1b4cc0f3d541ec727f7c47b9b202da738af9dfd6c325",
}
PICTURES = {"images_background.zip": 964 * 20, "images_evaluation.zip": 659 * 20}  # no checksum: untried
Table = Float[Tensor, "class drawing feature"]
Shaded = Bool[Tensor, "character drawing side side"] | Float[Tensor, "character drawing side side"]
SIDE, SMALL_SIDE, ORIENTATIONS = 105, 28, 8


class OmniglotError(RuntimeError):
    """The drawings cannot be had; the message says what to do."""


@dataclass(frozen=True, eq=False, repr=False)
class Drawings(Given):
    """Exemplars that are drawings: their features, and the pictures `[character drawing side side]`."""

    images: UInt8[Tensor, "character drawing side side"]

    def picture(self, class_: int, index: int) -> Float[Tensor, "side side"]:
        """One exemplar as a picture, 0 paper … 1 ink; `ValueError` for one that is not there."""
        check_within(self, torch.tensor(class_), torch.tensor(index))
        character, orientation = divmod(int(class_), ORIENTATIONS)
        return oriented(self.images[character, int(index)] / 255, orientation)


def omniglot(
    folder: str | Path | None = None, features: str = "principal", norm: float = 4.0, whole: bool = False
) -> Drawings:
    """Omniglot's characters as an exemplar source: 242 characters (in the small archives), 1,936 classes.

    Reads `folder`, or the one `ICLKIT_OMNIGLOT` names, or else downloads the small archives (3 MB) to
    `ICLKIT_CACHE`; `whole`, the two large ones instead, 1,623 characters (untried). `features` is one of
    principal, smooth, resnet18; root mean square length `norm`.
    Raises `OmniglotError` for a wrong folder, a broken archive, no network.
    """
    if features not in FEATURES:
        raise ValueError(f"features must be one of {', '.join(FEATURES)}; got {features!r}")
    folder = Path(folder or os.environ.get("ICLKIT_OMNIGLOT") or downloaded(whole))
    return table(folder.resolve(), features, norm)


@lru_cache(maxsize=2)
def table(folder: Path, features: str, norm: float) -> Drawings:
    with torch.device("cpu"):
        images = drawings(folder)
        return Drawings(
            scaled(FEATURES[features](images), norm), (small(images) * 255).round().to(torch.uint8)
        )


def scaled(x: Table, norm: float) -> Table:
    """Features times what makes their root mean square length `norm`."""
    return x * (norm / x.square().sum(-1).mean().sqrt())


def downloaded(whole: bool = False) -> Path:
    """The cache's folder of the small archives, or of the whole ones, fetched when they are not there."""
    cache = cache_folder() / ("omniglot_whole" if whole else "omniglot")
    for archive in PICTURES if whole else SMALL:
        if building() and not (cache / archive).exists():
            raise OmniglotError(
                "builds and tests download nothing; set ICLKIT_OMNIGLOT to a folder with them"
            )
        fetch(archive, cache)
    return cache


def fetch(archive: str, folder: Path, url: str | None = None) -> Path:
    """Download one archive into `folder`, unless it lies there whole; keep it only if it is as published.

    `OmniglotError` when it cannot be had. The small archives are known by their checksums; the whole ones,
    images_background.zip and images_evaluation.zip, by their number of pictures (untried here).
    """
    path, address = Path(folder) / archive, f"{url or URL}{archive}"
    if path.exists() and not trouble(archive, path.read_bytes()):
        return path
    by_hand = f"fetch {address} by hand into a folder, and set ICLKIT_OMNIGLOT to that folder"
    try:
        with urllib.request.urlopen(address, timeout=60) as answer:
            content = answer.read()
    except (OSError, http.client.HTTPException) as error:
        raise OmniglotError(f"cannot download it ({error}); {by_hand}") from None
    if wrong := trouble(archive, content):
        raise OmniglotError(f"what came is not the archive {archive} ({wrong}); {by_hand}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f"{path.name}.{os.getpid()}.partial")
        beside.write_bytes(content)
        beside.replace(path)
    except OSError as error:
        raise OmniglotError(f"cannot keep {path} ({error}); set ICLKIT_CACHE to a folder that can") from None
    return path


def trouble(archive: str, content: bytes) -> str:
    """How an archive differs from the published one, by its checksum or (unknown) its pictures; "" if not."""
    if archive in SHA256:
        got = hashlib.sha256(content).hexdigest()
        return "" if got == SHA256[archive] else f"sha256 {got}, expected {SHA256[archive]}"
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as file:
            count, bad = sum(name.endswith(".png") for name in file.namelist()), file.testzip()
    except zipfile.BadZipFile as error:
        return str(error)
    if bad:
        return f"{bad} is damaged"
    wanted = PICTURES.get(archive, count)
    return "" if count == wanted else f"it holds {count} pictures, expected {wanted}"


def drawings(folder: str | Path) -> Bool[Tensor, "character drawing side side"]:
    """All drawings below `folder`, in images_*.zip or unpacked, True where there is ink.

    Characters stand in the order of archive, alphabet and number; one that occurs twice counts once.
    """
    folder, found = Path(folder), {}
    try:
        for path, content in pictures(folder):
            character, _, name = path.rpartition("/")
            found.setdefault(character, []).append((name, content))
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
        raise OmniglotError(
            f"an archive in {folder} is broken ({error}); delete it and fetch it anew"
        ) from None
    if not found:
        raise OmniglotError(
            f"{folder} holds no drawings; expected images_*.zip, or alphabet/characterNN/*.png, below it"
        )
    unique = {
        tuple(content for _, content in sorted(items)): where for where, items in reversed(found.items())
    }
    characters = sorted((list(found).index(where), where, items) for items, where in unique.items())
    counts = {len(items): where for _, where, items in characters}
    if len(counts) > 1:
        told = ", ".join(f"{count} in {where}" for count, where in sorted(counts.items()))
        raise OmniglotError(f"every character needs as many drawings; {folder} has {told}: fetch it anew")
    return torch.stack([torch.stack([ink(item, where) for item in items]) for _, where, items in characters])


def pictures(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Path and content of every PNG of a character, archives first."""
    for archive in sorted(folder.rglob("images_*.zip")):
        try:
            file = zipfile.ZipFile(archive)
        except zipfile.BadZipFile as error:
            raise zipfile.BadZipFile(f"{archive.name}: {error}") from None
        with file:
            for name in sorted(file.namelist()):
                if is_picture(name):
                    yield f"{archive.stem}/{name}", file.read(name)
    for path in sorted(folder.rglob("character*/*.png")):
        yield path.relative_to(folder).as_posix(), path.read_bytes()


def is_picture(name: str) -> bool:
    return name.endswith(".png") and name.split("/")[-2].startswith("character") and "__MACOSX" not in name


def ink(content: bytes, where: str) -> Bool[Tensor, "side side"]:
    """One drawing; Omniglot's ink is black on white."""
    import numpy as np
    from PIL import Image

    try:
        picture = np.asarray(Image.open(io.BytesIO(content)).convert("L"))
    except (OSError, SyntaxError, ValueError) as error:
        raise OmniglotError(f"a picture of {where} is broken ({error}); fetch it anew") from None
    if picture.shape != (SIDE, SIDE):
        raise OmniglotError(f"a picture of {where} is {picture.shape}, expected {SIDE} × {SIDE}")
    return torch.from_numpy(picture < 128)


def oriented(images: Tensor, orientation: int) -> Tensor:
    """Pictures `[… side side]` turned by `orientation` % 4 quarters, from 4 on after being mirrored."""
    return torch.rot90(images.flip(-1) if orientation >= 4 else images, orientation % 4, (-2, -1))


def small(images: Shaded) -> Float[Tensor, "character drawing 28 28"]:
    """Pictures of 28 × 28, each pixel the share of ink in its area."""
    few = F.adaptive_avg_pool2d(images.flatten(0, 1)[:, None].float(), SMALL_SIDE)[:, 0]
    return few.unflatten(0, images.shape[:2])


def principal(images: Shaded, d_features: int = 64) -> Table:
    """Features `[class drawing d_features]`: 28 × 28 by area, then the first principal components of all."""
    size, count = SMALL_SIDE**2, images.shape[0] * images.shape[1] * ORIENTATIONS
    if not 1 <= d_features <= size:
        raise ValueError(f"pictures have {size} pixels; expected d_features of 1 … {size}, got {d_features}")
    upright = small(images).flatten(0, 1).double()
    mean = sum(oriented(upright, orientation).sum(0) for orientation in range(ORIENTATIONS)) / count
    flat = (upright - mean).flatten(1)  # the mean is the same in every orientation
    spread = (flat.T @ flat).view(4 * (SMALL_SIDE,))
    spread = sum(
        oriented(oriented(spread, orientation).permute(2, 3, 0, 1), orientation)
        for orientation in range(ORIENTATIONS)
    ).reshape(size, size)
    axes = torch.linalg.eigh(spread).eigenvectors[:, size - d_features :].flip(1)
    axes = axes * axes.gather(0, axes.abs().argmax(0, keepdim=True)).sign()
    views = (oriented(upright - mean, orientation).flatten(1) for orientation in range(ORIENTATIONS))
    return by_class([(view @ axes).float() for view in views], images.shape[:2])


def smooth(images: Shaded, d_features: int = 64) -> Table:
    """Features `[class drawing d_features]`: the ink's centre in the middle, a blur of two of 28 pixels, and
    then as `principal`. Drawings of one character are nearer to each other than in `principal`."""
    few = small(images)
    at = torch.arange(SMALL_SIDE) - (SMALL_SIDE - 1) / 2
    weight = few / few.sum((-2, -1), keepdim=True).clamp(min=1e-6)
    off = torch.stack([(weight.sum(-2) * at).sum(-1), (weight.sum(-1) * at).sum(-1)], -1)  # x, y in pixels
    turn = torch.eye(2).expand(few[..., 0, 0].numel(), 2, 2)
    moves = torch.cat([turn, off.flatten(0, 1)[..., None] * (2 / SMALL_SIDE)], -1)
    flat = few.flatten(0, 1)[:, None]
    middle = F.grid_sample(flat, F.affine_grid(moves, flat.shape, align_corners=False), align_corners=False)
    kernel = torch.exp(-((torch.arange(SMALL_SIDE)[:, None] - torch.arange(SMALL_SIDE)) ** 2) / 8.0)
    kernel = kernel / kernel.sum(1).max()
    return principal((kernel @ middle[:, 0] @ kernel.T).unflatten(0, few.shape[:2]), d_features)


def resnet18(images: Bool[Tensor, "character drawing side side"]) -> Table:
    """Features `[class drawing 512]` of a ResNet-18 trained on ImageNet, as in the paper. Untried here.

    Needs `torchvision` and its weights, which it downloads.
    """
    try:
        from torchvision.models import ResNet18_Weights
        from torchvision.models import resnet18 as build
        from torchvision.transforms.functional import normalize
    except ImportError:
        raise OmniglotError("features='resnet18' needs torchvision: pip install torchvision") from None
    try:
        net = build(weights=ResNet18_Weights.IMAGENET1K_V1).eval()
    except (OSError, RuntimeError) as error:
        raise OmniglotError(f"cannot have the weights of ResNet-18 ({error}); use 'principal'") from None
    net.fc = torch.nn.Identity()

    @torch.no_grad()
    def features(part: Tensor) -> Tensor:
        grey = F.interpolate(1 - part[:, None].float(), size=224, mode="bilinear", antialias=True)
        return net(normalize(grey.expand(-1, 3, -1, -1), [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]))

    views = (oriented(images.flatten(0, 1), orientation) for orientation in range(ORIENTATIONS))
    return by_class(
        [torch.cat([features(part) for part in view.split(64)]) for view in views], images.shape[:2]
    )


def by_class(views: list[Float[Tensor, "picture feature"]], shape: tuple[int, int]) -> Table:
    """`[class drawing feature]` out of the features of all pictures in each orientation."""
    return torch.stack([view.unflatten(0, tuple(shape)) for view in views], 1).flatten(0, 1)


FEATURES: dict[str, Callable[[Tensor], Tensor]] = {"principal": principal, "smooth": smooth, "resnet18": resnet18}
