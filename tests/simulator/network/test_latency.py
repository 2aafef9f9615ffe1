"""Latencies: a number or a law, those of servers apart, and no message that overtakes another of
its pair.
"""

import math
from collections import defaultdict

import numpy as np
import pytest

from laggard.simulator import (
    SERVER,
    AsyncPS,
    Cluster,
    InvalidSettingError,
    Network,
    Rule,
    Stop,
    SyncPS,
    simulate,
)
from laggard.simulator.algorithms import ALGORITHMS
from laggard.simulator.network.config import Hosts, SlowLink
from laggard.simulator.network.topology import Star
from laggard.simulator.network.transport import Transport
from laggard.simulator.recording.messages import Record
from laggard.simulator.testing.fingerprint import fingerprint
from laggard.simulator.timing.clock import Clock
from laggard.simulator.timing.distributions import Constant, Exponential, Gamma, Pareto
from laggard.simulator.timing.slowdowns import Crash

CARDS = {"bandwidth": 10.0, "message_bytes": 1.0}
WIRES = [{}, CARDS, {**CARDS, "sharing": "fifo"}, {**CARDS, "wiring": "pairs"}]


def messages(cluster, algorithm=None, stop=None, **more):
    """The columns of what was sent and arrived."""
    algorithm, stop = algorithm or AsyncPS(Rule()), stop or Stop(updates=50)
    log = simulate(cluster, algorithm, stop=stop, record=Record(messages=True), **more).message_log
    there = log["status"] == "delivered"
    return {name: column[there] for name, column in log.items()}


def took(log, chosen):
    return (log["arrived"] - log["sent"])[chosen]


@pytest.mark.parametrize("latency", [0.0, 0.25])
def test_messages_of_a_server_have_a_latency_of_their_own(latency):
    network = Network(latency=latency, server_latency=0.75)
    log = messages(Cluster(3, Gamma(1.0, 0.5), network=network), AsyncPS(Rule(), shards=2))
    np.testing.assert_allclose(took(log, log["sender"] < 0), 0.75, rtol=1e-9)
    np.testing.assert_allclose(took(log, log["sender"] >= 0), latency, rtol=1e-9, atol=1e-9)


def test_a_round_is_there_and_back():
    network = Network(latency=0.25, server_latency=1.5)
    times = simulate(Cluster(2, network=network), SyncPS(Rule()), stop=Stop(updates=5)).updates[
        "time"
    ][::2]
    assert times.tolist() == [0.25 + 2.75 * count for count in range(1, 6)]


def test_a_link_and_a_machine_keep_their_own_latency():
    links = [SlowLink(0, SERVER, latency=3.0), SlowLink(1, SERVER, bandwidth=4.0)]
    network = Network(
        latency=Constant(0.25), server_latency=Constant(0.5), links=links, message_bytes=2.0
    )
    log = messages(Cluster(3, network=network))
    for rank, up, down in ((0, 3.0, 3.0), (1, 0.75, 1.0), (2, 0.25, 0.5)):
        full = log["bytes"] > 0
        np.testing.assert_allclose(took(log, full & (log["sender"] == rank)), up)
        np.testing.assert_allclose(took(log, full & (log["receiver"] == rank)), down)
    colocated = messages(Cluster(2, network=Network(latency=Constant(0.25), colocated=True)))
    assert set(took(colocated, colocated["sender"] == 0)) == {0}
    hosts = Network(latency=Constant(0.25), hosts=Hosts(2, latency=0.125))
    log = messages(Cluster(4, network=hosts), ALGORITHMS["all_reduce"](Rule()), Stop(updates=3))
    inside = log["sender"] // 2 == log["receiver"] // 2
    np.testing.assert_allclose(took(log, inside), 0.125)
    np.testing.assert_allclose(took(log, ~inside), 0.25)


@pytest.mark.parametrize("wires", WIRES)
@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_constants_as_laws_are_their_numbers_bit_for_bit(name, wires):
    """Rounds in lock step agree with messages to rounding alone, so that all are sent one by
    one.
    """
    workers, prints = 1 if name == "delayed" else 4, []
    for law in (float, Constant):
        network = Network(latency=law(0.3), server_latency=law(0.7), **wires)
        cluster = Cluster(workers, Gamma(1.0, 0.6), network=network)
        run = simulate(
            cluster, ALGORITHMS[name](Rule()), stop=Stop(updates=40), record=Record(messages=True)
        )
        prints.append(fingerprint(run))
    assert prints[0] == prints[1]


