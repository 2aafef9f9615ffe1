"""AD-PSGD: what a pair's average conserves, who asks whom, its speed, and neighbours that are
down.
"""

import math

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from laggard.simulator import (
    Cluster,
    Delayed,
    InvalidSettingError,
    Network,
    Rule,
    Star,
    Stop,
    Timing,
    simulate,
)
from laggard.simulator.algorithms.gossip import ADPSGD, ANSWER, ASK, OverlapADPSGD
from laggard.simulator.learning.rules import SGD
from laggard.simulator.network.topology import Complete, Graph, Ring, Torus, asked_by
from laggard.simulator.network.topology import Exponential as ExponentialGraph
from laggard.simulator.timing.distributions import Constant, Exponential
from laggard.simulator.timing.slowdowns import Crash, Factor

LR = 0.1
PAIRWISE = pytest.mark.parametrize("method", [ADPSGD, OverlapADPSGD])


def on(graph, workers, compute=None, **more):
    network = Network(topology=graph, bandwidth=20.0, latency=0.05, message_bytes=8.0)
    return Cluster(workers=workers, compute=compute or Exponential(1.0), network=network, **more)


@PAIRWISE
@settings(max_examples=25, deadline=None)
@given(data=st.data(), time=st.floats(0.1, 25.0))
def test_the_sum_of_the_models_changes_by_gradients_alone(method, data, time, gossip):
    """Where an answer is under way, the passive node has gone its half of the way, and the active
    one is to go.
    """
    graph, workers = data.draw(
        st.one_of(gossip.graphs(), st.tuples(st.just(Complete()), st.integers(2, 7)))
    )
    assume(_asked(graph, workers))
    cluster = on(graph, workers, data.draw(gossip.laws))
    seen = gossip.observe(cluster, method(Rule(lr=LR)), gossip.task(), Stop(time=time))
    last_asked = {
        message.sender.rank: message.content for message in seen.sent if message.tag == ASK
    }
    answers = [message for message in seen.untaken() if message.tag == ANSWER]
    to_go = sum((answer.content - last_asked[answer.receiver.rank]) / 2 for answer in answers)
    steps = LR * sum((gradient.value for gradient in seen.applied), torch.zeros(1))
    start = workers * gossip.task().start([0])
    torch.testing.assert_close(seen.total() + to_go, start - steps, rtol=1e-12, atol=1e-12)


def _asked(graph, workers):
    try:
        return asked_by(graph, workers)
    except InvalidSettingError:
        return None


def test_two_nodes_without_gradients_have_one_average_after_one_exchange(gossip):
    algorithm = ADPSGD(Rule(lr=LR, schedule=gossip.once))
    seen = gossip.observe(on(Ring(), 2, Constant(1.0)), algorithm, gossip.task(), Stop(time=3.9))
    first, second = (seen.models[rank][0] for rank in range(2))
    apart = (first - second).norm()
    assert apart > 1e-3
    assert (seen.nodes[0].weights - seen.nodes[1].weights).norm() < 1e-14 * apart


@pytest.mark.parametrize(
    ("graph", "workers", "asked"),
    [
        (Ring(), 6, [(1, 5), (), (1, 3), (), (3, 5), ()]),
        (Ring(), 5, [(1,), (), (1, 3), (), (3,)]),
        (Complete(), 4, [(1, 3), (), (1, 3), ()]),
        (Torus(rows=2), 4, [(1, 2), (), (), (1, 2)]),
        (Graph("star_graph", {"n": 3}), 4, [(1, 2, 3), (), (), ()]),
        (Complete(), 1, [()]),
        (Complete(), 2, [(1,), ()]),
    ],
    ids=str,
)
def test_one_half_asks_the_other(graph, workers, asked):
    """By the two colours where there are two, else even ranks ask odd ones."""
    assert asked_by(graph, workers) == tuple(asked)


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_the_halves_of_any_graph_are_neighbours_and_no_passive_node_asks(data, gossip):
    graph, workers = data.draw(gossip.graphs())
    asked = _asked(graph, workers)
    active = {rank for rank in range(workers) if asked and asked[rank]}
    if nx.is_bipartite(graph.graph):
        assert sorted(
            edge for rank in active for edge in ((rank, peer) for peer in asked[rank])
        ) == sorted(edge if edge[0] in active else edge[::-1] for edge in graph.graph.edges)
    elif asked:
        used = nx.Graph((rank, peer) for rank in active for peer in asked[rank])
        assert nx.is_connected(used)
        assert len(used) == workers
        assert all(rank % 2 == 0 and peer % 2 == 1 for rank in active for peer in asked[rank])


