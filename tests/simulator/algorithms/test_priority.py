"""Slices by priority: the messages of a step, and how layers are cut."""

import math

import numpy as np
import pytest
import torch

from laggard.models import Quadratic
from laggard.models.layers import Layer
from laggard.simulator import (
    P3,
    AllReduce,
    Cluster,
    Evaluate,
    Network,
    PriorityAllReduce,
    Record,
    Rule,
    Stop,
    SyncPS,
    Timing,
)
from laggard.simulator import simulate as run
from laggard.simulator.algorithms.slicing import MAX_SLICES, slice_layers
from laggard.simulator.learning.rules import Adam
from laggard.simulator.timing.distributions import Constant, Exponential, Gamma
from laggard.simulator.timing.slowdowns import Crash, Factor


def model(sizes, works=None):
    """A task of layers with these numbers of parameters and work, among others that have no
    parameters.
    """
    layers = [Layer("scale", 0, 0.0, 0.0)]
    for size, work in zip(sizes, works or [1.0] * len(sizes), strict=True):
        layers += [Layer("linear", int(size), 0.0, float(work)), Layer("relu", 0, 0.0, 0.0)]
    return Timing(network=layers)


def seconds(algorithm, task, bandwidth, P=4, **more):
    """What each step takes from its second on, with t_c = 1 s; the first begins when the whole
    model has come.
    """
    cluster = Cluster(P, Constant(1.0), network=Network(bandwidth=bandwidth), **more)
    rows = run(cluster, algorithm, task, stop=Stop(updates=4)).updates
    return np.diff(np.unique(rows["started"]))[1:]


def case(seed):
    """A random model, settings and cluster: task, keys of P3, arguments of `seconds`."""
    rng = np.random.default_rng(seed)
    depth, P = int(rng.integers(1, 9)), int(rng.integers(1, 7))
    sizes, works = np.ceil(10 ** rng.uniform(2, 5, depth)), rng.dirichlet(np.ones(depth))
    shards, load = int(rng.integers(1, P + 1)), 10 ** rng.uniform(-1.5, 1.0)
    keys = {"shards": shards, "backward": rng.uniform(0.3, 4)}
    return (
        model(sizes, works.tolist()),
        keys,
        {"bandwidth": 4 * sizes.sum() / load * P / shards, "P": P},
    )


@pytest.mark.parametrize("sharing", ["fair", "fifo"])
@pytest.mark.parametrize("shards", [1, 3])
def test_one_slice_is_synchronous_server(shards, sharing):
    network = Network(bandwidth=300.0, latency=0.01, sharing=sharing, message_bytes=50.0)
    slow = [Factor(1, factor=2.0)]
    cluster = Cluster(5, Gamma(1.0, 0.5), slow, network=network, apply_seconds=0.02)
    one, whole = (
        run(cluster, algorithm, Timing(depth=1), stop=Stop(updates=12))
        for algorithm in (P3(Rule(), None, shards=shards), SyncPS(Rule(), shards=shards))
    )
    for name in ("worker", "target", "version_read", "time", "started", "computed"):
        np.testing.assert_allclose(one.updates[name], whole.updates[name], rtol=1e-12, err_msg=name)
    assert one.messages == whole.messages


@pytest.mark.parametrize("seed", range(5))
def test_whole_layers_in_order_are_buckets_of_layer(seed):
    """Without latency: a bucket's answer leaves a server before the one before it has arrived."""
    task, keys, cluster = case(seed)
    sliced, bucketed = (
        seconds(algorithm, task, **cluster)
        for algorithm in (
            P3(Rule(), None, "fifo", **keys),
            SyncPS(Rule(), bucket_bytes=1e-9, **keys),
        )
    )
    np.testing.assert_allclose(sliced, bucketed, rtol=1e-9)


def test_server_updates_slice_on_arrival():
    """On a free network only the first layer's share of an update's cost comes after the
    gradient.
    """
    took = seconds(P3(Rule()), Timing(depth=12), math.inf, apply_seconds=0.12)
    np.testing.assert_allclose(took, 1.0 + 0.12 / 12, rtol=1e-9)


@pytest.mark.parametrize("at", [0.2, 0.9, 1.4, 3.0])
@pytest.mark.parametrize(
    ("method", "worker"), [(P3, 1), (PriorityAllReduce, 0), (PriorityAllReduce, 1)]
)
def test_all_stall_after_crash_of_worker(method, worker, at):
    back = None if method is P3 else at + 0.01  # P3 refuses a return
    slowdowns = [Factor(3, factor=1.5), Crash(worker, at=at, back=back)]
    cluster = Cluster(4, slowdowns=slowdowns, network=Network(bandwidth=40.0, latency=0.05))
    task = Quadratic(dim=13, noise=1.0)
    outcome = run(cluster, method(Rule(), 8.0), task, stop=Stop(updates=12))
    assert outcome.reached == "stalled"
    assert (f"node {worker} " in outcome.stalled) == (back is not None)  # else it is down
    assert outcome.progress.updates <= at
    assert outcome.gradients["applied"] == 4 * outcome.progress.updates


LAYERS = [
    Layer("conv", 100, 0.0, 6.0),
    Layer("relu", 0, 0.0, 1.0),
    Layer("linear", 900, 0.0, 3.0),
]


