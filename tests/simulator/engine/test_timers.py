"""Timers in roles: `node.after`, alone and in a choice."""

import pytest

from laggard.simulator import (
    SERVER,
    Cluster,
    Deadlock,
    Network,
    Stop,
)
from laggard.simulator.engine import timers
from laggard.simulator.timing.slowdowns import Crash
from tests.simulator.engine.roles import run


def alone(worker, server=None, stop=None, **cluster):
    """A run of one worker, or of as many as the cluster's settings say."""
    return run(worker, server, stop=stop, cluster=Cluster(**{"workers": 1, **cluster}))


def test_timers_run_beside_computation():
    seen = []

    def worker(node):
        work, first, second = node.work(3.0), node.after(1.0), node.after(2.0)
        yield first
        seen.append(node.now)
        yield second & work
        seen.append(node.now)

    outcome = alone(worker)
    assert seen == [1.0, 3.0]
    assert outcome.workers["computing"].tolist() == [3.0]


@pytest.mark.parametrize(("latency", "won"), [(0.9, True), (1.0, True), (1.1, False)])
def test_message_of_same_instant_comes_before_time_out(latency, won):
    seen = []

    def worker(node):
        node.send(SERVER, "content")
        yield node.work(10.0)

    def server(node):
        receive = node.receive()
        yield receive | node.after(1.0)
        seen.append((receive.fired, node.now))

    alone(worker, server, network=Network(latency=latency))
    assert seen == [(won, min(latency, 1.0))]


def test_lost_timers_leave_queue():
    lengths = []

    def worker(node):
        for _ in range(2_000):
            yield node.work(1e-6) | node.after(1e-3)
        lengths.append(node._env.pending)
        yield node.work(1.0)
        lengths.append(node._env.pending)
        lengths.append(len(node._env._queue))

    alone(worker)
    assert lengths == [0, 0, 1]  # the time limit


def test_timer_of_crashed_node_never_fires():
    seen = []

    def worker(node):
        yield node.after(5.0)
        seen.append((node.rank, node.now))

    alone(worker, workers=2, slowdowns=(Crash(workers=(0,), at=2.0, back=3.0),))
    assert seen == [(1, 5.0), (0, 8.0)]


def test_run_without_workers_stalls_despite_time_outs():
    """The server asks for ever, and nobody is left who could answer."""

    def worker(node):
        while True:
            yield node.receive()
            yield node.work(1.0)
            node.send(SERVER, None)

    def server(node):
        while True:
            node.send(0, None)
            yield node.receive() | node.after(10.0)

    outcome = alone(worker, server, slowdowns=(Crash(workers=(0,), at=2.5),), stop=Stop(updates=5))
    assert outcome.reached == "stalled"
    assert outcome.progress.time == pytest.approx(12.0)


def test_roles_that_wait_for_timers_are_a_deadlock(monkeypatch):
    monkeypatch.setattr(timers, "MOST_IDLE_TIMERS", 100)

    def worker(node):
        while not node.arrived():
            yield node.after(1.0)

    with pytest.raises(Deadlock, match="deadlock at 100 s"):
        alone(worker, stop=Stop(updates=1))


def test_pauses_between_computations_are_no_deadlock(monkeypatch):
    monkeypatch.setattr(timers, "MOST_IDLE_TIMERS", 3)

    def worker(node):
        while True:
            yield node.after(1.0)
            yield node.compute(node.weights)

    outcome = alone(worker, stop=Stop(gradients=50))
    assert outcome.progress.time == pytest.approx(50 + outcome.workers["computing"][0])


@pytest.mark.parametrize(
    ("back", "asks_again", "unanswered"),
    [(None, True, 1), (3.0, True, 0), (3.0, False, 0)],
)
def test_requests_that_a_crash_left_unanswered_are_counted(back, asks_again, unanswered):
    def worker(node):
        node.send(SERVER, "ready")
        while True:
            yield node.receive()
            yield node.work(1.0)
            node.send(SERVER, "done")

    def server(node):
        yield node.receive()
        node.send(0, None)
        while True:
            _, content = yield node.receive()
            if content == "done" or asks_again:
                node.send(0, None)

    crash = Crash(workers=(0,), at=2.5, back=back)
    outcome = alone(worker, server, slowdowns=(crash,), stop=Stop(time=20.5))
    assert outcome.unanswered == unanswered


def test_timer_dies_with_its_node():
    """The run does not go on until the timer would have fired."""

    def worker(node):
        yield node.after(50.0)

    outcome = alone(worker, slowdowns=(Crash(workers=(0,), at=2.0),))
    assert outcome.reached == "stalled"
    assert outcome.progress.time == 2.0
