"""Stochastic gradient push: its models, and the times of overlapped exchanges."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from laggard.simulator import (
    Cluster,
    InvalidSettingError,
    Network,
    Rule,
    Stop,
    Timing,
    simulate,
)
from laggard.simulator.algorithms.push_sum import SGP, OverlapSGP
from laggard.simulator.network.mixing import matrix
from laggard.simulator.network.topology import Exponential as ExponentialGraph
from laggard.simulator.network.topology import Graph
from laggard.simulator.timing.distributions import Constant, Exponential
from tests.simulator.algorithms.observing import LAWS, Observed, graphs, noisy
from tests.theory.gossiping import push_sum

LR = 0.1


def on(graph, workers, compute=None):
    network = Network(topology=graph, bandwidth=20.0, latency=0.05, message_bytes=8.0)
    return Cluster(workers=workers, compute=compute or Exponential(1.0), network=network)


@settings(max_examples=25, deadline=None)
@given(data=st.data(), overlap=st.integers(0, 1), biased=st.booleans())
def test_models_equal_loop_over_matrices(data, overlap, biased):
    """Topologies are digraphs and time-varying. With overlap 1 every exchange is that of the last
    step.
    """
    peers = st.sampled_from([ExponentialGraph(peers=1), ExponentialGraph(peers=2)])
    varying = st.tuples(peers, st.integers(2, 7))
    graph, workers = data.draw(graphs(directed=True) | varying)
    W = [matrix("uniform", graph, step, workers) for step in range(graph.period(workers))]
    algorithm = SGP(Rule(lr=LR), overlap=overlap, biased=biased)
    cluster = on(graph, workers, data.draw(LAWS))
    models = Observed(cluster, algorithm, noisy(), Stop(updates=8)).models
    expected, _ = push_sum(noisy(), W, 40, lr=LR, late=overlap, biased=biased)
    assert sum(map(len, models.values())) == 8 * workers
    for rank, steps in models.items():
        for step, model in enumerate(steps):
            torch.testing.assert_close(model[0], expected[step][rank], rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("overlap", [2, 5])
@pytest.mark.parametrize("compute", [2.0, 0.3, 0.05])
def test_overlapped_steps_wait_only_for_late_exchanges(overlap, compute):
    """A step takes t_c, unless tau gradients take less than one exchange of alpha + N beta."""
    alpha, transfer, steps = 0.125, 0.25, np.arange(60)
    network = Network(topology=ExponentialGraph(), bandwidth=8.0, latency=alpha, message_bytes=2.0)
    cluster, algorithm = (
        Cluster(8, Constant(compute), network=network),
        SGP(Rule(), overlap=overlap),
    )
    rows = simulate(cluster, algorithm, stop=Stop(updates=len(steps))).updates
    # after every tau-th step since the first exchange was begun
    waits = np.maximum(steps - 1, 0) // overlap
    waited = waits * max(0.0, alpha + transfer - overlap * compute)
    np.testing.assert_allclose(np.unique(rows["time"]), compute * (steps + 1) + waited, rtol=1e-9)


@pytest.mark.parametrize(("compute", "steps"), [(1.0, 1), (0.4, 1), (0.3, 2), (0.11, 4), (0.05, 5)])
def test_next_exchange_begins_when_last_has_come(compute, steps):
    """An exchange takes 0.375 s. The next begins after the first gradient that ends later, or
    after the fifth.
    """
    network = Network(topology=ExponentialGraph(), bandwidth=8.0, latency=0.125, message_bytes=2.0)
    cluster = Cluster(workers=4, compute=Constant(compute), network=network)
    seen = Observed(cluster, SGP(Rule(), overlap=5), Timing(), Stop(updates=24))
    assert len(seen.sent) == 4 * (1 + 23 // steps)


@pytest.mark.parametrize(
    ("method", "in_step", "overlapped"),
    [(SGP, {}, {"overlap": 1}), (OverlapSGP, {"overlap": 0, "local_steps": 3}, {"overlap": 1})],
)
def test_node_that_keeps_nothing_cannot_overlap(method, in_step, overlapped, tmp_path):
    """Synchronous gossip works on a directed ring whose nodes send all their weight; overlapped
    gossip is refused.
    """
    file = tmp_path / "ring.edgelist"
    file.write_text("0 1 1.0\n1 2 1.0\n2 0 1.0\n")
    cluster = Cluster(workers=3, network=Network(topology=Graph(file=str(file), directed=True)))
    method(Rule(), mixing="weights", **in_step).check(cluster)
    with pytest.raises(InvalidSettingError, match=f"{method.__name__}.mixing"):
        method(Rule(), mixing="weights", **overlapped).check(cluster)
