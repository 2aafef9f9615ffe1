"""Workers that go down and come back: what is lost, who goes on, who waits, and that it is all
accounted for.
"""

import numpy as np
import pytest
import torch

from laggard.models import Quadratic
from laggard.simulator import (
    EASGD,
    Algorithm,
    AsyncPS,
    Cluster,
    KAsync,
    KSync,
    Network,
    Rule,
    Stop,
    SyncPS,
    simulate,
)
from laggard.simulator.algorithms import ALGORITHMS
from laggard.simulator.network.topology import Complete
from laggard.simulator.timing.distributions import Constant, Gamma
from laggard.simulator.timing.slowdowns import Crash

WIRES = Network(bandwidth=400.0, latency=0.05, message_bytes=40.0)


def settled(outcome):
    """Every gradient and every message has exactly one fate, and no time ran backwards."""
    gradients, messages = outcome.gradients, outcome.messages
    fates = ("applied", "dropped", "cancelled", "in flight")
    assert gradients["started"] == sum(gradients[fate] for fate in fates)
    assert messages["sent"] == sum(messages[fate] for fate in ("delivered", "lost", "in flight"))
    assert min(gradients.values()) >= 0
    assert min(messages.values()) >= 0
    assert (np.diff(outcome.updates["time"]) >= 0).all()
    spent = sum(outcome.workers[state] for state in ("computing", "sending", "waiting", "down"))
    np.testing.assert_allclose(spent, outcome.progress.time, atol=1e-9)
    return outcome


def crashed(algorithm, *crashes, workers=4, compute=None, network=WIRES, task=None, **stop):
    compute = compute or Constant(1.0)
    cluster = Cluster(workers=workers, compute=compute, slowdowns=crashes, network=network)
    return settled(simulate(cluster, algorithm, task, stop=Stop(**stop)))


def test_an_asynchronous_server_goes_on_without_the_worker_and_with_it_again():
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


def test_a_synchronous_server_waits_until_the_worker_is_back():
    outcome = crashed(SyncPS(Rule()), Crash(1, at=3.5, back=9.0), network=Network(), updates=6)
    times = np.unique(outcome.updates["time"][outcome.updates["status"] == "applied"])
    np.testing.assert_allclose(times, [1, 2, 3, 10, 11, 12])
    np.testing.assert_allclose(outcome.workers["waiting"], [6, 0.0, 6, 6])


@pytest.mark.parametrize("algorithm", [SyncPS(Rule()), KAsync(Rule(), wait_for=4)])
def test_a_synchronous_server_whose_worker_never_returns_waits_and_says_so(algorithm):
    outcome = crashed(algorithm, Crash(1, at=3.5), network=Network(), updates=6)
    assert outcome.reached == "stalled"
    assert "node 0 waits since 4 s" in outcome.stalled
    assert outcome.progress.updates == 3


def test_backup_workers_stand_in_for_one_that_never_returns():
    outcome = crashed(KSync(Rule(), wait_for=3), Crash(1, at=3.5), updates=20)
    assert outcome.reached == "updates"
    assert outcome.stalled is None


def test_what_is_under_way_to_and_from_a_crashed_worker_is_lost():
    """0.1 s on the wire and 0.05 s of latency: at 1.23 s worker 0's gradient has left its card and
    is not there yet.
    """
    for at, status, lost in ((1.23, "dropped", 1), (0.6, "cancelled", 0), (0.1, None, 1)):
        outcome = crashed(AsyncPS(Rule()), Crash(0, at=at), workers=1, updates=5)
        assert outcome.messages["lost"] == lost
        assert outcome.gradients == {
            "started": int(status is not None), "applied": 0, "dropped": 0, "cancelled": 0, "in flight": 0
        } | ({status: 1} if status else {})  # fmt: skip
        assert outcome.reached == "stalled"


@pytest.mark.parametrize("down", [0, 1])
def test_a_gradient_that_does_not_reach_another_worker_is_still_its_own(down):
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


def test_a_message_sent_while_the_worker_was_down_does_not_reach_it_after_its_return():
    """It hears what was sent before the crash, and what is sent after the return."""
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


