"""The asynchronous servers: loops by hand, barriers, thresholds and crashes."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from laggard.models import Quadratic
from laggard.simulator import (
    AsyncPS,
    Cluster,
    Downpour,
    Evaluate,
    KAsync,
    Network,
    Rule,
    SoftSync,
    Stop,
    simulate,
)
from laggard.simulator.algorithms import SSP, Ringmaster
from laggard.simulator.learning.rules import SGD, Adam, DCASGDa, Nesterov, WarmUp
from laggard.simulator.timing.distributions import Constant, Exponential, Gamma
from laggard.simulator.timing.slowdowns import Crash, Factor
from tests.cases import quick
from tests.theory import trials
from tests.theory.trials import UNEVEN, batches_of, gradient_of

LR = 0.02
NOISY = trials.quadratic()


def run(cluster, algorithm, updates=60, task=NOISY, **more):
    return simulate(
        cluster,
        algorithm,
        task,
        stop=Stop(updates=updates),
        evaluate=Evaluate(every_updates=1000),
        **more,
    )


def downpour_by_hand(P, n_push, n_fetch, optimizer, local_rule, ticks):
    """Dean et al.'s loop for P equal workers that take turns: no clock, no promise, torch's own
    optimisers.
    """
    start = NOISY.start([0])
    streams = [batches_of(NOISY, rank) for rank in range(P)]
    server = torch.nn.Parameter(start.clone())
    step = optimizer([server])
    replicas = [torch.nn.Parameter(start.clone()) for _ in range(P)]
    local = [
        (torch.optim.SGD([w], LR) if local_rule == "sgd" else optimizer([w])) for w in replicas
    ]
    accrued = [torch.zeros_like(start) for _ in range(P)]
    for tick in range(1, ticks + 1):
        for rank, replica in enumerate(replicas):
            gradient = gradient_of(NOISY, replica.detach(), next(streams[rank]))
            accrued[rank] = accrued[rank] + gradient
            if local_rule != "none":
                replica.grad = gradient
                local[rank].step()
        for rank, replica in enumerate(replicas):
            if tick % n_push == 0:
                server.grad, accrued[rank] = accrued[rank], torch.zeros_like(start)
                step.step()
            if tick % n_fetch == 0:
                replica.data = server.detach().clone()
    return server.detach()


@pytest.mark.parametrize(("n_push", "n_fetch"), [(1, 1), (2, 2), (1, 3), (3, 6), (4, 2), (3, 2)])
@pytest.mark.parametrize("local_rule", ["sgd", "same", "none"])
@pytest.mark.parametrize("P", quick([1, 3], only=[3]))
def test_downpour_is_loop_of_paper(P, n_push, n_fetch, local_rule):
    """The server has momentum; replicas continue without waiting, with or without momentum."""
    ticks = 24
    rule = Rule(SGD(momentum=0.9), lr=LR)
    downpour = Downpour(rule, n_push=n_push, n_fetch=n_fetch, local_rule=local_rule)
    outcome = run(Cluster(workers=P, compute=Constant(1.0)), downpour, updates=ticks // n_push * P)
    by_hand = downpour_by_hand(
        P, n_push, n_fetch, lambda w: torch.optim.SGD(w, LR, momentum=0.9), local_rule, ticks
    )
    torch.testing.assert_close(outcome.weights, by_hand, rtol=1e-12, atol=1e-13)


def test_replica_has_own_optimiser_and_schedule_of_cluster():
    """With one worker whose pushes never come, it computes where a worker of its own would."""
    seen, runs = [], []

    class Watched(Quadratic):
        def gradients(self, weights, batches):
            seen.extend(weights.flatten(1).tolist())
            return super().gradients(weights, batches)

    task = Watched(curvature=1.0, dim=5, condition=100.0, noise=0.3, epoch=10, dtype=torch.float64)
    rule = Rule(Nesterov(momentum=0.8), lr=LR, schedule=WarmUp(length=1.0, start=0.5))
    for algorithm in (Downpour(rule, 100, 100, "same"), AsyncPS(rule)):
        stop = Stop(gradients=20)
        simulate(Cluster(workers=1), algorithm, task, stop=stop, defer=False)
        runs.append(seen[:20])
        seen.clear()
    np.testing.assert_allclose(*runs, rtol=1e-12)


@pytest.mark.parametrize(("n", "n_push"), [(1, 1), (3, 1), (4, 2)])
def test_barrier_makes_all_workers_read_same_weights(n, n_push):
    """Round r of n P mini-batches begins at version r n P / n_push for all workers, and none reads
    across it.
    """
    P, rounds = 4, 30
    options = {"n_push": n_push, "n_fetch": n_push, "sync_every": n}
    stop = Stop(updates=rounds * n * P // n_push)
    rows = simulate(Cluster(P, Exponential(1.0)), Downpour(Rule(), **options), stop=stop).updates
    for worker in range(P):
        read = rows["version_read"][rows["worker"] == worker].reshape(rounds, n)
        begin = np.arange(rounds) * n * P // n_push
        np.testing.assert_array_equal(read[:, 0], begin)
        assert (read < begin[:, None] + n * P // n_push).all()
    assert rows["staleness"].max() < n * P // n_push
    assert rows["staleness"].max() > 0


def test_barriers_count_from_end_of_warm_start():
    """Updates of the warm start count for no barrier."""
    W, n, P = 40, 5, 4
    rows = run(UNEVEN, Downpour(Rule(lr=LR), warm_start=W, sync_every=n), updates=W + 100).updates
    taken = np.bincount(rows["worker"][W + 1 :], minlength=P)
    assert taken.max() - taken.min() <= n


def test_crashed_worker_reads_again_when_it_is_back():
    at, back, P = 20.3, 40.2, 4
    cluster = replace(UNEVEN, slowdowns=[Crash(worker=1, at=at, back=back)])
    rows = simulate(cluster, Downpour(Rule(), n_push=2, n_fetch=2), stop=Stop(time=80.0)).updates
    applied = rows["status"] == "applied"
    away = applied & (rows["time"] > at + 1) & (rows["time"] < back)
    assert set(rows["worker"][away]) == {0, 2, 3}
    assert rows["staleness"][away & (rows["time"] > at + 10)].mean() == pytest.approx(
        P - 2, abs=0.6
    )
    again = applied & (rows["worker"] == 1) & (rows["time"] > back)
    assert again.sum() > 20
    assert rows["started"][again][0] == back
    assert (
        rows["version_read"][again][0]
        == rows["version"][applied & (rows["time"] <= back)].max() + 1
    )


def test_barrier_waits_for_crashed_worker():
    cluster = replace(UNEVEN, slowdowns=[Crash(worker=1, at=20.3, back=40.2)])
    times = simulate(cluster, Downpour(Rule(), sync_every=2), stop=Stop(time=80.0)).updates["time"]
    assert ((times > 30) & (times < 40.2)).sum() == 0
    assert (times > 40.2).sum() > 50


@pytest.mark.parametrize(
    ("method", "options"),
    [
        (AsyncPS, {}),
        (Downpour, {"n_push": 2, "n_fetch": 4, "local_rule": "same"}),
        (AsyncPS, {"accumulate": 3}),
    ],
)
def test_equal_shards_learn_as_one_server(method, options):
    """On a free network every shard takes the gradients in the same order; each compensates and
    steps on its slice.
    """
    rule = Rule(Adam(), lr=LR, compensation=DCASGDa(strength=2.0, decay=0.9))
    one = run(UNEVEN, method(rule, **options))
    for shards in (2, 4):
        several = run(UNEVEN, method(rule, shards=shards, **options))
        torch.testing.assert_close(several.weights, one.weights, rtol=1e-12, atol=1e-14)
        assert several.progress == one.progress


def test_crashed_worker_holds_others_at_bound():
    at, back, bound, P = 20.5, 60.0, 3, 4
    cluster = Cluster(
        workers=P, compute=Constant(1.0), slowdowns=[Crash(worker=1, at=at, back=back)]
    )
    rows = simulate(cluster, SSP(Rule(), bound=bound), stop=Stop(time=100.0)).updates
    applied = rows["status"] == "applied"
    while_down = applied & (rows["time"] > at) & (rows["time"] <= back)
    assert while_down.sum() == (P - 1) * (bound + 1), "the iteration they are in, and `bound` more"
    assert rows["time"][while_down].max() == pytest.approx(21 + bound)
    since = np.bincount(rows["worker"][applied & (rows["time"] > back)])
    assert since[1] == 40, "one a second"
    assert (since <= 40).all()


WIRED = Network(bandwidth=50.0, latency=0.05, message_bytes=2.0)
SLOW = [Factor(worker=1, factor=9.0)]


def test_computation_stops_when_it_is_too_stale():
    """It stops at staleness R, so that no gradient is dropped."""
    R = 4
    cluster = Cluster(workers=6, compute=Gamma(1.0, 0.8), slowdowns=SLOW)
    outcome = simulate(cluster, Ringmaster(Rule(), R, cancel=True), stop=Stop(updates=2000))
    cancelled = outcome.updates["status"] == "cancelled"
    assert cancelled.sum() > 100
    assert (outcome.updates["staleness"][cancelled] == R).all()
    assert outcome.gradients["dropped"] == 0


def test_worker_that_returns_contributes_once_to_update():
    """If its gradient was gathered before the crash, it waits for the update like any contributor."""
    K, updates = 3, 300
    crashes = [
        Crash(worker=rank, at=5.0 * k + rank, back=5.0 * k + rank + 0.1)
        for k in range(60)
        for rank in (0, 1)
    ]
    cluster = Cluster(workers=4, compute=Gamma(1.0, 0.9), slowdowns=crashes)
    outcome = simulate(cluster, KAsync(Rule(), wait_for=K), stop=Stop(updates=updates))
    applied = outcome.updates["worker"][outcome.updates["status"] == "applied"].reshape(updates, K)
    assert all(len(set(workers)) == K for workers in applied)


@pytest.mark.parametrize("algorithm", [KAsync, SoftSync])
def test_update_is_mean_of_gradients_at_weights_read(algorithm, quadratic):
    """Contributors read again after the update; in soft_sync all except the last read at once."""
    P, K, lr, updates = 4, 3, 0.05, 30
    outcome = simulate(UNEVEN, algorithm(Rule(lr=lr), K), quadratic, stop=Stop(updates=updates))
    streams = [batches_of(quadratic, rank) for rank in range(P)]
    w = quadratic.start([0])
    read = [w] * P
    for workers in np.reshape(outcome.updates["worker"], (updates, K)):
        gradients = []
        for rank in workers:
            gradients.append(gradient_of(quadratic, read[rank], next(streams[rank])))
            if algorithm is SoftSync:
                read[rank] = w
        w = w - lr * sum(gradients) / K
        for rank in workers if algorithm is KAsync else workers[-1:]:
            read[rank] = w
    torch.testing.assert_close(outcome.weights, w, rtol=1e-12, atol=1e-14)
