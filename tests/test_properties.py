"""Random clusters, laws, graphs and methods: no deadlock, no gradient lost, no time runs backwards.

`make slow` tries 10,500 cases, or as many as `LAGGARD_CASES` says, `make test` 104 of them. Of
networks with random gradients `make slow` tries a hundredth as many, `make test` 4.
"""

import math
import os
from dataclasses import fields, replace
from functools import lru_cache
from typing import get_args, get_type_hints

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from torch import nn

from laggard.models import (
    LSTM,
    MLP,
    Augmentation,
    Dirichlet,
    Disjoint,
    Iid,
    Quadratic,
    ResNet,
    Supervised,
    characters,
)
from laggard.simulator import (
    Cluster,
    Evaluate,
    InvalidSettingError,
    Network,
    Rule,
    Stop,
    Timing,
    simulate,
)
from laggard.simulator.algorithms import ALGORITHMS
from laggard.simulator.engine.stopping import check_periods
from laggard.simulator.errors import limits_of
from laggard.simulator.learning.compression import Compress
from laggard.simulator.learning.rules import SGD, Adam, ClipNorm, DCASGDa, Staleness
from laggard.simulator.learning.rules.contrib.cgad import CGAD
from laggard.simulator.learning.rules.contrib.heloco import HeLoCo
from laggard.simulator.network.changes import Change, Changes
from laggard.simulator.network.config import Card, Hosts, SlowLink
from laggard.simulator.network.groups import Groups, Trunk
from laggard.simulator.network.topology import SERVER, Complete, Exponential, Graph, Ring, Torus
from laggard.simulator.timing.distributions import DISTRIBUTIONS, Gamma, Scipy
from laggard.simulator.timing.failures import Checkpoint, ServerCrash
from laggard.simulator.timing.slowdowns import Crash, Factor, Markov, Recorded, Window
from tests.models.images import images
from tests.simulator.engine.books import check_books

FEW, MANY = 104, int(os.environ.get("LAGGARD_CASES", "10500"))
ONE = {"delayed", "delayed_stages"}  # a single process
NEVER_STALL = {
    "async_ps",
    "dana",
    "dana_slim",
    "soft_sync",
    "k_batch_sync",
    "delayed",
    "adpsgd",
    "adpsgd_overlap",
    "ringmaster",
}
"""Methods in which no node waits for a worker that never returns."""

COIN, SECONDS, FACTOR, SPEED = (
    st.booleans(),
    st.floats(0.01, 10.0),
    st.floats(0.2, 8.0),
    st.floats(1.0, 1e4),
)
CV, UNIT, BYTES = st.floats(0.05, 2.0), st.floats(0.0, 1.0), st.floats(0.0, 1e3)
"""Made once: hypothesis takes longer to build a strategy than to draw from it."""


@lru_cache
def whole(least, most):
    return st.integers(least, max(least, most))


@lru_cache
def one_of(*options):
    return st.sampled_from(options)


LAWS = sorted(set(DISTRIBUTIONS) - {"trace"})


def law(draw):
    kind = DISTRIBUTIONS[draw(one_of(*LAWS))]
    if kind is Scipy:
        return Scipy("weibull_min", scale=draw(SECONDS), c=0.5 + draw(UNIT))
    values = {field.name: draw(CV if "cv" in field.name else SECONDS) for field in fields(kind)}
    if "high" in values:
        values["high"] += values["low"]
    if "alpha" in values:
        values["alpha"] = 1.1 + draw(CV)
    if "probability" in values:
        values["probability"] = draw(UNIT)
    return kind(**values)


def seconds(draw):
    """What something costs: nothing, a number or a law."""
    return law(draw) if draw(COIN) else draw(one_of(0.0, 0.0, draw(UNIT)))


def slowdown(draw, workers):
    rank, factor = draw(whole(0, workers - 1)), draw(FACTOR)
    kind = draw(one_of("factor", "window", "markov"))
    if kind == "factor":
        return Factor(rank, factor=factor)
    if kind == "window":
        return Window(
            rank, factor=factor, start=(start := draw(SECONDS)), end=start + draw(SECONDS)
        )
    return Markov(rank, factor=factor, slow_for=draw(SECONDS), fast_for=draw(SECONDS))


def crashes(draw, workers):
    """At most one a worker, so that none can overlap; in a quarter of the cases."""
    if draw(whole(0, 3)):
        return []
    at = {draw(whole(0, workers - 1)): draw(SECONDS) for _ in range(draw(whole(1, 2)))}
    return [
        Crash(rank, at=at[rank], back=at[rank] + draw(SECONDS) if draw(COIN) else None)
        for rank in at
    ]


