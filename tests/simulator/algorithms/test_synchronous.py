"""The synchronous servers: whom they wait for, what they average, and the shards that they may be
cut into.
"""

from collections import Counter, defaultdict
from itertools import cycle, product

import numpy as np
import pytest
import torch

from laggard.simulator import (
    Cluster,
    Evaluate,
    InvalidSettingError,
    KSync,
    LocalSGD,
    Network,
    Rule,
    Stop,
    SyncPS,
    simulate,
)
from laggard.simulator.algorithms.sharding import split_parameters
from laggard.simulator.learning.rules import SGD, Adagrad, Adam, Nesterov, RMSProp
from laggard.simulator.timing.distributions import Constant, Exponential, Gamma
from laggard.simulator.timing.slowdowns import Crash, Factor, Window
from laggard.simulator.timing.streams import BATCHES, stream

LINEAR = [SGD(), SGD(momentum=0.9), Nesterov(momentum=0.8)]
OTHERS = [Adagrad(), RMSProp(decay=0.95), Adam()]
UNEVEN = Cluster(workers=4, compute=Gamma(1.0, 0.5))
LR, UPDATES = 0.03, 30
each_optimizer = pytest.mark.parametrize("optimizer", LINEAR + OTHERS, ids=repr)


def run(
    task, optimizer=LINEAR[0], cluster=UNEVEN, lr=LR, updates=UPDATES, method=SyncPS, **options
):
    return simulate(
        cluster, method(Rule(optimizer, lr), **options), task, stop=Stop(updates=updates)
    )


@each_optimizer
def test_k_sync_that_waits_for_all_is_synchronous_sgd(optimizer, quadratic):
    one = run(quadratic, optimizer)
    for options in ({}, {"wait_for": 4}, {"wait_for": 4, "cancel": True}):
        other = run(quadratic, optimizer, method=KSync, **options)
        assert torch.equal(one.weights, other.weights)
        for column in one.updates:
            np.testing.assert_array_equal(one.updates[column], other.updates[column])


@pytest.mark.parametrize(
    ("share", "workers", "K"), [(0.9, 20, 18), (0.94, 16, 16), (0.1, 10, 1), (0.28, 25, 7)]
)
@pytest.mark.parametrize("method", [KSync, LocalSGD])
def test_a_share_of_the_workers_is_rounded_up(method, share, workers, K, quadratic):
    cluster = Cluster(workers, compute=Gamma(1.0, 0.5))
    one, other = (
        simulate(cluster, method(Rule(lr=0.1), wait_for=n), quadratic, stop=Stop(updates=6))
        for n in (share, K)
    )
    assert torch.equal(one.weights, other.weights)
    assert one.progress == other.progress


@pytest.mark.parametrize("wait_for", [1.5, 0.0, -0.5, 5, 5.0])
def test_neither_a_share_nor_a_number_of_workers_is_refused(wait_for):
    with pytest.raises(InvalidSettingError, match="wait_for"):
        KSync(Rule(), wait_for=wait_for).check_cluster(Cluster(4))


def test_many_mini_batches_are_one_large_one(quadratic):
    """All of a worker's are taken at the weights that it read."""
    P, G = UNEVEN.workers, 3
    streams = [quadratic.batches(rank, [stream(0, BATCHES, rank)]) for rank in range(P)]
    weights = quadratic.start([0])
    for _ in range(UPDATES):
        batches = [next(batches) for batches in streams for _ in range(G)]
        gradients = torch.stack(
            [quadratic.gradients(weights[None], [batch])[0][0] for batch in batches]
        )
        weights = weights - LR * gradients.mean(0)
    outcome = run(quadratic, accumulate=G)
    torch.testing.assert_close(outcome.weights, weights, rtol=1e-12, atol=1e-13)
    assert outcome.gradients["applied"] == outcome.gradients["started"] == UPDATES * P * G
    assert (outcome.updates["staleness"] == 0).all()


