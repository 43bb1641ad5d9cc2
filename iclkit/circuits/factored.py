"""A product of two matrices that is never multiplied out unless asked."""

from dataclasses import dataclass
from functools import cached_property
from typing import Union

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class FactoredMatrix:
    """A @ B with a small inner dimension: `A [… left inner]`, `B [… inner right]`; leading axes stack.

    .AB  the product      .T  its transpose      @  another matrix, factored or not
    .eigenvalues, .svd(), .norm()  are computed on the small side
    """

    A: Tensor
    B: Tensor

    def __post_init__(self):
        if self.A.ndim < 2 or self.B.ndim < 2 or self.A.shape[-1] != self.B.shape[-2]:
            raise ValueError(
                "expected A [… left inner] and B [… inner right] with the same inner; "
                f"got {tuple(self.A.shape)} and {tuple(self.B.shape)}"
            )

    @property
    def AB(self) -> Tensor:
        """The product, multiplied out."""
        return self.A @ self.B

    @property
    def T(self) -> "FactoredMatrix":
        """(A B)ᵀ = Bᵀ Aᵀ."""
        return FactoredMatrix(self.B.mT, self.A.mT)

    @property
    def shape(self) -> torch.Size:
        """The shape of the product."""
        stack = torch.broadcast_shapes(self.A.shape[:-2], self.B.shape[:-2])
        return torch.Size((*stack, self.A.shape[-2], self.B.shape[-1]))

    @cached_property
    def eigenvalues(self) -> Tensor:
        """All eigenvalues that can differ from 0, complex: those of B A where it is smaller than A B."""
        left, right = self.shape[-2:]
        if left != right:
            raise ValueError(f"eigenvalues need a square matrix; this product is {left} × {right}")
        small = self.B @ self.A if self.A.shape[-1] < left else self.AB
        if not small.isfinite().all():
            raise ValueError(
                "this product holds NaN or infinity, so it has no eigenvalues; are the weights finite?"
            )
        return torch.linalg.eigvals(small)

    def svd(self) -> tuple[Tensor, Tensor, Tensor]:
        """U, S, Vh with A B = U diag(S) Vh, by QR of both factors and an SVD of the small middle."""
        Q_A, R_A = torch.linalg.qr(self.A)
        Q_B, R_B = torch.linalg.qr(self.B.mT)
        U, S, Vh = torch.linalg.svd(R_A @ R_B.mT, full_matrices=False)
        return Q_A @ U, S, Vh @ Q_B.mT

    def norm(self) -> Tensor:
        """The Frobenius norm ‖A B‖."""
        R_A, R_B = (torch.linalg.qr(M, mode="r").R for M in (self.A, self.B.mT))
        return (R_A @ R_B.mT).norm(dim=(-2, -1))

    def __getitem__(self, index) -> "FactoredMatrix":
        """Into the leading axes only, those that both factors have."""
        return FactoredMatrix(self.A[index], self.B[index])

    def __matmul__(self, other: Union[Tensor, "FactoredMatrix"]) -> "FactoredMatrix":
        if not isinstance(other, FactoredMatrix):
            return FactoredMatrix(self.A, self.B @ other)
        middle = self.B @ other.A
        if middle.shape[-2] <= middle.shape[-1]:
            return FactoredMatrix(self.A, middle @ other.B)
        return FactoredMatrix(self.A @ middle, other.B)

    def __rmatmul__(self, other: Tensor) -> "FactoredMatrix":
        return FactoredMatrix(other @ self.A, self.B)
