"""Servers that crash and return from a checkpoint: lost updates, lost messages, and no deadlock."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from laggard.models import Quadratic
from laggard.simulator import (
    AsyncPS,
    Cluster,
    KSync,
    Network,
    Record,
    Rule,
    Stop,
    SyncPS,
    simulate,
)
from laggard.simulator.algorithms import ALGORITHMS
from laggard.simulator.timing.distributions import Gamma
from laggard.simulator.timing.failures import Checkpoint, ServerCrash
from laggard.simulator.timing.slowdowns import Crash
from tests.cases import quick
from tests.simulator.engine.books import check_books

CARDS = Network(bandwidth=400.0, latency=0.03, message_bytes=40.0)


def test_worker_reads_again_after_lost_push():
    """One worker, mini-batches of 1 s: the update of 2 s is lost; the push of 3 s too, since the
    server is away.
    """
    cluster = Cluster(workers=1, server_crashes=[ServerCrash(at=2.5, restore_seconds=3.0)],
                      checkpoint=Checkpoint(every_seconds=1.5))  # fmt: skip
    outcome = simulate(cluster, AsyncPS(Rule()), stop=Stop(updates=4))
    rows = outcome.updates
    assert rows["time"].tolist() == [1, 2, 3, 6.5, 7.5]
    assert rows["status"].tolist() == ["applied", "applied", "dropped", "applied", "applied"]
    assert rows["version_read"].tolist() == [0, 1, 2, 2, 3]
    assert {name: column.tolist() for name, column in outcome.restores.items()} == {
        "time": [2.5], "back": [5.5], "server": [-1], "version": [2], "lost": [1]
    }  # fmt: skip
    assert outcome.messages["lost"] == 1


def test_checkpoint_that_was_due_before_crash_is_kept():
    """Updates at 1 and 2 s; the checkpoint of 2.4 s has both, though no update came between."""
    crash = ServerCrash(at=2.7, restore_seconds=0.1)
    checkpoint = Checkpoint(every_seconds=1.2)
    cluster = Cluster(workers=1, server_crashes=[crash], checkpoint=checkpoint)
    outcome = simulate(cluster, AsyncPS(Rule()), stop=Stop(updates=4))
    assert outcome.restores["version"].tolist() == [2]
    assert outcome.restores["lost"].tolist() == [0]


def test_crash_restores_only_its_own_shard():
    """Gradients of 1 in every coordinate: shard 1 has lost two of its updates, shard 0 none."""
    task = Quadratic(curvature=1e-300, dim=4, initial=0.0, dtype=torch.float64)
    task.gradients = lambda weights, batches: (torch.ones_like(weights), weights.sum(-1))
    crash = ServerCrash(at=3.5, restore_seconds=0.1, shard=1)
    cluster = Cluster(2, checkpoint=Checkpoint(every_updates=4), server_crashes=[crash])
    outcome = simulate(cluster, AsyncPS(Rule(lr=1.0), shards=2), task, stop=Stop(time=5.5))
    assert outcome.restores["lost"].tolist() == [2]
    assert outcome.weights.tolist() == [[-10, -10, -8, -8]]
    assert (outcome.updates["status"] == "applied").all()


METHODS = {
    "async_ps": AsyncPS(Rule()),
    "async_ps, accumulate 5": AsyncPS(Rule(), accumulate=5),
    "async_ps, 3 shards": AsyncPS(Rule(), shards=3),
    "sync_ps, accumulate 2": SyncPS(Rule(), accumulate=2),
    "k_sync": KSync(Rule(), wait_for=3),
}
CLUSTERS = {
    "free": {},
    "cards": {"network": CARDS, "apply_seconds": 0.2},
    "one thread": {
        "network": CARDS,
        "apply_seconds": 0.2,
        "receive_seconds": 0.1,
        "reply_seconds": Gamma(0.1, 0.5),
    },
}


@pytest.mark.parametrize("runs", quick([3, 12], only=[3]))
@pytest.mark.parametrize("around", CLUSTERS)
@pytest.mark.parametrize("name", METHODS)
def test_no_worker_hangs_whenever_servers_crash(name, around, runs):
    """Crashes in the very instants in which something was sent, arrived or was applied, and between
    them.

    Afterwards every worker is answered, once: a second answer would lie in its mailbox.
    """
    rng, algorithm, nodes = np.random.default_rng(3), METHODS[name], {}
    cluster = Cluster(workers=4, compute=Gamma(1.0, 0.5), **CLUSTERS[around])
    calm = simulate(cluster, algorithm, stop=Stop(updates=8), record=Record(messages=True))
    sent, arrived = (calm.message_log[name] for name in ("sent", "arrived"))
    instants = np.unique([0.0, *sent, *arrived[~np.isnan(arrived)], *calm.updates["time"]])
    instants = np.unique([*instants, *(instants[1:] + instants[:-1]) / 2])
    for _ in range(runs):
        first, second = sorted(rng.choice(instants, 2, replace=False))
        downtime, crashes = rng.choice([1e-3, 0.3, 2.0]), []
        for at in (first, second):
            if at == first or second > first + downtime:  # two in a row
                shard = int(rng.integers(algorithm.shards))
                crashes.append(ServerCrash(at=at, restore_seconds=downtime, shard=shard))
        workers = [Crash(1, at=second, back=second + 1.0)] * rng.integers(2)
        crashing = replace(
            cluster,
            server_crashes=crashes,
            checkpoint=Checkpoint(every_updates=3),
            slowdowns=workers,
        )
        stop = Stop(updates=40, time=500.0)
        observe = lambda run: nodes.update(run.nodes)  # noqa: E731
        outcome = simulate(crashing, algorithm, stop=stop, observe=observe)
        assert outcome.reached == "updates", (outcome.stalled, crashes, workers)
        check_books(outcome)
        late = outcome.updates["started"] > max(*outcome.restores["back"], second + 1.0)
        assert set(outcome.updates["worker"][late]) == {0, 1, 2, 3}, (crashes, workers)
        for rank in range(4):
            assert not nodes[rank].mailbox.mail, (crashes, workers)


def test_waiting_answers_are_not_sent_after_crash():
    """An answer takes 1 s: worker 0 has its first at 0 s, worker 1 at 1 s. The update is at 2 s,
    and its second answer would depart at 3 s.
    """
    cluster = Cluster(
        workers=2, reply_seconds=1.0, server_crashes=[ServerCrash(at=2.5, restore_seconds=20.0)]
    )
    outcome = simulate(cluster, SyncPS(Rule()), stop=Stop(time=10.0))
    # the one lost is worker 0's push
    assert outcome.messages == {"sent": 8, "delivered": 7, "lost": 1, "in flight": 0}


def test_crash_ends_receiving_of_message():
    """It takes 5 s to take in a gradient, since 1 s; back at 3 s it answers at once, takes in the
    next from 4 s.
    """
    cluster = Cluster(
        workers=1, receive_seconds=5.0, server_crashes=[ServerCrash(at=2.0, restore_seconds=1.0)]
    )
    outcome = simulate(cluster, AsyncPS(Rule()), stop=Stop(updates=1))
    assert outcome.updates["time"].tolist() == [2.0, 9.0]
    assert outcome.updates["status"].tolist() == ["dropped", "applied"]


class FirstLong:
    """5 s, then 0.5 s each."""

    mean, std = 0.5, 0.0

    def draw(self, rng, n):
        return np.array([5.0] + [0.5] * (n - 1))


def test_message_half_received_at_crash_is_forgotten():
    """From 1 to 6 s the server would take in a gradient of the worker's first incarnation; at 8.5 s
    it answers the second one.
    """
    cluster = Cluster(
        workers=1,
        receive_seconds=FirstLong(),
        apply_seconds=4.0,
        slowdowns=[Crash(0, at=2.5, back=2.7)],
        server_crashes=[ServerCrash(at=2.0, restore_seconds=1.0)],
    )
    outcome = simulate(cluster, AsyncPS(Rule()), stop=Stop(updates=2))
    assert outcome.reached == "updates"
    applied = outcome.updates["status"] == "applied"
    assert outcome.updates["time"][applied].tolist() == [8.5, 14.0]


def test_crashes_without_updates_end_run():
    """Mini-batches of 1 s, a server that is up for 0.3 s and away for 0.3 s: it is never there when
    a push comes.
    """
    crash = ServerCrash(uptime=0.3, restore_seconds=0.3)
    outcome = simulate(
        Cluster(workers=1, server_crashes=[crash]), AsyncPS(Rule()), stop=Stop(updates=1)
    )
    assert outcome.reached == "stalled"
    assert "servers crashed 1000 times without one" in outcome.stalled


@pytest.mark.parametrize(
    "crashes",
    [
        [(1.0, 2.0), (3.0, 1.0)],  # they touch
        [(2.0, 2.0), (1.0, 1.5)],  # they overlap, in any order
        [(1.0, 3.0), (1.5, 0.5), (1.0, 3.0)],  # one within another, one twice
    ],
)
def test_outages_of_shard_are_united(crashes):
    shard = [ServerCrash(at=at, restore_seconds=seconds) for at, seconds in crashes]
    other = ServerCrash(at=2.5, restore_seconds=1.0, shard=1)
    outcomes = []
    for listed in ([*shard, other], [ServerCrash(at=1.0, restore_seconds=3.0), other]):
        cluster = Cluster(3, server_crashes=listed)
        algorithm = ALGORITHMS["async_ps"](Rule(), shards=2)
        outcomes.append(simulate(cluster, algorithm, stop=Stop(updates=40)))
    times, expected = (outcome.updates["time"] for outcome in outcomes)
    assert times.tolist() == expected.tolist()
    assert len(outcomes[0].restores["time"]) == 2