@pytest.mark.parametrize(
    ("method", "options", "H"),
    [
        (KSync, {}, 1),
        (KSync, {"cancel": True}, 1),
        *(
            (LocalSGD, {"local_steps": H, "average": of}, H)
            for H in (1, 3)
            for of in ("weights", "updates")
        ),
    ],
    ids=repr,
)
def test_backup_workers_lose_all_that_they_bring_late(method, options, H, quadratic):
    N, cancel = 3, options.get("cancel", False)
    network = Network(bandwidth=50.0, latency=0.01, message_bytes=2.0)
    cluster = Cluster(workers=5, compute=Gamma(1.0, 0.6), network=network)
    outcome = run(quadratic, cluster=cluster, method=method, wait_for=N, updates=100, **options)
    fates, staleness, status = (
        outcome.gradients,
        outcome.updates["staleness"],
        outcome.updates["status"],
    )
    assert fates["applied"] == 100 * N * H
    assert sum(fates.values()) == 2 * fates["started"]
    assert fates["in flight"] <= 5 * H
    assert (outcome.updates["target"] == -1).all()
    assert (staleness[status == "applied"] == 0).all()
    assert (staleness[status == "dropped"] > 0).all()
    applied = outcome.updates["worker"][status == "applied"].reshape(100, N * H)
    assert all(set(Counter(workers).values()) == {H} for workers in applied.tolist()), (
        "N workers, each with all its own"
    )
    if cancel:
        assert fates["cancelled"] > 50
        assert fates["dropped"] > 10, "who had finished when the others were quicker loses that"
    else:
        assert fates["cancelled"] == 0
        assert fates["dropped"] > 50
        assert fates["dropped"] % H == 0


def test_an_update_takes_the_server_its_time():
    outcome = simulate(Cluster(workers=3, apply_seconds=0.25), SyncPS(Rule()), stop=Stop(updates=4))
    assert outcome.progress.time == 4 * 1.25


@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize("cancel", [False, True])
def test_a_worker_that_was_down_counts_once_an_update(cancel, shards, quadratic):
    """Worker 0 brings its gradient at 1 s, is down from 1.5 s to 2 s, and brings another for it at
    3 s.
    """
    slow, down = Factor(worker=2, factor=10.0), Crash(worker=0, at=1.5, back=2.0)
    cluster = Cluster(workers=3, slowdowns=[slow, down])
    outcome = run(quadratic, cluster=cluster, method=KSync, cancel=cancel, shards=shards, updates=2)
    rows = {name: column for name, column in outcome.updates.items()}
    applied = rows["status"] == "applied"
    for version in (0, 1):
        mine = applied & (rows["version_read"] == version)
        assert Counter(rows["worker"][mine].tolist()) == {0: shards, 1: shards, 2: shards}
    assert (rows["started"][rows["status"] == "dropped"] == 2.0).all()
    assert outcome.gradients["dropped"] == 1
    assert outcome.progress.time == 20.0


def test_a_synchronous_server_waits_for_a_worker_that_is_down_and_backup_workers_make_it_unnecessary():
    down = Crash(worker=1, at=2.5, back=9.0)
    waits, goes_on = (
        simulate(
            Cluster(workers=3, slowdowns=[down]), KSync(Rule(), wait_for=n), stop=Stop(updates=8)
        )
        for n in (None, 2)
    )
    assert waits.progress.time == 2 + (9 - 2) + 6
    assert goes_on.progress.time == 8.0
    for_ever = Crash(worker=1, at=2.5)
    stalled = simulate(
        Cluster(workers=3, slowdowns=[for_ever]), SyncPS(Rule()), stop=Stop(updates=8)
    )
    assert stalled.reached == "stalled"
    assert stalled.progress.updates == 2


NETWORKS = {
    "free": Network(),
    "fair": Network(bandwidth=40.0, latency=0.01, message_bytes=8.0),
    "fifo": Network(bandwidth=40.0, latency=0.01, message_bytes=8.0, sharing="fifo"),
    "colocated": Network(bandwidth=40.0, latency=0.01, message_bytes=8.0, colocated=True),
}


