"""Ringmaster: nothing of staleness R or more is applied, and what is bound to be is not computed to
the end.
"""

import math

import numpy as np
import pytest
import torch

from laggard.simulator import AsyncPS, Cluster, InvalidSettingError, Network, Rule, Stop, simulate
from laggard.simulator.algorithms import Ringmaster
from laggard.simulator.learning.rules import SGD, Adam
from laggard.simulator.timing.distributions import Exponential, Gamma
from laggard.simulator.timing.slowdowns import Crash, Factor

LR = 0.02
WIRED = Network(bandwidth=50.0, latency=0.05, message_bytes=2.0)
SLOW = [Factor(worker=1, factor=9.0)]


@pytest.mark.parametrize("optimizer", [SGD(momentum=0.9), Adam()], ids=repr)
@pytest.mark.parametrize("cancel", [False, True])
def test_with_a_threshold_above_every_staleness_it_is_asynchronous(optimizer, cancel, quadratic):
    rule = Rule(optimizer, lr=LR)
    cluster = Cluster(workers=5, compute=Gamma(1.0, 0.6), network=WIRED, apply_seconds=0.03)
    runs = [simulate(cluster, algorithm, quadratic, stop=Stop(updates=80)) for algorithm in
            (AsyncPS(rule), Ringmaster(rule, threshold=10_000, cancel=cancel))]  # fmt: skip
    assert torch.equal(runs[0].weights, runs[1].weights)
    for column in runs[0].updates:
        np.testing.assert_array_equal(runs[0].updates[column], runs[1].updates[column])


@pytest.mark.parametrize("cancel", [False, True])
@pytest.mark.parametrize("network", [Network(), WIRED])
@pytest.mark.parametrize("R", [1, 4, 12])
def test_what_is_applied_is_younger_than_the_threshold_and_what_is_not_is_not(R, network, cancel):
    cluster = Cluster(
        workers=6, compute=Exponential(1.0), slowdowns=SLOW, network=network, apply_seconds=0.01
    )
    outcome = simulate(cluster, Ringmaster(Rule(), R, cancel), stop=Stop(updates=3000))
    rows = {fate: outcome.updates["staleness"][outcome.updates["status"] == fate] for fate in
            ("applied", "dropped", "cancelled")}  # fmt: skip
    assert rows["applied"].max() == R - 1
    assert (rows["dropped"] >= R).all()
    assert (rows["cancelled"] >= R).all()
    assert (len(rows["cancelled"]) > 0) == cancel
    started, *fates = outcome.gradients.values()
    assert started == sum(fates)
    sent, *ends = outcome.messages.values()
    assert sent == sum(ends)


def test_on_a_free_network_a_computation_stops_the_moment_it_is_too_stale():
    """Its staleness is R then, and nothing is computed to be dropped."""
    R = 4
    cluster = Cluster(workers=6, compute=Gamma(1.0, 0.8), slowdowns=SLOW)
    outcome = simulate(cluster, Ringmaster(Rule(), R, cancel=True), stop=Stop(updates=2000))
    cancelled = outcome.updates["status"] == "cancelled"
    assert cancelled.sum() > 100
    assert (outcome.updates["staleness"][cancelled] == R).all()
    assert outcome.gradients["dropped"] == 0


def test_time_per_update_under_exponential_times():
    """Stops cost nothing where times have no memory: 1 / (P mu) an update, for every threshold."""
    P, updates = 6, 6000
    for R in (1, 3, 50):
        outcome = simulate(
            Cluster(P, Exponential(1.0)),
            Ringmaster(Rule(), R, cancel=True),
            stop=Stop(updates=updates),
        )
        assert outcome.progress.time / updates == pytest.approx(
            1 / P, abs=4 / (P * math.sqrt(updates))
        )


@pytest.mark.parametrize("cancel", [False, True])
def test_a_hopelessly_slow_worker_does_no_harm_and_no_good(cancel):
    """Nothing of it is applied once P - 1 others make R updates while it computes."""
    P, R = 5, 8
    cluster = Cluster(P, Gamma(1.0, 0.05), slowdowns=[Factor(worker=0, factor=20.0)])
    outcome = simulate(cluster, Ringmaster(Rule(), R, cancel), stop=Stop(updates=800))
    theirs = outcome.updates["worker"] == 0
    assert theirs.sum() > 5
    assert (outcome.updates["status"][theirs] == ("cancelled" if cancel else "dropped")).all()
    assert outcome.updates["staleness"][
        outcome.updates["status"] == "applied"
    ].mean() == pytest.approx(P - 2, abs=0.1)


@pytest.mark.parametrize("cancel", [False, True])
def test_a_worker_that_crashed_begins_at_the_newest_weights(cancel):
    at, back, R = 20.3, 40.2, 5
    cluster = Cluster(
        4, Gamma(1.0, 0.5), slowdowns=[Crash(worker=1, at=at, back=back)], network=WIRED
    )
    outcome = simulate(cluster, Ringmaster(Rule(), R, cancel), stop=Stop(time=80.0))
    rows = outcome.updates
    applied = rows["status"] == "applied"
    assert (applied & (rows["worker"] == 1) & (rows["time"] > back)).sum() > 15
    assert rows["staleness"][applied].max() < R
    started, *fates = outcome.gradients.values()
    assert started == sum(fates)
    sent, *ends = outcome.messages.values()
    assert sent == sum(ends)


def test_a_threshold_of_nothing_is_refused():
    with pytest.raises(InvalidSettingError, match="threshold: expected a number >= 1, got 0"):
        Ringmaster(Rule(), threshold=0)
