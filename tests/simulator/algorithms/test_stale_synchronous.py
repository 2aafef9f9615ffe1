"""Stale synchronous parallel: the bound, its two limits, its staleness."""

import math

import numpy as np
import pytest
import torch

from laggard.simulator import (
    AsyncPS,
    Cluster,
    InvalidSettingError,
    Network,
    Rule,
    Stop,
    SyncPS,
    simulate,
)
from laggard.simulator.algorithms import SSP
from laggard.simulator.learning.rules import SGD, Adam
from laggard.simulator.timing.distributions import Constant, Exponential, Gamma
from laggard.simulator.timing.slowdowns import Crash, Factor

LR = 0.02


def timing(cluster, bound, updates):
    return simulate(cluster, SSP(Rule(), bound=bound), stop=Stop(updates=updates)).updates


@pytest.mark.parametrize("optimizer", [SGD(), SGD(momentum=0.9), Adam()], ids=repr)
@pytest.mark.parametrize("bound", [None, 10_000])
def test_without_a_bound_it_is_asynchronous(optimizer, bound, quadratic):
    rule = Rule(optimizer, lr=LR)
    network = Network(bandwidth=50.0, latency=0.01, message_bytes=2.0)
    cluster = Cluster(workers=5, compute=Gamma(1.0, 0.6), network=network, apply_seconds=0.03)
    runs = [simulate(cluster, algorithm, quadratic, stop=Stop(updates=80)) for algorithm in
            (AsyncPS(rule), SSP(rule, bound=bound))]  # fmt: skip
    assert torch.equal(runs[0].weights, runs[1].weights)
    for column in runs[0].updates:
        np.testing.assert_array_equal(runs[0].updates[column], runs[1].updates[column])


@pytest.mark.parametrize("law", [Constant(1.0), Exponential(1.0)])
def test_a_bound_of_zero_is_lock_step_in_iterations(law, quadratic):
    """P updates a round, of staleness 0 to P - 1, every worker once; a round takes the slowest's
    time.
    """
    P, rounds = 6, 3000
    rows = timing(Cluster(workers=P, compute=law), 0, P * rounds)
    np.testing.assert_array_equal(
        rows["staleness"].reshape(rounds, P), np.tile(np.arange(P), (rounds, 1))
    )
    np.testing.assert_array_equal(
        np.sort(rows["worker"].reshape(rounds, P)), np.tile(np.arange(P), (rounds, 1))
    )
    seconds = np.diff(rows["time"].reshape(rounds, P)[:, -1], prepend=0.0)
    expected = 1.0 if law.std == 0 else sum(1 / k for k in range(1, P + 1))
    assert seconds.mean() == pytest.approx(
        expected, abs=4 * seconds.std(ddof=1) / math.sqrt(rounds) + 1e-9
    )
    cluster, rule = Cluster(workers=P, compute=law), Rule(lr=LR)
    lock_step = simulate(cluster, SSP(rule, bound=0), quadratic, stop=Stop(updates=5 * P)).weights
    assert not torch.equal(
        lock_step, simulate(cluster, SyncPS(rule), quadratic, stop=Stop(updates=5)).weights
    )


def leads(rows, P):
    """By how many iterations each worker was ahead of the slowest when it began its next one."""
    arrived = [rows["time"][rows["worker"] == worker] for worker in range(P)]
    found = []
    for worker in range(P):
        begun = rows["started"][rows["worker"] == worker]
        for made, start in enumerate(begun):
            slowest = min(np.searchsorted(times, start, side="right") for times in arrived)
            found.append(made - slowest)
    return np.array(found)


@pytest.mark.parametrize("bound", [0, 1, 4])
@pytest.mark.parametrize("slowdowns", [[], [Factor(worker=2, factor=5.0)]])
def test_nobody_is_further_ahead_than_the_bound(bound, slowdowns):
    P = 5
    rows = timing(Cluster(workers=P, compute=Gamma(1.0, 0.8), slowdowns=slowdowns), bound, 1500)
    ahead = leads(rows, P)
    assert ahead.max() == bound, "the bound is kept, and is reached"
    assert (
        leads(
            timing(Cluster(workers=P, compute=Gamma(1.0, 0.8), slowdowns=slowdowns), None, 1500), P
        ).max()
        > 4
    )


def test_everybody_runs_at_the_pace_of_the_slowest():
    P, s, bound = 4, 8.0, 3
    cluster = Cluster(workers=P, compute=Constant(1.0), slowdowns=[Factor(worker=0, factor=s)])
    outcome = simulate(cluster, SSP(Rule(), bound=bound), stop=Stop(time=100 * s))
    assert outcome.progress.updates == pytest.approx(P * 100, abs=P * (bound + 1))


def test_a_worker_that_crashed_holds_the_others_at_the_bound_until_it_is_back():
    at, back, bound, P = 20.5, 60.0, 3, 4
    cluster = Cluster(
        workers=P, compute=Constant(1.0), slowdowns=[Crash(worker=1, at=at, back=back)]
    )
    rows = simulate(cluster, SSP(Rule(), bound=bound), stop=Stop(time=100.0)).updates
    applied = rows["status"] == "applied"
    while_down = applied & (rows["time"] > at) & (rows["time"] <= back)
    assert while_down.sum() == (P - 1) * (bound + 1), "the iteration they are in, and `bound` more"
    assert rows["time"][while_down].max() == pytest.approx(21 + bound)
    since = np.bincount(rows["worker"][applied & (rows["time"] > back)])
    assert since[1] == 40, "one a second"
    assert (since <= 40).all()


def test_a_bound_below_zero_is_refused():
    with pytest.raises(InvalidSettingError, match="bound: expected a number >= 0, got -1"):
        SSP(Rule(), bound=-1)
