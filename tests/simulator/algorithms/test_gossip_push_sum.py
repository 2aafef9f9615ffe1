"""Stochastic gradient push: what push-sum conserves, the average it finds, its times, overlap and
bias.
"""

import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

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
from laggard.simulator.algorithms.push_sum import SGP
from laggard.simulator.network.mixing import matrix
from laggard.simulator.network.topology import Exponential as ExponentialGraph
from laggard.simulator.network.topology import Graph
from laggard.simulator.timing.distributions import Constant, Exponential
from laggard.simulator.timing.streams import BATCHES, stream

LR = 0.1
OVERLAPS = st.integers(0, 3)


def on(graph, workers, compute=None):
    network = Network(topology=graph, bandwidth=20.0, latency=0.05, message_bytes=8.0)
    return Cluster(workers=workers, compute=compute or Exponential(1.0), network=network)


@settings(max_examples=25, deadline=None)
@given(data=st.data(), time=st.floats(0.1, 25.0), overlap=OVERLAPS, biased=st.booleans())
def test_nodes_and_messages_hold_all_the_weight_and_all_the_models_whenever_it_stops(
    data, time, overlap, biased, gossip
):
    """sum w = P; sum x = P x_0 - lr (all gradients applied): on any strongly connected digraph."""
    graph, workers = data.draw(gossip.graphs(directed=True))
    algorithm = SGP(Rule(lr=LR), overlap=overlap, biased=biased)
    seen = gossip.observe(
        on(graph, workers, data.draw(gossip.laws)), algorithm, gossip.task(), Stop(time=time)
    )
    under_way = [message.content for message in seen.untaken()]
    assert seen.total("weight") + sum(w for _, w in under_way) == pytest.approx(workers, rel=1e-12)
    total = sum(seen.local(rank, "x") for rank in range(workers)) + sum(x for x, _ in under_way)
    steps = LR * sum((gradient.value for gradient in seen.applied), torch.zeros(1))
    torch.testing.assert_close(
        total, workers * gossip.task().start([0]) - steps, rtol=1e-12, atol=1e-12
    )


@settings(max_examples=15, deadline=None)
@given(data=st.data(), overlap=OVERLAPS)
def test_without_gradients_every_model_tends_to_the_average_of_the_starts(data, overlap, gossip):
    """Whatever the in-degrees: the nodes lie apart after a first step, and then there are no
    more.
    """
    graph, workers = data.draw(gossip.graphs(directed=True))
    second = sorted(abs(np.linalg.eigvals(matrix("uniform", graph, 0, workers))))[-2]
    exchanges = math.ceil(math.log(1e-12) / math.log(max(second, 0.5))) + 10
    assume(exchanges < 150)
    algorithm = SGP(Rule(lr=LR, schedule=gossip.once), overlap=overlap)
    stop = Stop(updates=exchanges * max(overlap, 1))
    seen = gossip.observe(
        on(graph, workers, data.draw(gossip.laws)), algorithm, gossip.task(), stop
    )
    average = sum(models[0] for models in seen.models.values()) / workers
    assert max((models[0] - average).norm() for models in seen.models.values()) > 1e-3
    for node in seen.nodes.values():
        torch.testing.assert_close(node.weights, average, rtol=0, atol=1e-7)


@pytest.mark.parametrize(
    ("P", "exact"), [(2, True), (4, True), (8, True), (16, True), (6, False), (12, False)]
)
def test_one_exponential_peer_averages_exactly_after_log2_p_exchanges_of_a_power_of_two(
    P, exact, gossip
):
    cluster = Cluster(workers=P, network=Network(topology=ExponentialGraph(peers=1)))
    algorithm = SGP(Rule(lr=LR, schedule=gossip.once))
    rounds = math.ceil(math.log2(P))
    outcome = simulate(
        cluster,
        algorithm,
        gossip.task(),
        stop=Stop(updates=rounds + 2),
        evaluate=Evaluate(every_updates=1),
    )
    consensus = outcome.metrics["consensus"]
    assert (outcome.nodes["weight"][: -P or None] == 1).all()
    assert (consensus[1:rounds] > 1e-3).all()
    assert (consensus[rounds] < 1e-15) == exact


def loop(task, W, steps, overlap, biased):
    """Push-sum over matrices, with plain SGD: all models x / w, or x, after each node's step,
    before the exchange.
    """
    P, start = len(W[0]), task.start([0])
    x, w = [start] * P, [1.0] * P
    batches = [task.batches(rank, [stream(0, BATCHES, rank)]) for rank in range(P)]
    stepped, under_way = [], None

    def model(i):
        return x[i] if biased else x[i] / w[i]

    def take():
        for i in range(P):
            x[i], w[i] = x[i] + under_way[i][0], w[i] + under_way[i][1]

    for step in range(steps):
        for i in range(P):
            gradient = task.gradients(model(i)[None], [next(batches[i])])[0][0]
            x[i] = x[i] - LR * gradient
        stepped.append([model(i) for i in range(P)])
        if overlap and under_way is not None:
            take()
        p = W[step % len(W)]
        under_way = [
            (
                sum(p[i, j] * x[j] for j in range(P) if j != i),
                sum(p[i, j] * w[j] for j in range(P) if j != i),
            )
            for i in range(P)
        ]
        x, w = [p[i, i] * x[i] for i in range(P)], [p[i, i] * w[i] for i in range(P)]
        if not overlap:
            take()
    return stepped