@pytest.mark.parametrize(
    ("algorithm", "at"), [(AsyncPS(Rule()), 1.5), (EASGD(Rule(), local_steps=1), 2.5)]
)
def test_a_worker_that_returns_while_its_gradient_is_in_the_servers_hands_is_answered_once(
    algorithm, at
):
    """At `at` the server applies what the worker sent before its crash; what it answers is for that
    life.

    A second answer would lie in the mailbox for ever, and every later gradient be of the weights
    before.
    """
    cluster = Cluster(
        workers=1,
        compute=Constant(1.0),
        apply_seconds=1.0,
        slowdowns=[Crash(0, at=at, back=at + 0.1)],
    )
    outcome = settled(simulate(cluster, algorithm, stop=Stop(updates=6)))
    applied = outcome.updates["status"] == "applied"
    assert outcome.updates["staleness"][applied].tolist() == [0] * applied.sum()
    assert outcome.messages["lost"] == 1


def test_mail_that_lay_unread_is_gone_after_a_crash():
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


def test_links_are_free_again_after_a_crash():
    """Two workers share the server's card; when one crashes in the midst of its push, the other has
    it to itself.
    """
    network = Network(bandwidth=100.0, message_bytes=100.0, sharing="fair")
    alone = crashed(AsyncPS(Rule()), workers=1, network=network, updates=1).progress.time
    one_down = crashed(
        AsyncPS(Rule()), Crash(1, at=0.0), workers=2, network=network, updates=1
    ).progress.time
    assert one_down == pytest.approx(alone)
    midst = crashed(
        AsyncPS(Rule()), Crash(1, at=1.0), workers=2, network=network, updates=1
    ).progress.time
    # half a second of the second it takes to read went to the other
    assert midst == pytest.approx(alone + 0.5)


def test_a_crash_of_one_leaves_compute_times_of_the_others_as_they_were():
    law, time = Gamma(1.0, 0.6), 30.0
    whole, broken = (crashed(AsyncPS(Rule()), *crashes, compute=law, network=Network(), time=time)
                     for crashes in ([], [Crash(3, at=5.0, back=11.0)]))  # fmt: skip
    for rank in range(3):
        times = [one.updates["time"][one.updates["worker"] == rank] for one in (whole, broken)]
        assert np.array_equal(*times)


def test_a_returning_worker_learns_from_what_it_reads_anew():
    """After the return its gradients are as stale as everybody's: it did not go on from what it
    had.
    """
    outcome = crashed(AsyncPS(Rule()), Crash(2, at=10.5, back=20.5), network=Network(), time=40.2)
    after = (outcome.updates["worker"] == 2) & (outcome.updates["time"] > 20)
    assert outcome.updates["staleness"][after].max() <= 4


NEEDS = {"delayed": 1}


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_every_method_survives_crashes_with_its_books_in_order(name):
    """It goes on, or waits and says so; every gradient, message and second is accounted for."""
    task = Quadratic(curvature=1.0, dim=8, noise=0.1, epoch=100, dtype=torch.float64)
    workers = NEEDS.get(name, 4)
    crashes = [Crash(0, at=2.3, back=4.1), Crash(0, at=7.7, back=9.0)]
    if workers > 1:
        crashes += [Crash(1, at=3.3, back=6.0), Crash(3, at=8.05)]
    outcome = crashed(ALGORITHMS[name](Rule(lr=0.05)), *crashes, workers=workers, compute=Gamma(1.0, 0.3),
                      task=task, time=40.0)  # fmt: skip
    assert outcome.weights.shape == (1, 8)
    assert outcome.reached in ("time", "stalled")
    assert outcome.weights.isfinite().all()


GO_ON = ["adpsgd", "async_ps", "k_batch_sync", "soft_sync", "easgd", "ringmaster"]


@pytest.mark.parametrize("name", GO_ON)
def test_asynchronous_methods_continue_after_a_crash_and_after_a_return(name):
    outcome = crashed(
        ALGORITHMS[name](Rule(lr=0.05)),
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


def test_who_waits_for_a_partner_that_crashes_in_the_same_instant_as_itself_waits_no_longer():
    """Their choices are decided by each other's end, when a crash has cleared their mailboxes
    already.
    """
    partners = Partners()
    crashed(partners, Crash(workers=(0, 1), at=2.0, back=3.0), workers=2, time=9.0)
    assert sorted(partners.heard) == [(0, 3.0, False), (1, 3.0, False)]
