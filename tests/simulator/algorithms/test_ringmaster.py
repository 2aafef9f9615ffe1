"""Ringmaster: nothing of staleness R or more is applied, and what is bound to be is not computed to
the end.
"""

import pytest

from laggard.simulator import Cluster, InvalidSettingError, Network, Rule, Stop, simulate
from laggard.simulator.algorithms import Ringmaster
from laggard.simulator.timing.distributions import Exponential, Gamma
from laggard.simulator.timing.slowdowns import Crash, Factor

WIRED = Network(bandwidth=50.0, latency=0.05, message_bytes=2.0)
SLOW = [Factor(worker=1, factor=9.0)]


@pytest.mark.parametrize("cancel", [False, True])
@pytest.mark.parametrize("network", [Network(), WIRED])
@pytest.mark.parametrize("R", [1, 4, 12])
def test_only_gradients_below_threshold_are_applied(R, network, cancel):
    cluster = Cluster(6, Exponential(1.0), slowdowns=SLOW, network=network, apply_seconds=0.01)
    rows = simulate(cluster, Ringmaster(Rule(), R, cancel), stop=Stop(updates=3000)).updates
    applied, staleness = rows["status"] == "applied", rows["staleness"]
    assert staleness[applied].max() == R - 1
    assert staleness[~applied].min() >= R
    assert ("cancelled" in rows["status"]) == cancel


def test_computation_stops_when_it_is_too_stale():
    """Its staleness is R then, and nothing is computed to be dropped."""
    R = 4
    cluster = Cluster(workers=6, compute=Gamma(1.0, 0.8), slowdowns=SLOW)
    outcome = simulate(cluster, Ringmaster(Rule(), R, cancel=True), stop=Stop(updates=2000))
    cancelled = outcome.updates["status"] == "cancelled"
    assert cancelled.sum() > 100
    assert (outcome.updates["staleness"][cancelled] == R).all()
    assert outcome.gradients["dropped"] == 0


@pytest.mark.parametrize("cancel", [False, True])
def test_crashed_worker_contributes_again(cancel):
    at, back, R = 20.3, 40.2, 5
    cluster = Cluster(4, Gamma(1.0, 0.5), [Crash(worker=1, at=at, back=back)], WIRED)
    outcome = simulate(cluster, Ringmaster(Rule(), R, cancel), stop=Stop(time=80.0))
    rows = outcome.updates
    applied = rows["status"] == "applied"
    assert (applied & (rows["worker"] == 1) & (rows["time"] > back)).sum() > 15
    assert rows["staleness"][applied].max() < R
    for started, *counts in (outcome.gradients.values(), outcome.messages.values()):
        assert started == sum(counts)


def test_threshold_of_zero_is_refused():
    with pytest.raises(InvalidSettingError, match="threshold"):
        Ringmaster(Rule(), threshold=0)
