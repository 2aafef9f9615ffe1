"""AD-PSGD: what a pair's average conserves, who asks whom, its speed, and neighbours that are
down.
"""

import math

import networkx as nx
import numpy as np
import pytest
import torch

from laggard.simulator import (
    Cluster,
    InvalidSettingError,
    Network,
    Rule,
    Stop,
    Timing,
)
from laggard.simulator.algorithms.gossip import ADPSGD, ASK, OverlapADPSGD
from laggard.simulator.network.topology import Complete, Graph, Ring, Torus, asked_by
from laggard.simulator.timing.distributions import Constant, Exponential
from laggard.simulator.timing.slowdowns import Crash
from tests.simulator.algorithms.observing import Drawn, Observed, noisy

LR = 0.1
PAIRWISE = pytest.mark.parametrize("method", [ADPSGD, OverlapADPSGD])


def on(graph, workers, compute=None, **more):
    network = Network(topology=graph, bandwidth=20.0, latency=0.05, message_bytes=8.0)
    return Cluster(workers=workers, compute=compute or Exponential(1.0), network=network, **more)


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
def test_active_half_asks_passive_half(graph, workers, asked):
    """The halves are the two colours of a bipartite graph, otherwise even and odd ranks."""
    assert asked_by(graph, workers) == tuple(asked)


@PAIRWISE
def test_gradients_are_fresh_and_count_mixings(method):
    """The active node averages once between read and step, the passive one as often as it is asked
    meanwhile.
    """
    seen = Observed(on(Ring(), 6), method(Rule(lr=LR)), noisy(), Stop(updates=200))
    rows = seen.outcome.updates
    assert (rows["staleness"] == 0).all()
    active = rows["worker"] % 2 == 0
    assert (rows["mixings"][active] == 1).all()
    asks = sum(message.tag == ASK for message in seen.sent)
    assert asks - 6 <= rows["mixings"][~active].sum() <= asks


def test_neighbours_are_asked_equally_often():
    cluster = Cluster(8, network=Network(topology=Complete()))
    seen = Observed(cluster, ADPSGD(Rule()), Timing(), Stop(updates=1000))
    asks = [message for message in seen.sent if message.tag == ASK]
    for active in (0, 2, 4, 6):
        receivers = [ask.receiver.rank for ask in asks if ask.sender.rank == active]
        counts = np.bincount(receivers, minlength=8)[1::2]
        expected, error = counts.sum() / 4, math.sqrt(counts.sum() * 3 / 16)
        assert (abs(counts - expected) < 5 * error).all()


def test_overlapped_gradient_is_taken_before_average():
    """The second step of each of two nodes is x_i <- (x_0 + x_1) / 2 - lr g_i(x_i)."""
    cluster = on(Ring(), 2, Constant(2.0))
    seen = Observed(cluster, OverlapADPSGD(Rule(lr=LR)), noisy(), Stop(time=4.1))
    before = [seen.models[rank][0] for rank in (0, 1)]
    assert (before[0] - before[1]).norm() > 1e-3
    for gradient in seen.applied[2:]:
        assert torch.equal(gradient.weights, before[gradient.worker])
        expected = sum(before) / 2 - LR * gradient.value
        torch.testing.assert_close(seen.models[gradient.worker][1], expected, rtol=0, atol=1e-15)


@PAIRWISE
@pytest.mark.parametrize("down", [(1,), (1, 3), (1, 3, 5), (0, 4)])
def test_nodes_go_on_where_neighbours_are_down(down, method):
    """Every node that is up goes on: an active node takes at most 1 s and two messages of 0.45 s a
    step.
    """
    crashes = [Crash(worker=rank, at=10.3) for rank in down]
    cluster = on(Ring(), 6, Constant(1.0), slowdowns=crashes)
    seen = Observed(cluster, method(Rule(lr=LR)), noisy(), Stop(time=60.0))
    assert seen.outcome.reached == "time"
    for rank in set(range(6)) - set(down):
        crowded = 1 + 4 * 0.45  # where two ask one at a time, they share its card
        assert len(seen.models[rank]) >= 60 / crowded
    lost_asks = sum(message.tag == ASK and message.receiver.rank in down for message in seen.sent)
    assert (lost_asks > 0) == bool(set(down) & {1, 3, 5})
    sent, *ends = seen.outcome.messages.values()
    assert sum(ends) == sent


@pytest.mark.parametrize("crashed", [0, 1])
def test_node_that_returns_averages_again(crashed):
    cluster = on(Ring(), 2, Constant(1.0), slowdowns=[Crash(worker=crashed, at=10.3, back=20.0)])
    seen = Observed(cluster, ADPSGD(Rule(lr=LR)), noisy(), Stop(time=60.0))
    rows = seen.outcome.updates
    applied, time = rows["status"] == "applied", rows["time"]
    alone = applied & (time > 13) & (time < 20)
    assert alone.sum() >= 6
    assert set(rows["worker"][alone]) == {1 - crashed}
    assert set(rows["mixings"][alone]) == {0}
    assert set(rows["mixings"][applied & (time > 25) & (rows["worker"] == 0)]) == {1}


def test_graph_without_two_halves_is_refused():
    """Ranks 0, 2 and 4 form a triangle."""
    graph = Drawn(nx.Graph([(0, 2), (2, 4), (4, 0), (4, 1), (1, 3)]))
    with pytest.raises(InvalidSettingError, match="topology"):
        ADPSGD(Rule()).check(on(graph, 5))
