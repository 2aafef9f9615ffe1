"""Workers that await no answer wait until their bytes have left: a slow card is not flooded."""

import warnings
from dataclasses import dataclass

import numpy as np
import pytest

from laggard.simulator import (
    ALGORITHMS,
    Cluster,
    Downpour,
    InvalidSettingError,
    KBatchSync,
    KSync,
    Network,
    Ringmaster,
    Rule,
    Stop,
    Timing,
    simulate,
)
from laggard.simulator.algorithms.base import Algorithm
from laggard.simulator.network.topology import SERVER
from laggard.simulator.recording.messages import Record
from laggard.simulator.timing.distributions import Constant, Gamma

SHARINGS = pytest.mark.parametrize("sharing", ["fair", "fifo"])


def run(workers, bandwidth, size, algorithm, updates, sharing="fair", compute=None, **more):
    network = Network(bandwidth=bandwidth, message_bytes=size, sharing=sharing)
    cluster = Cluster(workers, compute or Gamma(0.01, 0.2), network=network)
    return simulate(cluster, algorithm, stop=Stop(updates=updates), **more)


@SHARINGS
@pytest.mark.parametrize(
    ("workers", "bandwidth", "size", "algorithm", "updates", "gathered"),
    [
        (4, 1.0, 4.0, KBatchSync(Rule(), 2), 5, 2),
        (16, 1.25e7, 246824.0, KBatchSync(Rule(), 8), 60, 8),
        (16, 1.25e7, 246824.0, Downpour(Rule(), n_push=1, n_fetch=1000), 60, 1),
        (4, 1.0, 4.0, Downpour(Rule(), n_push=2, n_fetch=100, shards=3), 9, 1),
        (4, 1.0, 4.0, Ringmaster(Rule(), 1, cancel=True), 20, 1),
        (4, 1.0, 4.0, KSync(Rule(), wait_for=2, cancel=True, shards=2), 9, 2),
    ],
)
def test_update_time_is_that_of_saturated_card(
    workers, bandwidth, size, algorithm, updates, gathered, sharing
):
    """K gradients of N bytes pass the server's card, or its shards' cards."""
    outcome = run(workers, bandwidth, size, algorithm, updates, sharing)
    per_update = gathered * size / bandwidth / getattr(algorithm, "shards", 1)
    assert outcome.progress.time >= updates * per_update * (1 - 1e-9)
    assert outcome.messages["in flight"] <= 3 * workers * getattr(algorithm, "shards", 1)


@SHARINGS
@pytest.mark.parametrize("outstanding", [1, 3])
@pytest.mark.parametrize("seconds", [0.001, 0.1])
def test_server_takes_in_what_card_carries(seconds, outstanding, sharing):
    """min(P / t_c, 1 / (N beta)) gradients a second."""
    P, t_c = 8, 0.05
    algorithm = Downpour(Rule(), n_push=1, n_fetch=10**5, outstanding=outstanding)
    record = Record(messages=True)
    outcome = run(P, 100.0 / seconds, 100.0, algorithm, 400, sharing, Constant(t_c), record=record)
    log = outcome.message_log
    arrived = np.sort(log["arrived"][(log["receiver"] == SERVER) & (log["bytes"] > 0)])[200:400]
    rate = (len(arrived) - P) / (arrived[-1] - arrived[P - 1])
    assert rate == pytest.approx(min(P / t_c, 1 / seconds), rel=0.05)


@pytest.mark.parametrize(
    "keys",
    [{"gradients": 3}, {"n_push": 1, "n_fetch": 7}, {"n_push": 2, "n_fetch": 3, "shards": 3}],
)
def test_outstanding_changes_nothing_on_free_network(keys):
    method = KBatchSync if "gradients" in keys else Downpour
    once, often = (
        run(4, np.inf, 100.0, method(Rule(), outstanding=outstanding, **keys), 40)
        for outstanding in (1, 100_000)
    )
    for name, column in once.updates.items():
        np.testing.assert_array_equal(column, often.updates[name], err_msg=name)


OTHERS = [pytest.param(rate, marks=pytest.mark.slow) for rate in (1e-4, 1e-2, 0.1, 10.0, 100.0)]


@SHARINGS
@pytest.mark.parametrize("bandwidth", [1e-3, 1.0, *OTHERS])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_method_updates_on_any_network(name, bandwidth, sharing):
    """A run of a few updates ends, or the method does not fit the cluster."""
    network = Network(bandwidth=bandwidth, latency=0.01, message_bytes=1.0, sharing=sharing)
    workers = 1 if name.startswith("delayed") else 4
    cluster = Cluster(workers, Gamma(1.0, 0.5), network=network)
    keys = {"n_fetch": 100} if name == "downpour" else {}
    algorithm = ALGORITHMS[name](Rule(), **keys)
    try:
        algorithm.check_cluster(cluster)
    except InvalidSettingError:
        return
    task = Timing(depth=8, activations=1.0)
    assert simulate(cluster, algorithm, task, stop=Stop(updates=3)).progress.updates >= 3


@dataclass(frozen=True)
class Flooding(Algorithm):
    """A worker sends on and on; the server updates at the first gradients."""

    rule: Rule

    def worker(self, node):
        while True:
            gradient = yield node.compute(node.weights)
            node.send(SERVER, gradient)

    def server(self, node):
        while True:
            _, gradient = yield node.receive()
            node.apply(node.weights, [gradient])


@SHARINGS
def test_growing_queue_is_reported_with_key(sharing):
    network = Network(bandwidth=50.0, message_bytes=1.0, sharing=sharing)
    cluster = Cluster(4, Constant(0.01), network=network)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        simulate(cluster, Flooding(Rule()), stop=Stop(time=5.0))
    (line,) = [str(one.message) for one in told]
    assert line.startswith("cluster.network.bandwidth: ")
    assert "algorithm.outstanding" in line
    assert "\n" not in line


@pytest.mark.parametrize("name", ["all_reduce", "sgp", "async_ps", "gpipe"])
def test_growing_queue_is_not_reported_where_workers_wait(name):
    network = Network(bandwidth=5.0, message_bytes=1.0)
    algorithm = ALGORITHMS[name](Rule())
    task = Timing(depth=8, activations=1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        simulate(Cluster(4, network=network), algorithm, task, stop=Stop(updates=300))