def test_a_collective_that_draws_latencies_sends_its_messages():
    """In lock step, and one by one under a constant law, times are the same to rounding."""
    times = []
    for law in (float, Constant):
        cluster = Cluster(4, Gamma(1.0, 0.6), network=Network(latency=law(0.3)))
        rows = simulate(cluster, ALGORITHMS["all_reduce"](Rule()), stop=Stop(updates=40)).updates
        times.append(rows["time"])
    np.testing.assert_allclose(*times, rtol=1e-9)


HEAVY = Pareto(0.1, 1.1)


@pytest.mark.parametrize("wires", WIRES)
@pytest.mark.parametrize("crashes", [[], [Crash(0, at=40.0, back=41.0), Crash(1, at=60.0)]])
def test_messages_of_a_pair_arrive_in_the_order_of_their_departure(wires, crashes):
    """Downpour pushes again without waiting; a latency now and then is longer than many
    mini-batches.
    """
    network = Network(latency=HEAVY, server_latency=Gamma(0.2, 3.0), **wires)
    cluster = Cluster(4, Gamma(0.3, 0.5), crashes, network)
    algorithm = ALGORITHMS["downpour"](Rule(), n_push=1, n_fetch=8)
    log = messages(cluster, algorithm, Stop(time=200.0))
    arrivals = defaultdict(list)
    for sender, receiver, arrived in zip(
        log["sender"], log["receiver"], log["arrived"], strict=True
    ):
        arrivals[sender, receiver].append(arrived)
    assert sum(map(len, arrivals.values())) > 500
    for pair in arrivals.values():
        assert (np.diff(pair) >= 0).all()


class Scripted:
    """A law that draws what it is told, again and again."""

    mean = std = 1.0

    def __init__(self, *latencies):
        self.latencies = latencies

    def draw(self, rng, n):
        return np.resize(self.latencies, n)


def arrivals(network, sends, cut=None):
    """When messages `(moment, bytes)` of worker 0 to the server arrive; worker 0 goes down at
    `cut`.
    """
    env, arrived = Clock(), {}
    transport = Transport(env, network, Star(), 1, crashes=cut is not None)

    def send(number, size):
        arrival = env.event()
        arrival._ok, arrival._value = True, None
        arrival.callbacks.append(lambda _: arrived.setdefault(number, env.now))
        transport.carry(0, SERVER, size, arrival)

    for number, (moment, size) in enumerate(sends):
        env.call_in(float(moment), lambda number=number, size=size: send(number, size))
    if cut is not None:
        env.call_in(cut, lambda: transport.cut(0))
    env.run_to_end()
    return [arrived.get(number, math.nan) for number in range(len(sends))]


def test_a_message_is_late_by_its_own_latency_or_by_one_before_it():
    """Arrivals are the running maximum of departure plus latency; without it, one in many would
    overtake.
    """
    latencies = np.random.default_rng(3).exponential(5.0, 60)
    found = arrivals(Network(latency=Scripted(*latencies)), [(moment, 1.0) for moment in range(60)])
    own = np.arange(60) + latencies
    np.testing.assert_allclose(found, np.maximum.accumulate(own), rtol=1e-12)
    assert (np.diff(own) < 0).sum() > 10


@pytest.mark.parametrize("sharing", ["fair", "fifo"])
def test_the_order_is_that_in_which_last_bytes_leave(sharing):
    """A message without bytes passes one whose bytes take two seconds, and is not held up by the
    other's latency.
    """
    network = Network(bandwidth=10.0, sharing=sharing, latency=Scripted(7.0, 1.0))
    assert arrivals(network, [(0.0, 20.0), (0.5, 0.0)]) == [9.0, 1.5]


