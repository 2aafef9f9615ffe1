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
from tests.theory.trials import UNEVEN

LINEAR = [SGD(), SGD(momentum=0.9), Nesterov(momentum=0.8)]
OTHERS = [Adagrad(), RMSProp(decay=0.95), Adam()]
LR, UPDATES = 0.03, 30


def run(
    task, optimizer=LINEAR[0], cluster=UNEVEN, lr=LR, updates=UPDATES, method=SyncPS, **options
):
    return simulate(
        cluster, method(Rule(optimizer, lr), **options), task, stop=Stop(updates=updates)
    )


@pytest.mark.parametrize(
    ("share", "workers", "K"), [(0.9, 20, 18), (0.94, 16, 16), (0.1, 10, 1), (0.28, 25, 7)]
)
@pytest.mark.parametrize("method", [KSync, LocalSGD])
def test_share_of_workers_is_rounded_up(method, share, workers, K, quadratic):
    cluster = Cluster(workers, compute=Gamma(1.0, 0.5))
    one, other = (
        simulate(cluster, method(Rule(lr=0.1), wait_for=n), quadratic, stop=Stop(updates=6))
        for n in (share, K)
    )
    assert torch.equal(one.weights, other.weights)
    assert one.progress == other.progress


@pytest.mark.parametrize(
    ("method", "options"),
    [
        (KSync, {}),
        (KSync, {"cancel": True}),
        (LocalSGD, {"local_steps": 1, "average": "updates"}),
        (LocalSGD, {"local_steps": 3}),
    ],
    ids=repr,
)
def test_gradients_of_late_workers_are_dropped(method, options, quadratic):
    N, H, updates = 3, options.get("local_steps", 1), 100
    network = Network(bandwidth=50.0, latency=0.01, message_bytes=2.0)
    cluster = Cluster(workers=5, compute=Gamma(1.0, 0.6), network=network)
    options = {"wait_for": N, "updates": updates, **options}
    outcome = run(quadratic, cluster=cluster, method=method, **options)
    counts, rows = outcome.gradients, outcome.updates
    assert counts["applied"] == updates * N * H
    assert counts["in flight"] <= 5 * H
    assert (rows["staleness"][rows["status"] == "applied"] == 0).all()
    assert (rows["staleness"][rows["status"] == "dropped"] > 0).all()
    applied = np.sort(rows["worker"][rows["status"] == "applied"].reshape(updates, N * H))
    for workers in applied.tolist():  # N workers, each with all its gradients
        assert set(Counter(workers).values()) == {H}
    assert counts["dropped"] > 10
    assert counts["dropped"] % H == 0
    assert (counts["cancelled"] > 50) == options.get("cancel", False)


@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize("cancel", [False, True])
def test_worker_that_was_down_counts_once_an_update(cancel, shards, quadratic):
    """Worker 0 pushes its gradient at 1 s, is down from 1.5 s to 2 s, and pushes another at 3 s."""
    slowdowns = [Factor(worker=2, factor=10.0), Crash(worker=0, at=1.5, back=2.0)]
    cluster, options = Cluster(3, slowdowns=slowdowns), {"cancel": cancel, "shards": shards}
    outcome = run(quadratic, cluster=cluster, method=KSync, updates=2, **options)
    rows = outcome.updates
    applied = rows["status"] == "applied"
    for version in (0, 1):
        workers = rows["worker"][applied & (rows["version_read"] == version)]
        assert np.bincount(workers).tolist() == [shards] * 3
    assert rows["started"][rows["status"] == "dropped"].tolist() == [2.0] * shards
    assert outcome.progress.time == 20.0


