"""Quadratics for which theory has closed forms."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from laggard.models.quadratic_form import QuadraticForm, expect_at_least, total

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(eq=False, kw_only=True)
class Quadratic(QuadraticForm):
    """A noisy quadratic with a known optimum, on which theory is checked.

        f(w) = 1/2 sum_i h_i (w_i - w*_i)^2,
        gradient = h (w - w*) + noise / sqrt(batch) xi,
        xi ~ N(0, I)

    A mini-batch is its noise xi, `(params,)` or `(ensemble, params)`; the loss of a gradient is
    f(w), without noise. With `shift` or `scale` each worker has another quadratic: worker j has s_j
    h for h, and w* + c_j for w*. An evaluation is then the mean of the workers' f_j minus its
    minimum.

    Args:
        curvature: all eigenvalues h; or the largest, from which `dim` of them fall geometrically to
            `curvature / condition`.
        dim: number of eigenvalues, where `curvature` is one number.
        condition: the largest eigenvalue over the smallest.
        optimum: w*, one number for all coordinates or a sequence.
        initial: the initial weights, likewise.
        jitter: deviation of a member's start from `initial`, drawn from its seed.
        noise: deviation of one sample's gradient in each coordinate.
        batch: samples in a mini-batch.
        epoch: samples in one epoch, by convention: there is no training set.
        shift: c_j, one for each worker: a number for all coordinates or a sequence.
        scale: s_j, one for each worker.
        dtype: torch's type of the weights; float32 by default.

    Raises:
        ValueError: an eigenvalue that is not positive, `condition` below 1, `batch`, `epoch` or
            `dim` below 1, negative noise or jitter, a sequence of another length than the
            eigenvalues, a scale that is not positive, `shift` and `scale` of different length.

    Example:
        >>> import torch
        >>> Quadratic(curvature=[1.0, 4.0]).evaluate(torch.tensor([[0.0, 2.0]]))["test_loss"]
        tensor([8.])
    """

    curvature: float | Sequence[float] = 1.0
    condition: float = 1.0
    optimum: float | Sequence[float] = 0.0

    def __post_init__(self) -> None:
        expect_at_least(1, condition=self.condition)
        super().__post_init__()
        self._expect_coordinates("optimum", self.optimum)

    @cached_property
    def _curvature(self) -> "Tensor":
        return self._tensor(self._eigenvalues())

    @cached_property
    def _optimum(self) -> "Tensor":
        return self._tensor(self.optimum).expand(self.params)

    def _count_coordinates(self) -> int:
        return len(self._eigenvalues())

    def _largest_eigenvalue(self) -> float:
        return float(self._eigenvalues().max())

    def _product(self, offset: "Tensor") -> "Tensor":
        return self._curvature * offset

    def _energy(self, offset: "Tensor") -> "Tensor":
        return total(self._curvature * offset.square()) / 2

    def _eigenvalues(self) -> np.ndarray:
        if isinstance(self.curvature, Sequence):
            if self.dim not in (1, len(self.curvature)) or self.condition != 1:
                problem = "curvature is a sequence of all eigenvalues"
                raise ValueError(f"{problem}: leave dim and condition out")
            values = np.array(self.curvature, dtype=float)
        else:
            values = self.curvature * np.geomspace(1, 1 / self.condition, self.dim)
        if values.size == 0 or not (np.isfinite(values) & (values > 0)).all():
            raise ValueError(f"curvature = {self.curvature}: expected positive eigenvalues")
        return values


@dataclass(eq=False, kw_only=True)
class Tridiagonal(QuadraticForm):
    """Nesterov's tridiagonal quadratic, the worst case of smooth convex functions.

        f(w) = 1/2 w^T A w - b^T w,
        A = 1/4 tridiag(-1, 2, -1),
        b = -1/4 e_1,
        gradient = A w - b + noise xi
        w*_k = k / (d + 1) - 1,
        f(w*) = -d / (8 (d + 1)),
        smoothness 1/2 (1 + cos(pi / (d + 1)))

    All losses are f(w) - f(w*), since they are computed from w - w*, without a matrix and without
    cancellation. With `shift` or `scale`, worker j has s_j (f(w - c_j) - f(w*)), and an evaluation
    is their mean minus its minimum.

    Args:
        dim: d.
        initial: the initial weights, one number for all coordinates or a sequence.
        jitter: deviation of a member's start from `initial`, drawn from its seed.
        noise: deviation of one sample's gradient in each coordinate.
        batch: samples in a mini-batch.
        epoch: samples in one epoch, by convention: there is no training set.
        shift: c_j, one for each worker: a number for all coordinates or a sequence.
        scale: s_j, one for each worker.
        dtype: torch's type of the weights; float32 by default.

    Raises:
        ValueError: as `Quadratic`.

    Source: Nesterov (2004), Introductory lectures on convex optimization, section 2.1.2; with this
    A and b in Tyurin, Richtarik (2023), arXiv:2305.12387.

    Example:
        >>> Tridiagonal(dim=3).minimizer
        tensor([-0.7500, -0.5000, -0.2500])
    """

    dim: int = 100
    initial: float | Sequence[float] = 0.0

    @cached_property
    def _optimum(self) -> "Tensor":
        return self._tensor(np.arange(1, self.dim + 1) / (self.dim + 1) - 1)

    def _count_coordinates(self) -> int:
        return self.dim

    def _largest_eigenvalue(self) -> float:
        return (1 + math.cos(math.pi / (self.dim + 1))) / 2

    def _product(self, offset: "Tensor") -> "Tensor":
        return -_between_zeros(offset).diff(n=2) / 4

    def _energy(self, offset: "Tensor") -> "Tensor":
        return total(_between_zeros(offset).diff().square()) / 8


def _between_zeros(offset: "Tensor") -> "Tensor":
    """`(..., params + 2)`, with a zero before the first coordinate and after the last."""
    from torch.nn.functional import pad

    return pad(offset, (1, 1))
