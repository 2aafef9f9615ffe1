"""All-reduce by priority: what a step takes, by a recursion; one order at all nodes; the weights of
all_reduce.
"""

import math

import numpy as np
import pytest
import torch

from laggard.experiments.theory.communication import OVERLAP_SECONDS
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
from laggard.simulator.algorithms.collectives import COLLECTIVES
from laggard.simulator.learning.rules import Adam
from laggard.simulator.network.config import Hosts
from laggard.simulator.timing.distributions import Constant, Exponential, Gamma
from laggard.simulator.timing.slowdowns import Crash, Factor

AT_ONCE = ["ring", "mesh", "recursive_doubling", "halving_doubling", "server"]
"""Collectives that end at all nodes at once, with fair sharing and a power of two nodes."""

# --------------------------------------------------------------------------------------------------------
# the recursion


def model(sizes, works):
    """A task of layers of so many parameters and so much work, among others that have no
    parameters.
    """
    layers = [Layer("scale", 0, 0.0, 0.0)]
    for number, (size, work) in enumerate(zip(sizes, works, strict=True)):
        layers += [
            Layer(f"linear{number}", int(size), 0.0, float(work)),
            Layer(f"relu{number}", 0, 0.0, 0.0),
        ]
    return Timing(network=layers)


def moments(outcome, name="time"):
    """When each node applied each of its gradients, or `name` else of these: (nodes, updates)."""
    rows = outcome.updates
    return np.array(
        [np.sort(rows[name][rows["worker"] == worker]) for worker in np.unique(rows["worker"])]
    )


def case(seed):
    """A random model and settings: task, keys of the method, network."""
    rng = np.random.default_rng(seed)
    depth = int(rng.integers(2, 8))
    sizes, works = np.ceil(10 ** rng.uniform(2, 5, depth)), rng.dirichlet(np.ones(depth))
    N, load = 4 * sizes.sum(), 10 ** rng.uniform(-1.0, 0.7)
    keys = {
        "slice_bytes": N / rng.uniform(1, 12),
        "backward": rng.uniform(0.3, 4),
        "collective": AT_ONCE[seed % 5],
    }
    return (
        model(sizes, works),
        keys,
        Network(bandwidth=N / load, latency=float(rng.choice([0.0, 1e-3, 0.02]))),
    )


@pytest.mark.parametrize("order", ["priority", "fifo"])
@pytest.mark.parametrize("seed", range(6))
def test_a_step_takes_the_recursion(seed, order):
    task, keys, network = case(seed)
    cluster, algorithm = (
        Cluster(2 ** (1 + seed % 2), network=network),
        PriorityAllReduce(Rule(), order=order, **keys),
    )
    N = 4 * sum(layer.params for layer in task.layers())
    step = OVERLAP_SECONDS(algorithm, cluster, task.layers(), N)
    took = np.diff(moments(run(cluster, algorithm, task, stop=Stop(updates=4)), "started"))[:, 1:]
    np.testing.assert_allclose(took, step, rtol=1e-9)


def test_two_layers_by_hand():
    """Each pass of a layer takes 1/4 s, a slice 0.01 s to be named and 0.19 s in a ring of two.

    The last layer has four slices. Its gradient is there 0.25 s after the backward pass began, that
    of the first layer, of one slice, at 0.5, and known 0.01 s later. By priority, slices of the
    last layer are summed at 0.46 and 0.66, the first layer's at 0.86, and the others at 1.06 and
    1.26. The first layer begins at 0.86, the last one at 1.26, for 0.25 s. In order, the first
    layer's slice comes last, at 1.26, and both forward passes begin then.
    """
    network = Network(bandwidth=16 / 0.17, latency=0.01)
    for order, step, begins in (("priority", 1.51, 0.86), ("fifo", 1.76, 1.26)):
        algorithm = PriorityAllReduce(Rule(), 16.0, order, backward=1.0)
        rows = run(
            Cluster(2, network=network), algorithm, model([4, 16], [1.0, 1.0]), stop=Stop(updates=4)
        ).updates
        for worker in (0, 1):
            mine = {
                name: rows[name][rows["worker"] == worker]
                for name in ("started", "computed", "time")
            }
            np.testing.assert_allclose(np.diff(mine["started"])[1:], step, rtol=1e-12)
            np.testing.assert_allclose(
                (mine["computed"] - mine["started"])[1:], step - begins + 0.5, rtol=1e-12
            )
            np.testing.assert_allclose(mine["time"] - mine["computed"], 1.26 - 0.5, rtol=1e-12)


