"""What messages cost a server: timelines against recurrences by hand, means, and the time that it
is busy.
"""

import heapq
import math
from itertools import cycle

import numpy as np
import pytest

from laggard.simulator import (
    SERVER,
    Algorithm,
    AsyncPS,
    Cluster,
    InvalidSettingError,
    KSync,
    Network,
    Rule,
    Stop,
    SyncPS,
    simulate,
)
from laggard.simulator.algorithms import ALGORITHMS
from laggard.simulator.engine.machine import Machine
from laggard.simulator.recording.messages import Record
from laggard.simulator.recording.trace import BUSY, SENDING, WAITING
from laggard.simulator.testing.fingerprint import fingerprint
from laggard.simulator.timing.distributions import Constant, Exponential, Gamma, Trace
from laggard.simulator.timing.slowdowns import Crash

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
    """Who is applied when: one queue in order of arrival; of a message without bytes only the
    latency is taken.
    """
    compute, free, found = [cycle(own) for own in SECONDS], 0.0, []
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
def test_an_asynchronous_server_serves_one_message_after_another(measured, cost, wires):
    cluster = Cluster(
        len(SECONDS), measured, network=Network(latency=0.0625, **wires), **costs(*cost)
    )
    workers, times = updates(cluster, AsyncPS(Rule()), Stop(updates=200))
    expected = asynchronous(*cost, 0.0625, 0.25 if wires else 0.0, 200)
    ranks, moments = expected
    np.testing.assert_allclose(times, moments, rtol=1e-12)
    assert workers == list(ranks)


@pytest.mark.parametrize("workers", [1, 3, 12])
@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize("sharing", ["fifo", "fair"])
def test_throughput_of_equal_workers_is_that_of_the_round_trip_or_of_the_server(
    workers, cost, sharing
):
    """With private links; a reply is no part of the round trip: it departs when the server begins
    to send it.
    """
    compute, latency, transfer = 5.0, 0.125, 0.25
    network = Network(
        bandwidth=4.0, latency=latency, message_bytes=1.0, wiring="pairs", sharing=sharing
    )
    cluster = Cluster(workers, Constant(compute), network=network, **costs(*cost))
    _, times = updates(cluster, AsyncPS(Rule()), Stop(updates=600))
    receive, update, reply = cost
    round_trip = compute + 2 * (latency + transfer) + receive + update
    bound = min(workers / round_trip, 1 / (receive + update + reply))
    assert 240 / (times[-1] - times[-241]) == pytest.approx(bound, rel=1e-9)


@pytest.mark.parametrize("workers", [1, 3, 8])
@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize("compute", [0.25, 5.0])
def test_a_synchronous_server_answers_its_workers_one_after_the_other(workers, cost, compute):
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


@pytest.mark.parametrize("shards", [1, 2, 4])
@pytest.mark.parametrize(("compute", "saturated"), [(20.0, False), (0.5, True)])
def test_shards_divide_what_a_message_costs(shards, compute, saturated):
    """Each shard takes in and sends 1 / S of a model; one that is never idle makes an update in
    exactly that time.
    """
    receive, update, reply, P = 0.5, 0.125, 0.25, 4
    cluster = Cluster(
        P, Constant(compute), network=Network(latency=0.125), **costs(receive, update, reply)
    )
    _, times = updates(cluster, AsyncPS(Rule(), shards=shards), Stop(updates=400))
    rate = 120 * shards / (times[-1] - times[-1 - 120 * shards]) / shards  # a row for each piece
    served = (receive + reply) / shards + update
    alone = compute + 0.25 + receive / shards + update
    assert saturated == (P / alone > 1 / served)
    assert rate == pytest.approx(min(P / alone, 1 / served), rel=0.01 if shards > 1 else 1e-9)


# ---------------------------------------------------------------------------------------------------
# single verbs


def run(worker, server, cluster, **more):
    """Simulate roles given as plain generator functions of a node; return the outcome and the
    nodes.
    """

    class Made(Algorithm):
        pass

    Made.worker = lambda self, node: worker(node)
    Made.server = lambda self, node: server(node)
    nodes = {}
    outcome = simulate(
        cluster,
        Made(),
        stop=more.pop("stop", Stop(time=100.0)),
        observe=lambda run: nodes.update(run.nodes),
        **more,
    )
    return outcome, nodes


