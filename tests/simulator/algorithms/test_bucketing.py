"""Gradients in buckets: what is in them, when a step is over, and that nothing else changes."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch

from laggard.models import Quadratic
from laggard.models.layers import Layer
from laggard.simulator import (
    AllReduce,
    Cluster,
    Evaluate,
    InvalidSettingError,
    Network,
    Record,
    Rule,
    Stop,
    SyncPS,
    Timing,
    simulate,
)
from laggard.simulator.algorithms.bucketing import FIRST_BUCKET, fill_buckets
from laggard.simulator.algorithms.collectives import COLLECTIVES
from laggard.simulator.engine.rounds import Rounds
from laggard.simulator.learning.rules import SGD, Adam
from laggard.simulator.timing.distributions import Constant, Gamma
from laggard.simulator.timing.slowdowns import Crash, Factor
from tests.simulator.algorithms.test_collectives import FORMS

every = pytest.mark.parametrize("collective", COLLECTIVES)
SLOW = pytest.mark.slow
DEPTH, P = 12, 4
N = 24 * FIRST_BUCKET
"""Bytes of a model whose layers have two first buckets' each."""


# --------------------------------------------------------------------------------------------- what
# is in a bucket


def layer(params, work):
    return Layer("", params, 0.0, work)


LENET = [layer(156, 86_400), layer(0, 3_456), layer(2_416, 153_600), layer(0, 1_024), layer(0, 256),
         layer(48_120, 48_000), layer(10_164, 10_080), layer(850, 840)]  # fmt: skip


