"""Servers that crash and return from a checkpoint: weights, what is lost, who asks again, and that
nobody hangs.
"""

from copy import deepcopy
from itertools import groupby
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from laggard.models import Quadratic
from laggard.simulator import (
    AsyncPS,
    Cluster,
    InvalidSettingError,
    KSync,
    Network,
    Record,
    Rule,
    SoftSync,
    Stop,
    SyncPS,
    simulate,
)
from laggard.simulator.algorithms import ALGORITHMS
from laggard.simulator.algorithms.sharding import split_parameters
from laggard.simulator.learning.rules import SGD, Adam
from laggard.simulator.timing.distributions import Constant, Exponential, Gamma
from laggard.simulator.timing.failures import Checkpoint, ServerCrash
from laggard.simulator.timing.slowdowns import Crash
from laggard.simulator.timing.streams import BATCHES, stream

DIM, NOISE, LR = 6, 0.3, 0.02
HESSIAN = torch.from_numpy(
    (lambda a: a @ a.T + np.eye(DIM))(np.random.default_rng(5).standard_normal((DIM, DIM)))
)
CARDS = Network(bandwidth=400.0, latency=0.03, message_bytes=40.0)


class Coupled(Quadratic):
    """A quadratic whose coordinates depend on each other: every shard's gradient needs all of the
    slices read.
    """

    def __init__(self):
        super().__init__(dim=DIM, noise=NOISE, epoch=20, dtype=torch.float64)

    def gradients(self, weights, batches):
        noise = torch.stack([batch.expand(weights.shape[1:]) for batch in batches])
        return weights @ HESSIAN + NOISE * noise, self._energy(weights)


def run_and_observe(cluster, algorithm, task=None, **settings):
    """The outcome, each worker's gradients in the order of their start, and the nodes."""
    seen = SimpleNamespace(gradients=[], nodes={})

    def observe(run):
        seen.nodes = run.nodes
        for rank, node in run.nodes.items():
            if rank >= 0:
                node.compute = note(node.compute)

    def note(compute):
        def computing(*given, **named):
            work = compute(*given, **named)
            seen.gradients.append(work.gradient)
            return work

        return computing

    return simulate(cluster, algorithm, task, observe=observe, **settings), seen


def replay(outcome, gradients, checkpoint, optimizer, shards):
    """The weights by a plain loop over the recorded order of updates and crashes, each shard with
    torch's optimiser.
    """
    batches = {
        rank: Quadratic(dim=DIM, dtype=torch.float64).batches(rank, [stream(0, BATCHES, rank)])
        for rank in range(4)
    }
    taken = {(one.worker, one.whole.started): (one, next(batches[one.worker])) for one in gradients}
    slices = split_parameters(DIM, shards)
    parts = {
        rank: torch.ones(len(range(*part.indices(DIM))), dtype=torch.float64)
        for rank, part in slices.items()
    }
    models = {rank: part.requires_grad_() for rank, part in parts.items()}
    optimizers = {rank: optimizer([models[rank]]) for rank in slices}
    version, restored = dict.fromkeys(slices, 0), dict.fromkeys(slices, 0)
    since, periods = dict.fromkeys(slices, 0.0), dict.fromkeys(slices, 0)
    history, saved, last = {}, {}, {}

    def remember(rank):
        history[rank, version[rank], restored[rank]] = models[rank].detach().clone()

    def save(rank):
        saved[rank] = models[rank].detach().clone(), deepcopy(optimizers[rank].state_dict())
        last[rank] = version[rank]

    def save_by_time(rank, time):
        if (
            checkpoint.every_seconds
            and (time - since[rank]) // checkpoint.every_seconds > periods[rank]
        ):
            periods[rank] = (time - since[rank]) // checkpoint.every_seconds
            save(rank)

    for rank in slices:
        remember(rank)
        save(rank)
    rows, restores = outcome.updates, outcome.restores
    applied = np.flatnonzero(rows["status"] == "applied")
    updates = [
        (rows["time"][group[0]], 0, rows["target"][group[0]], group)
        for _, found in groupby(
            applied, key=lambda row: (rows["target"][row], rows["version"][row], rows["time"][row])
        )
        if (group := list(found))
    ]
    crashes = [
        (time, 1, *rest) for time, *rest in zip(*(restores[name] for name in restores), strict=True)
    ]
    for time, is_crash, *rest in sorted([*updates, *crashes], key=lambda event: event[:2]):
        if is_crash:
            back, rank, before, lost = rest
            save_by_time(rank, time)
            assert (before, lost) == (version[rank], version[rank] - last[rank])
            if lost:
                with torch.no_grad():
                    models[rank].copy_(saved[rank][0])
                optimizers[rank] = optimizer([models[rank]])
                optimizers[rank].load_state_dict(deepcopy(saved[rank][1]))
                restored[rank] += 1
            since[rank], periods[rank] = back, 0
            remember(rank)
            save(rank)
            continue
        rank, group = rest
        save_by_time(rank, time)
        values = []
        for row in group:
            one, batch = taken[rows["worker"][row], rows["started"][row]]
            reads = {shard: one.piece(shard) for shard in slices}
            read = torch.cat(
                [
                    history[shard, piece.version_read, piece.mixed_read]
                    for shard, piece in reads.items()
                ]
            )
            values.append((HESSIAN @ read + NOISE * batch)[slices[rank]])
        models[rank].grad = torch.stack(values).mean(0)
        optimizers[rank].step()
        version[rank] += 1
        remember(rank)
        if checkpoint.every_updates and version[rank] - last[rank] == checkpoint.every_updates:
            save(rank)
    return torch.cat([models[rank].detach() for rank in slices])