def as_table(slowdowns):
    """Where several, with the windows and crashes among them as the rows of one table."""
    rows = [one for one in slowdowns if isinstance(one, Window | Crash)]
    return (
        slowdowns
        if len(slowdowns) < 2
        else [*(one for one in slowdowns if one not in rows), Recorded(rows)]
    )


def server_crashes(draw, algorithm):
    """Of one shard, at moments or by a law, in a quarter of the cases of methods whose servers
    return.
    """
    if not algorithm.recovers or draw(whole(0, 3)):
        return {}
    shard, restore = draw(whole(0, algorithm.shards - 1)), draw(SECONDS)
    at = [draw(SECONDS)]
    if draw(COIN):
        at.append(at[0] + restore + draw(SECONDS))
    crashes = [ServerCrash(at=moment, restore_seconds=restore, shard=shard) for moment in at]
    if draw(COIN):
        crashes = [ServerCrash(uptime=law(draw), restore_seconds=restore, shard=shard)]
    periods = {"every_updates": whole(1, 9)}, {"every_seconds": SECONDS}, {}
    period = {name: draw(values) for name, values in periods[draw(whole(0, 2))].items()}
    return {"server_crashes": crashes, "checkpoint": Checkpoint(**period)}


def groups(draw, workers):
    """Groups at a core or in a row, with servers at one of them; in a quarter of the cases."""
    if draw(whole(0, 3)):
        return None
    count = draw(one_of(*(size for size in range(1, workers + 1) if workers % size == 0)))
    named = {"latency": draw(UNIT), "bandwidth": draw(one_of(None, draw(SPEED)))}
    core, row = (
        [Trunk(range(count), "core", **named)],
        [Trunk([group], group + 1, **named) for group in range(count - 1)],
    )
    return Groups(count, trunks=core if draw(COIN) else row, servers=draw(whole(0, count - 1)))


def network(draw, workers, topology):
    limited = draw(COIN)
    served = topology.joins(SERVER, 0, workers)
    ranks = [*range(workers), *([SERVER] if served else [])]
    pairs = [(a, b) for a in ranks for b in ranks if a < b
             and topology.joins(a, b, workers) and topology.joins(b, a, workers)]  # fmt: skip
    links = []
    if draw(whole(0, 4)) == 0:
        size = draw(one_of(*(size for size in range(1, workers + 1) if workers % size == 0)))
        hosts = Hosts(
            size, draw(SPEED) if draw(COIN) else math.inf, draw(UNIT) if draw(COIN) else 0.0
        )
        return Network(
            topology, draw(SPEED) if limited else math.inf, draw(UNIT), message_bytes=draw(BYTES), hosts=hosts,
            sharing=draw(one_of("fair", "fifo")),
        )  # fmt: skip
    if pairs and draw(COIN):
        links = [SlowLink(*draw(one_of(*pairs)), bandwidth=draw(SPEED), latency=draw(UNIT))]
    joined = groups(draw, workers)
    wiring, sharing = (
        draw(one_of("cards", "pairs")) if joined is None else "cards",
        draw(one_of("fair", "fifo")),
    )
    return Network(
        topology=topology,
        bandwidth=draw(SPEED) if limited else math.inf,
        latency=seconds(draw),
        server_latency=seconds(draw) if draw(COIN) else None,
        sharing=sharing,
        message_bytes=draw(BYTES),
        wiring=wiring,
        cards=[Card(draw(whole(0, workers - 1)), draw(SPEED))] if draw(COIN) else [],
        links=links,
        colocated=served and not links and draw(COIN),
        changes=changes(draw, workers, sharing),
        groups=joined,
    )


def changes(draw, workers, sharing):
    """Bandwidths, outages and latencies that hold for a time, each of other messages; in a third of
    the cases.
    """
    if draw(whole(0, 2)):
        return None
    given = [{}, {"sender": draw(whole(0, workers - 1))}, {"receiver": draw(whole(0, workers - 1))}]
    if workers > 1:
        given.append({"sender": draw(whole(1, workers - 1)), "receiver": 0})
    rows = []
    for ends in given[draw(whole(0, len(given) - 1)) :]:
        start, bandwidth = draw(SECONDS), draw(one_of(None, 0.0, draw(SPEED)))
        if sharing == "fifo":
            bandwidth = None
        latency = draw(UNIT) if bandwidth is None or draw(COIN) else None
        rows.append(
            Change(
                **ends, start=start, end=start + draw(SECONDS), bandwidth=bandwidth, latency=latency
            )
        )
    return Changes(rows)


