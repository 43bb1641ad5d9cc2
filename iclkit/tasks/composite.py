"""Composite classes: two classes of a source side by side are a new class, so that n classes give up to n².

base        a a′ a″ …     b b′ b″ …            drawings of the classes a and b
composite   [a b] [a′ b′] … [a b′] [a′ b″] …   class (a, b): a pair of drawings is one exemplar
"""

from dataclasses import dataclass
from functools import lru_cache

import torch
from jaxtyping import Float, Int
from torch import Tensor

from iclkit.tasks.base import check_whole, generator
from iclkit.tasks.exemplars import Exemplars, check_within


@dataclass(frozen=True)
class Composite:
    """Pairs of classes of another source; an exemplar is two of its exemplars, their features joined.

        x = [x_a  x_b] / √2          as long as the base's, in the root mean square

    `n_classes` of the n² ordered pairs, in an order that `seed` shuffles and that uses every class of the
    base equally often on either side; more classes keep the earlier ones. Likewise the first e exemplars of
    e² use every exemplar of the base once on either side. Nothing is stored beside the base.
    Raises `ValueError` for more classes than pairs.
    """

    base: Exemplars
    n_classes: int
    seed: int = 0

    def __post_init__(self):
        if not isinstance(self.base, Exemplars):
            raise ValueError(f"expected a source of exemplars, such as Strokes(); got {self.base!r}")
        check_whole("n_classes", self.n_classes)
        check_whole("seed", self.seed, 0)
        n = self.base.n_classes
        if not 1 <= self.n_classes <= n**2:
            raise ValueError(f"{n} classes make 1 … {n**2} pairs; got n_classes={self.n_classes}")

    @property
    def n_exemplars(self) -> int:
        return self.base.n_exemplars**2

    @property
    def d_features(self) -> int:
        return 2 * self.base.d_features

    def parts(self, classes: Tensor, indices: Tensor) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        """Class and index, in the base, of the left and of the right half of each exemplar."""
        check_within(self, classes, indices)
        halves = zip(
            shuffles(self.base.n_classes, self.seed, classes.device),
            pair(classes, self.base.n_classes),
            pair(indices, self.base.n_exemplars),
        )
        left, right = ((order[one], index) for order, one, index in halves)
        return left, right

    def vectors(
        self, classes: Int[Tensor, "*shape"], indices: Int[Tensor, "*shape"]
    ) -> Float[Tensor, "*shape d"]:
        """The exemplar of each class at each index; `ValueError` for one that is not there."""
        return torch.cat([self.base.vectors(*part) for part in self.parts(classes, indices)], -1) / 2**0.5

    def picture(self, class_: int, index: int) -> Float[Tensor, "side width"]:
        """Two pictures of the base, side by side; `ValueError` for a base without pictures."""
        if not hasattr(self.base, "picture"):
            raise ValueError(f"expected a base with pictures, as Strokes() and omniglot(); got {self.base!r}")
        parts = self.parts(torch.tensor(class_), torch.tensor(index))
        return torch.cat([self.base.picture(int(one), int(drawing)) for one, drawing in parts], -1)


def pair(number: Int[Tensor, "*shape"], n: int) -> tuple[Int[Tensor, "*shape"], Int[Tensor, "*shape"]]:
    """The ordered pair with this number of 0 … n² − 1: (0, 0), (1, 1), …, (0, 1), (1, 2), …, (n − 1, 0), …"""
    return number % n, (number + number // n) % n


@lru_cache(maxsize=8)
def shuffles(n: int, seed: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Two orders of the numbers below n, for the left and for the right halves; drawn on the CPU."""
    with torch.device("cpu"):
        left, right = (torch.randperm(n, generator=generator(seed, side)) for side in (0, 1))
    return left.to(device), right.to(device)
