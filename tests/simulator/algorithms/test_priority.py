"""P3: what a step takes, by a recursion of its own; that priority costs nothing; and that weights
are sync_ps's.
"""

import math

import numpy as np
import pytest
import torch

from laggard.experiments.theory.communication import OVERLAP_SECONDS
from laggard.models import Quadratic
from laggard.models.layers import Layer
from laggard.simulator import P3, Cluster, Evaluate, Network, Record, Rule, Stop, SyncPS, Timing
from laggard.simulator import simulate as run
from laggard.simulator.algorithms.slicing import MOST_SLICES, slice_layers
from laggard.simulator.learning.rules import Adam
from laggard.simulator.network.topology import SERVER
from laggard.simulator.timing.distributions import Constant, Gamma
from laggard.simulator.timing.slowdowns import Crash, Factor

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


def seconds(algorithm, task, bandwidth, latency=0.0, P=4, updates=4, **more):
    """What each step takes from its second on, with t_c = 1 s; the first begins when the whole
    model has come.
    """
    cluster = Cluster(
        P, Constant(1.0), network=Network(bandwidth=bandwidth, latency=latency), **more
    )
    return np.diff(
        np.unique(run(cluster, algorithm, task, stop=Stop(updates=updates)).updates["started"])
    )[1:]


def case(seed):
    """A random model, settings and cluster: task, keys of P3, arguments of `seconds`."""
    rng = np.random.default_rng(seed)
    depth, P = int(rng.integers(1, 9)), int(rng.integers(1, 7))
    shards = int(rng.integers(1, P + 1))
    sizes, works = np.ceil(10 ** rng.uniform(2, 5, depth)), rng.dirichlet(np.ones(depth))
    N, load = 4 * sizes.sum(), 10 ** rng.uniform(-1.5, 1.0)  # of a server's card, in mini-batches
    keys = {
        "shards": shards,
        "slice_bytes": N / rng.uniform(1, 60),
        "backward": rng.uniform(0.3, 4),
    }
    cluster = {
        "bandwidth": N / load * P / shards,
        "latency": float(rng.choice([0.0, 1e-3, 0.02])),
        "P": P,
    }
    return model(sizes, works), keys, cluster


@pytest.mark.parametrize("order", ["priority", "fifo"])
@pytest.mark.parametrize("seed", range(12))
def test_a_step_takes_the_recursion(seed, order):
    task, keys, cluster = case(seed)
    algorithm = P3(Rule(), order=order, **keys)
    network = Network(bandwidth=cluster["bandwidth"], latency=cluster["latency"])
    N = 4 * sum(layer.params for layer in task.layers())
    step = OVERLAP_SECONDS(
        algorithm, Cluster(cluster["P"], Constant(1.0), network=network), task.layers(), N
    )
    np.testing.assert_allclose(seconds(algorithm, task, **cluster), step, rtol=1e-9)


def test_two_layers_by_hand():
    """Each pass of a layer takes 1/4 s, a slice 0.2 s either way; the last layer has four of them,
    the first has one.

    The last layer's gradient is there at 0.25, the first's at 0.5. By priority, the last layer's
    slices come at 0.45, 0.65, 1.05 and 1.25, and the first layer's, which waits for the one on its
    way, at 0.85. Answered 0.2 s later, the first layer begins at 1.05 and ends at 1.3, and the last
    one begins at 1.45. In order, the first layer begins then.
    """
    task = model([4, 16], [1.0, 1.0])
    cluster = Cluster(1, Constant(1.0), network=Network(bandwidth=80.0))
    for order, step, begins in (("priority", 1.7, 1.05), ("fifo", 1.95, 1.45)):
        rows = run(
            cluster, P3(Rule(), 16.0, order, backward=1.0), task, stop=Stop(updates=4)
        ).updates
        np.testing.assert_allclose(np.diff(rows["started"])[1:], step, rtol=1e-12)
        np.testing.assert_allclose(
            (rows["computed"] - rows["started"])[1:], step - begins + 0.5, rtol=1e-12
        )


# -----------------------------------------------------------------------------------------------
# what priority is worth


@pytest.mark.parametrize("seed", range(12))
def test_with_equal_slices_priority_is_never_slower(seed):
    """Up and down, the streams are busy at the same times in any order: the last slice is answered
    at one moment.

    In order, that one is the first layer's, for which all others wait; by priority, no layer waits
    for longer.
    """
    rng = np.random.default_rng(seed)
    slices = 2 ** rng.integers(0, 5, int(rng.integers(2, 9)))
    task = model(64 * slices, rng.dirichlet(np.ones(len(slices))))
    cluster = {
        "bandwidth": 4 * 64 * 4 * slices.sum() / 10 ** rng.uniform(-1, 0.7),
        "latency": float(rng.choice([0, 0.01])),
    }
    first, in_order = (
        seconds(P3(Rule(), 256.0, order), task, **cluster) for order in ("priority", "fifo")
    )
    assert (first <= in_order * (1 + 1e-12)).all()