def test_layers_are_cut_into_equal_slices():
    first, last = slice_layers(LAYERS, 0, 4000.0, 1200.0, backward=1.0)
    assert (first.number, first.slices, first.size) == (0, 1, 0.1)
    assert (last.number, last.slices, last.size) == (1, 3, pytest.approx(0.3))
    assert (first.forward, first.backward) == pytest.approx((0.35, 0.35))
    assert (last.forward, last.backward) == pytest.approx((0.15, 0.15))


@pytest.mark.parametrize(
    ("model_bytes", "slice_bytes", "slices"),
    [
        (4000.0, None, [1, 1]),
        (4000.0, 400.0, [1, 9]),
        (4000.0, 1e-9, [MAX_SLICES, MAX_SLICES]),
        (0.0, 400.0, [1, 1]),
    ],
)
def test_number_of_slices_is_bounded(model_bytes, slice_bytes, slices):
    layers = slice_layers(LAYERS, 0, model_bytes, slice_bytes, 1.0)
    assert [layer.slices for layer in layers] == slices


AT_ONCE = ["ring", "mesh", "recursive_doubling", "halving_doubling", "server"]
"""Collectives that end at all nodes at once, with fair sharing and a power of two nodes."""


def moments(outcome, name="time"):
    """When each node applied each of its gradients, or `name` else of these: (nodes, updates)."""
    rows = outcome.updates
    return np.array(
        [np.sort(rows[name][rows["worker"] == worker]) for worker in np.unique(rows["worker"])]
    )


@pytest.mark.parametrize("order", ["priority", "fifo"])
def test_weights_are_same_where_messages_overtake(order, perceptron):
    """Messages that name slices may be overtaken too."""
    network, slow = Network(bandwidth=300.0, latency=Exponential(0.5)), [Factor(0, factor=2.0)]
    cluster = Cluster(3, Gamma(1.0, 0.5), slow, network=network)
    more = {"stop": Stop(updates=4), "evaluate": Evaluate(every_updates=4), "ensemble": 2}
    whole = run(cluster, AllReduce(Rule(Adam())), perceptron, **more)
    sliced = run(cluster, PriorityAllReduce(Rule(Adam()), 400.0, order), perceptron, **more)
    assert torch.equal(sliced.weights, whole.weights)


@pytest.mark.parametrize("order", ["priority", "fifo"])
def test_free_network_gives_times_of_all_reduce(order):
    cluster = Cluster(5, Gamma(1.0, 0.5), [Factor(0, factor=2.0), Factor(3, factor=2.0)])
    sliced, whole = (
        run(cluster, algorithm, Timing(depth=7), stop=Stop(updates=12))
        for algorithm in (PriorityAllReduce(Rule(), order=order), AllReduce(Rule()))
    )
    for name in ("time", "started", "computed"):
        np.testing.assert_allclose(moments(sliced, name), moments(whole, name), rtol=1e-12)


@pytest.mark.parametrize("collective", AT_ONCE)
@pytest.mark.parametrize(("P", "more"), [(4, 0.02), (1, 0.0)])
def test_one_slice_adds_two_latencies_to_all_reduce(collective, P, more):
    """The last node needs the latency there and back more; alone, a node asks no other."""
    network = Network(bandwidth=300.0, latency=0.01, message_bytes=50.0)
    one, whole = (
        moments(run(Cluster(P, network=network), algorithm, Timing(depth=1), stop=Stop(updates=6)))
        for algorithm in (
            PriorityAllReduce(Rule(), None, collective=collective),
            AllReduce(Rule(), collective),
        )
    )
    np.testing.assert_allclose(one.max(0), whole.max(0) + more * np.arange(1, 7), rtol=1e-12)


def test_ring_sums_front_most_slice_that_all_computed():
    """On a ring of three, of which the last is slow, layers of 1, 2 and 3 slices, which differ in
    size.

    What the nodes tell each other has no bytes. All have computed a layer once the slow node has
    said so.
    """
    sizes, P = [400.0, 600.0, 2000.0 / 3], 3
    network = Network(bandwidth=3e3, latency=0.01)
    cluster = Cluster(P, slowdowns=[Factor(2, factor=2.0)], network=network)
    algorithm, stop, record = (
        PriorityAllReduce(Rule(), 700.0),
        Stop(updates=4),
        Record(messages=True),
    )
    log = run(cluster, algorithm, model([100, 300, 500]), stop=stop, record=record).message_log
    assert log["bytes"].sum() == pytest.approx(4 * 2 * (P - 1) * 3600.0)
    empty = log["bytes"] == 0
    named = np.unique(log["sent"][empty & (log["sender"] == 0)])
    computed = log["arrived"][empty & (log["sender"] == 2)].reshape(4, 3)[:, ::-1]
    assert len(named) == 4 * 6
    for turn, (start, end) in enumerate(zip(named, [*named[1:], math.inf], strict=True)):
        if turn % 6 == 0:
            left = np.array([1, 2, 3])
        messages = ~empty & (log["sent"] >= start) & (log["sent"] < end)
        assert messages.sum() == 2 * (P - 1) * P
        assert (log["arrived"][messages] <= end).all()
        ready = np.flatnonzero((left > 0) & (computed[turn // 6] <= start))
        np.testing.assert_allclose(log["bytes"][messages], sizes[ready[0]] / P)
        left[ready[0]] -= 1
