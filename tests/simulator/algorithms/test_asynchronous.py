"""The asynchronous server and Downpour: hand-written loops, identities, closed forms."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from laggard.models import Quadratic
from laggard.simulator import (
    AsyncPS,
    Cluster,
    Downpour,
    Evaluate,
    InvalidSettingError,
    Network,
    Rule,
    SoftSync,
    Stop,
    simulate,
)
from laggard.simulator.algorithms import SSP
from laggard.simulator.learning.rules import SGD, Adam, DCASGDa, DCASGDc, Nesterov, WarmUp
from laggard.simulator.learning.rules.optimizers import running
from laggard.simulator.timing.distributions import Constant, Exponential, Gamma, Uniform
from laggard.simulator.timing.slowdowns import Crash
from laggard.simulator.timing.streams import BATCHES, stream

LR = 0.02
OPTIMISERS = [SGD(), SGD(momentum=0.9), Nesterov(momentum=0.8), Adam()]
LAWS = [Constant(1.0), Exponential(1.0), Gamma(1.0, 0.3), Uniform(0.5, 1.5)]
UNEVEN = Cluster(workers=4, compute=Gamma(1.0, 0.5))
NOISY = Quadratic(curvature=1.0, dim=5, condition=100.0, noise=0.3, epoch=50, dtype=torch.float64)


def run(cluster, algorithm, updates=60, task=NOISY, **more):
    return simulate(
        cluster,
        algorithm,
        task,
        stop=Stop(updates=updates),
        evaluate=Evaluate(every_updates=1000),
        **more,
    )


def timing(cluster, algorithm, updates):
    return simulate(cluster, algorithm, stop=Stop(updates=updates)).updates


def mean_and_error(samples, blocks=50):
    """The mean of a correlated series, and its standard error from means over blocks."""
    means = samples[: len(samples) // blocks * blocks].reshape(blocks, -1).mean(1)
    return means.mean(), means.std(ddof=1) / math.sqrt(blocks)


@pytest.mark.parametrize("optimizer", OPTIMISERS, ids=repr)
@pytest.mark.parametrize(
    "network", [Network(), Network(bandwidth=50.0, latency=0.01, message_bytes=2.0)]
)
def test_a_push_and_a_fetch_every_step_is_plain_asynchronous_sgd(optimizer, network):
    """Bit for bit: the local step is overwritten, whatever its rule, and so is not even taken."""
    cluster, rule = replace(UNEVEN, network=network, apply_seconds=0.05), Rule(optimizer, lr=LR)
    plain = run(cluster, AsyncPS(rule))
    for local in ("sgd", "same", "none"):
        downpour = run(cluster, Downpour(rule, local_rule=local))
        assert torch.equal(downpour.weights, plain.weights)
        for column in plain.updates:
            np.testing.assert_array_equal(downpour.updates[column], plain.updates[column])


def downpour_by_hand(P, n_push, n_fetch, optimizer, local_rule, ticks):
    """Dean et al.'s loop for P equal workers that take turns: no clock, no promise, torch's own
    optimisers.
    """
    start = NOISY.start([0])
    streams = [NOISY.batches(rank, [stream(0, BATCHES, rank)]) for rank in range(P)]
    server = torch.nn.Parameter(start.clone())
    step = optimizer([server])
    replicas = [torch.nn.Parameter(start.clone()) for _ in range(P)]
    local = [
        (torch.optim.SGD([w], LR) if local_rule == "sgd" else optimizer([w])) for w in replicas
    ]
    accrued = [torch.zeros_like(start) for _ in range(P)]
    for tick in range(1, ticks + 1):
        for rank, replica in enumerate(replicas):
            gradient = NOISY.gradients(replica.detach()[None], [next(streams[rank])])[0][0]
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
@pytest.mark.parametrize("P", [1, 3])
def test_downpour_is_the_papers_loop(P, n_push, n_fetch, local_rule):
    """A server with momentum, and replicas that go on by themselves, with or without a momentum of
    their own.
    """
    ticks = 24
    rule = Rule(SGD(momentum=0.9), lr=LR)
    downpour = Downpour(rule, n_push=n_push, n_fetch=n_fetch, local_rule=local_rule)
    outcome = run(Cluster(workers=P, compute=Constant(1.0)), downpour, updates=ticks // n_push * P)
    by_hand = downpour_by_hand(
        P, n_push, n_fetch, lambda w: torch.optim.SGD(w, LR, momentum=0.9), local_rule, ticks
    )
    torch.testing.assert_close(outcome.weights, by_hand, rtol=1e-12, atol=1e-13)


def test_a_replicas_own_steps_matter():
    algorithms = [
        Downpour(Rule(SGD(momentum=0.9), lr=LR), 2, 4, local) for local in ("sgd", "same", "none")
    ]
    ends = [run(UNEVEN, algorithm).weights for algorithm in algorithms]
    assert all(not torch.equal(ends[a], ends[b]) for a, b in [(0, 1), (0, 2), (1, 2)])


@pytest.mark.parametrize("optimizer", OPTIMISERS, ids=repr)
@pytest.mark.parametrize("local_rule", ["sgd", "same"])
def test_a_replica_starts_its_own_rule_with_a_state_of_its_own(optimizer, local_rule):
    """With one worker whose pushes never come, the run is the replica's; its schedule counts the
    cluster's epochs.
    """
    seen = []

    class Watched(Quadratic):
        def gradients(self, weights, batches):
            seen.extend(weights.flatten(1).clone())
            return super().gradients(weights, batches)

    task = Watched(curvature=1.0, dim=5, condition=100.0, noise=0.3, epoch=10, dtype=torch.float64)
    schedule = WarmUp(length=1.0, start=0.5)
    rule = Rule(optimizer, lr=LR, schedule=schedule)
    simulate(
        Cluster(workers=1),
        Downpour(rule, 100, 100, local_rule),
        task,
        stop=Stop(gradients=20),
        defer=False,
    )
    alone = replace(rule, optimizer=SGD() if local_rule == "sgd" else optimizer)
    weights, state = task.start([0]), alone.init(task.start([0]))
    batches = task.batches(0, [stream(0, BATCHES, 0)])
    for step in range(20):
        torch.testing.assert_close(seen[step], weights[0], rtol=1e-12, atol=0)
        gradient = NOISY.gradients(weights[None], [next(batches)])[0][0]
        weights, state = alone.step(weights, gradient, state, epochs=0.1)


@pytest.mark.parametrize("law", LAWS, ids=repr)
@pytest.mark.parametrize(("n_push", "n_fetch"), [(1, 1), (3, 3), (1, 4), (2, 6)])
def test_mean_staleness_of_downpour_in_pushes(law, n_push, n_fetch):
    """P - 1 where a push fetches; P (b / a + 1) / 2 - 1 where several pushes follow one fetch."""
    P, pushes = 6, 5000
    rows = timing(Cluster(workers=P, compute=law), Downpour(Rule(), n_push, n_fetch), pushes)
    mean, error = mean_and_error(rows["staleness"][20 * P * n_fetch :].astype(float))
    ends = P * P * n_fetch / n_push / pushes
    assert mean == pytest.approx(P * (n_fetch / n_push + 1) / 2 - 1, abs=4 * error + ends)


@pytest.mark.parametrize("local_rule", ["sgd", "none"])
def test_local_steps_leave_the_staleness_as_it_is(local_rule):
    """It counts from the fetch, however far the replica has moved from it since."""
    algorithm = Downpour(Rule(lr=LR), n_push=2, n_fetch=6, local_rule=local_rule)
    np.testing.assert_array_equal(
        run(UNEVEN, algorithm).updates["staleness"], timing(UNEVEN, algorithm, 60)["staleness"]
    )


@pytest.mark.parametrize("law", LAWS, ids=repr)
@pytest.mark.parametrize("G", [2, 3, 5])
def test_mean_staleness_of_an_accumulating_server(law, G):
    """(P - 1) / G updates: every gradient waits while P - 1 others arrive, and G of them are one
    update.
    """
    P, updates = 8, 1500
    rows = timing(Cluster(workers=P, compute=law), AsyncPS(Rule(), accumulate=G), updates)
    mean, error = mean_and_error(rows["staleness"][P * (P - 1) // 2 :].astype(float))
    assert mean == pytest.approx((P - 1) / G, abs=4 * error + P * P / (G * G * updates))
    assert (np.bincount(rows["version"]) == G).all()


def test_an_accumulating_server_sums_and_soft_sync_averages():
    """For SGD the sum of G at lr is their mean at G lr; two gradients of one worker at old weights
    count like any.
    """
    summed = run(UNEVEN, AsyncPS(Rule(lr=LR), accumulate=3))
    averaged = run(UNEVEN, SoftSync(Rule(lr=3 * LR), gradients=3))
    torch.testing.assert_close(summed.weights, averaged.weights, rtol=1e-12, atol=1e-14)


def test_soft_sync_of_one_gradient_is_plain_asynchronous_sgd():
    """1-softsync, which is the default of both."""
    soft, plain = run(UNEVEN, SoftSync(Rule(lr=LR))), run(UNEVEN, AsyncPS(Rule(lr=LR)))
    assert torch.equal(soft.weights, plain.weights)


@pytest.mark.parametrize(
    "more", [{"n_push": 2, "n_fetch": 4}, {"sync_every": 4}, {"warm_start": 9}]
)
def test_options_combine_and_all_gradients_are_accounted_for(more):
    P, options = 5, {"n_push": 2, "n_fetch": 2, "sync_every": 8, "warm_start": 3} | more
    cluster = Cluster(
        P, Gamma(1.0, 0.6), network=Network(bandwidth=50.0, latency=0.01, message_bytes=2.0)
    )
    outcome = run(cluster, Downpour(Rule(Adam(), lr=LR), **options), updates=200)
    started, *fates = outcome.gradients.values()
    assert started == sum(fates)
    assert outcome.gradients["in flight"] <= P * (2 * options["n_push"] + 1)
    assert outcome.gradients["dropped"] == outcome.gradients["cancelled"] == 0
    assert (np.bincount(outcome.updates["version"]) == options["n_push"]).all()
    sent, *ends = outcome.messages.values()
    assert sent == sum(ends)


@pytest.mark.parametrize(
    "options", [{"n_push": 2, "n_fetch": 4}, {"n_push": 3, "n_fetch": 3, "local_rule": "same"}]
)
def test_downpour_defers_without_a_difference_and_an_ensemble_is_its_members(options):
    lrs = [0.01, 0.05]
    column = torch.tensor(lrs, dtype=torch.float64)[:, None]

    def end(lr, **more):
        return run(
            UNEVEN,
            Downpour(Rule(SGD(momentum=0.5), lr=lr, compensation=DCASGDc(strength=0.5)), **options),
            **more,
        )

    together = end(column, ensemble=2).weights
    assert torch.equal(together, end(column, ensemble=2, defer=False).weights)
    for member, lr in enumerate(lrs):
        assert torch.equal(together[member : member + 1], end(lr).weights)


@pytest.mark.parametrize(("n", "n_push"), [(1, 1), (3, 1), (4, 2)])
def test_a_barrier_every_n_mini_batches_makes_all_read_the_same(n, n_push):
    """Round r of n P mini-batches begins at version r n P / n_push for everyone, and nobody reads
    across it.
    """
    P, rounds = 4, 30
    options = {"n_push": n_push, "n_fetch": n_push, "sync_every": n}
    rows = timing(
        Cluster(P, Exponential(1.0)), Downpour(Rule(), **options), rounds * n * P // n_push
    )
    for worker in range(P):
        read = rows["version_read"][rows["worker"] == worker].reshape(rounds, n)
        begin = np.arange(rounds) * n * P // n_push
        np.testing.assert_array_equal(read[:, 0], begin)
        assert (read < begin[:, None] + n * P // n_push).all()
    assert rows["staleness"].max() < n * P // n_push
    assert rows["staleness"].max() > 0


@pytest.mark.parametrize("optimizer", OPTIMISERS, ids=repr)
def test_a_barrier_every_mini_batch_is_a_bound_of_zero(optimizer):
    rule = Rule(optimizer, lr=LR)
    assert torch.equal(
        run(UNEVEN, Downpour(rule, sync_every=1)).weights, run(UNEVEN, SSP(rule, bound=0)).weights
    )


def test_barriers_count_from_the_end_of_the_warm_start():
    """What worker 0 did alone puts it ahead of nobody."""
    W, n, P = 40, 5, 4
    rows = run(UNEVEN, Downpour(Rule(lr=LR), warm_start=W, sync_every=n), updates=W + 100).updates
    taken = np.bincount(rows["worker"][W + 1 :], minlength=P)
    assert taken.max() - taken.min() <= n


def test_a_worker_that_crashes_is_missed_by_nobody_and_reads_anew_when_it_is_back():
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


def test_a_barrier_waits_for_a_worker_that_crashed():
    cluster = replace(UNEVEN, slowdowns=[Crash(worker=1, at=20.3, back=40.2)])
    times = simulate(cluster, Downpour(Rule(), sync_every=2), stop=Stop(time=80.0)).updates["time"]
    assert ((times > 30) & (times < 40.2)).sum() == 0
    assert (times > 40.2).sum() > 50


def test_a_warm_start_is_one_worker_alone_and_then_everybody():
    rule, W = Rule(SGD(momentum=0.9), lr=LR), 25
    alone = run(Cluster(workers=1, compute=Gamma(1.0, 0.5)), AsyncPS(rule), updates=W)
    assert torch.equal(run(UNEVEN, Downpour(rule, warm_start=W), updates=W).weights, alone.weights)
    rows = run(UNEVEN, Downpour(rule, warm_start=W), updates=10 * W).updates
    assert (rows["worker"][:W] == 0).all()
    assert (rows["staleness"][:W] == 0).all()
    for worker in (1, 2, 3):
        theirs = rows["worker"] == worker
        assert rows["version_read"][theirs][0] == W
        assert rows["started"][theirs][0] == rows["time"][W - 1]
    assert rows["staleness"][2 * W :].mean() == pytest.approx(3, abs=0.2)


@pytest.mark.parametrize(
    ("compute", "k", "apply_seconds"),
    [(20.0, 1, 0.0), (20.0, 4, 0.3), (1.0, 1, 0.7), (1.0, 8, 0.1)],
)
def test_throughput_of_downpour_over_a_network(compute, k, apply_seconds):
    """Mini-batches a second: k min(P / (k t_c + 2 alpha + 2 N beta + c), 1 / max(N beta, c)); k = 1
    is as async_ps.
    """
    P, alpha, transfer, pushes = 8, 0.125, 0.25, 2000
    network = Network(bandwidth=1.0, latency=alpha, sharing="fifo", message_bytes=transfer)
    cluster = Cluster(P, Constant(compute), network=network, apply_seconds=apply_seconds)
    times = np.unique(timing(cluster, Downpour(Rule(), n_push=k, n_fetch=k), 2 * pushes)["time"])
    pushes_a_second = pushes / (times[-1] - times[-1 - pushes])
    round_trip = k * compute + 2 * alpha + 2 * transfer + apply_seconds
    assert pushes_a_second == pytest.approx(
        min(P / round_trip, 1 / max(transfer, apply_seconds)), rel=0.005
    )


@pytest.mark.parametrize("optimizer", OPTIMISERS, ids=repr)
@pytest.mark.parametrize(
    ("method", "options"),
    [
        (AsyncPS, {}),
        (Downpour, {"n_push": 2, "n_fetch": 4, "local_rule": "same"}),
        (AsyncPS, {"accumulate": 3}),
    ],
)
def test_shards_that_are_equally_quick_learn_what_one_server_would(optimizer, method, options):
    """On a free network every shard takes the gradients in the same order; each compensates and
    steps on its slice.
    """
    rule = Rule(optimizer, lr=LR, compensation=DCASGDa(strength=2.0, decay=0.9))
    one = run(UNEVEN, method(rule, **options))
    for shards in (2, 4):
        several = run(UNEVEN, method(rule, shards=shards, **options))
        torch.testing.assert_close(several.weights, one.weights, rtol=1e-12, atol=1e-14)
        assert several.progress == one.progress
        started, *fates = several.gradients.values()
        assert started == sum(fates)


@pytest.mark.parametrize("S", [1, 2, 4, 8])
@pytest.mark.parametrize("law", [Constant(0.5), Exponential(0.5)], ids=repr)
def test_shards_divide_the_servers_share_of_the_time(law, S):
    """S / (N beta) updates a second while the shards' cards bind; then the workers' cards and
    computations do.

    A shard may answer while the next slice is on its way up: at least t_c + 2 alpha + (1 + 1/S) N
    beta a round.
    """
    P, alpha, transfer, updates = 8, 0.01, 1.0, 800
    network = Network(bandwidth=1.0, latency=alpha, sharing="fifo", message_bytes=transfer)
    outcome = simulate(
        Cluster(P, law, network=network), AsyncPS(Rule(), shards=S), stop=Stop(updates=updates)
    )
    times = np.sort(outcome.updates["time"])
    throughput = (len(times) // 2) / S / (times[-1] - times[-1 - len(times) // 2])
    least = P / (0.5 + 2 * alpha + 2 * transfer)
    most = min(P / (0.5 + 2 * alpha + (1 + 1 / S) * transfer), S / transfer)
    assert throughput <= 1.02 * most
    assert throughput >= 0.98 * min(least, S / transfer)


class NoRoot(DCASGDa):
    """The first known error: the mean square itself, not its root."""

    def correct(self, value, gradient, weights, state, lr):
        squares = running(self.decay, state, value * value)
        strength = self.strength / (squares + 1e-7)
        return value + strength * value * value * (weights - gradient.weights), squares


class AliasedBackup(DCASGDa):
    """The second: the backup is the live weights, whose difference to themselves is nothing."""

    def correct(self, value, gradient, weights, state, lr):
        return value, running(self.decay, state, value * value)


class AnothersBackup(DCASGDa):
    """The third: the model that was sent last to anybody."""

    shared = True

    def init(self, weights):
        return weights, super().init(weights)

    def correct(self, value, gradient, weights, state, lr):
        backup, squares = state
        value, squares = super().correct(
            value, SimpleNamespace(weights=backup), weights, squares, lr
        )
        return value, (weights, squares)


class OneMeanSquare(DCASGDa):
    """And a fourth: all workers share a mean square."""

    shared = True


def dc_asgd_by_hand(order, P, lr, strength, decay, adaptive):
    """Algorithms 1 and 2 of Zheng et al. with w_bak and MS kept per worker, for a given order of
    arrivals.
    """
    streams = [NOISY.batches(rank, [stream(0, BATCHES, rank)]) for rank in range(P)]
    w = NOISY.start([0])
    backup = {rank: w.clone() for rank in range(P)}
    square = {rank: torch.zeros_like(w) for rank in range(P)}
    for m in order:
        g = NOISY.gradients(backup[m][None], [next(streams[m])])[0][0]
        square[m] = decay * square[m] + (1 - decay) * g * g
        size = strength / torch.sqrt(square[m] + 1e-7) if adaptive else strength
        w = w - lr * (g + size * g * g * (w - backup[m]))
        backup[m] = w.clone()
    return w


@pytest.mark.parametrize("cluster", [UNEVEN, Cluster(workers=3, compute=Constant(1.0))])
@pytest.mark.parametrize("compensation", [DCASGDa(strength=2.0, decay=0.9), DCASGDc(strength=0.7)])
def test_dc_asgd_is_the_papers_algorithm(compensation, cluster):
    outcome = run(cluster, AsyncPS(Rule(lr=LR, compensation=compensation)), updates=80)
    adaptive = isinstance(compensation, DCASGDa)
    decay = compensation.decay if adaptive else 0.0
    by_hand = dc_asgd_by_hand(
        outcome.updates["worker"], cluster.workers, LR, compensation.strength, decay, adaptive
    )
    torch.testing.assert_close(outcome.weights, by_hand, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("wrong", [NoRoot, AliasedBackup, AnothersBackup, OneMeanSquare])
def test_each_known_error_of_dc_asgd_is_found(wrong):
    outcome = run(
        UNEVEN, AsyncPS(Rule(lr=LR, compensation=wrong(strength=2.0, decay=0.9))), updates=80
    )
    by_hand = dc_asgd_by_hand(outcome.updates["worker"], 4, LR, 2.0, 0.9, adaptive=True)
    assert not torch.allclose(outcome.weights, by_hand, rtol=1e-6, atol=0)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"n_push": 0}, "n_push: expected a number >= 1, got 0"),
        ({"n_fetch": 1.5}, "n_fetch: expected a whole number"),
        ({"warm_start": -1}, "warm_start"),
        ({"local_rule": "adam"}, "local_rule: expected sgd, same or none, got 'adam'"),
        ({"sync_every": 0}, "sync_every"),
        ({"sync_every": 5, "n_fetch": 2}, "a multiple of n_push = 1 and n_fetch = 2, got 5"),
    ],
)
def test_settings_out_of_range_are_refused(wrong, message):
    with pytest.raises(InvalidSettingError, match=message):
        Downpour(Rule(), **wrong)


def test_an_empty_group_is_refused():
    with pytest.raises(InvalidSettingError, match="accumulate: expected a number >= 1, got 0"):
        AsyncPS(Rule(), accumulate=0)
