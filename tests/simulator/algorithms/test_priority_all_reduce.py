"""All-reduce by priority: steps by hand, and one order at all nodes."""

import math

import numpy as np
import pytest
import torch

from laggard.models import Quadratic
from laggard.models.layers import Layer
from laggard.simulator import (
    AllReduce,
    Cluster,
    Evaluate,
    Network,
    PriorityAllReduce,
    Record,
    Rule,
    Stop,
    Timing,
)
from laggard.simulator import simulate as run
from laggard.simulator.learning.rules import Adam
from laggard.simulator.timing.distributions import Exponential, Gamma
from laggard.simulator.timing.slowdowns import Crash, Factor

AT_ONCE = ["ring", "mesh", "recursive_doubling", "halving_doubling", "server"]
"""Collectives that end at all nodes at once, with fair sharing and a power of two nodes."""


def model(sizes):
    """A task of layers with these numbers of parameters and equal work, among others that have no
    parameters.
    """
    layers = [Layer("scale", 0, 0.0, 0.0)]
    for size in sizes:
        layers += [Layer("linear", size, 0.0, 1.0), Layer("relu", 0, 0.0, 0.0)]
    return Timing(network=layers)


def moments(outcome, name="time"):
    """When each node applied each of its gradients, or `name` else of these: (nodes, updates)."""
    rows = outcome.updates
    return np.array(
        [np.sort(rows[name][rows["worker"] == worker]) for worker in np.unique(rows["worker"])]
    )


@pytest.mark.parametrize(
    ("order", "step", "begins"), [("priority", 1.51, 0.86), ("fifo", 1.76, 1.26)]
)
def test_steps_of_two_layers(order, step, begins):
    """Each pass of a layer takes 1/4 s, a slice 0.01 s to be named and 0.19 s in a ring of two.

    The last layer has four slices. Its gradient is there 0.25 s after the backward pass began, that
    of the first layer, of one slice, at 0.5, and known 0.01 s later. By priority, slices of the
    last layer are summed at 0.46 and 0.66, the first layer's at 0.86, and the others at 1.06 and
    1.26. The first layer begins at 0.86, the last one at 1.26, for 0.25 s. In order, the first
    layer's slice comes last, at 1.26, and both forward passes begin then.
    """
    cluster = Cluster(2, network=Network(bandwidth=16 / 0.17, latency=0.01))
    algorithm = PriorityAllReduce(Rule(), 16.0, order, backward=1.0)
    outcome = run(cluster, algorithm, model([4, 16]), stop=Stop(updates=4))
    started, computed, applied = (
        moments(outcome, name) for name in ("started", "computed", "time")
    )
    np.testing.assert_allclose(np.diff(started)[:, 1:], step, rtol=1e-12)
    np.testing.assert_allclose((computed - started)[:, 1:], step - begins + 0.5, rtol=1e-12)
    np.testing.assert_allclose(applied - computed, 1.26 - 0.5, rtol=1e-12)


@pytest.mark.parametrize("order", ["priority", "fifo"])
def test_weights_are_same_where_messages_overtake(order, perceptron):
    """Also those that name the slices."""
    network, slow = Network(bandwidth=300.0, latency=Exponential(0.5)), [Factor(0, factor=2.0)]
    cluster = Cluster(3, Gamma(1.0, 0.5), slow, network=network)
    more = {"stop": Stop(updates=4), "evaluate": Evaluate(every_updates=4), "ensemble": 2}
    whole = run(cluster, AllReduce(Rule(Adam())), perceptron, **more)
    sliced = run(cluster, PriorityAllReduce(Rule(Adam()), 400.0, order), perceptron, **more)
    assert torch.equal(sliced.weights, whole.weights)


@pytest.mark.parametrize("order", ["priority", "fifo"])
def test_free_network_leaves_times_of_all_reduce(order):
    cluster = Cluster(5, Gamma(1.0, 0.5), [Factor(0, factor=2.0), Factor(3, factor=2.0)])
    sliced, whole = (
        run(cluster, algorithm, Timing(depth=7), stop=Stop(updates=12))
        for algorithm in (PriorityAllReduce(Rule(), order=order), AllReduce(Rule()))
    )
    for name in ("time", "started", "computed"):
        np.testing.assert_allclose(moments(sliced, name), moments(whole, name), rtol=1e-12)


@pytest.mark.parametrize("collective", AT_ONCE)
@pytest.mark.parametrize(("P", "more"), [(4, 0.02), (1, 0.0)])
def test_one_slice_is_all_reduce_named_first(collective, P, more):
    """It takes the latency there and back more; alone, a node asks no other."""
    network = Network(bandwidth=300.0, latency=0.01, message_bytes=50.0)
    one, whole = (
        moments(run(Cluster(P, network=network), algorithm, Timing(depth=1), stop=Stop(updates=6)))
        for algorithm in (
            PriorityAllReduce(Rule(), None, collective=collective),
            AllReduce(Rule(), collective),
        )
    )
    np.testing.assert_allclose(one, whole + more * np.arange(1, 7), rtol=1e-12)


def test_ring_sums_frontmost_slice_computed_by_all():
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


def test_node_alone_goes_on_after_crash():
    cluster = Cluster(1, slowdowns=[Crash(worker=0, at=2.5, back=4.0)])
    outcome = run(cluster, PriorityAllReduce(Rule(), 8.0), Quadratic(dim=13), stop=Stop(updates=5))
    assert outcome.progress.time == pytest.approx(4.0 + 3)