def test_costs_are_in_proportion_to_the_size_of_a_message():
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

    run(worker, server, Cluster(1, receive_seconds=2.0, reply_seconds=4.0))
    ends = np.cumsum(sizes) * 2.0
    assert got == [*zip(sizes, ends, strict=True), ("free", ends[-1] + 4.0 * sum(sizes))]
    departures = ends[-1] + 4.0 * (np.cumsum(sizes) - sizes)
    assert answered == list(zip(sizes, departures, strict=True))


def test_a_message_is_taken_in_when_the_server_has_asked_for_it_and_is_free():
    got = []

    def worker(node):
        yield node.work(1.0)
        node.send(SERVER, "early")
        yield node.work(9.5)
        node.send(SERVER, "while it sends")
        yield node.work(9.5)
        node.send(SERVER, "while it waits")
        yield node.work(50.0)

    def server(node):
        yield node.work(10.0)  # the first message comes at 1
        got.append(((yield node.receive())[1], node.now))  # 10 + 0.5
        node.send(0, None)  # departs at 10.5, the server is free at 13.5
        got.append(((yield node.receive())[1], node.now))  # it came at 10.5: 13.5 + 0.5
        got.append(((yield node.receive())[1], node.now))  # it comes at 20
        yield node.work(2.0)
        got.append(("worked", node.now))

    run(worker, server, Cluster(1, receive_seconds=0.5, reply_seconds=3.0))
    assert got == [
        ("early", 10.5),
        ("while it sends", 14.0),
        ("while it waits", 20.5),
        ("worked", 22.5),
    ]


def test_what_a_server_puts_into_its_own_mailbox_is_there_at_once():
    got = []

    def worker(node):
        yield node.work(1.0)

    def server(node):
        yield node.work(1.0)
        node.put("own", tag=1)
        got.append(((yield node.receive(tag=1)), node.now))

    run(worker, server, Cluster(1, receive_seconds=2.0))
    assert got == [((SERVER, "own"), 1.0)]


def test_work_begins_after_what_the_server_sends():
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

    _, nodes = run(worker, server, Cluster(1, reply_seconds=2.0, network=Network(latency=0.25)))
    assert moments == [0.25, 5.0]
    assert nodes[SERVER].spent[BUSY] == 11.0  # two sends, work, half a send, work


def test_a_receive_that_is_withdrawn_leaves_its_message_to_the_next_and_costs_once():
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
    _, nodes = run(worker, server, slow)
    assert not firsts[0].fired
    assert got[0] == (0, 3.0)
    assert got[1][1] == 5.0  # the message that worker 1 sent before it crashed had arrived
    assert nodes[SERVER].spent[BUSY] == 4.0


def test_a_message_taken_back_goes_to_another_receive_that_waits():
    got = []

    def worker(node):
        node.send(SERVER, "one")
        yield node.work(50.0)

    def idle(node):
        yield node.work(50.0)

    def waits(node):
        yield node.work(0.5)
        first = node.receive()
        yield first | node.down(1)
        assert not first.fired

    class Two(Algorithm):
        def worker(self, node):
            return worker(node) if node.rank == 0 else idle(node)

        def other(self, node):
            yield node._env.timeout(0.75)
            got.append(((yield node.receive())[1], node.now))

        def roles(self, workers):
            return {SERVER: [waits, self.other], 0: [self.worker], 1: [self.worker]}

        def server(self, node):
            raise NotImplementedError

    cluster = Cluster(2, receive_seconds=2.0, slowdowns=[Crash(1, at=1.0)])
    simulate(cluster, Two(), stop=Stop(time=40.0))
    assert got == [("one", 2.5)]


def test_work_that_is_cancelled_frees_the_server():
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

    _, nodes = run(worker, server, Cluster(1, receive_seconds=1.0, reply_seconds=2.0))
    assert moments == [3.0, 6.0]
    assert nodes[SERVER].spent[BUSY] == 6.0


# ------------------------------------------------------------------------------------------- time,
# counts, draws


