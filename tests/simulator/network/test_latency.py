"""Latencies: a number or a law, those of servers apart, and no message that overtakes another of
its pair.
"""

import math
from collections import defaultdict

import numpy as np
import pytest

from laggard.simulator import SERVER, AsyncPS, Cluster, Network, Rule, Stop, simulate
from laggard.simulator.algorithms import ALGORITHMS
from laggard.simulator.network.config import Hosts, SlowLink
from laggard.simulator.recording.messages import Record
from laggard.simulator.testing.fingerprint import fingerprint
from laggard.simulator.timing.distributions import Constant, Exponential, Gamma, Pareto
from laggard.simulator.timing.slowdowns import Crash
from tests.simulator.network.traffic import Traffic

CARDS = {"bandwidth": 10.0, "message_bytes": 1.0}
WIRES = [{}, CARDS, {**CARDS, "sharing": "fifo"}, {**CARDS, "wiring": "pairs"}]


def messages(cluster, algorithm=None, stop=None):
    """The columns of the messages that arrived, and how long each took."""
    algorithm, stop = algorithm or AsyncPS(Rule()), stop or Stop(updates=50)
    log = simulate(cluster, algorithm, stop=stop, record=Record(messages=True)).message_log
    arrived = log["status"] == "delivered"
    log = {name: column[arrived] for name, column in log.items()}
    return log | {"took": log["arrived"] - log["sent"]}


@pytest.mark.parametrize("latency", [0.0, 0.25])
def test_messages_of_server_have_own_latency(latency):
    network = Network(latency=latency, server_latency=0.75)
    log = messages(Cluster(3, Gamma(1.0, 0.5), network=network), AsyncPS(Rule(), shards=2))
    expected = np.where(log["sender"] < 0, 0.75, latency)
    np.testing.assert_allclose(log["took"], expected, rtol=1e-9, atol=1e-9)


def test_links_have_own_latency():
    """It replaces the latency of the server too; a link with only a bandwidth has the default
    latency.
    """
    network = Network(
        latency=Constant(0.25),
        server_latency=Constant(0.5),
        links=[SlowLink(0, SERVER, latency=3.0), SlowLink(1, SERVER, bandwidth=4.0)],
        message_bytes=2.0,
    )
    log = messages(Cluster(3, network=network))
    full = log["bytes"] > 0
    for rank, up, down in ((0, 3.0, 3.0), (1, 0.75, 1.0), (2, 0.25, 0.5)):
        np.testing.assert_allclose(log["took"][full & (log["sender"] == rank)], up)
        np.testing.assert_allclose(log["took"][full & (log["receiver"] == rank)], down)


def test_machines_have_own_latency():
    colocated = messages(Cluster(2, network=Network(latency=Constant(0.25), colocated=True)))
    assert set(colocated["took"][colocated["sender"] == 0]) == {0}
    hosts = Network(latency=Constant(0.25), hosts=Hosts(2, latency=0.125))
    log = messages(Cluster(4, network=hosts), ALGORITHMS["all_reduce"](Rule()), Stop(updates=3))
    inside = log["sender"] // 2 == log["receiver"] // 2
    np.testing.assert_allclose(log["took"], np.where(inside, 0.125, 0.25))


@pytest.mark.parametrize("wires", WIRES)
@pytest.mark.parametrize("name", ["async_ps", "all_reduce", "adpsgd", "gpipe"])
def test_constant_distributions_equal_their_numbers(name, wires):
    """The runs agree bit for bit. Messages are recorded, since lock-step rounds agree with
    messages only to rounding.
    """
    prints = []
    for law in (float, Constant):
        network = Network(latency=law(0.3), server_latency=law(0.7), **wires)
        cluster = Cluster(4, Gamma(1.0, 0.6), network=network)
        algorithm, record = ALGORITHMS[name](Rule()), Record(messages=True)
        prints.append(
            fingerprint(simulate(cluster, algorithm, stop=Stop(updates=12), record=record))
        )
    assert prints[0] == prints[1]


