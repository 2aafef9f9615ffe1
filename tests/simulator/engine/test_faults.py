"""Workers that go down and come back: what is lost, who goes on, who waits, and that it is all
accounted for.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch

from laggard.models import Quadratic
from laggard.simulator import (
    Algorithm,
    AsyncPS,
    Cluster,
    InvalidSettingError,
    Network,
    Rule,
    Stop,
    simulate,
)
from laggard.simulator.algorithms import ALGORITHMS
from laggard.simulator.network.topology import Complete
from laggard.simulator.timing.distributions import Constant, Exponential, Gamma
from laggard.simulator.timing.slowdowns import Crash, Factor
from tests.simulator.engine.books import check_books

WIRES = Network(bandwidth=400.0, latency=0.05, message_bytes=40.0)


def crashed(algorithm, *crashes, workers=4, compute=None, network=WIRES, task=None, **stop):
    compute = compute or Constant(1.0)
    cluster = Cluster(workers=workers, compute=compute, slowdowns=crashes, network=network)
    outcome = simulate(cluster, algorithm, task, stop=Stop(**stop))
    check_books(outcome)
    return outcome


def test_asynchronous_server_goes_on_without_worker():
    """Free network: three of four workers while one is down from 10.5 to 20.5 s; its gradient of 10
    to 11 is lost.
    """
    outcome = crashed(AsyncPS(Rule()), Crash(2, at=10.5, back=20.5), network=Network(), time=40.2)
    of_it = outcome.updates["worker"] == 2
    applied = outcome.updates["status"] == "applied"
    assert (applied & ~of_it).sum() == 3 * 40
    np.testing.assert_allclose(
        outcome.updates["time"][applied & of_it], [*range(1, 11), *np.arange(21.5, 40.2)]
    )
    assert outcome.updates["time"][outcome.updates["status"] == "cancelled"].tolist() == [10.5]
    assert outcome.workers["down"].tolist() == [0, 0, 10, 0]
    assert outcome.reached == "time"


@pytest.mark.parametrize(
    ("at", "status", "lost"), [(1.23, "dropped", 1), (0.6, "cancelled", 0), (0.1, None, 1)]
)
def test_messages_of_crashed_worker_are_lost(at, status, lost):
    """0.1 s on the wire and 0.05 s of latency: at 1.23 s worker 0's gradient has left its card and
    is not there yet.
    """
    outcome = crashed(AsyncPS(Rule()), Crash(0, at=at), workers=1, updates=5)
    counts = {name: count for name, count in outcome.gradients.items() if count}
    assert outcome.messages["lost"] == lost
    assert counts == ({"started": 1, status: 1} if status else {})
    assert outcome.reached == "stalled"


@pytest.mark.parametrize("down", [0, 1])
def test_gradient_lost_between_workers_can_be_applied(down):
    """A message to a server has the only copy; one to a worker, of whatever rank, does not."""

    class Pair(Algorithm):
        topology = Complete()

        def worker(self, node):
            if node.rank == down:
                yield node.receive()
            gradient = yield node.compute(node.weights)
            node.send(down, gradient)
            yield node.work(1.0)
            node.apply(node.weights, [gradient])

    outcome = crashed(Pair(), Crash(down, at=0.5), workers=2, time=5.0)
    assert outcome.messages["lost"] == 1
    assert outcome.gradients["applied"] == 1
    assert outcome.gradients["dropped"] == 0


def test_message_sent_to_down_worker_is_lost():
    """Messages sent before the crash or after the return arrive."""
    heard = []

    class Shout(Algorithm):
        topology = Complete()

        def worker(self, node):
            if node.rank == 0:
                for number in range(40):
                    node.send(1, number, size=0.0)
                    yield node.work(0.01)
            else:
                while True:
                    _, number = yield node.receive()
                    heard.append((round(node.now, 6), number))

    crashed(Shout(), Crash(1, at=0.1, back=0.2), workers=2, time=1.0)
    assert [number for _, number in heard] == [*range(5), *range(20, 40)]


def test_worker_that_returns_early_is_answered_once():
    """At 1.5 s the server applies what the worker sent before its crash; its answer is for that
    incarnation.

    A second answer would stay in the mailbox for ever, and every later gradient would be of the
    previous weights.
    """
    cluster = Cluster(workers=1, apply_seconds=1.0, slowdowns=[Crash(0, at=1.5, back=1.6)])
    outcome = simulate(cluster, AsyncPS(Rule()), stop=Stop(updates=6))
    applied = outcome.updates["status"] == "applied"
    assert outcome.updates["staleness"][applied].tolist() == [0] * applied.sum()
    assert outcome.messages["lost"] == 1


@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize("name", ["sync_ps", "k_sync"])
def test_synchronous_worker_that_returns_is_answered_once(name, shards):
    """Worker 0 is done at 1 s, and back from a crash at 1.2 s, before the update of 1.5 s. What it
    computes up to 2.2 s is late, and the only gradient that is.

    Its next one makes the update of 3.2 s, and from then on all wait for worker 1 alone, 1.5 s.
    """
    outcome = crashed(
        ALGORITHMS[name](Rule(), shards=shards),
        Crash(0, at=1.1, back=1.2),
        Factor(1, factor=1.5),
        workers=2,
        network=Network(),
        time=30.0,
    )
    updates = np.unique(outcome.updates["time"][outcome.updates["status"] == "applied"])
    np.testing.assert_allclose(updates, [1.5, *np.arange(3.2, 30.0, 1.5)])
    assert outcome.gradients["dropped"] == 1


def test_loss_of_old_message_ends_no_later_send():
    """A message takes 2 s. The one of 0 s is lost by the crash, that of 1.5 s arrives at 3.5 s."""

    class Sender(Algorithm):
        topology = Complete()

        def worker(self, node):
            if node.rank == 0:
                node.send(1, None)
            yield node.after(5.0)

    outcome = crashed(
        Sender(), Crash(0, at=1.0, back=1.5), workers=2, network=Network(latency=2.0), time=10.0
    )
    assert outcome.messages["lost"] == 1
    assert outcome.workers["sending"].tolist() == [1.0 + 2.0, 0.0]


def test_role_does_not_go_on_after_lost_message():
    """Who awaits the arrival of a message to a worker that is down waits for ever."""
    arrived = []

    class Sender(Algorithm):
        topology = Complete()

        def worker(self, node):
            if node.rank == 0:
                for _ in range(2):
                    yield node.send(1, None)
                    arrived.append(node.now)
                    yield node.work(1.0)
            yield node.receive()

    network = Network(latency=1.0)
    crashed(Sender(), Crash(1, at=1.5), workers=2, network=network, time=10.0)
    assert arrived == [1.0]


def test_unread_messages_are_gone_after_crash():
    read = []

    class Sleeper(Algorithm):
        topology = Complete()

        def worker(self, node):
            if node.rank == 0:
                node.send(1, "before", size=0.0)
                yield node.work(4.0)
                node.send(1, "after", size=0.0)
            else:
                yield node.work(2.0)
                _, content = yield node.receive()
                read.append(content)

    crashed(Sleeper(), Crash(1, at=1.0, back=1.5), workers=2, time=10.0)
    assert read == ["after"]


def test_crash_does_not_change_compute_times_of_others():
    law, time = Gamma(1.0, 0.6), 30.0
    whole, broken = (crashed(AsyncPS(Rule()), *crashes, compute=law, network=Network(), time=time)
                     for crashes in ([], [Crash(3, at=5.0, back=11.0)]))  # fmt: skip
    for rank in range(3):
        times = [one.updates["time"][one.updates["worker"] == rank] for one in (whole, broken)]
        assert np.array_equal(*times)


NEEDS = {"delayed": 1, "delayed_stages": 1}


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_every_method_accounts_for_all_after_crashes(name):
    """The method continues or reports that it waits; every gradient, message and second is
    counted.
    """
    task = Quadratic(curvature=1.0, dim=8, noise=0.1, epoch=100, dtype=torch.float64)
    workers = NEEDS.get(name, 4)
    crashes = [Crash(0, at=2.3, back=4.1), Crash(0, at=7.7, back=9.0)]
    if workers > 1:
        crashes += [Crash(1, at=3.3, back=6.0), Crash(3, at=8.05)]
    algorithm, more = ALGORITHMS[name](Rule(lr=0.05)), {"workers": workers, "task": task}
    try:
        algorithm.check_cluster(Cluster(workers, slowdowns=crashes))
    except InvalidSettingError:  # it has no meaning for a return
        crashes = [replace(crash, back=None) for crash in crashes]
    outcome = crashed(algorithm, *crashes, compute=Gamma(1.0, 0.3), time=40.0, **more)
    assert outcome.weights.shape == (1, 8)
    assert outcome.reached in ("time", "stalled")
    assert outcome.weights.isfinite().all()


GO_ON = ["adpsgd", "async_ps", "k_batch_sync", "soft_sync", "easgd", "ringmaster"]


@pytest.mark.parametrize(
    ("name", "settings"), [*((name, {}) for name in GO_ON), ("ringmaster", {"cancel": True})]
)
def test_asynchronous_methods_continue_after_crash(name, settings):
    outcome = crashed(
        ALGORITHMS[name](Rule(lr=0.05), **settings),
        Crash(1, at=3.3, back=6.0),
        compute=Gamma(1.0, 0.3),
        time=40.0,
    )
    applied = outcome.updates["status"] == "applied"
    for rank in range(4):
        assert outcome.updates["time"][applied & (outcome.updates["worker"] == rank)].max() > 30


class Partners(Algorithm):
    """Each of two waits for the other's word, or for its end; who comes back says so and goes on
    alone.
    """

    topology = Complete()

    def __init__(self):
        self.heard = []

    def worker(self, node):
        if node.incarnation:
            self.heard.append((node.rank, node.now, node.arrived("word")))
            yield node.work(1.0)
            return
        yield node.receive("word") | node.down(1 - node.rank)
        self.heard.append((node.rank, node.now, "went on"))


def test_nodes_that_crash_together_stop_waiting():
    """Their choices are decided by each other's end, when a crash has cleared their mailboxes
    already.
    """
    partners = Partners()
    crashed(partners, Crash(workers=(0, 1), at=2.0, back=3.0), workers=2, time=9.0)
    assert sorted(partners.heard) == [(0, 3.0, False), (1, 3.0, False)]


@pytest.mark.parametrize("name", [name for name in ALGORITHMS if not name.startswith("delayed")])
def test_run_with_lost_worker_ends_or_is_refused(name):
    """Where the others compute on without an update, a run needs another end than updates."""
    algorithm = ALGORITHMS[name](Rule())
    cluster = Cluster(3, Exponential(0.01), slowdowns=[Crash(0, at=0.1)])
    outcome = simulate(cluster, algorithm, stop=Stop(updates=20, gradients=2000))
    has_no_end = outcome.reached == "gradients"
    assert has_no_end == (algorithm.needed(workers=3) == 3)
    if has_no_end:
        with pytest.raises(InvalidSettingError, match=r"Stop\.time"):
            simulate(cluster, algorithm, stop=Stop(updates=20))