@pytest.mark.parametrize(("wait_for", "seconds"), [(None, 2 + (9 - 2) + 6), (2, 8)])
def test_backup_workers_replace_worker_that_is_down(wait_for, seconds):
    cluster = Cluster(3, slowdowns=[Crash(worker=1, at=2.5, back=9.0)])
    outcome = simulate(cluster, KSync(Rule(), wait_for=wait_for), stop=Stop(updates=8))
    assert outcome.progress.time == seconds


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
    one = run(quadratic, optimizer, cluster, updates=12, **options)
    cut = run(quadratic, optimizer, cluster, updates=12, shards=3, **options)
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
def test_slices_spread_over_all_shards(S):
    """Fifo: all that is pushed at once is there after alpha + (P / S) N beta; workers begin with
    different shards.
    """
    P, alpha, size, bandwidth = 8, 0.125, 3.0, 12.0
    network = Network(bandwidth=bandwidth, latency=alpha, message_bytes=size, sharing="fifo")
    # the order of the reads does not matter: all end at once
    asleep = [Window(rank, factor=1e12, start=0.0, end=50.0) for rank in range(P)]
    cluster = Cluster(workers=P, compute=Constant(1.0), network=network, slowdowns=asleep)
    time = simulate(cluster, SyncPS(Rule(), shards=S), stop=Stop(updates=1)).progress.time
    assert time == pytest.approx(50 + 1 + alpha + P / S * size / bandwidth)


@pytest.mark.parametrize("cancel", [False, True])
@pytest.mark.parametrize("name", NETWORKS)
def test_each_shard_takes_first_workers_that_come(name, cancel, quadratic):
    """Each counts N distinct workers an update. Where the way to one is longer, shards differ about
    who was late.
    """
    N, S, updates = 3, 3, 60
    cluster = Cluster(5, Exponential(0.3), network=NETWORKS[name])
    options = {"wait_for": N, "cancel": cancel, "shards": S, "updates": updates}
    rows = run(quadratic, cluster=cluster, method=KSync, **options).updates
    applied = rows["status"] == "applied"
    assert (rows["staleness"][applied] == 0).all()
    columns = ("target", "version_read", "worker")
    taken = Counter(zip(*(rows[column][applied].tolist() for column in columns), strict=True))
    assert set(taken.values()) == {1}
    assert len(taken) == S * N * updates
    statuses = defaultdict(set)
    columns = (rows[column].tolist() for column in ("worker", "started", "status"))
    for worker, started, status in zip(*columns, strict=True):
        statuses[worker, started].add(status)
    differ = sum(status == {"applied", "dropped"} for status in statuses.values())
    assert (differ > 10) == (name in ("fifo", "colocated"))


@pytest.mark.parametrize(
    "seed", [*range(12), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(12, 40))]
)
def test_no_setting_makes_server_wait_for_ever(seed):
    """Random cases vary the network, crashes and shards."""
    rng = np.random.default_rng(seed)
    P, crashes = int(rng.integers(2, 7)), []
    for at in (3.0, 30.0, 70.0)[: seed % 4]:
        crashes.append(Crash(0, at=at, back=float(at + rng.exponential(2.0) + 0.01)))
    network = Network(
        bandwidth=float(rng.choice([np.inf, 2.0, 20.0])),
        latency=float(rng.choice([0.0, 0.3])),
        sharing=str(rng.choice(["fair", "fifo"])),
        message_bytes=1.0,
    )
    apply_seconds = float(rng.choice([0.0, 0.2]))
    cluster = Cluster(P, Exponential(0.5), crashes, network, apply_seconds=apply_seconds)
    settings = {"wait_for": int(rng.integers(1, P + 1)), "shards": int(rng.integers(1, P + 1))}
    if rng.integers(2):
        algorithm = KSync(Rule(), cancel=bool(rng.integers(2)), **settings)
    else:
        algorithm = LocalSGD(Rule(), local_steps=int(rng.integers(1, 3)), **settings)
    outcome = simulate(cluster, algorithm, stop=Stop(updates=60), seed=seed)
    assert outcome.reached == "updates"
    started, *counts = outcome.gradients.values()
    assert started == sum(counts)


@pytest.mark.parametrize(
    ("params", "shards"), [(0, 3), (5, 1), (5, 2), (7, 7), (61706, 16), (3, 5)]
)
def test_parameters_are_split_evenly_and_completely(params, shards):
    slices = list(split_parameters(params, shards).values())
    covered = [index for part in slices for index in range(params)[part]]
    assert covered == list(range(params))
    sizes = [len(range(params)[part]) for part in slices]
    assert max(sizes) - min(sizes) <= 1
    assert list(split_parameters(params, shards)) == [-1 - shard for shard in range(shards)]
