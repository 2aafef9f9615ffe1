"""Descent beside minima by the gradients of parts of the samples."""

import numpy as np
import pytest
import torch

from laggard.experiments.questions.probes.minima import BesideMinima, find_minimum
from laggard.models import MLP, Supervised, synthetic


@pytest.fixture(scope="module")
def beside():
    data = synthetic(samples=64, features=4)
    task = Supervised(MLP(hidden=[5]).build, data, batch=16, dtype=torch.float64)
    return BesideMinima(task, [find_minimum(task, seed) for seed in (1, 2)], limit=1.0, parts=4)


def test_parts_are_random_quarters_of_the_samples(beside):
    batches = beside.batches(0, [np.random.default_rng(seed) for seed in (1, 2)])
    first, second = next(batches), next(batches)
    assert not torch.equal(first, second)
    for number, minimum in enumerate(beside.minima):
        whole = set(minimum.batch.flatten().tolist())
        assert len(set(first[number].flatten().tolist()) & whole) == 4


def test_no_part_moves_the_minimum(beside):
    batch = next(beside.batches(0, [np.random.default_rng(seed) for seed in (1, 2)]))
    still = torch.stack([minimum.weights for minimum in beside.minima])[None]
    assert beside.gradients(still, [batch])[0].abs().max() == 0
    assert beside.gradients(still + 0.1, [batch])[0].abs().max() > 0.001


def test_parts_average_to_the_gradient_of_all(beside):
    """Less the slope that the search for the minimum has left there."""
    still = torch.stack([minimum.weights for minimum in beside.minima])[None]
    whole = BesideMinima(beside.task, beside.minima, beside.limit)
    samples = [next(whole.batches(0, []))]
    expected = whole.gradients(still + 0.1, samples)[0] - whole.gradients(still, samples)[0]
    batches = beside.batches(0, [np.random.default_rng(seed) for seed in (1, 2)])
    drawn = torch.stack([beside.gradients(still + 0.1, [next(batches)])[0] for _ in range(500)])
    error = (drawn.mean(0) - expected).norm() / expected.norm()
    assert error < 0.1
