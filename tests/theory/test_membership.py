"""Workers that come and go by laws."""

import pytest

from laggard.simulator import SERVER, Algorithm, Cluster, Stop, simulate
from laggard.simulator.timing.distributions import Constant, Exponential, Uniform
from laggard.simulator.timing.members import Members
from tests.theory.statements import equal, mean_is
from tests.theory.trials import method


class Visit(Algorithm):
    """A worker computes one mini-batch in each stay, and waits until its time is up."""

    def worker(self, node):
        """One mini-batch."""
        gradient = yield node.compute(node.weights)
        node.send(SERVER, gradient)
        yield node.receive()

    def server(self, node):
        """An update for each."""
        while True:
            _, gradient = yield node.receive()
            node.apply(node.weights, [gradient])


def shares_up(uptime, downtime, workers, end):
    """The share of its time for which each worker is up."""
    members = Members(uptime=uptime, downtime=downtime)
    cluster = Cluster(workers, compute=Constant(1e-4), members=members)
    outcome = simulate(cluster, Visit(), stop=Stop(time=end))
    shares = 1 - outcome.workers["down"] / end
    return shares


@pytest.mark.parametrize(
    ("uptime", "downtime", "law"),
    [
        (Exponential(4.0), Exponential(1.0), "exponential"),
        (Uniform(0.0, 6.0), Exponential(2.0), "uniform and exponential"),
    ],
)
def test_share_of_workers_up_follows_renewal_theory(uptime, downtime, law):
    """An alternating renewal process is up for E[uptime] / (E[uptime] + E[downtime])."""
    up, down = uptime.mean, downtime.mean
    text = f"workers that stay {up:g} and are away {down:g} s on average ({law}): share up"
    found = shares_up(uptime, downtime, workers=40, end=600.0)
    mean_is(text, up / (up + down), found, source="renewal theory", wrong=down / (up + down))


def test_constant_stays_are_up_exactly():
    """Over whole cycles."""
    found = shares_up(Constant(3.0), Constant(1.0), workers=3, end=40.0)
    equal("stays of 3 s, absences of 1 s: share up", 0.75, found, source="definition")


def test_coming_and_going_workers_make_their_share():
    """Mini-batches of asynchronous workers that stay a whole number of them are 3 / 4 of all."""
    members = Members(uptime=3.0, downtime=1.0)
    cluster = Cluster(4, members=members)
    outcome = simulate(cluster, method("async_ps"), stop=Stop(time=400.5))
    text = (
        "async_ps, stays of 3 mini-batches, absences of 1: applied over those of workers that stay"
    )
    equal(text, 0.75, outcome.gradients["applied"] / 1600, source="definition")
