"""Pictures that the code draws itself: characters of a few smooth strokes, to show a task or to train on.

    class     8 · character + orientation         as in Omniglot: quarter turns, then the same mirrored
    exemplar  one drawing of the character        its strokes and its frame a little out of place

Everything is a function of (seed, character, exemplar): how many others there are changes no picture.
"""

from dataclasses import dataclass
from functools import lru_cache
from math import comb, isfinite, pi

import torch
from jaxtyping import Float, Int
from torch import Tensor

from iclkit.tasks.base import check_whole, generator
from iclkit.tasks.exemplars import check_within
from iclkit.tasks.omniglot import ORIENTATIONS, SMALL_SIDE, oriented, principal, scaled

MOST_STROKES, CONTROLS, POINTS = 3, 5, 128
FILLED, HALF_WIDTH, MARGIN = 19.0, 0.7, 4  # of 28 pixels a side


def bezier(degree: int, points: int) -> Float[Tensor, "point control"]:
    """The share of each control point in each point of a curve: C(n, k) tᵏ (1 − t)ⁿ⁻ᵏ, closer at its ends."""
    u = torch.linspace(0, 1, points, dtype=torch.float64, device="cpu")[:, None]
    t = (u + (1 - (pi * u).cos()) / 2) / 2
    k = torch.arange(degree + 1, dtype=torch.float64, device="cpu")
    ways = torch.tensor([comb(degree, j) for j in range(degree + 1)], dtype=torch.float64, device="cpu")
    return ways * t**k * (1 - t) ** (degree - k)


CURVE = bezier(CONTROLS - 1, POINTS)


@dataclass(frozen=True)
class Strokes:
    """Drawn characters as exemplars, eight oriented classes each; `picture` shows one, 28 × 28.

    A character is one to three Bézier curves of random control points. A drawing moves each control point by
    up to 0.06, turns, shears and stretches the whole by up to 0.15, shifts it by up to 0.05 (× `wobble`) of
    the character's size. Features are the first `d_features` principal components of all pictures, with root
    mean square length `norm`, as in `omniglot`. Raises `ValueError` for what cannot be drawn.
    """

    characters: int = 200
    n_exemplars: int = 20
    d_features: int = 64
    wobble: float = 1.0
    norm: float = 4.0
    seed: int = 0

    def __post_init__(self):
        for name in ("characters", "n_exemplars", "d_features", "seed"):
            check_whole(name, getattr(self, name), int(name != "seed"))
        if self.d_features > SMALL_SIDE**2:
            raise ValueError(f"pictures have {SMALL_SIDE**2} pixels; got d_features={self.d_features}")
        real = all(isinstance(x, (int, float)) and isfinite(x) for x in (self.wobble, self.norm))
        if not (real and self.wobble >= 0 and self.norm > 0):
            raise ValueError(f"expected wobble ≥ 0 and norm > 0; got {self.wobble!r} and {self.norm!r}")

    @property
    def n_classes(self) -> int:
        return ORIENTATIONS * self.characters

    def vectors(
        self, classes: Int[Tensor, "*shape"], indices: Int[Tensor, "*shape"]
    ) -> Float[Tensor, "*shape d"]:
        """The exemplar of each class at each index; `ValueError` for one that is not there."""
        check_within(self, classes, indices)
        return table(self, classes.device)[classes, indices]

    def picture(self, class_: int, index: int) -> Float[Tensor, "side side"]:
        """One exemplar as a picture, 0 paper … 1 ink; `ValueError` for one that is not there."""
        check_within(self, torch.tensor(class_), torch.tensor(index))
        character, orientation = divmod(int(class_), ORIENTATIONS)
        return oriented(drawn(self, character, [int(index)])[0], orientation)


@lru_cache(maxsize=4)
def table(source: Strokes, device: torch.device) -> Float[Tensor, "class exemplar feature"]:
    every = range(source.n_exemplars)
    images = torch.stack([drawn(source, character, every) for character in range(source.characters)])
    with torch.device("cpu"):
        return scaled(principal(images, source.d_features), source.norm).to(device)


def drawn(source: Strokes, character: int, indices) -> Float[Tensor, "drawing side side"]:
    """Drawings of one character, in 256 levels of grey (so that machines agree on them)."""
    with torch.device("cpu"):
        strokes = controls(generator(source.seed, character))
        streams = [generator(source.seed, character, 1 + index) for index in indices]
        chances = [torch.rand(6 + strokes.numel(), generator=one, dtype=torch.float64) for one in streams]
        return inked(deformed(strokes, source.wobble * (2 * torch.stack(chances) - 1)))


def controls(random: torch.Generator) -> Float[Tensor, "stroke control xy"]:
    """Control points of one character, its longer side from −½ to ½; later strokes may start on the first."""
    chances = {"generator": random, "dtype": torch.float64}
    count = 1 + int(MOST_STROKES * torch.rand((), **chances))
    strokes, place = torch.rand(MOST_STROKES, CONTROLS, 2, **chances), torch.rand(MOST_STROKES, **chances)
    strokes[:, 1:-1] = 1.8 * strokes[:, 1:-1] - 0.4  # a curve only leans towards its inner control points
    for stroke in range(1, MOST_STROKES):
        if place[stroke] < 0.6:
            strokes[stroke, 0] = CURVE[int(place[stroke] * POINTS / 0.6)] @ strokes[0]
    line = (CURVE @ strokes[:count]).flatten(0, 1)
    low, high = line.amin(0), line.amax(0)
    return (strokes[:count] - (low + high) / 2) / (high - low).max()


def deformed(
    strokes: Float[Tensor, "stroke control xy"], moves: Float[Tensor, "drawing number"]
) -> Float[Tensor, "drawing point xy"]:
    """The line of each drawing: control points moved, then the plane mapped, x → x + x A + b."""
    A, b, apart = moves[:, :4].view(-1, 2, 2), moves[:, None, 4:6], moves[:, 6:].view(-1, *strokes.shape)
    line = (CURVE @ (strokes + 0.06 * apart)).flatten(1, 2)
    return line + line @ (0.15 * A) + 0.05 * b


def inked(lines: Float[Tensor, "drawing point xy"]) -> Float[Tensor, "drawing side side"]:
    """Anti-aliased pictures: ink = half a width + ½ − the distance to the line, in 0 … 1.

    Each point of a line reaches the 4 × 4 pixels around it; a margin takes what leaves the picture.
    """
    wide, near = SMALL_SIDE + 2 * MARGIN, torch.arange(4)
    places = (wide / 2 + FILLED * lines - 0.5).clamp(1, wide - 3)  # in pixels; pixel 0 has its centre at 0
    pixels = places.floor().long()[..., None] - 1 + near  # [drawing point xy 4]
    apart = (pixels - places[..., None]).square()
    distance = (apart[:, :, 1, :, None] + apart[:, :, 0, None, :]).sqrt().flatten(1)
    cells = (pixels[:, :, 1, :, None] * wide + pixels[:, :, 0, None, :]).flatten(1)
    far = distance.new_full((len(lines), wide**2), HALF_WIDTH + 0.5)
    nearest = far.scatter_reduce(1, cells, distance, "amin").view(-1, wide, wide)
    ink = (HALF_WIDTH + 0.5 - nearest[:, MARGIN:-MARGIN, MARGIN:-MARGIN]).clamp(0, 1)
    return (ink * 255).round().float() / 255
