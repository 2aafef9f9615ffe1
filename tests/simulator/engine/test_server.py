"""What messages cost a server: timelines against recurrences by hand, means, and the time that it
is busy.
"""

import heapq
import math
from dataclasses import replace
from itertools import cycle

import numpy as np
import pytest

from laggard.simulator import (
    SERVER,
    Algorithm,
    AsyncPS,
    Cluster,
    Network,
    Rule,
    Stop,
    SyncPS,
    simulate,
)
from laggard.simulator.algorithms import ALGORITHMS
from laggard.simulator.recording.messages import Record
from laggard.simulator.recording.trace import BUSY
from laggard.simulator.testing.fingerprint import fingerprint
from laggard.simulator.timing.distributions import Constant, Exponential, Gamma, Trace
from laggard.simulator.timing.slowdowns import Crash
from tests.simulator.engine.roles import run

SECONDS = [
    [math.sqrt(prime) for prime in own] for own in ([2, 7, 13], [3, 0.3], [5, 0.7, 17], [19, 0.11])
]
"""Of the mini-batches of each worker, again and again; no two messages arrive in one instant."""
COSTS = [(0.25, 0.0, 0.0), (0.0, 0.0, 0.5), (0.25, 0.125, 0.5), (0.5, 0.0, 0.25), (2.0, 1.0, 0.5)]
"""Of receive, update and reply."""


@pytest.fixture
def measured(tmp_path):
    rows = [f"{rank},{seconds}" for rank, own in enumerate(SECONDS) for seconds in own]
    (tmp_path / "seconds.csv").write_text("\n".join(["rank,seconds", *rows]))
    return Trace(str(tmp_path / "seconds.csv"), order="replay", worker="rank")


def costs(receive, update, reply):
    return {"receive_seconds": receive, "apply_seconds": update, "reply_seconds": reply}


def updates(cluster, algorithm, stop, **more):
    outcome = simulate(cluster, algorithm, stop=stop, **more)
    rows = outcome.updates
    applied = rows["status"] == "applied"
    return rows["worker"][applied].tolist(), rows["time"][applied]


def asynchronous(receive, update, reply, latency, transfer, count):
    """Who is applied when: one queue in order of arrival; a message without bytes takes the latency
    alone.
    """
    compute, free, found = [cycle(seconds) for seconds in SECONDS], 0.0, []
    arrivals = [(latency, rank, 0.0) for rank in range(len(SECONDS))]
    while len(found) < count:
        arrival, rank, size = heapq.heappop(arrivals)
        at = max(arrival, free) + size * receive
        if size:
            at += update
            found.append((rank, at))
        free = at + reply
        back = at + transfer + latency + next(compute[rank]) + transfer + latency
        heapq.heappush(arrivals, (back, rank, 1.0))
    return zip(*found, strict=True)


@pytest.mark.parametrize("wires", [{}, {"bandwidth": 4.0, "wiring": "pairs", "message_bytes": 1.0}])
@pytest.mark.parametrize("cost", COSTS)
def test_asynchronous_server_serves_messages_in_turn(measured, cost, wires):
    network = Network(latency=0.0625, **wires)
    cluster = Cluster(len(SECONDS), measured, network=network, **costs(*cost))
    workers, times = updates(cluster, AsyncPS(Rule()), Stop(updates=200))
    ranks, moments = asynchronous(*cost, 0.0625, 0.25 if wires else 0.0, 200)
    np.testing.assert_allclose(times, moments, rtol=1e-12)
    assert workers == list(ranks)


@pytest.mark.parametrize("workers", [1, 3, 8])
@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize("compute", [0.25, 5.0])
def test_synchronous_server_answers_workers_in_turn(workers, cost, compute):
    """Reply k leaves k - 1 replies after the update; gradients come in the same order and are taken
    in one by one.
    """
    latency, (receive, update, reply) = 0.125, cost
    cluster = Cluster(workers, Constant(compute), network=Network(latency=latency), **costs(*cost))
    _, times = updates(cluster, SyncPS(Rule()), Stop(updates=20))
    ended, expected = latency, []  # announcements have no size, and the first answers follow them
    for _ in range(20):
        free = ended + workers * reply
        for k in range(workers):
            free = max(free, ended + k * reply + latency + compute + latency) + receive
        ended = free + update
        expected += [ended] * workers
    np.testing.assert_allclose(times, expected, rtol=1e-12)


