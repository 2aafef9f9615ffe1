"""What several test rooms share."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from models import Quadratic, Supervised, synthetic


class Dealt:
    """A task whose one stream of mini-batches is dealt to `workers` in turn: batch t is worker t mod P's t div P-th."""

    def __init__(self, task: Any, workers: int) -> None:
        self._task, self._workers = task, workers
        self.batch, self.epoch, self.lanes = task.batch, task.epoch, task.lanes
        self._streams: dict[int, Iterator[Any]] = {}

    def start(self, seeds: Sequence[int]) -> Tensor:
        return self._task.start(seeds)

    def batches(self, rank: int, rngs: Sequence[np.random.Generator]) -> Iterator[Any]:
        seed = [np.random.default_rng(11) for _ in rngs]
        return islice(self._task.batches(0, seed), rank, None, self._workers)

    def gradients(self, weights: Tensor, batches: Sequence[Any]) -> tuple[Tensor, Tensor]:
        return self._task.gradients(weights, batches)

    def evaluate(self, weights: Tensor) -> Mapping[str, Tensor]:
        return self._task.evaluate(weights)


@pytest.fixture(scope="session")
def dealt() -> type[Dealt]:
    return Dealt


@pytest.fixture
def quadratic() -> Quadratic:
    """Five curvatures over two orders of magnitude, noisy, in double precision."""
    return Quadratic(curvature=1.0, dim=5, condition=100.0, noise=0.3, epoch=50, dtype=torch.float64)


@pytest.fixture(scope="session")
def perceptron() -> Supervised:
    """A small network with real back-propagation, in double precision, on one thread."""
    from models import MLP

    data = synthetic(samples=120, features=6, classes=3)
    return Supervised(MLP(hidden=(5,)).build, data, batch=8, dtype=torch.float64, threads=1)