OPTIMIZERS = {
    "momentum": (SGD(momentum=0.9), lambda weights: torch.optim.SGD(weights, LR, momentum=0.9)),
    "adam": (Adam(), lambda weights: torch.optim.Adam(weights, LR)),
}
PERIODS = [Checkpoint(every_updates=7), Checkpoint(every_seconds=3.0), Checkpoint()]
TRIED = {"async_ps": [{}, {"shards": 3}], "sync_ps": [{}], "k_sync": [{"wait_for": 3}]}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("checkpoint", PERIODS, ids=str)
@pytest.mark.parametrize(
    ("name", "settings"), [(name, one) for name in TRIED for one in TRIED[name]], ids=str
)
def test_weights_are_those_of_a_plain_loop_with_the_checkpoint_and_the_restore(
    name, settings, checkpoint, optimizer
):
    """The version goes on after a restore and `mixings` counts the restores: together they name the
    weights read.
    """
    shards = settings.get("shards", 1)
    own, theirs = OPTIMIZERS[optimizer]
    crashes = [ServerCrash(uptime=Exponential(9.0), restore_seconds=0.6, shard=shards - 1)]
    crashes += [ServerCrash(at=20.03, restore_seconds=0.2)] * (shards > 1)
    cluster = Cluster(workers=4, compute=Gamma(1.0, 0.5), apply_seconds=0.05, network=CARDS, server_crashes=crashes,
                      checkpoint=checkpoint)  # fmt: skip
    algorithm = ALGORITHMS[name](Rule(own, lr=LR), **settings)
    outcome, seen = run_and_observe(cluster, algorithm, Coupled(), stop=Stop(time=60.0))
    assert len(outcome.restores["time"]) > 3
    assert outcome.restores["lost"].sum() > 2
    expected = replay(outcome, seen.gradients, checkpoint, theirs, shards)
    torch.testing.assert_close(outcome.weights[0], expected, rtol=1e-12, atol=1e-13)
    # one a worker: what a server held when it crashed is dropped
    assert outcome.gradients["in flight"] <= 4
    applied = outcome.updates["status"] == "applied"
    across = outcome.updates["mixings"][applied].max()
    # gradients of weights from before a restore are late
    assert across >= 1 if name == "async_ps" else across == 0


def check_books(outcome):
    """Every gradient and message has one status, and every update of a server has a version of its
    own.
    """
    gradients, messages, rows = outcome.gradients, outcome.messages, outcome.updates
    assert gradients["started"] == sum(
        gradients[name] for name in ("applied", "dropped", "cancelled", "in flight")
    )
    assert messages["sent"] == sum(messages[name] for name in ("delivered", "lost", "in flight"))
    assert min(*gradients.values(), *messages.values()) >= 0
    assert (rows["staleness"] >= 0).all()
    assert (rows["mixings"] >= 0).all()
    assert (np.diff(rows["time"]) >= 0).all()
    applied = rows["status"] == "applied"
    for server in np.unique(rows["target"]):
        versions = np.unique(rows["version"][applied & (rows["target"] == server)])
        assert versions.tolist() == list(range(len(versions)))
        crashes = outcome.restores["server"] == server
        for time, before, lost in zip(
            *(outcome.restores[name][crashes] for name in ("time", "version", "lost")), strict=True
        ):
            ahead = rows["time"][applied & (rows["target"] == server) & (rows["version"] < before)]
            assert (ahead <= time).all()
            assert 0 <= lost <= before <= len(versions)