# -----------------------------------------------------------------------------------------------
# what priority is worth


@pytest.mark.parametrize("seed", range(5))
def test_priority_is_never_slower_than_order_also_for_uneven_nodes(seed):
    """The network is busy at the same times, until the last slice is summed; in order, that is the
    first layer's.
    """
    task, keys, network = case(seed)
    cluster = Cluster(
        2 ** (1 + seed % 2), Gamma(1.0, 0.7), [Factor(seed % 2, factor=3.0)], network=network
    )
    first, in_order = (
        moments(
            run(cluster, PriorityAllReduce(Rule(), order=order, **keys), task, stop=Stop(updates=5))
        )
        for order in ("priority", "fifo")
    )
    assert (first <= in_order * (1 + 1e-12)).all()


# -----------------------------------------------------------------------------------------------------------
# identities


UNEVEN = Gamma(1.0, 0.5), [Factor(0, factor=2.0), Factor(2, factor=3.0)]


@pytest.mark.parametrize("collective", [*COLLECTIVES, "hierarchical"])
def test_weights_are_those_of_all_reduce_bit_for_bit(collective):
    """Uneven nodes, the first and another one slow; single precision, slices of two parameters."""
    hosts = Hosts(2, bandwidth=900.0) if collective == "hierarchical" else None
    cluster = Cluster(4, *UNEVEN, network=Network(bandwidth=300.0, latency=0.01, hosts=hosts))
    task = Quadratic(dim=13, noise=1.0, condition=30.0, dtype=torch.float32)
    check_weights(cluster, task, 8.0, collective)


@pytest.mark.parametrize("order", ["priority", "fifo"])
def test_weights_are_the_same_where_messages_overtake_each_other(order, perceptron):
    """What names the slices too."""
    cluster = Cluster(3, *UNEVEN, network=Network(bandwidth=300.0, latency=Exponential(0.5)))
    check_weights(cluster, perceptron, 400.0, "ring", order)


def check_weights(cluster, task, c, collective, order="priority"):
    more = {"stop": Stop(updates=4), "evaluate": Evaluate(every_updates=4), "ensemble": 2}
    whole = run(cluster, AllReduce(Rule(Adam()), collective), task, **more)
    sliced = run(
        cluster, PriorityAllReduce(Rule(Adam()), c, order, collective=collective), task, **more
    )
    assert torch.equal(sliced.weights, whole.weights)
    assert (sliced.updates["staleness"] == 0).all()
    assert sliced.progress.time != whole.progress.time


@pytest.mark.parametrize("order", ["priority", "fifo"])
def test_on_a_free_network_a_step_takes_the_slowest_gradient(order):
    cluster = Cluster(5, Gamma(1.0, 0.5), [Factor(0, factor=2.0), Factor(3, factor=2.0)])
    more = {"task": Timing(depth=7), "stop": Stop(updates=12)}
    sliced, whole = (
        run(cluster, PriorityAllReduce(Rule(), order=order), **more),
        run(cluster, AllReduce(Rule()), **more),
    )
    for name in ("time", "started", "computed"):
        np.testing.assert_allclose(
            moments(sliced, name), moments(whole, name), rtol=1e-12, err_msg=name
        )


@pytest.mark.parametrize("collective", AT_ONCE)
def test_one_slice_of_one_layer_is_an_all_reduce_that_is_named_first(collective):
    """It takes the latency there and back more; alone, a node asks nobody."""
    network = Network(bandwidth=300.0, latency=0.01, message_bytes=50.0)
    for P, more in ((4, 0.02), (1, 0.0)):
        cluster, given = (
            Cluster(P, Constant(1.0), network=network),
            {"task": Timing(depth=1), "stop": Stop(updates=6)},
        )
        one = run(cluster, PriorityAllReduce(Rule(), None, collective=collective), **given)
        whole = moments(run(cluster, AllReduce(Rule(), collective), **given))
        np.testing.assert_allclose(moments(one), whole + more * np.arange(1, 7), rtol=1e-12)