@pytest.mark.parametrize("seed", range(12))
def test_with_any_slices_it_loses_no_more_than_the_largest_takes(seed):
    """A server answers the last slice at most so much later than it comes, whichever it is."""
    task, keys, cluster = case(seed)
    first, in_order = (
        seconds(P3(Rule(), order=order, **keys), task, **cluster) for order in ("priority", "fifo")
    )
    sizes = [4 * layer.params for layer in task.layers() if layer.params]
    ways = [cluster["P"] / keys["shards"] / cluster["bandwidth"] * size / math.ceil(size / keys["slice_bytes"])
            for size in sizes]  # fmt: skip
    assert (first <= in_order + max(ways) - ways[0] + 1e-9).all()


def test_priority_hides_what_order_does_not():
    """A large last layer, whose gradient is there at once and needed last: in order, the first
    layer waits for it.

    Each of 100 slices takes 0.009 s. At 2/3 the first layer's ten are there; the one on its way
    ends at 0.675.
    """
    task = model([100, 900], [1.0, 1e-9])
    first, in_order = (
        seconds(P3(Rule(), 40.0, order), task, 4 * 4000 / 0.9) for order in ("priority", "fifo")
    )
    np.testing.assert_allclose(first, 0.675 + 11 * 0.009 + 1 / 3, rtol=1e-6)
    np.testing.assert_allclose(in_order, 0.9 + 0.009 + 1 / 3, rtol=1e-6)


# -----------------------------------------------------------------------------------------------------------
# identities


@pytest.mark.parametrize("order", ["priority", "fifo"])
def test_on_a_free_network_a_step_takes_its_gradient(order):
    for seed in range(5):
        task, keys, cluster = case(seed)
        free = {**cluster, "bandwidth": math.inf, "latency": 0.0}
        np.testing.assert_allclose(
            seconds(P3(Rule(), order=order, **keys), task, **free), 1.0, rtol=1e-12
        )


@pytest.mark.parametrize("sharing", ["fair", "fifo"])
@pytest.mark.parametrize("shards", [1, 3])
def test_one_slice_of_one_layer_is_a_synchronous_server(shards, sharing):
    network = Network(bandwidth=300.0, latency=0.01, sharing=sharing, message_bytes=50.0)
    cluster = Cluster(
        5, Gamma(1.0, 0.5), [Factor(1, factor=2.0)], network=network, apply_seconds=0.02
    )
    task, more = Timing(depth=1), {"stop": Stop(updates=12)}
    one = run(cluster, P3(Rule(), None, shards=shards), task, **more)
    whole = run(cluster, SyncPS(Rule(), shards=shards), task, **more)
    for name in ("worker", "target", "version_read", "staleness", "status"):
        np.testing.assert_array_equal(one.updates[name], whole.updates[name], err_msg=name)
    for name in ("time", "started", "computed"):
        np.testing.assert_allclose(one.updates[name], whole.updates[name], rtol=1e-12, err_msg=name)
    for name in one.workers:
        np.testing.assert_allclose(
            one.workers[name], whole.workers[name], rtol=1e-12, atol=1e-12, err_msg=name
        )
    assert one.messages == whole.messages


@pytest.mark.parametrize("seed", range(5))
def test_whole_layers_in_order_are_buckets_of_a_layer(seed):
    """Without latency: a bucket's answer leaves a server before the one before it has arrived."""
    task, keys, cluster = case(seed)
    keys, cluster = {**keys, "slice_bytes": None}, {**cluster, "latency": 0.0}
    took = seconds(P3(Rule(), order="fifo", **keys), task, **cluster)
    del keys["slice_bytes"]
    np.testing.assert_allclose(
        took, seconds(SyncPS(Rule(), bucket_bytes=1e-9, **keys), task, **cluster), rtol=1e-9
    )


@pytest.mark.parametrize("order", ["priority", "fifo"])
@pytest.mark.parametrize("shards", [1, 2])
def test_weights_are_those_of_a_synchronous_server_bit_for_bit(shards, order, perceptron):
    """Uneven workers on a slow network, single precision, layers and slices of a few parameters."""
    cluster = Cluster(
        4, Gamma(1.0, 0.5), [Factor(1, factor=2.0)], network=Network(bandwidth=300.0, latency=0.01)
    )
    single = Quadratic(dim=13, noise=1.0, condition=30.0, dtype=torch.float32)
    for task in (single, perceptron):
        more = {"stop": Stop(updates=8), "evaluate": Evaluate(every_updates=8), "ensemble": 2}
        whole = run(cluster, SyncPS(Rule(Adam()), shards=shards), task, **more)
        for c in (8.0, None):
            sliced = run(cluster, P3(Rule(Adam()), c, order, shards=shards), task, **more)
            assert torch.equal(sliced.weights, whole.weights)
            assert (sliced.updates["staleness"] == 0).all()
            assert sliced.progress.time != whole.progress.time