@pytest.mark.parametrize("wires", WIRES)
@pytest.mark.parametrize("crashes", [[], [Crash(0, at=40.0, back=41.0), Crash(1, at=60.0)]])
def test_messages_of_pair_arrive_in_order_of_departure(wires, crashes):
    """Downpour pushes again without waiting; a latency now and then is longer than many
    mini-batches.
    """
    network = Network(latency=Pareto(0.1, 1.1), server_latency=Gamma(0.2, 3.0), **wires)
    algorithm = ALGORITHMS["downpour"](Rule(), n_push=1, n_fetch=8)
    log = messages(Cluster(4, Gamma(0.3, 0.5), crashes, network), algorithm, Stop(time=200.0))
    pairs = defaultdict(list)
    for *pair, arrived in zip(log["sender"], log["receiver"], log["arrived"], strict=True):
        pairs[tuple(pair)].append(arrived)
    assert len(log["took"]) > 500
    assert all((np.diff(arrivals) >= 0).all() for arrivals in pairs.values())


class Scripted:
    """A law that draws the given values, again and again."""

    mean = std = 1.0

    def __init__(self, *latencies):
        self.latencies = latencies

    def draw(self, rng, n):
        return np.resize(self.latencies, n)


def arrivals(network, sends, cut=None):
    """When messages `(moment, bytes)` of worker 0 to the server arrive; it crashes at `cut`."""
    traffic = Traffic(network, workers=1, crashes=cut is not None)
    for number, (moment, size) in enumerate(sends):
        traffic.send(number, moment, 0, SERVER, size)
    if cut is not None:
        traffic.cut(cut, 0, [])
    traffic.run()
    return [traffic.times.get(number, math.inf) for number in range(len(sends))]


def test_message_waits_for_one_sent_before_it():
    """Arrivals are the running maximum of departure plus latency."""
    latencies = np.random.default_rng(3).exponential(5.0, 60)
    found = arrivals(Network(latency=Scripted(*latencies)), [(moment, 1.0) for moment in range(60)])
    expected = np.maximum.accumulate(np.arange(60) + latencies)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("sharing", ["fair", "fifo"])
def test_order_is_that_in_which_last_bytes_leave(sharing):
    """A message without bytes passes one whose bytes take two seconds, and does not wait for the
    other's latency.
    """
    network = Network(bandwidth=10.0, sharing=sharing, latency=Scripted(7.0, 1.0))
    assert arrivals(network, [(0.0, 20.0), (0.5, 0.0)]) == [9.0, 1.5]


@pytest.mark.parametrize(("cut", "expected"), [(None, [10.0, 10.0]), (1.0, [math.inf, 3.0])])
def test_lost_message_holds_up_no_later_one(cut, expected):
    network = Network(latency=Scripted(10.0, 1.0))
    assert arrivals(network, [(0.0, 1.0), (2.0, 1.0)], cut) == expected


def test_rounding_holds_up_no_message():
    """A thousand messages that leave in one instant, behind a large one: each rounds its own time
    of arrival.
    """
    moments = np.sort(np.random.default_rng(4).uniform(0.0, 2.0, 1000))
    sends = [(0.0, 20.0), *((moment, 1e-18) for moment in moments)]
    number, law = (
        arrivals(Network(bandwidth=9.7, sharing="fifo", latency=kind(0.1)), sends)
        for kind in (float, Constant)
    )
    assert number == law
    assert len(set(number)) > 1


def drawn(workers, seed=0, **network):
    """The first four latencies and durations of each worker."""
    cluster = Cluster(workers, Exponential(0.2), network=Network(**network))
    run = simulate(
        cluster, AsyncPS(Rule()), stop=Stop(updates=99), seed=seed, record=Record(messages=True)
    )
    log, rows = run.message_log, run.updates
    took, computed = log["arrived"] - log["sent"], rows["computed"] - rows["started"]
    return [
        np.array([took[log["sender"] == rank][:4], computed[rows["worker"] == rank][:4]])
        for rank in range(workers)
    ]


def test_each_sender_draws_from_own_stream():
    """Another worker leaves the others' latencies as they are, and latencies leave durations as
    they are.
    """
    two, three = (drawn(workers, latency=Exponential(0.2)) for workers in (2, 3))
    np.testing.assert_allclose(two, three[:2], rtol=1e-9)
    np.testing.assert_allclose([rank[1] for rank in drawn(3)], [rank[1] for rank in three])
    values = np.ravel(three)
    assert (np.diff(np.sort(values)) > 1e-9).all(), "streams of senders or purposes are the same"


def test_latencies_differ_from_seed_to_seed():
    one, other = (drawn(1, seed, latency=Exponential(0.2))[0][0] for seed in (0, 1))
    assert (one != other).all()