@pytest.mark.parametrize(
    "algorithm", [AsyncPS(Rule()), SyncPS(Rule()), KSync(Rule(), wait_for=2, cancel=True)]
)
@pytest.mark.parametrize("apply_seconds", [0.0, 0.125])
def test_a_server_is_busy_for_what_it_takes_in_sends_and_applies(algorithm, apply_seconds):
    nodes, taken = {}, [0]
    cluster = Cluster(
        4,
        Gamma(3.0, 0.5),
        network=Network(bandwidth=8.0, latency=0.75, message_bytes=1.0),
        **costs(0.25, apply_seconds, 0.5),
    )

    def observe(world):
        nodes.update(world.nodes)
        take_in = nodes[SERVER].take_in

        def counted(message):
            taken[0] += message.size > 0
            return take_in(message)

        nodes[SERVER].take_in = counted

    outcome = simulate(
        cluster, algorithm, stop=Stop(time=500.0), record=Record(messages=True), observe=observe
    )
    log, spent = outcome.message_log, nodes[SERVER].spent
    replies = (log["sender"] == SERVER).sum()
    assert len(log["sent"]) == outcome.messages["sent"]
    work = taken[0] * 0.25 + replies * 0.5 + outcome.progress.updates * apply_seconds
    assert work - 1.0 <= spent[BUSY] <= work + 1e-9  # what goes on at the end counts up to then
    assert sum(spent) == pytest.approx(500.0)
    assert spent[BUSY] < 500.0
    assert min(spent) >= 0
    assert spent[SENDING] > 0
    assert spent[WAITING] > 0


def test_a_server_with_too_much_to_do_is_never_idle():
    nodes = {}
    cluster = Cluster(8, Constant(0.5), **costs(0.25, 0.125, 0.5))
    simulate(
        cluster, AsyncPS(Rule()), stop=Stop(time=77.3), observe=lambda run: nodes.update(run.nodes)
    )
    assert nodes[SERVER].spent[BUSY] == pytest.approx(77.3, rel=1e-12)


def test_messages_are_logged_when_they_depart():
    cluster = Cluster(3, Constant(9.0), network=Network(latency=1.0), reply_seconds=2.0)
    log = simulate(
        cluster, SyncPS(Rule()), stop=Stop(updates=2), record=Record(messages=True)
    ).message_log
    replies = log["sender"] == SERVER
    assert log["sent"][replies][:6].tolist() == [1.0, 3.0, 5.0, 16.0, 18.0, 20.0]
    np.testing.assert_array_equal(log["arrived"][replies][:6], log["sent"][replies][:6] + 1.0)


WITH_A_SERVER = sorted(name for name, method in ALGORITHMS.items() if hasattr(method, "server"))
LAWS = costs(Gamma(0.05, 0.5), Exponential(0.02), Gamma(0.03, 1.0))


@pytest.mark.parametrize("crashes", [[], [Crash(1, at=7.0, back=9.0), Crash(2, at=7.5, back=30.0)]])
@pytest.mark.parametrize("name", WITH_A_SERVER)
def test_every_method_with_a_server_runs_where_messages_cost_it_time(name, crashes):
    network = Network(bandwidth=200.0, latency=0.01, message_bytes=2.0)
    cluster = Cluster(4, Gamma(1.0, 0.6), crashes, network, **LAWS)
    nodes = {}
    outcome = simulate(
        cluster, ALGORITHMS[name](Rule()), stop=Stop(updates=200, time=5000.0),
        observe=lambda run: nodes.update(run.nodes),
    )  # fmt: skip
    assert outcome.reached == ("updates" if ALGORITHMS[name].readmits or not crashes else "stalled")
    assert outcome.messages["sent"] == sum(
        outcome.messages[fate] for fate in ("delivered", "lost", "in flight")
    )
    assert crashes or not outcome.messages["lost"]
    for node in nodes.values():
        assert sum(node.spent) == pytest.approx(outcome.progress.time)
    assert nodes[SERVER].spent[BUSY] > 0


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_a_constant_law_is_its_number_bit_for_bit(name):
    workers = 1 if name == "delayed" else 4
    prints = []
    for law in (float, Constant):
        cluster = Cluster(workers, Gamma(1.0, 0.6), **costs(law(0.05), law(0.02), law(0.03)))
        prints.append(
            fingerprint(simulate(cluster, ALGORITHMS[name](Rule()), stop=Stop(updates=60)))
        )
    assert prints[0] == prints[1]


