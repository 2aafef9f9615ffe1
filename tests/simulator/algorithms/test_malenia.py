"""Malenia: all workers count equally, by as many gradients as each has made."""

import numpy as np
import pytest
import torch

from laggard.models import Quadratic
from laggard.simulator import (
    Cluster,
    InvalidSettingError,
    Malenia,
    Network,
    Rule,
    Stop,
    SyncPS,
    simulate,
)
from laggard.simulator.timing.slowdowns import Factor

OPTIMA, CURVATURES = np.array([-1.0, 0.5, 2.0]), np.array([1.0, 2.0, 3.0])
MINIMUM = (CURVATURES * OPTIMA).sum() / CURVATURES.sum()


def task():
    options = {"shift": OPTIMA.tolist(), "scale": CURVATURES.tolist(), "dtype": torch.float64}
    return Quadratic(noise=0.0, **options)


@pytest.mark.parametrize("factors", [(1, 2, 3), (1, 1, 9)])
@pytest.mark.parametrize("gradients", [None, 5, 12])
def test_minimum_is_reached_at_any_speeds(factors, gradients):
    slowdowns = [Factor(rank, factor=float(factor)) for rank, factor in enumerate(factors)]
    algorithm = Malenia(Rule(lr=0.1), gradients)
    outcome = simulate(Cluster(3, slowdowns=slowdowns), algorithm, task(), stop=Stop(updates=200))
    assert outcome.weights.item() == pytest.approx(MINIMUM, abs=1e-12)
    assert (outcome.updates["staleness"][outcome.updates["status"] == "applied"] == 0).all()


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


def test_saturated_card_of_server_makes_updates():
    """A gradient takes longer on the card than to compute: a worker waits before the next."""
    network = Network(bandwidth=1.0, message_bytes=4.0)
    outcome = simulate(Cluster(4, network=network), Malenia(Rule()), stop=Stop(updates=5))
    assert outcome.progress.updates == 5


def test_server_that_cannot_receive_all_gradients_is_refused():
    """Its workers never wait: what it receives would be older and older, and dropped."""
    with pytest.raises(InvalidSettingError, match="receive_seconds"):
        Malenia(Rule()).check(Cluster(4, receive_seconds=0.3))