def graph(draw, name, workers):
    """The method's own graph, or any connected one where the method gossips."""
    default = ALGORITHMS[name].topology
    if not isinstance(default, Ring | Exponential):
        return default
    if workers == 1:
        return Complete()
    tree = Graph(graph="random_labeled_tree", arguments={"n": workers, "seed": draw(whole(0, 99))})
    directed = [Exponential(peers=1), Exponential(peers=2), Exponential(static=True)]
    return draw(st.sampled_from([Ring(), Torus(), Complete(), tree, *directed]))


def method(draw, name, workers):
    """A method, half of whose settings are random; it refuses some of them."""
    kind = ALGORITHMS[name]
    hints = get_type_hints(kind)
    values = {}
    for key, choices, limits in limits_of(kind):
        if key not in ("rule", "cut") and draw(COIN):
            values[key] = draw(choice(key, hints[key], choices, limits, workers))
    rule = [draw(st.sampled_from(RULES))] * ("rule" in hints)
    return kind(*rule, **values)


PARTS = {
    "compress": (
        Compress("top_k", keep=0.3),
        Compress("random_k", keep=0.5, codec_seconds=0.3),
        Compress("sign", feedback="ef21"),
        Compress("qsgd", levels=3, feedback="none"),
        None,
    ),
    "compress_down": (Compress("top_k", keep=0.3), Compress("sign"), None),
    "heloco": (HeLoCo(0.7, 0.4, 0.3), None),
    "cgad": (CGAD(0.1, 3.0), None),
    "delays": ((0,), (3, 0), (1, 1)),
}
"""Settings that are dataclasses or sequences."""


def choice(key, hint, choices, limits, workers):
    """The values of a setting."""
    if key in PARTS:
        return one_of(*PARTS[key])
    if choices:
        return one_of(*choices)
    if hint is bool:
        return COIN
    if key.endswith("bytes"):
        return one_of(2.0, 30.0, 300.0)
    if hint is int or int in get_args(hint):
        return whole(limits.least or 1, workers + 2)
    if 1 in (limits.most, limits.below):
        return UNIT
    return FACTOR


RULES = [Rule(SGD(), lr=0.05), Rule(SGD(momentum=0.9), lr=0.01), Rule(Adam(), lr=0.01),
         Rule(lr=0.05, compensation=DCASGDa()), Rule(lr=0.05, compensation=Staleness(on="step")),
         Rule(lr=0.05, clip=ClipNorm(0.1), weight_decay=0.1)]  # fmt: skip


STOPS = [
    Stop(time=100.0, updates=1),
    Stop(time=100.0, updates=25),
    Stop(time=100.0, gradients=30),
    Stop(time=10.0),
]
"""Each with a limit on time, for a worker whose work never counts."""


def case(draw, name):
    """A cluster, and a method that can run on it."""
    workers = 1 if name in ONE else draw(whole(1, 8))
    topology = graph(draw, name, workers)
    cluster = Cluster(
        workers=workers,
        compute=law(draw),
        slowdowns=as_table(
            [*(slowdown(draw, workers) for _ in range(draw(whole(0, 2)))), *crashes(draw, workers)]
        ),
        network=network(draw, workers, topology),
        apply_seconds=seconds(draw),
        **(
            {"receive_seconds": seconds(draw), "reply_seconds": seconds(draw)} if draw(COIN) else {}
        ),
    )
    try:
        algorithm = method(draw, name, workers)
        cluster = replace(cluster, **server_crashes(draw, algorithm))
        algorithm.check_cluster(cluster)
    except InvalidSettingError:  # settings at odds are told before anything runs, and only there
        assume(False)
    return cluster, algorithm