def test_a_server_updates_a_slice_as_soon_as_it_is_there():
    """On a free network only the first layer's share of an update's cost comes after the
    gradient.
    """
    took = seconds(P3(Rule()), Timing(depth=12), math.inf, apply_seconds=0.12)
    np.testing.assert_allclose(took, 1.0 + 0.12 / 12, rtol=1e-9)


def test_the_bytes_are_those_of_the_whole_gradient_one_slice_at_a_time():
    """Six slices a step; none is sent before the last of the same node has arrived at all that it
    was sent to.
    """
    task, P = model([100, 300, 500], [1.0, 1.0, 1.0]), 3
    cluster = Cluster(P, Gamma(1.0, 0.5), network=Network(bandwidth=3e3, latency=0.01))
    log = run(
        cluster, P3(Rule(), 700.0), task, stop=Stop(updates=4), record=Record(messages=True)
    ).message_log
    parts = (log["bytes"] > 0) & (log["bytes"] < 3600)  # neither announcements nor the whole model
    for sender, receivers in ((0, 1), (1, 1), (SERVER, P)):
        sent, arrived, size = (
            log[name][(log["sender"] == sender) & parts] for name in ("sent", "arrived", "bytes")
        )
        assert size[: 6 * receivers].sum() == pytest.approx(3600.0 * receivers)
        assert size.max() <= 700.0
        times = np.unique(sent)
        last = [arrived[sent == time].max() for time in times]
        assert len(times) >= 18
        assert all(later >= before for before, later in zip(last, times[1:], strict=False))


def test_a_stop_in_the_middle_of_a_pass_leaves_the_books_in_order():
    task, keys, cluster = case(3)
    network = Network(bandwidth=cluster["bandwidth"], latency=cluster["latency"])
    for time in (0.3, 0.9, 1.7, 2.6):
        outcome = run(
            Cluster(cluster["P"], Gamma(1.0, 0.5), network=network),
            P3(Rule(), **keys),
            task,
            stop=Stop(time=time),
        )
        assert outcome.progress.time == time
        assert outcome.messages["sent"] == sum(
            outcome.messages[one] for one in ("delivered", "lost", "in flight")
        )


@pytest.mark.parametrize("at", [0.2, 0.9, 1.4, 3.0])
def test_a_worker_that_crashed_is_missed_for_ever_and_nobody_goes_on_without_it(at):
    network = Network(bandwidth=40.0, latency=0.05)
    cluster = Cluster(
        4,
        slowdowns=[Factor(3, factor=1.5), Crash(worker=1, at=at, back=at + 0.01)],
        network=network,
    )
    task = Quadratic(dim=13, noise=1.0)
    outcome = run(cluster, P3(Rule(), 8.0), task, stop=Stop(updates=12))
    assert outcome.reached == "stalled"
    assert "node 1 is back and not readmitted" in outcome.stalled
    assert outcome.progress.updates <= at
    assert outcome.gradients["applied"] == 4 * outcome.progress.updates


# ---------------------------------------------------------------------------------------------------
# how layers are cut


def test_layers_with_parameters_are_cut_into_equal_slices():
    layers = [
        Layer("conv", 100, 0.0, 6.0),
        Layer("relu", 0, 0.0, 1.0),
        Layer("linear", 900, 0.0, 3.0),
    ]
    first, last = slice_layers(layers, 0, 4000.0, 1200.0, backward=1.0)
    assert (first.number, first.slices, first.size) == (0, 1, 0.1)
    assert (last.number, last.slices, last.size) == (1, 3, pytest.approx(0.3))
    assert (first.forward, first.backward) == pytest.approx((0.35, 0.35))
    assert (last.forward, last.backward) == pytest.approx((0.15, 0.15))
    assert [layer.slices for layer in slice_layers(layers, 0, 4000.0, None, 1.0)] == [1, 1]
    assert [layer.slices for layer in slice_layers(layers, 0, 4000.0, 400.0, 1.0)] == [1, 9]
    assert [layer.slices for layer in slice_layers(layers, 0, 4000.0, 1e-9, 1.0)] == [
        MOST_SLICES,
        MOST_SLICES,
    ]
    assert [layer.slices for layer in slice_layers(layers, 0, 0.0, 400.0, 1.0)] == [1, 1]
