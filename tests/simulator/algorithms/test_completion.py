"""A send inside a collective is complete when its bytes have left; with `rendezvous` on arrival."""

import numpy as np
import pytest

from laggard.simulator import (
    AllReduce,
    Cluster,
    Network,
    Rule,
    Stop,
    Timing,
    simulate,
)
from laggard.simulator.algorithms.collectives import COLLECTIVES
from laggard.simulator.engine.rounds import Rounds
from laggard.simulator.network.config import Card
from laggard.simulator.timing.distributions import Gamma
from laggard.simulator.timing.slowdowns import Factor
from tests.cases import quick

N, BETA, ALPHA = 60.0, 0.004, 0.07
SHARINGS = pytest.mark.parametrize("sharing", ["fair", "fifo"])
RULES = pytest.mark.parametrize("rendezvous", [False, True])


@pytest.fixture(params=[True, False], ids=["lock step", "messages"])
def _way(request, monkeypatch):
    if not request.param:
        monkeypatch.setattr(Rounds, "apply_to", staticmethod(lambda _: False))


def first_round(cluster, algorithm):
    """When each node began the first sum, and when it went on."""
    rows = simulate(cluster, algorithm, Timing(depth=1), stop=Stop(updates=1)).updates
    order = np.argsort(rows["worker"])
    return rows["computed"][order], rows["time"][order]


def replay(phases, ready, seconds, rendezvous):
    """The recursion of nodes that begin the first step when they are `ready`.

    `seconds(sender, receiver, size)` are those of a message's bytes.
    """
    times = list(ready)
    for phase in phases:
        begun, times = times, list(times)
        for step in phase:
            for sender, time in enumerate(begun):
                receiver = int(step.to(sender))
                if receiver < 0:
                    continue
                left = time + seconds(sender, receiver, step.size)
                times[receiver] = max(times[receiver], left + ALPHA)
                times[sender] = max(times[sender], left + ALPHA * rendezvous)
    return np.array(times)


@pytest.mark.usefixtures("_way")
@SHARINGS
@RULES
@pytest.mark.parametrize("P", quick([2, 3, 7, 16], only=[3, 7]))
@pytest.mark.parametrize("name", COLLECTIVES)
def test_uneven_nodes_follow_recursion(name, P, rendezvous, sharing):
    """On private links, one of which is slower; the rings also where each node has one card."""
    beta = np.full(P, BETA)
    beta[1] *= 3
    private = {"wiring": "pairs", "cards": [Card(1, 1 / beta[1])]}
    cards = {"wiring": "cards"}
    for more in [private, cards] if COLLECTIVES[name].rotates else [private]:
        link = {"bandwidth": 1 / BETA, "latency": ALPHA, "message_bytes": N, **more}
        network = Network(sharing=sharing, rendezvous=rendezvous, **link)
        slow = [Factor(P - 1, factor=2.0)]
        cluster = Cluster(P, Gamma(1.0, 0.5), slow, network=network)
        ready, ends = first_round(cluster, AllReduce(Rule(), name))
        spent = beta if more is private else np.full(P, BETA)

        def seconds(sender, receiver, size, spent=spent):
            return size * N * max(spent[sender], spent[receiver])

        expected = replay(COLLECTIVES[name].phases(P), ready, seconds, rendezvous)
        np.testing.assert_allclose(ends, expected, rtol=1e-12)


@RULES
@pytest.mark.parametrize("P", [2, 5])
@pytest.mark.parametrize("slices", [2, 8])
def test_slices_of_uneven_nodes_follow_recursion(P, slices, rendezvous):
    """A card is a queue: a slice leaves after those before it, and after the slice that it waits
    for has come and the one as far before it has left.
    """
    network = Network(
        bandwidth=1 / BETA, latency=ALPHA, message_bytes=N, sharing="fifo", rendezvous=rendezvous
    )
    cluster = Cluster(P, Gamma(1.0, 0.5), network=network)
    ready, ends = first_round(cluster, AllReduce(Rule(), ring_slices=slices))
    tau, count = N * BETA / P / slices, 2 * (P - 1) * slices
    times, card = list(ready), [0.0] * P
    left = np.zeros((count, P))
    for number in range(count + slices):
        before = number - slices
        if before >= 0:
            complete = left[before] + ALPHA * rendezvous
            arrived = np.roll(left[before] + ALPHA, 1)
            times = np.maximum(times, np.maximum(complete, arrived))
        if number < count:
            left[number] = card = np.maximum(times, card) + tau
    np.testing.assert_allclose(ends, times, rtol=1e-12)


@pytest.mark.usefixtures("_way")
@SHARINGS
def test_message_counts_as_sending_until_it_arrives(sharing):
    """Node 0 sends from 1 to 1.75 s and from 2.75 to 3.25 s, where it computes; node 1 from 2 to
    3.25 s.
    """
    network = Network(bandwidth=1.0, latency=0.25, message_bytes=1.0, sharing=sharing)
    cluster = Cluster(2, slowdowns=[Factor(1, factor=2.0)], network=network)
    workers = simulate(cluster, AllReduce(Rule()), stop=Stop(time=3.5)).workers
    np.testing.assert_allclose(workers["sending"], [1.25, 1.25], rtol=1e-12)
    np.testing.assert_allclose(workers["waiting"], [1.0, 0.25], atol=1e-12)