def hold(check, cases, *more, phases=(Phase.generate, Phase.shrink)):
    """Check that many random cases, divided among the methods."""

    @settings(
        max_examples=max(1, cases // len(ALGORITHMS)),
        deadline=None,
        database=None,
        derandomize=True,
        report_multiple_bugs=False,
        phases=phases,
        suppress_health_check=list(HealthCheck),
    )
    @given(data=st.data())
    def holds(data):
        check(data.draw, *more)

    holds()


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
@pytest.mark.parametrize("cases", [FEW, pytest.param(MANY, marks=pytest.mark.slow)])
def test_every_gradient_and_second_is_counted(cases, name):
    hold(check_case, cases, name)


def check_case(draw, name):
    cluster, algorithm = case(draw, name)
    stop, seed = draw(st.sampled_from(STOPS)), draw(whole(0, 2**31))
    # its workers wait for nobody: what a slow network cannot carry piles up for ever
    if name == "k_batch_sync":
        stop = replace(stop, time=5.0)
    learns = not draw(whole(0, 3))
    task = (
        Quadratic(dim=8, noise=0.1, epoch=20, dtype=torch.float64)
        if learns
        else Timing(depth=8, activations=0.1)
    )
    evaluate = Evaluate(every_updates=5.0)
    try:
        check_periods(stop, evaluate, cluster)
    except InvalidSettingError:  # a Markov chain that changes ten thousand times a mini-batch
        assume(False)
    outcome = simulate(cluster, algorithm, task, stop=stop, evaluate=evaluate, seed=seed)
    assert outcome.reached in ("updates", "gradients", "time", "stalled", "diverged")
    if outcome.reached == "stalled":
        assert cluster.has_crashes
        vain = "servers crashed 1000 times" in outcome.stalled
        for_ever = all(crash.back is None for crash in cluster.crashes)
        assert vain or for_ever or name not in NEVER_STALL
    check_books(outcome)
    assert outcome.messages["lost"] == 0 or cluster.has_crashes
    assert outcome.gradients["applied"] * task.batch == outcome.progress.samples
    assert outcome.weights.shape == (1, getattr(task, "params", 0))


class Dropping(nn.Sequential):
    """Convolutions with batch normalisation, and dropout of channels and of numbers."""

    def __init__(self, p):
        maps = [nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout2d(p), nn.Flatten()]
        super().__init__(*maps, nn.Linear(144, 8), nn.Tanh(), nn.Dropout(p), nn.Linear(8, 4))


PICTURES, TEXT = images(samples=60, shape=(3, 8, 8)), characters(samples=60, positions=6, words=4)
NETWORKS = {
    "mlp": (MLP(hidden=(6,)).build, PICTURES),
    "resnet, batch": (ResNet(norm="batch").build, PICTURES),
    "resnet, group": (ResNet(norm="group").build, PICTURES),
    "dropping": (lambda shape, classes: Dropping(0.3), PICTURES),
    "dropping most": (lambda shape, classes: Dropping(0.9), PICTURES),
    "lstm": (LSTM(width=6).build, TEXT),
}
TRAINED = ("sync_ps", "async_ps", "k_sync", "local_sgd", "all_reduce", "dpsgd", "adpsgd", "sgp")


def learnt(draw, workers, name):
    """A function of threads that makes a task: a network on images or texts, and what is random in
    its gradients.
    """
    network, data = NETWORKS[name]
    augment = Augmentation(draw(whole(0, 3)), draw(COIN)) if data is PICTURES else None
    partition = draw(one_of(Iid(), Disjoint(), Dirichlet(1.0))) if data is PICTURES else Iid()
    given = {
        "augment": augment,
        "partition": partition,
        "workers": workers,
        "partition_seed": draw(whole(0, 9)),
    }
    batch = draw(whole(2, 5))
    # vmap cannot evaluate an LSTM
    backend = draw(one_of("threads", "vmap")) if data is PICTURES else "threads"
    return lambda threads: Supervised(
        network, data, batch, **given, backend=backend, chunk=1, threads=threads, device="cpu"
    )


def check_network(draw, network):
    """The number of threads, other members and the moment of evaluation change no bit of what a
    network learns.
    """
    name, workers = draw(one_of(*TRAINED)), draw(whole(2, 5))
    cluster, algorithm = (
        Cluster(workers=workers, compute=Gamma(1.0, cv=draw(CV))),
        ALGORITHMS[name](draw(one_of(*RULES))),
    )
    task, seeds = learnt(draw, workers, network), [0, 1]

    def outcome(threads, learning_seeds=seeds, **options):
        stop, evaluate = Stop(updates=4), Evaluate(every_updates=4.0)
        return simulate(
            cluster,
            algorithm,
            task(threads),
            stop=stop,
            evaluate=evaluate,
            learning_seeds=learning_seeds,
            **options,
        )

    first, immediate = outcome(1), outcome(2, defer=False)
    assert first.gradients["applied"] >= 4
    member = draw(whole(0, 1))
    alone = outcome(2, [seeds[member]]).weights
    torch.testing.assert_close(immediate.weights, first.weights, rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(
        alone, first.weights[member : member + 1], rtol=0, atol=0, equal_nan=True
    )
    for column in ("train_loss", "test_loss", "test_accuracy"):
        np.testing.assert_array_equal(first.metrics[column], immediate.metrics[column])


@pytest.mark.parametrize("network", ["dropping", "lstm"])
def test_threads_ensembles_and_deferral_change_no_bit(network):
    hold(check_network, 2 * len(ALGORITHMS), network)


@pytest.mark.slow
@pytest.mark.parametrize("network", NETWORKS)
def test_threads_and_ensembles_change_no_bit_at_length(network):
    hold(check_network, MANY // 600 * len(ALGORITHMS), network)
