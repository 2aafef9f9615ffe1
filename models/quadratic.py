"""A quadratic for which theory has closed forms."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import add
from typing import TYPE_CHECKING, Any

import numpy as np

from laggard.models.layers import Layer

if TYPE_CHECKING:
    from torch import Tensor

MOST_COORDINATES = 1_000_000
SERIAL = 1 << 14  # numbers that torch sums on one thread


@dataclass(eq=False, kw_only=True)
class Quadratic:
    """A noisy quadratic with a known optimum, on which theory is checked.

        f(w) = 1/2 sum_i h_i (w_i - w*_i)^2,    gradient = h (w - w*) + noise / sqrt(batch) xi,    xi ~ N(0, I)

    A mini-batch is its noise xi, `(params,)` or `(ensemble, params)`; the loss of a gradient is f(w), without noise.

    Args:
        curvature: all eigenvalues h; or the largest, from which `dim` of them fall geometrically to
            `curvature / condition`.
        dim: how many eigenvalues there are, where `curvature` is one number.
        condition: the largest eigenvalue over the smallest.
        optimum: w*, one number for all coordinates or a sequence.
        initial: the initial weights, likewise.
        jitter: deviation of a member's start from `initial`, drawn from its seed.
        noise: deviation of one sample's gradient in each coordinate.
        batch: samples in a mini-batch.
        epoch: samples in one epoch, by convention: there is no training set.
        dtype: torch's type of the weights; float32 by default.

    Raises:
        ValueError: an eigenvalue that is not positive, `condition` below 1, `batch`, `epoch` or `dim` below 1,
            negative noise or jitter, a sequence of another length than the eigenvalues.

    Example:
        >>> import torch
        >>> Quadratic(curvature=[1.0, 4.0]).evaluate(torch.tensor([[0.0, 2.0]]))["test_loss"]
        tensor([8.])
    """

    curvature: float | Sequence[float] = 1.0
    dim: int = 1
    condition: float = 1.0
    optimum: float | Sequence[float] = 0.0
    initial: float | Sequence[float] = 1.0
    jitter: float = 0.0
    noise: float = 0.0
    batch: int = 1
    epoch: int = 1000
    dtype: Any = None

    lanes = 1 << 20  # a call costs the same for one model as for a hundred

    def __post_init__(self) -> None:
        _expect_at_least(1, batch=self.batch, epoch=self.epoch, condition=self.condition, dim=self.dim)
        _expect_at_least(0, noise=self.noise, jitter=self.jitter)
        if self.dim > MOST_COORDINATES:
            raise ValueError(f"dim = {self.dim}: expected a number of at most {MOST_COORDINATES}")
        self.params = len(self._eigenvalues())
        for name in ("optimum", "initial"):
            value = getattr(self, name)
            if isinstance(value, Sequence) and len(value) != self.params:
                raise ValueError(f"{name} has {len(value)} coordinates, expected {self.params}, one per eigenvalue")

    @cached_property
    def _curvature(self) -> "Tensor":
        return self._tensor(self._eigenvalues())

    @cached_property
    def _optimum(self) -> "Tensor":
        return self._tensor(self.optimum).expand(self.params)

    @cached_property
    def _initial(self) -> "Tensor":
        return self._tensor(self.initial).expand(self.params)

    def _tensor(self, values: Any) -> "Tensor":
        import torch

        return torch.tensor(values, dtype=self.dtype or torch.float32)

    def start(self, seeds: Sequence[int]) -> "Tensor":
        """Initial weights `(ensemble, params)`: `initial`, moved by `jitter` times a normal draw from each seed."""
        if not self.jitter:
            return self._initial.repeat(len(seeds), 1)
        import torch

        draws = [np.random.default_rng(seed).standard_normal(self.params) for seed in seeds]
        return self._initial + self.jitter * torch.from_numpy(np.stack(draws)).to(self._curvature.dtype)

    def layers(self) -> list[Layer]:
        """Its coordinates, for pipelines to cut, as layers of equal work."""
        return [Layer(f"w{number}", 1, float(self.batch), 1.0) for number in range(1, self.params + 1)]

    def batches(self, rank: int, rngs: Sequence[np.random.Generator]) -> "Iterator[Tensor]":
        """A worker's endless mini-batches of noise: `(params,)`, or `(ensemble, params)` from several generators."""
        import torch

        generators, dtype = tuple(rngs), self._curvature.dtype
        while True:  # converting once for all members takes less than half of the time
            draws = torch.from_numpy(np.stack([rng.standard_normal(self.params) for rng in generators])).to(dtype)
            yield draws[0] if len(draws) == 1 else draws

    def gradients(self, weights: "Tensor", batches: "Sequence[Tensor]") -> "tuple[Tensor, Tensor]":
        """Noisy gradients `(k, ensemble, params)` and f `(k, ensemble)` at `weights` `(k, ensemble, params)`."""
        import torch

        noise = torch.stack([batch.expand(weights.shape[1:]) for batch in batches])
        slope = self._curvature * (weights - self._optimum)
        return slope + self.noise / math.sqrt(self.batch) * noise, self._loss(weights)

    def hessian_products(self, weights: "Tensor", directions: "Tensor", batches: "Sequence[Tensor]") -> "Tensor":
        """h times `directions` `(k, ensemble, params)`, wherever `weights` are."""
        return self._curvature * directions

    def evaluate(self, weights: "Tensor") -> "Mapping[str, Tensor]":
        """f, which is the exact suboptimality, and the distance to the optimum, each `(ensemble,)`."""
        return {"test_loss": self._loss(weights), "distance": _total((weights - self._optimum).square()).sqrt()}

    def _loss(self, weights: "Tensor") -> "Tensor":
        return _total(self._curvature * (weights - self._optimum).square()) / 2

    def _eigenvalues(self) -> np.ndarray:
        if isinstance(self.curvature, Sequence):
            if self.dim not in (1, len(self.curvature)) or self.condition != 1:
                raise ValueError("curvature is a sequence of all eigenvalues: leave dim and condition out")
            values = np.array(self.curvature, dtype=float)
        else:
            values = self.curvature * np.geomspace(1, 1 / self.condition, self.dim)
        if values.size == 0 or not (np.isfinite(values) & (values > 0)).all():
            raise ValueError(f"curvature = {self.curvature}: expected positive eigenvalues")
        return values


def _total(values: "Tensor") -> "Tensor":
    """Sums along the last dimension, each in the same order whatever the other rows are.

    Torch would divide a long single row among its threads, and round differently.
    """
    total: Tensor = reduce(add, (piece.sum(-1) for piece in values.split(SERIAL, dim=-1)))
    return total


def _expect_at_least(least: float, **values: float) -> None:
    for name, value in values.items():
        if not least <= value < math.inf:
            raise ValueError(f"{name} = {value}: expected a number of at least {least}")
