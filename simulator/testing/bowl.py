"""A task small enough to be run again and again."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from simulator.task import EqualLayer


@dataclass
class Bowl:
    """A noisy quadratic in double precision, of which every operation is element by element.

    f(w) = 1/2 sum_i h_i w_i^2, gradient h w + noise xi; a mini-batch is its xi `(params,)`, or `(ensemble, params)`.
    """

    dim: int = 6
    noise: float = 0.3
    batch: int = 1
    epoch: int = 20
    lanes: int = 1 << 20

    @property
    def curvature(self) -> Tensor:
        """The eigenvalues h `(params,)`, over two orders of magnitude."""
        return torch.logspace(0, -2, self.dim, dtype=torch.float64)

    def layers(self) -> list[EqualLayer]:
        """Its coordinates, for pipelines to cut."""
        return [EqualLayer(f"w{number}", 1, 1.0, 1.0) for number in range(1, self.dim + 1)]

    def start(self, seeds: Sequence[int]) -> Tensor:
        return torch.stack([torch.from_numpy(np.random.default_rng(seed).standard_normal(self.dim)) for seed in seeds])

    def batches(self, rank: int, rngs: Sequence[np.random.Generator]) -> Iterator[Tensor]:
        while True:
            draws = [torch.from_numpy(rng.standard_normal(self.dim)) for rng in rngs]
            yield draws[0] if len(draws) == 1 else torch.stack(draws)

    def gradients(self, weights: Tensor, batches: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        noise = torch.stack([batch.expand(weights.shape[1:]) for batch in batches])
        return self.curvature * weights + self.noise * noise, self._loss(weights)

    def evaluate(self, weights: Tensor) -> Mapping[str, Tensor]:
        return {"test_loss": self._loss(weights)}

    def _loss(self, weights: Tensor) -> Tensor:
        return (self.curvature * weights.square()).sum(-1) / 2