@PAIRWISE
def test_it_learns_by_no_stale_gradient_and_counts_its_mixings(method, gossip):
    """The active node averages once between read and step, the passive one as often as it is asked
    meanwhile.
    """
    seen = gossip.observe(on(Ring(), 6), method(Rule(lr=LR)), gossip.task(), Stop(updates=200))
    rows = seen.outcome.updates
    assert (rows["staleness"] == 0).all()
    active = rows["worker"] % 2 == 0
    assert (rows["mixings"][active] == 1).all()
    asks = sum(message.tag == ASK for message in seen.sent)
    assert asks - 6 <= rows["mixings"][~active].sum() <= asks


def test_a_neighbour_is_any_of_them_alike(gossip):
    cluster = Cluster(8, network=Network(topology=Complete()))
    seen = gossip.observe(cluster, ADPSGD(Rule()), Timing(), Stop(updates=1000))
    asks = np.array(
        [
            (message.sender.rank, message.receiver.rank)
            for message in seen.sent
            if message.tag == ASK
        ]
    )
    for active in (0, 2, 4, 6):
        counts = np.bincount(asks[asks[:, 0] == active, 1], minlength=8)[1::2]
        expected, error = counts.sum() / 4, math.sqrt(counts.sum() * 3 / 16)
        assert (abs(counts - expected) < 5 * error).all()


@PAIRWISE
def test_a_slow_node_holds_up_nobody(method):
    """P - 1 + 1/s times the gradients of one worker."""
    P, s = 16, 10.0
    for slow in (0, 1):  # an active one, and a passive one
        cluster = Cluster(
            workers=P, compute=Constant(1.0), slowdowns=[Factor(worker=slow, factor=s)]
        )
        progress = simulate(cluster, method(Rule()), stop=Stop(time=200.0)).progress
        assert progress.gradients / progress.time == pytest.approx(P - 1 + 1 / s, rel=1e-9)


def test_an_active_step_takes_two_messages_longer_than_a_passive_one():
    compute, alpha, transfer = 1.0, 0.125, 0.25
    network = Network(topology=Ring(), bandwidth=8.0, latency=alpha, message_bytes=2.0)
    rows = simulate(
        Cluster(2, Constant(compute), network=network), ADPSGD(Rule()), stop=Stop(updates=50)
    ).updates
    for rank, period in ((0, compute + 2 * (alpha + transfer)), (1, compute)):
        times = rows["time"][rows["worker"] == rank]
        np.testing.assert_allclose(times, period * np.arange(1, len(times) + 1), rtol=1e-9)


@pytest.mark.parametrize("compute", [1.0, 0.5])
def test_overlapped_the_longer_of_gradient_and_two_messages_counts(compute):
    alpha, transfer = 0.125, 0.25
    network = Network(topology=Ring(), bandwidth=8.0, latency=alpha, message_bytes=2.0)
    cluster = Cluster(2, Constant(compute), network=network)
    rows = simulate(cluster, OverlapADPSGD(Rule()), stop=Stop(updates=50)).updates
    for rank, period in ((0, max(compute, 2 * (alpha + transfer))), (1, compute)):
        times = rows["time"][rows["worker"] == rank]
        np.testing.assert_allclose(times, period * np.arange(1, len(times) + 1), rtol=1e-9)