def nodes_of(worker, server, cluster):
    """The nodes after roles given as plain generator functions of a node."""
    nodes = {}
    run(worker, server, cluster=cluster, observe=lambda made: nodes.update(made.nodes))
    return nodes


def test_costs_are_in_proportion_to_size():
    sizes, got, answered = [0.0, 1.0, 2.5, 0.0, 0.25], [], []

    def worker(node):
        for size in sizes:
            node.send(SERVER, size, size=size)
        for _ in sizes:
            _, content = yield node.receive()
            answered.append((content, node.now))

    def server(node):
        for _ in sizes:
            _, size = yield node.receive()
            got.append((size, node.now))
        for size in sizes:
            node.send(0, size, size=size)
        yield node.work(0.0)
        got.append(("free", node.now))

    nodes_of(worker, server, Cluster(1, receive_seconds=2.0, reply_seconds=4.0))
    ends = np.cumsum(sizes) * 2.0
    assert got == [*zip(sizes, ends, strict=True), ("free", ends[-1] + 4.0 * sum(sizes))]
    departures = ends[-1] + 4.0 * (np.cumsum(sizes) - sizes)
    assert answered == list(zip(sizes, departures, strict=True))


def test_put_costs_no_time():
    got = []

    def worker(node):
        yield node.work(1.0)

    def server(node):
        yield node.work(1.0)
        node.put("own", tag=1)
        got.append(((yield node.receive(tag=1)), node.now))

    nodes_of(worker, server, Cluster(1, receive_seconds=2.0))
    assert got == [((SERVER, "own"), 1.0)]


def test_work_begins_after_sends():
    moments = []

    def worker(node):
        yield node.receive()
        moments.append(node.now)

    def server(node):
        node.send(0, None)
        sent = node.send(0, None)
        yield node.work(1.0)
        moments.append(node.now)
        assert sent.fired
        node.send(0, None, size=0.5)
        yield node.work(5.0)

    nodes = nodes_of(worker, server, Cluster(1, reply_seconds=2.0, network=Network(latency=0.25)))
    assert moments == [0.25, 5.0]
    assert nodes[SERVER].spent[BUSY] == 11.0  # two sends, work, half a send, work


def test_withdrawn_receive_leaves_message_and_costs_once():
    got, firsts = [], []

    def worker(node):
        yield node.work(1.0)
        node.send(SERVER, node.rank)
        yield node.work(50.0)

    def server(node):
        firsts.append(first := node.receive())
        yield first | node.down(1)  # at 2, when the message of worker 0 is half taken in
        assert not first.fired
        assert node.now == 2.0
        got.append(((yield node.receive())[1], node.now))
        got.append(((yield node.receive() | node.down(0)), node.now))

    slow = Cluster(2, receive_seconds=2.0, slowdowns=[Crash(1, at=2.0)])
    nodes = nodes_of(worker, server, slow)
    assert not firsts[0].fired
    assert got[0] == (0, 3.0)
    assert got[1][1] == 5.0  # the message that worker 1 sent before it crashed had arrived
    assert nodes[SERVER].spent[BUSY] == 4.0


def test_message_given_back_goes_to_next_receive():
    got = []

    def first(node):
        yield node.work(0.5)
        yield node.receive() | node.down(1)  # at 1 s, when the message is half taken in

    def second(node):
        yield node._env.timeout(0.75)
        got.append(((yield node.receive())[1], node.now))

    class Two(Algorithm):
        def worker(self, node):
            if node.rank == 0:
                node.send(SERVER, "one")
            yield node.work(50.0)

        def roles(self, workers):
            return {SERVER: [first, second], 0: [self.worker], 1: [self.worker]}

        def server(self, node):
            raise NotImplementedError

    cluster = Cluster(2, receive_seconds=2.0, slowdowns=[Crash(1, at=1.0)])
    simulate(cluster, Two(), stop=Stop(time=40.0))
    assert got == [("one", 2.5)]


def test_cancelled_work_frees_server():
    moments = []

    def worker(node):
        yield node.work(1.0)
        node.send(SERVER, None, size=0)
        yield node.work(50.0)

    def server(node):
        work = node.work(20.0)
        yield node._env.timeout(3.0)
        work.cancel()
        yield node.receive()
        moments.append(node.now)
        node.send(0, None)
        node.work(20.0).cancel()
        yield node.work(1.0)
        moments.append(node.now)

    nodes = nodes_of(worker, server, Cluster(1, receive_seconds=1.0, reply_seconds=2.0))
    assert moments == [3.0, 6.0]
    assert nodes[SERVER].spent[BUSY] == 6.0