def test_buckets_of_lenet_by_hand():
    """The last two linear layers, the first, and the convolutions, whose gradients come last."""
    total = 303_656
    linear = 840 + 10_080
    buckets = fill_buckets(LENET, 61_706, 246_824.0, 40_000.0, 2.0)
    assert [bucket.columns for bucket in buckets] == [
        slice(50_692, 61_706),
        slice(2_572, 50_692),
        slice(0, 2_572),
    ]
    assert [bucket.size for bucket in buckets] == [11_014 / 61_706, 48_120 / 61_706, 2_572 / 61_706]
    shares = [(1 + 2 * linear / total) / 3, (1 + 2 * (linear + 48_000) / total) / 3, 1.0]
    assert [bucket.ready for bucket in buckets] == pytest.approx(shares, rel=1e-12)
    half = fill_buckets(LENET, 61_706, 246_824.0, 40_000.0, 0.5)
    assert half[0].ready == pytest.approx((1 + 0.5 * linear / total) / 1.5, rel=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_buckets_are_whole_layers_from_the_last_on_and_no_larger_than_they_must_be(seed):
    rng = np.random.default_rng(seed)
    layers = [
        layer(int(rng.integers(0, 50)) * int(rng.integers(0, 2)), rng.random())
        for _ in range(rng.integers(1, 30))
    ]
    params, c, scale = (
        sum(each.params for each in layers),
        float(rng.uniform(0.05, 5.0)) * FIRST_BUCKET,
        1e5,
    )
    buckets = fill_buckets(layers, params, scale * params, c, 2.0)
    cuts = set(np.cumsum([0, *(each.params for each in layers)]).tolist())
    assert buckets[0].columns.stop == params
    assert buckets[-1].columns.start == 0
    assert all(later.columns.stop == sooner.columns.start for sooner, later in pairwise(buckets))
    assert {bucket.columns.start for bucket in buckets} <= cuts
    assert sum(bucket.size for bucket in buckets) == pytest.approx(1.0, rel=1e-12)
    for number, bucket in enumerate(buckets):
        start, stop = bucket.columns.start, bucket.columns.stop
        limit = c if number else min(c, FIRST_BUCKET)
        assert number == len(buckets) - 1 or scale * (stop - start) >= limit
        # the end of its first layer
        first = min(cut for cut in cuts if cut > start) if start < stop else stop
        assert scale * (stop - first) < limit
    ready = [bucket.ready for bucket in buckets]
    assert ready == sorted(ready)
    assert ready[-1] == 1.0
    whole = sum(each.work for each in layers)
    for bucket in buckets[:-1]:
        start = next(
            k
            for k, end in enumerate(np.cumsum([each.params for each in layers]))
            if end > bucket.columns.start
        )
        done = sum(each.work for each in layers[start:])
        assert bucket.ready == pytest.approx((1 + 2 * done / whole) / 3, rel=1e-12)


def test_a_task_without_layers_or_parameters_has_equal_ones():
    assert fill_buckets([], 0, 0.0, 1.0, 2.0) == [(slice(0, 0), 1.0, 1.0)]
    buckets = fill_buckets([], 1000, 10 * FIRST_BUCKET, 2 * FIRST_BUCKET, 2.0)
    assert [bucket.columns.start for bucket in buckets] == [900, 700, 500, 300, 100, 0]
    timing = fill_buckets(Timing(depth=4).layers(), 0, 4 * FIRST_BUCKET, 1.0, 2.0)
    assert [bucket.size for bucket in timing] == [0.25] * 4
    assert [bucket.ready for bucket in timing] == pytest.approx([0.5, 4 / 6, 5 / 6, 1.0], rel=1e-12)


# ----------------------------------------------------------------------------------------------
# when a step is over


def cut(c):
    """The bytes of each bucket, and after which share of a mini-batch it is there: f is a third of
    it.
    """
    layer_bytes, layers, limit, found, done = N / DEPTH, 0, min(c, FIRST_BUCKET), [], 0
    for number in range(1, DEPTH + 1):
        layers += 1
        if layers * layer_bytes >= limit or number == DEPTH:
            done += layers
            found.append((layers * layer_bytes, 1 / 3 + 2 / 3 * done / DEPTH))
            layers, limit = 0, c
    return found


def seconds(algorithm, bandwidth, latency=0.0, updates=4, task=None, **more):
    """What each update takes, with t_c = 1 s; the first begins when the model has been read."""
    network = Network(bandwidth=bandwidth, latency=latency, message_bytes=N)
    cluster = Cluster(P, Constant(1.0), network=network, **more)
    rows = simulate(
        cluster, algorithm, task or Timing(depth=DEPTH), stop=Stop(updates=updates)
    ).updates
    return np.diff(np.unique(rows["started"]))


GRID = [(c * FIRST_BUCKET, load, latency) for c in (0.5, 3.0, 5.0, 11.0, 1e9) for load in (0.05, 0.4, 1.0, 4.0)
        for latency in (0.0, 1e-3)][::3]  # fmt: skip


@every
def test_all_reduce_takes_the_recursion(collective):
    """e_k = max(r_k, e_{k-1}) + R(c_k): `load` is N beta in gradients."""
    R = FORMS[collective]
    for c, load, latency in GRID:
        end = 0.0
        for size, ready in cut(c):
            end = max(ready, end) + R(P, latency, size / N * load)
        took = seconds(AllReduce(Rule(), collective, bucket_bytes=c), N / load, latency)
        np.testing.assert_allclose(took, end, rtol=1e-9, err_msg=f"{c}, {load}, {latency}")


def test_a_server_takes_the_recursion():
    """Gradients come over the down link of its card while new weights leave over the up link."""
    for c, load, latency in GRID:
        come = left = 0.0
        for size, ready in cut(c):
            way = P * size / N * load
            come = max(ready, come) + latency + way
            left = max(come, left) + way
        took = seconds(SyncPS(Rule(), bucket_bytes=c), N / load, latency)
        np.testing.assert_allclose(
            took, left + latency, rtol=1e-9, err_msg=f"{c}, {load}, {latency}"
        )


def test_the_ratio_of_backward_to_forward_decides_how_much_is_hidden():
    """A whole pass back: f = 1 / (1 + backward), the first of twelve buckets is there after b / 12
    more.
    """
    for backward in (0.5, 1.0, 3.0):
        algorithm = AllReduce(Rule(), bucket_bytes=1.0, backward=backward)
        end = (1 + backward / DEPTH) / (1 + backward) + FORMS["ring"](P, 0.0, 4.0)
        np.testing.assert_allclose(seconds(algorithm, N / 4.0), end, rtol=1e-9)


@pytest.mark.parametrize("method", [AllReduce, SyncPS])
def test_on_a_free_network_a_step_takes_its_gradient(method):
    np.testing.assert_allclose(seconds(method(Rule(), bucket_bytes=1.0), math.inf), 1.0, rtol=1e-12)


def test_the_server_updates_a_bucket_as_soon_as_it_is_there():
    """On a free network only the last bucket's share of an update's cost comes after the
    gradient.
    """
    took = seconds(SyncPS(Rule(), bucket_bytes=1.0), math.inf, apply_seconds=0.12)
    np.testing.assert_allclose(took, 1.0 + 0.12 / DEPTH, rtol=1e-9)
    np.testing.assert_allclose(
        seconds(SyncPS(Rule()), math.inf, apply_seconds=0.12), 1.12, rtol=1e-9
    )


def test_several_mini_batches_an_update_are_sent_with_the_last():
    took = seconds(SyncPS(Rule(), bucket_bytes=1.0, accumulate=3), math.inf)
    np.testing.assert_allclose(took[2::3], 1.0, rtol=1e-12)
    hidden = seconds(SyncPS(Rule(), bucket_bytes=1.0, accumulate=2), N / 0.1)
    exposed = seconds(SyncPS(Rule(), accumulate=2), N / 0.1)
    np.testing.assert_allclose(hidden[1::2], 1 + 2 * P * 0.1 / DEPTH, rtol=1e-9)
    np.testing.assert_allclose(exposed[1::2], 1 + 2 * P * 0.1, rtol=1e-9)


def test_shards_divide_the_time_on_the_servers_card():
    one, two = (
        seconds(SyncPS(Rule(), bucket_bytes=3 * FIRST_BUCKET, shards=shards), N / 4.0)
        for shards in (1, 2)
    )
    np.testing.assert_allclose(
        two, seconds(SyncPS(Rule(), bucket_bytes=3 * FIRST_BUCKET), N / 2.0), rtol=1e-9
    )
    assert (two < one).all()


METHODS = [lambda **more: AllReduce(Rule(), **more), lambda **more: SyncPS(Rule(), **more)]


@pytest.mark.parametrize("method", METHODS, ids=["all_reduce", "sync_ps"])
@pytest.mark.parametrize("seed", range(8))
def test_without_latency_buckets_are_never_slower_and_with_it_by_no_more_than_theirs(method, seed):
    """Equal cards, fair sharing, whatever the compute times: e_K is at most the slowest's t_c +
    R(N).
    """
    rng = np.random.default_rng(seed)
    load, c = 10 ** rng.uniform(-2, 1), rng.uniform(0.2, 8.0) * FIRST_BUCKET
    slow = [Factor(int(rng.integers(P)), factor=float(rng.uniform(0.5, 3.0)))]

    def end(latency, **more):
        network = Network(bandwidth=N / load, latency=latency, message_bytes=N)
        cluster = Cluster(P, Gamma(1.0, 0.5), slow, network=network)
        return simulate(
            cluster, method(**more), Timing(depth=DEPTH), stop=Stop(updates=12), seed=seed
        ).progress.time

    assert end(0.0, bucket_bytes=c) < end(0.0) * (1 + 1e-12)
    latency, steps = 0.01, 2 * (P - 1)
    assert end(latency, bucket_bytes=c) < end(latency) + 12 * (len(cut(c)) - 1) * steps * latency


def test_many_buckets_cost_many_latencies():
    """A ring of twelve buckets pays 12 R(0): where latency is all, the whole gradient at once is
    faster.
    """
    one, twelve = (seconds(AllReduce(Rule(), bucket_bytes=c), N / 1e-6, 0.05) for c in (None, 1.0))
    assert (one < twelve).all()


# -----------------------------------------------------------------------------------------------
# nothing else changes


@pytest.fixture
def by_messages(monkeypatch):
    monkeypatch.setattr(Rounds, "apply_to", staticmethod(lambda *_, **__: False))


def check_equal(one, other):
    for name in one.updates:
        np.testing.assert_array_equal(one.updates[name], other.updates[name], err_msg=name)
    for name in one.workers:
        np.testing.assert_array_equal(one.workers[name], other.workers[name], err_msg=name)
    assert torch.equal(one.weights, other.weights)
    assert one.progress == other.progress
    assert one.gradients == other.gradients


UNEVEN = Network(bandwidth=300.0, latency=0.01)
WITHOUT = [AllReduce(Rule(Adam()), collective) for collective in COLLECTIVES] + [
    SyncPS(Rule(Adam()), **more)
    for more in ({}, {"shards": 2}, {"accumulate": 2}, {"shards": 3, "accumulate": 2})
]


def in_buckets(algorithm, c):
    """The same method, in buckets of c bytes."""
    return type(algorithm)(**{**vars(algorithm), "bucket_bytes": c})


@pytest.mark.parametrize("sharing", ["fair", "fifo"])
@pytest.mark.parametrize("algorithm", WITHOUT)
def test_one_bucket_is_no_overlap(by_messages, algorithm, sharing):
    network = Network(bandwidth=300.0, latency=0.01, sharing=sharing)
    cluster = Cluster(
        5, Gamma(1.0, 0.5), [Factor(1, factor=2.0)], network=network, apply_seconds=0.02
    )
    task, more = Quadratic(dim=13, noise=1.0), {"stop": Stop(updates=12), "ensemble": 2}
    whole = simulate(cluster, algorithm, task, **more)
    one = simulate(cluster, in_buckets(algorithm, 1e6), task, **more)
    check_equal(one, whole)
    assert one.messages == whole.messages


@pytest.mark.parametrize(
    "workers", [1, pytest.param(3, marks=SLOW), 5, pytest.param(8, marks=SLOW)]
)
@pytest.mark.parametrize("algorithm", WITHOUT)
def test_weights_are_the_same_bit_for_bit(algorithm, workers, perceptron):
    """Thirteen parameters in buckets of one to five, and a network in its two layers; single
    precision too.
    """
    if getattr(algorithm, "shards", 1) > workers:
        algorithm = type(algorithm)(**{**vars(algorithm), "shards": 1})
    cluster = Cluster(workers, Gamma(1.0, 0.5), network=UNEVEN)
    single = Quadratic(dim=13, noise=1.0, condition=30.0, dtype=torch.float32)
    for task, cuts in ((single, (1.0, 8.0, 20.0)), (perceptron, (1.0,))):
        more = {"stop": Stop(updates=8), "evaluate": Evaluate(every_updates=8), "ensemble": 2}
        whole = simulate(cluster, algorithm, task, **more)
        for c in cuts:
            parts = simulate(cluster, in_buckets(algorithm, c), task, **more)
            assert torch.equal(parts.weights, whole.weights)
            assert parts.messages["sent"] > whole.messages["sent"] or workers == 1


@pytest.mark.parametrize("method", METHODS, ids=["all_reduce", "sync_ps"])
def test_the_bytes_are_those_of_the_whole_gradient(method):
    """Of all messages of the second step, after which all nodes begin the third at once."""
    cluster = Cluster(P, Constant(1.0), network=Network(bandwidth=N, latency=0.01, message_bytes=N))

    def step(**more):
        run = simulate(
            cluster,
            method(**more),
            Timing(depth=DEPTH),
            stop=Stop(updates=4),
            record=Record(messages=True),
        )
        start, end = np.unique(run.updates["started"])[1:3]
        messages, arrived = run.message_log, run.updates["arrived"]
        # the last bucket brings the gradient
        assert (arrived >= run.updates["computed"])[~np.isnan(arrived)].all()
        return messages["bytes"][(messages["sent"] >= start) & (messages["sent"] < end)]

    whole, parts = step(), step(bucket_bytes=3 * FIRST_BUCKET)
    assert parts.sum() == pytest.approx(whole.sum(), rel=1e-12)
    assert len(parts) == len(cut(3 * FIRST_BUCKET)) * len(whole)


@every
@pytest.mark.parametrize("at", [0.2, 0.7, 1.1, 2.6])
def test_a_node_that_crashed_is_missed_for_ever_and_nobody_goes_on_with_half_a_sum(collective, at):
    applied = {}

    class Noted(AllReduce):
        def step(self, node, gradient, total, state):
            state = super().step(node, gradient, total, state)
            applied.setdefault(node.version, []).append(node.weights)
            return state

    network = Network(bandwidth=4.0, latency=0.05, message_bytes=2.0)
    slowdowns = [Factor(worker=3, factor=1.5), Crash(worker=1, at=at, back=at + 0.01)]
    cluster = Cluster(workers=4, compute=Constant(1.0), slowdowns=slowdowns, network=network)
    algorithm = Noted(Rule(SGD(), lr=0.01), collective, bucket_bytes=0.5)
    outcome = simulate(cluster, algorithm, Quadratic(dim=6, noise=1.0), stop=Stop(updates=12))
    assert outcome.reached == "stalled"
    assert "node 1 is back and not readmitted" in outcome.stalled
    assert all(torch.equal(weights, models[0]) for models in applied.values() for weights in models)


def test_a_server_refuses_crashes_since_it_has_answered_parts_of_a_gradient_that_may_be_lost():
    cluster = Cluster(4, slowdowns=[Crash(worker=1, at=3.0, back=4.0)])
    with pytest.raises(
        InvalidSettingError, match="bucket_bytes: expected null where workers crash"
    ):
        simulate(cluster, SyncPS(Rule(), bucket_bytes=1e6), stop=Stop(updates=1))
    assert simulate(cluster, SyncPS(Rule()), stop=Stop(updates=3)).progress.updates == 3