@pytest.mark.parametrize("name", ["async_ps", "sync_ps"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_with_a_checkpoint_after_every_update_and_no_lost_message_a_crash_is_a_pause(
    name, optimizer
):
    """All workers compute while the server is away: nothing differs, not even a row."""
    cluster = Cluster(workers=4, compute=Constant(1.0), checkpoint=Checkpoint(every_updates=1))
    crashes = [ServerCrash(at=at, restore_seconds=0.5) for at in (2.3, 3.2, 7.4)]
    algorithm = ALGORITHMS[name](Rule(OPTIMIZERS[optimizer][0], lr=LR))
    outcomes = []
    for cluster in (cluster, Cluster(**{**vars(cluster), "server_crashes": crashes})):  # noqa: B020
        outcomes.append(simulate(cluster, algorithm, Coupled(), stop=Stop(updates=30)))
    paused, whole = outcomes[1], outcomes[0]
    assert paused.restores["lost"].tolist() == [0, 0, 0]
    assert paused.messages == whole.messages
    assert torch.equal(paused.weights, whole.weights)
    for column in ("time", "worker", "version", "staleness", "mixings", "status"):
        assert (paused.updates[column] == whole.updates[column]).all()


def test_a_push_to_a_server_that_is_away_is_lost_and_its_worker_reads_again():
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


def test_one_shard_goes_back_and_the_others_do_not():
    """Gradients of 1 in every coordinate: shard 1 has lost two of its updates, shard 0 none."""
    task = Quadratic(curvature=1e-300, dim=4, initial=0.0, dtype=torch.float64)
    task.gradients = lambda weights, batches: (torch.ones_like(weights), weights.sum(-1))
    cluster = Cluster(workers=2, compute=Constant(1.0), checkpoint=Checkpoint(every_updates=4),
                      server_crashes=[ServerCrash(at=3.5, restore_seconds=0.1, shard=1)])  # fmt: skip
    outcome = simulate(cluster, AsyncPS(Rule(lr=1.0), shards=2), task, stop=Stop(time=5.5))
    assert outcome.restores["lost"].tolist() == [2]
    assert outcome.weights.tolist() == [[-10, -10, -8, -8]]
    assert (outcome.updates["status"] == "applied").all()


def test_a_crash_before_the_next_checkpoint_goes_back_to_the_same_one():
    cluster = Cluster(workers=1, checkpoint=Checkpoint(every_updates=3),
                      server_crashes=[ServerCrash(at=at, restore_seconds=0.1) for at in (5.5, 7.5, 9.5)])  # fmt: skip
    outcome = simulate(cluster, AsyncPS(Rule()), stop=Stop(updates=11))
    assert outcome.restores["version"].tolist() == [5, 7, 9]
    assert outcome.restores["lost"].tolist() == [2, 2, 2]


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


@pytest.mark.parametrize("around", CLUSTERS)
@pytest.mark.parametrize("name", METHODS)
def test_no_worker_hangs_whenever_servers_crash(name, around):
    """Crashes in the very instants in which something was sent, arrived or was applied, and between
    them.

    Afterwards every worker is answered, once: a second answer would lie in its mailbox.
    """
    rng, algorithm, shards = np.random.default_rng(3), METHODS[name], METHODS[name].shards
    plain = {"workers": 4, "compute": Gamma(1.0, 0.5), **CLUSTERS[around]}
    calm = simulate(Cluster(**plain), algorithm, stop=Stop(updates=8), record=Record(messages=True))
    log = calm.message_log
    instants = np.unique(
        [0.0, *log["sent"], *log["arrived"][~np.isnan(log["arrived"])], *calm.updates["time"]]
    )
    instants = np.unique([*instants, *(instants[1:] + instants[:-1]) / 2])
    for _ in range(12):
        moments = sorted(rng.choice(instants, 2, replace=False))
        downtime = rng.choice([1e-3, 0.3, 2.0])
        crashes = [
            ServerCrash(at=moments[0], restore_seconds=downtime, shard=rng.integers(shards).item())
        ]
        if moments[1] > moments[0] + downtime:  # two in a row
            crashes.append(
                ServerCrash(
                    at=moments[1], restore_seconds=downtime, shard=rng.integers(shards).item()
                )
            )
        worker = [Crash(1, at=moments[1], back=moments[1] + 1.0)] * rng.integers(2)
        cluster = Cluster(
            **plain,
            server_crashes=crashes,
            checkpoint=Checkpoint(every_updates=3),
            slowdowns=worker,
        )
        outcome, seen = run_and_observe(cluster, algorithm, stop=Stop(updates=40, time=500.0))
        assert outcome.reached == "updates", (outcome.stalled, crashes, worker)
        check_books(outcome)
        late = outcome.updates["started"] > max(*outcome.restores["back"], moments[1] + 1.0)
        assert set(outcome.updates["worker"][late]) == {0, 1, 2, 3}, (crashes, worker)
        assert not any(node.mailbox.mail for rank, node in seen.nodes.items() if rank >= 0), (
            crashes,
            worker,
        )


def test_answers_that_wait_for_the_servers_thread_are_never_sent_after_a_crash():
    """An answer takes 1 s: worker 0 has its first at 0 s, worker 1 at 1 s. The update is at 2 s,
    and its second answer would depart at 3 s.
    """
    cluster = Cluster(
        workers=2, reply_seconds=1.0, server_crashes=[ServerCrash(at=2.5, restore_seconds=20.0)]
    )
    outcome = simulate(cluster, SyncPS(Rule()), stop=Stop(time=10.0))
    # the one lost is worker 0's push
    assert outcome.messages == {"sent": 8, "delivered": 7, "lost": 1, "in flight": 0}


def test_a_crash_ends_what_the_servers_thread_was_doing():
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


def test_what_was_being_taken_in_at_a_crash_is_forgotten():
    """From 1 to 6 s it would take in a gradient of the worker's first life; at 8.5 s it answers the
    second one.
    """
    cluster = Cluster(workers=1, receive_seconds=FirstLong(), apply_seconds=4.0, slowdowns=[Crash(0, at=2.5, back=2.7)],
                      server_crashes=[ServerCrash(at=2.0, restore_seconds=1.0)])  # fmt: skip
    outcome = simulate(cluster, AsyncPS(Rule()), stop=Stop(updates=2))
    assert outcome.reached == "updates"
    applied = outcome.updates["status"] == "applied"
    assert outcome.updates["time"][applied].tolist() == [8.5, 14.0]


def test_a_server_that_crashes_again_before_any_update_ends_the_run():
    """Mini-batches of 1 s, a server that is up for 0.3 s and away for 0.3 s: it is never there when
    a push comes.
    """
    crash = ServerCrash(uptime=0.3, restore_seconds=0.3)
    outcome = simulate(
        Cluster(workers=1, server_crashes=[crash]), AsyncPS(Rule()), stop=Stop(updates=1)
    )
    assert outcome.reached == "stalled"
    assert "servers crashed 1000 times without one" in outcome.stalled


REFUSED = [
    (
        SoftSync(Rule()),
        {},
        "server_crashes: expected none, since no server of SoftSync returns from a checkpoint",
    ),
    (
        ALGORITHMS["all_reduce"](Rule()),
        {},
        "server_crashes: expected none, since AllReduce has no server",
    ),
    (
        AsyncPS(Rule(), shards=2),
        {"shard": 2},
        "server_crashes.0.shard: expected a number below the 2 of AsyncPS",
    ),
    (SyncPS(Rule(), shards=2), {}, "shards: expected 1 where servers crash"),
    (KSync(Rule(), cancel=True), {}, "cancel: expected false where servers crash"),
    (
        SyncPS(Rule(), bucket_bytes=10.0),
        {},
        "bucket_bytes: expected null where workers crash, or servers",
    ),
]


@pytest.mark.parametrize(
    ("algorithm", "settings", "message"), REFUSED, ids=[message for *_, message in REFUSED]
)
def test_what_cannot_run_is_refused_in_one_line(algorithm, settings, message):
    cluster = Cluster(workers=4, server_crashes=[ServerCrash(at=1.0, **settings)])
    with pytest.raises(InvalidSettingError, match=message):
        algorithm.check_cluster(cluster)


def test_crashes_that_overlap_and_periods_of_two_kinds_are_refused():
    with pytest.raises(
        InvalidSettingError, match=r"server_crashes.1.at: expected a moment after 3 s, when shard 0"
    ):
        Cluster(
            workers=1,
            server_crashes=[ServerCrash(at=1.0, restore_seconds=2.0), ServerCrash(at=2.0)],
        )
    with pytest.raises(
        InvalidSettingError,
        match=r"server_crashes.0.uptime: expected null, since shard 0 has other",
    ):
        Cluster(workers=1, server_crashes=[ServerCrash(uptime=1.0), ServerCrash(at=2.0)])
    with pytest.raises(
        InvalidSettingError, match="at: expected either a moment as at, or an uptime"
    ):
        ServerCrash()
    with pytest.raises(InvalidSettingError, match="uptime: expected a number > 0"):
        ServerCrash(uptime=0.0)
    with pytest.raises(
        InvalidSettingError, match="every_seconds: expected null beside every_updates"
    ):
        Checkpoint(every_updates=1, every_seconds=1.0)
