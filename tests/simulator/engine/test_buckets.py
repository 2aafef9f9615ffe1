"""Buckets of a gradient: each is there in time, and the work is what it is without them."""

import math
from dataclasses import dataclass, field

import numpy as np
import pytest

from laggard.models import Quadratic
from laggard.simulator import Algorithm, Cluster, InvalidSettingError, Stop, simulate
from laggard.simulator.timing.distributions import Constant, Gamma
from laggard.simulator.timing.slowdowns import Crash, Factor, Markov, Window

SHARES = (0.25, 0.5, 0.75, 1.0)


@dataclass(frozen=True)
class Alone(Algorithm):
    """Workers that compute, wait for every bucket, and apply the gradient themselves."""

    shares: tuple = SHARES
    seen: list = field(default_factory=list)

    def worker(self, node):
        while True:
            work = node.compute(node.weights, buckets=self.shares)
            for event in work.buckets:
                gradient = yield event
                self.seen.append((node.rank, node.now, gradient is work.gradient))
            yield work
            node.apply(node.weights, [gradient])


def moments(slowdowns, shares=SHARES):
    alone = Alone(shares)
    simulate(Cluster(1, Constant(2.0), slowdowns), alone, stop=Stop(updates=1))
    assert all(same for _, _, same in alone.seen)
    return [time for _, time, _ in alone.seen]


def test_buckets_are_ready_after_shares_of_work():
    assert moments([]) == [0.5, 1.0, 1.5, 2.0]
    assert moments([Factor(0, factor=3.0)]) == [1.5, 3.0, 4.5, 6.0]


def test_slowdown_delays_buckets_computed_in_it():
    """The worker is four times slower from 0.75 s to 2.75 s, and so does half a second's work in
    that time.
    """
    assert moments([Window(0, factor=4.0, start=0.75, end=2.75)]) == [0.5, 1.75, 3.0, 3.5]


@pytest.mark.parametrize("slow", [[], [Markov(1, factor=5.0, slow_for=0.4, fast_for=0.7)]])
def test_buckets_change_nothing_else(slow):
    cluster, task = Cluster(3, Gamma(1.0, 0.5), slow), Quadratic(dim=4, noise=1.0)
    plain, cut = (
        simulate(cluster, Alone(shares), task, stop=Stop(updates=20)) for shares in ((1.0,), SHARES)
    )
    for name in plain.updates:
        np.testing.assert_array_equal(cut.updates[name], plain.updates[name])
    for name in plain.workers:
        np.testing.assert_array_equal(cut.workers[name], plain.workers[name])
    assert (cut.weights == plain.weights).all()


@pytest.mark.parametrize(
    "shares", [(0.5, 0.25, 1.0), (0.0, 1.0), (0.5,), (0.5, 1.5), (math.nan, 1.0)]
)
def test_shares_must_rise_to_one(shares):
    with pytest.raises(
        InvalidSettingError, match=r"compute.buckets: expected shares > 0 .* the last of them 1"
    ):
        moments([], shares)


@dataclass(frozen=True)
class Impatient(Algorithm):
    """A worker that cancels its work once the first bucket is there, and then waits for a bucket
    that never comes.
    """

    waits: bool = False
    after: list = field(default_factory=list)

    def worker(self, node):
        work = node.compute(node.weights, buckets=SHARES)
        first, second, *_ = work.buckets
        yield first
        work.cancel()
        work.cancel()
        if self.waits:
            yield second
            self.after.append(node.now)


@pytest.mark.parametrize("waits", [False, True])
def test_buckets_of_cancelled_work_never_come(waits):
    impatient = Impatient(waits)
    # with a crash to come, waiting is no Deadlock
    cluster = Cluster(1, Constant(2.0), [Crash(0, at=90.0)])
    outcome = simulate(cluster, impatient, stop=Stop(updates=1))
    assert impatient.after == []
    assert outcome.progress.time == 0.5
    assert outcome.gradients["cancelled"] == 1


def test_crash_ends_buckets():
    alone = Alone()
    cluster = Cluster(1, Constant(2.0), [Crash(0, at=0.75, back=10.0)])
    simulate(cluster, alone, stop=Stop(updates=1))
    assert [time for _, time, _ in alone.seen] == [0.5, 10.5, 11.0, 11.5, 12.0]