def test_a_busy_server_makes_updates_by_the_means_of_its_laws():
    """It is never idle, so that updates are apart by a sum of three independent draws."""
    law = Exponential(0.5)  # the same three times: draws that are shared have thrice the variance
    _, times = updates(
        Cluster(16, Constant(1.0), **costs(law, law, law)), AsyncPS(Rule()), Stop(updates=20_000)
    )
    apart = np.diff(times)[100:]
    variance = 3 * law.std**2
    assert apart.mean() == pytest.approx(1.5, abs=4 * math.sqrt(variance / len(apart)))
    fourth = ((apart - apart.mean()) ** 4).mean()
    assert apart.var() == pytest.approx(
        variance, abs=4 * math.sqrt((fourth - variance**2) / len(apart))
    )


def test_each_cost_has_a_stream_of_its_own():
    law, drawn = Exponential(1.0), []

    def observe(world):
        for node in world.nodes.values():
            drawn.append(node.apply_seconds)
        server = world.nodes[SERVER]
        drawn.extend(
            [server._receive_seconds(), server._reply_seconds(), world.nodes[0]._durations.next()]
        )

    simulate(
        Cluster(2, law, **costs(law, law, law)),
        AsyncPS(Rule()),
        stop=Stop(updates=1),
        observe=observe,
    )
    assert len(set(drawn)) == len(drawn) == 6


@pytest.mark.parametrize("key", ["receive_seconds", "apply_seconds", "reply_seconds"])
def test_a_law_takes_no_draw_from_any_other(key):
    def durations(**given):
        cluster = Cluster(3, Gamma(1.0, 0.5), **(dict.fromkeys(LAWS, Exponential(0.1)) | given))
        rows = simulate(cluster, AsyncPS(Rule()), stop=Stop(updates=300)).updates
        took = [
            (rows["computed"] - rows["started"])[rows["worker"] == rank][:50] for rank in range(3)
        ]
        return np.array(took)

    np.testing.assert_allclose(durations(), durations(**{key: 0.1}), rtol=1e-9)
    np.testing.assert_allclose(durations(), durations(**dict.fromkeys(LAWS, 0.0)), rtol=1e-9)


def test_nodes_are_plain_machines_where_messages_cost_nothing():
    kinds = {}
    for cost in (costs(0.0, 0.5, 0.0), costs(0.0, 0.0, 0.5), costs(0.5, 0.0, 0.0)):
        cluster = Cluster(2, **cost)
        simulate(
            cluster,
            AsyncPS(Rule()),
            stop=Stop(updates=2),
            observe=lambda run: kinds.update(run.nodes),
        )
        assert all(type(node) is Machine for node in kinds.values()) == (
            cost["apply_seconds"] == 0.5
        )


@pytest.mark.parametrize("receive", [0.25, Gamma(0.3, 0.1)])
def test_a_server_that_falls_behind_for_ever_is_refused(receive):
    """Four workers that wait for nobody make four gradients a second."""
    method = ALGORITHMS["k_batch_sync"](Rule(), gradients=2)
    with pytest.raises(
        InvalidSettingError, match=r"Cluster.receive_seconds: expected a mean below 0.25 s"
    ):
        simulate(Cluster(4, receive_seconds=receive), method, stop=Stop(updates=10))
    fast = Cluster(4, Gamma(1.0, 0.5), receive_seconds=0.2, reply_seconds=0.5, apply_seconds=1.0)
    assert simulate(fast, method, stop=Stop(updates=10, gradients=100_000)).reached == "updates"


@pytest.mark.parametrize("key", ["receive_seconds", "apply_seconds", "reply_seconds"])
@pytest.mark.parametrize("value", [-1.0, math.inf, math.nan, 1e31])
def test_what_is_no_duration_is_refused(key, value):
    with pytest.raises(InvalidSettingError, match=f"Cluster.{key}: expected a number >= 0"):
        Cluster(2, **{key: value})