OPTIONS = [
    {},
    {"accumulate": 2},
    {"method": LocalSGD, "local_steps": 2},
    {"method": LocalSGD, "local_steps": 1, "average": "updates"},
]
# Every network with every choice of options, and each optimiser with several of these pairs.
SHARDED = [
    pytest.param(optimizer, NETWORKS[name], options, id=f"{optimizer}-{name}-{options}")
    for (name, options), optimizer in zip(
        product(NETWORKS, OPTIONS), cycle(LINEAR + OTHERS), strict=False
    )
]


@pytest.mark.parametrize(("optimizer", "network", "options"), SHARDED)
def test_shards_that_wait_for_all_are_one_server(optimizer, network, options, quadratic):
    cluster = Cluster(workers=4, compute=Gamma(1.0, 0.5), network=network)
    one = run(quadratic, optimizer, cluster, **options)
    for shards in (2, 3, 4):
        cut = run(quadratic, optimizer, cluster, shards=shards, **options)
        assert torch.equal(one.weights, cut.weights)
        assert cut.gradients == one.gradients
        assert (cut.progress.updates, cut.progress.samples) == (
            one.progress.updates,
            one.progress.samples,
        )
        loss, expected = cut.metrics["train_loss"], one.metrics["train_loss"]
        # local_sgd's are added up in order of arrival
        np.testing.assert_allclose(loss, expected, rtol=1e-12)


@pytest.mark.parametrize("S", [1, 2, 4, 8])
@pytest.mark.parametrize("colocated", [False, True])
def test_shards_divide_the_time_on_the_wires_until_the_workers_cards_bind(S, colocated):
    """t_c + 2 alpha + 2 (P / S) N beta: at S = P a round is what one worker's own card needs.

    On a worker's machine a shard has one slice less to send, and one to receive.
    """
    P, compute, alpha, size, bandwidth = 8, 1.0, 0.125, 3.0, 12.0
    network = Network(bandwidth=bandwidth, latency=alpha, message_bytes=size, colocated=colocated)
    cluster = Cluster(workers=P, compute=Constant(compute), network=network)
    updates = simulate(cluster, SyncPS(Rule(), shards=S), stop=Stop(updates=20)).updates
    rounds = np.diff(
        [updates["time"][updates["version_read"] == version].max() for version in range(20)]
    )
    np.testing.assert_allclose(
        rounds, compute + 2 * alpha + 2 * (P - colocated) / S * size / bandwidth
    )


@pytest.mark.parametrize("S", [1, 2, 4, 8])
def test_pieces_queue_at_no_shard_before_the_others_are_busy(S):
    """Fifo: all that is pushed at once is there after alpha + (P / S) N beta; workers begin with
    different shards.
    """
    P, alpha, size, bandwidth = 8, 0.125, 3.0, 12.0
    network = Network(bandwidth=bandwidth, latency=alpha, message_bytes=size, sharing="fifo")
    # whoever read first, all end alike
    asleep = [Window(rank, factor=1e12, start=0.0, end=50.0) for rank in range(P)]
    cluster = Cluster(workers=P, compute=Constant(1.0), network=network, slowdowns=asleep)
    time = simulate(cluster, SyncPS(Rule(), shards=S), stop=Stop(updates=1)).progress.time
    assert time == pytest.approx(50 + 1 + alpha + P / S * size / bandwidth)


@pytest.mark.parametrize("cancel", [False, True])
@pytest.mark.parametrize("name", NETWORKS)
def test_shards_with_backup_workers_each_take_the_first_that_come(name, cancel, quadratic):
    """Each counts N distinct workers an update. Where the way to one is longer they differ about
    who was late.
    """
    N, S, updates = 3, 3, 60
    cluster = Cluster(5, Exponential(0.3), network=NETWORKS[name])
    outcome = run(
        quadratic,
        cluster=cluster,
        method=KSync,
        wait_for=N,
        cancel=cancel,
        shards=S,
        updates=updates,
    )
    rows = outcome.updates
    applied = rows["status"] == "applied"
    assert (rows["staleness"][applied] == 0).all()
    for shard in (-1, -2, -3):
        mine = applied & (rows["target"] == shard)
        taken = Counter(
            zip(rows["version_read"][mine].tolist(), rows["worker"][mine].tolist(), strict=True)
        )
        assert set(taken.values()) == {1}
        assert len(taken) == N * updates
    fates = defaultdict(set)
    for worker, started, status in zip(
        rows["worker"], rows["started"], rows["status"], strict=True
    ):
        fates[worker, started].add(str(status))
    differ = sum(own == {"applied", "dropped"} for own in fates.values())
    assert (differ > 10) == (name in ("fifo", "colocated"))
    assert sum(outcome.gradients.values()) == 2 * outcome.gradients["started"]