@settings(max_examples=25, deadline=None)
@given(data=st.data(), overlap=st.integers(0, 1), biased=st.booleans())
def test_every_nodes_model_is_that_of_a_loop_over_matrices(data, overlap, biased, gossip):
    """On digraphs and time-varying ones: with overlap 1 every exchange is the last step's, whatever
    the times.
    """
    graph, workers = data.draw(
        st.one_of(
            gossip.graphs(directed=True),
            st.tuples(
                st.sampled_from([ExponentialGraph(peers=1), ExponentialGraph(peers=2)]),
                st.integers(2, 7),
            ),
        )
    )
    W = [matrix("uniform", graph, step, workers) for step in range(graph.period(workers))]
    algorithm = SGP(Rule(lr=LR), overlap=overlap, biased=biased)
    seen = gossip.observe(
        on(graph, workers, data.draw(gossip.laws)), algorithm, gossip.task(), Stop(updates=8)
    ).models
    expected = loop(gossip.task(), W, 40, overlap, biased)
    assert sum(len(models) for models in seen.values()) == 8 * workers
    for rank, models in seen.items():
        for step, model in enumerate(models):
            torch.testing.assert_close(model, expected[step][rank], rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("peers", [1, 2])
@pytest.mark.parametrize("overlap", [0, 1, 2, 5])
@pytest.mark.parametrize("compute", [2.0, 0.3, 0.05])
def test_time_per_step(peers, overlap, compute):
    """t_c + alpha + d N beta to d peers; overlapped, t_c unless tau gradients take less than one
    exchange.
    """
    alpha, transfer, updates = 0.125, 0.25, 60
    network = Network(
        topology=ExponentialGraph(peers), bandwidth=8.0, latency=alpha, message_bytes=2.0
    )
    cluster = Cluster(workers=8, compute=Constant(compute), network=network)
    times = np.unique(
        simulate(cluster, SGP(Rule(), overlap=overlap), stop=Stop(updates=updates)).updates["time"]
    )
    exchange = alpha + peers * transfer
    if overlap == 0:
        np.testing.assert_allclose(
            times, compute + (compute + exchange) * np.arange(updates), rtol=1e-9
        )
    else:
        steps = np.arange(updates)
        # after every tau-th step since the first exchange was begun
        waits = np.maximum(steps - 1, 0) // overlap
        waited = waits * max(0.0, exchange - overlap * compute)
        np.testing.assert_allclose(times, compute * (steps + 1) + waited, rtol=1e-9)
    if overlap == 1:
        np.testing.assert_allclose(np.diff(times)[1:], max(compute, exchange), rtol=1e-9)


@pytest.mark.parametrize(("compute", "steps"), [(1.0, 1), (0.4, 1), (0.3, 2), (0.11, 4), (0.05, 5)])
def test_the_next_exchange_begins_as_soon_as_the_last_has_come(compute, steps, gossip):
    """Of 0.375 s: after the first gradient that ends later, which is looked for without waiting, or
    after the fifth.
    """
    network = Network(topology=ExponentialGraph(), bandwidth=8.0, latency=0.125, message_bytes=2.0)
    cluster = Cluster(workers=4, compute=Constant(compute), network=network)
    seen = gossip.observe(cluster, SGP(Rule(), overlap=5), Timing(), Stop(updates=24))
    assert len(seen.sent) == 4 * (1 + 23 // steps)


def test_ignoring_the_weight_matters_where_it_is_not_one(gossip):
    """In step on a regular graph w is 1: nothing changes. Overlapped, half of x is under way."""
    task, start = gossip.task(), gossip.task().start([0])

    def run(lr, overlap, biased):
        algorithm = SGP(Rule(lr=lr), overlap=overlap, biased=biased)
        return gossip.observe(on(ExponentialGraph(), 8), algorithm, task, Stop(updates=20))

    assert torch.equal(run(LR, 0, False).outcome.weights, run(LR, 0, True).outcome.weights)
    for biased, part in ((False, 1.0), (True, 0.5)):
        read = [
            gradient.weights
            for gradient in run(0.0, 1, biased).applied
            if gradient.version_read > 0
        ]
        assert len(read) > 100
        assert all(torch.equal(weights, part * start) for weights in read)


def test_a_share_of_one_is_no_share_to_go_on_with(tmp_path):
    """A directed ring on which everybody gives away all it has: models go round in step; overlapped
    it is refused.
    """
    file = tmp_path / "ring.edgelist"
    file.write_text("0 1 1.0\n1 2 1.0\n2 0 1.0\n")
    cluster = Cluster(workers=3, network=Network(topology=Graph(file=str(file), directed=True)))
    SGP(Rule(), mixing="weights").check(cluster)
    with pytest.raises(InvalidSettingError, match="a share of its own model"):
        SGP(Rule(), mixing="weights", overlap=1).check(cluster)
