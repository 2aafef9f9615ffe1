"""A quadratic form as a task: noise, workers that differ, its minimum and its smoothness."""

import math
from abc import ABC, abstractmethod
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
class QuadraticForm(ABC):
    """A noisy quadratic with a known optimum, one for all workers or one for each.

        f_i(w) = s_i / 2 (w - w* - c_i)^T A (w - w* - c_i),
        gradient = f_i' + noise / sqrt(batch) xi,
        xi ~ N(0, I)

    The loss of a gradient is f_i(w), without noise. Evaluations measure f, the mean of the f_i of
    all P workers:

        f(w) = minimum + s / 2 (w - m)^T A (w - m),
        m = w* + sum_i s_i c_i / sum_i s_i,
        s = 1/P sum_i s_i

    A mini-batch is its noise xi, `(params,)` or `(ensemble, params)`; where workers differ, it is
    (rank, xi). The arguments, and what they raise, are those of `Quadratic`.
    """

    dim: int = 1
    initial: float | Sequence[float] = 1.0
    jitter: float = 0.0
    noise: float = 0.0
    batch: int = 1
    epoch: int = 1000
    dtype: Any = None
    shift: Sequence[float | Sequence[float]] = ()
    scale: Sequence[float] = ()

    lanes = 1 << 20  # a call costs the same for one model as for a hundred

    def __post_init__(self) -> None:
        expect_at_least(1, batch=self.batch, epoch=self.epoch, dim=self.dim)
        expect_at_least(0, noise=self.noise, jitter=self.jitter)
        if self.dim > MOST_COORDINATES:
            raise ValueError(f"dim = {self.dim}: expected a number of at most {MOST_COORDINATES}")
        self.params = self._count_coordinates()
        self._expect_coordinates("initial", self.initial)
        for row in self.shift:
            self._expect_coordinates("shift", row)
        if any(not 0 < factor < math.inf for factor in self.scale):
            raise ValueError(f"scale = {self.scale}: expected positive numbers")
        if self.shift and self.scale and len(self.shift) != len(self.scale):
            expected = f"{len(self.shift)} numbers, one for each worker that has a shift"
            raise ValueError(f"scale = {self.scale}: expected {expected}")

    @property
    def workers(self) -> int:
        """The number of workers with their own quadratics; 0 if all share one."""
        return len(self.shift or self.scale)

    @property
    def smoothness(self) -> float:
        """The largest eigenvalue of the Hessian of f."""
        return self._mean_scale * self._largest_eigenvalue()

    @property
    def minimum(self) -> float:
        """The minimum value of f: 0 where no worker's optimum is shifted."""
        losses = []
        for offset in self._shifts - self._mean_shift:
            weights = self._tensor(offset).expand(self.params)
            losses.append(float(self._energy(weights)))
        return float(self._scales @ losses) / len(losses)

    @cached_property
    def minimizer(self) -> "Tensor":
        """m, the weights `(params,)` at which f is minimal."""
        return self._optimum + self._tensor(self._mean_shift)

    def start(self, seeds: Sequence[int]) -> "Tensor":
        """Initial weights `(ensemble, params)`: `initial`, moved by `jitter` times a normal draw
        from each seed.
        """
        if not self.jitter:
            return self._initial.repeat(len(seeds), 1)
        import torch

        draws = [np.random.default_rng(seed).standard_normal(self.params) for seed in seeds]
        noise = torch.from_numpy(np.stack(draws)).to(self._initial.dtype)
        return self._initial + self.jitter * noise

    def layers(self) -> list[Layer]:
        """The layers: one per coordinate, of equal work, for pipelines to cut."""
        numbers = range(1, self.params + 1)
        return [Layer(f"w{number}", 1, float(self.batch), 1.0) for number in numbers]

    def batches(self, rank: int, rngs: Sequence[np.random.Generator]) -> "Iterator[Any]":
        """The endless mini-batches of worker `rank`; with several generators the noise is
        `(ensemble, params)`.

        Raises:
            ValueError: workers differ, and there is none of this rank.
        """
        if not self.workers:
            return self._draw_noise(rngs)
        if not 0 <= rank < self.workers:
            given = f"shift and scale are those of {self.workers} workers"
            raise ValueError(f"rank {rank} has no quadratic: {given}")
        return ((rank, noise) for noise in self._draw_noise(rngs))

    def _draw_noise(self, rngs: Sequence[np.random.Generator]) -> "Iterator[Tensor]":
        import torch

        generators, dtype = tuple(rngs), self._initial.dtype
        while True:
            # Converting once for all members takes less than half of the time.
            rows = [rng.standard_normal(self.params) for rng in generators]
            draws = torch.from_numpy(np.stack(rows)).to(dtype)
            if len(draws) == 1:
                draws = draws[0]
            yield draws

    def gradients(self, weights: "Tensor", batches: Sequence[Any]) -> "tuple[Tensor, Tensor]":
        """Noisy gradients `(k, ensemble, params)` and f_i `(k, ensemble)` at `weights` `(k,
        ensemble, params)`.
        """
        import torch

        noises = batches
        if self.workers:
            noises = [noise for _, noise in batches]
        stacked = torch.stack([noise.expand(weights.shape[1:]) for noise in noises])
        noise = self.noise / math.sqrt(self.batch) * stacked
        offset = weights - self._optimum
        if not self.workers:
            return self._product(offset) + noise, self._energy(offset)
        ranks = [rank for rank, _ in batches]
        offset = offset - self._tensor(self._shifts[ranks])[:, None]
        scale = self._tensor(self._scales[ranks])[:, None]  # (k, 1)
        return scale[..., None] * self._product(offset) + noise, scale * self._energy(offset)

    def hessian_products(
        self, weights: "Tensor", directions: "Tensor", batches: Sequence[Any]
    ) -> "Tensor":
        """s_i A times `directions` `(k, ensemble, params)`, wherever `weights` are."""
        products = self._product(directions)
        if not self.workers:
            return products
        ranks = [rank for rank, _ in batches]
        scale = self._tensor(self._scales[ranks])
        return scale[:, None, None] * products

    def evaluate(self, weights: "Tensor") -> "Mapping[str, Tensor]":
        """The exact suboptimality, f minus its minimum, and the distance to the minimizer, each
        `(ensemble,)`.
        """
        offset = weights - self.minimizer
        return {
            "test_loss": self._mean_scale * self._energy(offset),
            "distance": total(offset.square()).sqrt(),
        }

    @property
    @abstractmethod
    def _optimum(self) -> "Tensor":
        """w* `(params,)`."""

    @abstractmethod
    def _count_coordinates(self) -> int:
        """The number of parameters."""

    @abstractmethod
    def _largest_eigenvalue(self) -> float:
        """The largest eigenvalue of A."""

    @abstractmethod
    def _product(self, offset: "Tensor") -> "Tensor":
        """A v of offsets v `(..., params)`."""

    @abstractmethod
    def _energy(self, offset: "Tensor") -> "Tensor":
        """1/2 v^T A v `(...)` of offsets v `(..., params)`."""

    @cached_property
    def _initial(self) -> "Tensor":
        return self._tensor(self.initial).expand(self.params)

    @cached_property
    def _shifts(self) -> np.ndarray:
        """c_i: a row for each worker, or one row of 0. A row has one number where it holds for all
        coordinates.
        """
        rows = self.shift or [0.0] * max(1, self.workers)
        width = max((len(row) for row in rows if isinstance(row, Sequence)), default=1)
        return np.array([np.broadcast_to(row, width) for row in rows], dtype=float)

    @cached_property
    def _scales(self) -> np.ndarray:
        """s_i `(workers,)`, or 1 `(1,)` for all."""
        return np.array(self.scale or [1.0] * max(1, self.workers), dtype=float)

    @cached_property
    def _mean_scale(self) -> float:
        return float(self._scales.mean())

    @property
    def _mean_shift(self) -> np.ndarray:
        mean: np.ndarray = self._scales @ self._shifts / self._scales.sum()
        return mean

    def _tensor(self, values: Any) -> "Tensor":
        import torch

        return torch.tensor(values, dtype=self.dtype or torch.float32)

    def _expect_coordinates(self, name: str, value: float | Sequence[float]) -> None:
        if isinstance(value, Sequence) and len(value) != self.params:
            raise ValueError(f"{name} has {len(value)} coordinates, expected {self.params}")


def total(values: "Tensor") -> "Tensor":
    """Sums along the last dimension, each in the same order whatever the other rows are.

    Torch would divide a long single row among its threads, and round differently.
    """
    sums: Tensor = reduce(add, (piece.sum(-1) for piece in values.split(SERIAL, dim=-1)))
    return sums


def expect_at_least(least: float, **values: float) -> None:
    """Check numbers.

    Raises:
        ValueError: one is below `least`, or not finite.
    """
    for name, value in values.items():
        if not least <= value < math.inf:
            raise ValueError(f"{name} = {value}: expected a number of at least {least}")