# ---------------------------------------------------------------------------------------------- one
# order, at all nodes


def test_slices_are_summed_one_at_a_time_the_front_most_that_all_have_computed():
    """On a ring of three, of which the last is slow, layers of 1, 2 and 3 slices, which differ in
    size.

    What the nodes tell each other has no bytes. All have computed a layer once the slow node has
    said so.
    """
    sizes, P = [400.0, 600.0, 2000.0 / 3], 3
    network = Network(bandwidth=3e3, latency=0.01)
    cluster, algorithm = (
        Cluster(P, slowdowns=[Factor(2, factor=2.0)], network=network),
        PriorityAllReduce(Rule(), 700.0),
    )
    task, record = model([100, 300, 500], [1.0, 1.0, 1.0]), Record(messages=True)
    log = run(cluster, algorithm, task, stop=Stop(updates=4), record=record).message_log
    assert log["bytes"].sum() == pytest.approx(4 * 2 * (P - 1) * 3600.0)
    said = log["bytes"] == 0
    named, known = (
        np.unique(log["sent"][said & (log["sender"] == 0)]),
        log["arrived"][said & (log["sender"] == 2)],
    )
    assert (len(named), len(known)) == (4 * 6, 4 * 3)
    left = [0, 0, 0]
    for turn, (start, end) in enumerate(zip(named, [*named[1:], math.inf], strict=True)):
        left = [1, 2, 3] if turn % 6 == 0 else left
        mine = ~said & (log["sent"] >= start) & (log["sent"] < end)
        assert mine.sum() == 2 * (P - 1) * P
        assert (log["arrived"][mine] <= end).all()
        ready = [
            layer for layer in range(3) if left[layer] and known[turn // 6 * 3 + 2 - layer] <= start
        ]
        np.testing.assert_allclose(log["bytes"][mine], sizes[ready[0]] / P)
        left[ready[0]] -= 1


def test_a_stop_in_the_middle_of_a_pass_leaves_the_books_in_order():
    task, keys, network = case(5)
    for time in (0.3, 0.9, 1.7, 2.6):
        outcome = run(
            Cluster(4, Gamma(1.0, 0.5), network=network),
            PriorityAllReduce(Rule(), **keys),
            task,
            stop=Stop(time=time),
        )
        assert outcome.progress.time == time
        assert outcome.messages["sent"] == sum(
            outcome.messages[one] for one in ("delivered", "lost", "in flight")
        )


@pytest.mark.parametrize("at", [0.2, 1.4, 3.0])
@pytest.mark.parametrize("worker", [0, 1])
def test_a_node_that_crashed_is_missed_for_ever_and_nobody_goes_on_without_it(worker, at):
    cluster = Cluster(
        4,
        slowdowns=[Factor(3, factor=1.5), Crash(worker=worker, at=at, back=at + 0.01)],
        network=Network(bandwidth=40.0, latency=0.05),
    )
    outcome = run(
        cluster, PriorityAllReduce(Rule(), 8.0), Quadratic(dim=13, noise=1.0), stop=Stop(updates=12)
    )
    assert outcome.reached == "stalled"
    assert f"node {worker} is back and not readmitted" in outcome.stalled
    assert outcome.progress.updates <= at


def test_alone_a_node_that_returns_from_a_crash_goes_on():
    cluster = Cluster(1, slowdowns=[Crash(worker=0, at=2.5, back=4.0)])
    outcome = run(
        cluster, PriorityAllReduce(Rule(), 8.0), Quadratic(dim=13, noise=1.0), stop=Stop(updates=5)
    )
    assert outcome.reached == "updates"
    assert outcome.progress.time == pytest.approx(4.0 + 3)