def test_cancelled_work_keeps_times_of_later_tasks():
    """Work of 5 s, then a send of 2 s, whose message leaves first. The work is cancelled at 1 s; the
    next one begins at 7 s all the same.
    """
    moments = []

    def worker(node):
        yield node.receive()
        moments.append(node.now)

    def server(node):
        work = node.work(5.0)
        node.send(0, None)
        yield node._env.timeout(1.0)
        work.cancel()
        yield node.work(1.0)
        moments.append(node.now)

    nodes_of(worker, server, Cluster(1, reply_seconds=2.0))
    assert moments == [5.0, 8.0]


def test_messages_are_logged_at_departure():
    network = Network(latency=1.0, message_bytes=4.0)
    cluster = Cluster(3, Constant(9.0), network=network, reply_seconds=2.0)
    stop, record = Stop(updates=2), Record(messages=True)
    outcome = simulate(cluster, SyncPS(Rule()), stop=stop, record=record)
    log = outcome.message_log
    assert outcome.metrics["bytes"][-1] == log["bytes"].sum()
    replies = log["sender"] == SERVER
    assert log["sent"][replies][:6].tolist() == [1.0, 3.0, 5.0, 16.0, 18.0, 20.0]
    np.testing.assert_array_equal(log["arrived"][replies][:6], log["sent"][replies][:6] + 1.0)


LAWS = costs(Gamma(0.05, 0.5), Exponential(0.02), Gamma(0.03, 1.0))


WITH_A_SERVER = sorted(name for name, method in ALGORITHMS.items() if hasattr(method, "server"))
WITH_A_SERVER.remove("delayed_stages")  # the method has a single worker
CRASHES = [Crash(1, at=7.0, back=9.0), Crash(2, at=7.5, back=12.0)]


@pytest.mark.parametrize("name", WITH_A_SERVER)
def test_every_method_goes_on_where_messages_cost_time(name):
    network, nodes = Network(bandwidth=200.0, latency=0.01, message_bytes=2.0), {}
    algorithm, stop = ALGORITHMS[name](Rule()), Stop(updates=60, time=5000.0)
    returns = bool(algorithm.restart_group(1, 4))
    crashes = CRASHES
    if not returns:
        crashes = [replace(crash, back=None) for crash in CRASHES]
    cluster = Cluster(4, Gamma(1.0, 0.6), crashes, network, **LAWS)
    outcome = simulate(cluster, algorithm, stop=stop, observe=lambda run: nodes.update(run.nodes))
    assert outcome.reached == ("updates" if returns else "stalled")
    for node in nodes.values():
        assert sum(node.spent) == pytest.approx(outcome.progress.time)
    assert nodes[SERVER].spent[BUSY] > 0


@pytest.mark.parametrize("name", ["async_ps", "sync_ps", "k_batch_sync", "p3", "fedavg"])
def test_constant_distribution_equals_its_number(name):
    prints = []
    for law in (float, Constant):
        cluster = Cluster(4, Gamma(1.0, 0.6), **costs(law(0.05), law(0.02), law(0.03)))
        prints.append(
            fingerprint(simulate(cluster, ALGORITHMS[name](Rule()), stop=Stop(updates=20)))
        )
    assert prints[0] == prints[1]


def test_each_cost_has_own_stream():
    law, drawn = Exponential(1.0), []

    def observe(run):
        server, worker = run.nodes[SERVER], run.nodes[0]
        drawn.extend(node.apply_seconds for node in run.nodes.values())
        drawn.extend([server._receive_seconds(), server._reply_seconds(), worker._durations.next()])

    cluster = Cluster(2, law, **costs(law, law, law))
    simulate(cluster, AsyncPS(Rule()), stop=Stop(updates=1), observe=observe)
    assert len(set(drawn)) == len(drawn) == 6


@pytest.mark.parametrize("key", LAWS)
def test_distributions_have_separate_streams(key):
    def durations(laws):
        cluster = Cluster(3, Gamma(1.0, 0.5), **laws)
        rows = simulate(cluster, AsyncPS(Rule()), stop=Stop(updates=300)).updates
        took = rows["computed"] - rows["started"]
        return [took[rows["worker"] == rank][:50] for rank in range(3)]

    drawn = dict.fromkeys(LAWS, Exponential(0.1))
    np.testing.assert_allclose(durations(drawn), durations({**drawn, key: 0.1}), rtol=1e-9)
    np.testing.assert_allclose(durations(drawn), durations({}), rtol=1e-9)