@pytest.mark.parametrize(
    "seed", [*range(12), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(12, 40))]
)
def test_no_network_no_crash_and_no_choice_of_shards_makes_it_wait_for_ever(seed):
    rng = np.random.default_rng(seed)
    P = int(rng.integers(2, 7))
    crashes = [
        Crash(worker=0, at=float(at), back=float(at + rng.exponential(2.0) + 0.01))
        for at in (3.0, 30.0, 70.0)
    ]
    network = Network(
        bandwidth=float(rng.choice([np.inf, 2.0, 20.0])),
        latency=float(rng.choice([0.0, 0.3])),
        sharing=str(rng.choice(["fair", "fifo"])),
        message_bytes=1.0,
    )
    apply_seconds = float(rng.choice([0.0, 0.2]))
    cluster = Cluster(
        P,
        Exponential(0.5),
        slowdowns=crashes[: seed % 4],
        network=network,
        apply_seconds=apply_seconds,
    )
    waits = {"wait_for": int(rng.integers(1, P + 1)), "shards": int(rng.integers(1, P + 1))}
    if rng.integers(2):
        algorithm = KSync(Rule(), cancel=bool(rng.integers(2)), **waits)
    else:
        algorithm = LocalSGD(Rule(), local_steps=int(rng.integers(1, 3)), **waits)
    outcome = simulate(cluster, algorithm, stop=Stop(updates=60), seed=seed)
    assert outcome.reached == "updates"
    started, *fates = outcome.gradients.values()
    assert started == sum(fates)


@pytest.mark.parametrize(
    ("params", "shards"), [(0, 3), (5, 1), (5, 2), (7, 7), (61706, 16), (3, 5)]
)
def test_parameters_are_dealt_evenly_and_completely(params, shards):
    slices = list(split_parameters(params, shards).values())
    covered = [index for part in slices for index in range(params)[part]]
    assert covered == list(range(params))
    sizes = [len(range(params)[part]) for part in slices]
    assert max(sizes) - min(sizes) <= 1
    assert list(split_parameters(params, shards)) == [-1 - shard for shard in range(shards)]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: SyncPS(Rule(), accumulate=0), "accumulate"),
        (lambda: KSync(Rule(), wait_for=0), "wait_for"),
        (lambda: SyncPS(Rule(), shards=0), "shards"),
        (lambda: SyncPS(Rule(), shards=5).check(UNEVEN), "shards: expected at most workers = 4"),
        (lambda: KSync(Rule(), wait_for=5).check(UNEVEN), "wait_for: expected at most workers = 4"),
    ],
)
def test_settings_at_odds_are_refused(wrong, message):
    with pytest.raises(InvalidSettingError, match=message):
        wrong()


def test_an_ensemble_on_shards_is_its_members_run_alone(quadratic):
    lr = torch.tensor([[0.01], [0.05]], dtype=torch.float64)
    together = simulate(
        UNEVEN, LocalSGD(Rule(Adam(), lr), local_steps=2, shards=2), quadratic, stop=Stop(updates=20), ensemble=2,
        evaluate=Evaluate(every_updates=5),
    )  # fmt: skip
    for member in range(2):
        alone = run(
            quadratic,
            Adam(),
            lr=float(lr[member]),
            updates=20,
            method=LocalSGD,
            local_steps=2,
            shards=2,
        )
        assert torch.equal(together.weights[member : member + 1], alone.weights)