def test_overlapped_the_gradient_is_that_of_the_model_before_the_average(gossip):
    """Two nodes, the second step of each: x_i <- (x_0 + x_1) / 2 - lr g_i(x_i)."""
    cluster = on(Ring(), 2, Constant(2.0))
    seen = gossip.observe(cluster, OverlapADPSGD(Rule(lr=LR)), gossip.task(), Stop(time=4.1))
    before = [seen.models[rank][0] for rank in (0, 1)]
    assert (before[0] - before[1]).norm() > 1e-3
    for gradient in seen.applied[2:]:
        assert torch.equal(gradient.weights, before[gradient.worker])
        expected = sum(before) / 2 - LR * gradient.value
        torch.testing.assert_close(seen.models[gradient.worker][1], expected, rtol=0, atol=1e-15)


@PAIRWISE
def test_a_single_node_is_plain_sgd(method, quadratic):
    cluster, rule = Cluster(workers=1, compute=Exponential(1.0)), Rule(SGD(momentum=0.9), lr=LR)
    runs = [
        simulate(cluster, each(rule), quadratic, stop=Stop(updates=30))
        for each in (method, Delayed)
    ]
    assert torch.equal(runs[0].weights, runs[1].weights)


@PAIRWISE
@pytest.mark.parametrize("down", [(1,), (1, 3), (1, 3, 5), (0, 4)])
def test_where_neighbours_are_down_others_are_asked_or_nobody(down, method, gossip):
    """Everybody who is up goes on: an active node at 1 s and two messages of 0.45 s a step at the
    most.
    """
    crashes = [Crash(worker=rank, at=10.3) for rank in down]
    cluster = on(Ring(), 6, Constant(1.0), slowdowns=crashes)
    seen = gossip.observe(cluster, method(Rule(lr=LR)), gossip.task(), Stop(time=60.0))
    assert seen.outcome.reached == "time"
    for rank in set(range(6)) - set(down):
        crowded = 1 + 4 * 0.45  # where two ask one at a time, they share its card
        assert len(seen.models[rank]) >= 60 / crowded
    lost_asks = sum(message.tag == ASK and message.receiver.rank in down for message in seen.sent)
    assert (lost_asks > 0) == bool(set(down) & {1, 3, 5})
    sent, *ends = seen.outcome.messages.values()
    assert sum(ends) == sent


@pytest.mark.parametrize("crashed", [0, 1])
def test_a_node_that_returns_averages_again(crashed, gossip):
    cluster = on(Ring(), 2, Constant(1.0), slowdowns=[Crash(worker=crashed, at=10.3, back=20.0)])
    seen = gossip.observe(cluster, ADPSGD(Rule(lr=LR)), gossip.task(), Stop(time=60.0))
    rows = seen.outcome.updates
    applied, time = rows["status"] == "applied", rows["time"]
    alone = applied & (time > 13) & (time < 20)
    assert alone.sum() >= 6
    assert set(rows["worker"][alone]) == {1 - crashed}
    assert set(rows["mixings"][alone]) == {0}
    assert set(rows["mixings"][applied & (time > 25) & (rows["worker"] == 0)]) == {1}


@pytest.mark.parametrize(
    ("graph", "workers"),
    [(ExponentialGraph(), 8), (Graph("cycle_graph", {"n": 4}, directed=True), 4), (Star(), 4)],
)
def test_a_graph_on_which_nobody_can_answer_is_refused(graph, workers):
    with pytest.raises(InvalidSettingError, match="topology"):
        ADPSGD(Rule()).check(on(graph, workers))


def test_a_graph_that_falls_apart_by_parity_is_refused(gossip):
    triangle = gossip.drawn(nx.Graph([(0, 2), (2, 4), (4, 0), (4, 1), (1, 3)]))
    with pytest.raises(InvalidSettingError, match="even ranks ask odd ones"):
        ADPSGD(Rule()).check(on(triangle, 5))