def test_a_message_that_is_lost_holds_up_none_of_the_next_life():
    assert arrivals(Network(latency=Scripted(10.0, 1.0)), [(0.0, 1.0), (2.0, 1.0)]) == [10.0, 10.0]
    lost, after = arrivals(Network(latency=Scripted(10.0, 1.0)), [(0.0, 1.0), (2.0, 1.0)], cut=1.0)
    assert (math.isnan(lost), after) == (True, 3.0)


def test_rounding_holds_up_no_message():
    """A thousand messages that leave in one instant, behind a large one: each rounds its own time
    of arrival.
    """
    moments = np.sort(np.random.default_rng(4).uniform(0.0, 2.0, 1000))
    sends = [(0.0, 20.0), *((moment, 1e-18) for moment in moments)]
    found = [
        arrivals(Network(bandwidth=9.7, sharing="fifo", latency=law(0.1)), sends)
        for law in (float, Constant)
    ]
    assert found[0] == found[1]
    assert len(set(found[0])) > 1


def test_the_mean_round_trip_is_that_of_the_laws():
    """One worker, so that nothing waits for anything: compute, the way there and the way back."""
    there, back = Exponential(0.5), Gamma(0.25, 0.8)
    cluster = Cluster(1, Constant(1.0), network=Network(latency=there, server_latency=back))
    times = simulate(cluster, AsyncPS(Rule()), stop=Stop(updates=10_000)).updates["time"]
    trips, std = np.diff(times), math.hypot(there.std, back.std)
    assert trips.mean() == pytest.approx(
        1.0 + there.mean + back.mean, abs=4 * std / math.sqrt(len(trips))
    )
    fourth = ((trips - trips.mean()) ** 4).mean()
    assert trips.var() == pytest.approx(std**2, abs=4 * math.sqrt((fourth - std**4) / len(trips)))


def test_each_sender_draws_latencies_from_a_stream_of_its_own():
    def run(workers, **latency):
        cluster = Cluster(workers, Gamma(1.0, 0.5), network=Network(**latency))
        rows = simulate(cluster, AsyncPS(Rule()), stop=Stop(updates=300)).updates
        return [
            (rows["computed"] - rows["started"])[rows["worker"] == rank][:40] for rank in range(3)
        ]

    np.testing.assert_allclose(run(3), run(3, latency=Exponential(0.2)), rtol=1e-9)
    logs = [
        messages(Cluster(P, Constant(9.0), network=Network(latency=Exponential(0.2))))
        for P in (2, 3)
    ]
    for rank in (0, 1):
        first, second = (took(log, log["sender"] == rank)[:4] for log in logs)
        np.testing.assert_allclose(first, second, rtol=1e-9)
    assert len({took(log, log["sender"] == rank)[0] for log in logs[1:] for rank in range(3)}) == 3
    law, found = Exponential(0.2), []
    cluster = Cluster(1, law, network=Network(latency=law))
    log = messages(cluster)
    rows = simulate(cluster, AsyncPS(Rule()), stop=Stop(updates=50)).updates
    for seconds in (took(log, log["sender"] == 0), rows["computed"] - rows["started"]):
        found.append(seconds[:20])
    assert abs(np.subtract(*found)).min() > 1e-9


def test_latencies_differ_from_seed_to_seed():
    cluster = Cluster(1, network=Network(latency=Exponential(0.2)))
    assert simulate(cluster, AsyncPS(Rule()), stop=Stop(updates=3)).progress.time != pytest.approx(
        simulate(cluster, AsyncPS(Rule()), stop=Stop(updates=3), seed=1).progress.time
    )


@pytest.mark.parametrize("key", ["latency", "server_latency"])
@pytest.mark.parametrize("value", [-1.0, math.inf, math.nan])
def test_what_is_no_duration_is_refused(key, value):
    with pytest.raises(InvalidSettingError, match=f"Network.{key}: expected a number >= 0"):
        Network(**{key: value})


def test_numbers_alone_leave_the_fast_paths():
    def transport(**given):
        return Transport(Clock(), Network(**given), Star(), 2)

    assert transport(latency=0.5).post is not None
    assert transport(latency=0.5, server_latency=0.5).post is not None
    assert transport(latency=0.5, server_latency=0.25).post is None
    assert transport(latency=Constant(0.5)).post is None
    assert transport(latency=0.5, server_latency=Constant(0.5)).post is None
