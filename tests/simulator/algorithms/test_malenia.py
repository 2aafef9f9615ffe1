"""Malenia: all workers count equally, by as many gradients as each has made."""

import numpy as np
import pytest
import torch

from laggard.models import Quadratic
from laggard.simulator import (
    Cluster,
    Malenia,
    Rule,
    Stop,
    SyncPS,
    simulate,
)
from laggard.simulator.timing.slowdowns import Factor

OPTIMA, CURVATURES = np.array([-1.0, 0.5, 2.0]), np.array([1.0, 2.0, 3.0])


def task():
    options = {"shift": OPTIMA.tolist(), "scale": CURVATURES.tolist(), "dtype": torch.float64}
    return Quadratic(noise=0.0, **options)


def test_equal_times_make_synchronous_steps():
    """Without noise: a mini-batch that is begun and cancelled is not drawn again."""
    weights = []
    for method in (Malenia, SyncPS):
        algorithm = method(Rule(lr=0.1))
        outcome = simulate(Cluster(3), algorithm, task(), stop=Stop(updates=30))
        weights.append(outcome.weights)
    torch.testing.assert_close(*weights, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(("gradients", "seconds"), [(None, 4.0), (4, 4.0), (6, 8.0)])
def test_update_waits_for_harmonic_mean(gradients, seconds):
    """Of times 1, 1, 4 s: after 4 s, b = 4, 4, 1 are worth 9 / 1.5 = 6."""
    cluster = Cluster(3, slowdowns=[Factor(2, factor=4.0)])
    outcome = simulate(cluster, Malenia(Rule(lr=0.1), gradients), task(), stop=Stop(updates=3))
    rows = outcome.updates
    times = np.unique(rows["time"][rows["status"] == "applied"])
    assert times[0] <= seconds
    counts = np.bincount(rows["worker"][(rows["time"] == times[0]) & (rows["status"] == "applied")])
    needed = gradients or 3
    assert 9 / (1 / counts).sum() >= needed - 1e-9
