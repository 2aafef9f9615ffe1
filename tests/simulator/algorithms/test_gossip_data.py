"""Gossip for data that differ, and over random matchings: single nodes, schedules, refusals."""

import numpy as np
import pytest
import torch

from laggard.models import Quadratic
from laggard.simulator import (
    CHOCO,
    D2,
    MATCHA,
    Cluster,
    GradientTracking,
    InvalidSettingError,
    Network,
    QGDSGDm,
    Record,
    RelaySGD,
    Rule,
    Stop,
    simulate,
)
from laggard.simulator.algorithms.contrib.matcha import matchings_on
from laggard.simulator.algorithms.contrib.relay_sgd import tree_on
from laggard.simulator.learning.rules import SGD, WarmUp
from laggard.simulator.network.topology import Complete, Exponential, Graph, Ring, TimeVarying
from laggard.simulator.timing.slowdowns import Crash

METHODS = [GradientTracking, D2, QGDSGDm, RelaySGD, MATCHA, CHOCO]


def test_quasi_global_momentum_is_finite_at_rate_zero(quadratic):
    """A warm-up's first rate is 0, at which a move divided by the rate would not be a number."""
    lr = torch.tensor([[0.0], [0.05]], dtype=torch.float64)
    schedule = WarmUp(length=5.0, unit="updates")
    for rule in (Rule(SGD(0.9), 0.05, schedule), Rule(SGD(0.9), lr)):
        run = simulate(Cluster(4), QGDSGDm(rule), quadratic, stop=Stop(updates=9), ensemble=2)
        assert run.weights.isfinite().all()


@pytest.mark.parametrize("method", METHODS)
def test_crash_stalls_others(method, quadratic):
    cluster = Cluster(4, slowdowns=[Crash(1, at=3.5, back=5.0)])
    run = simulate(cluster, method(Rule(lr=0.01)), quadratic, stop=Stop(updates=40))
    assert run.reached == "stalled"


def log_of(seed, learning_seeds=(0,), coin=0):
    algorithm, stop = MATCHA(Rule(lr=0.01), coin=coin), Stop(time=60.5)
    more = {"seed": seed, "learning_seeds": learning_seeds, "record": Record(messages=True)}
    log = simulate(Cluster(6), algorithm, Quadratic(dim=2), stop=stop, **more).message_log
    order = np.lexsort((log["receiver"], log["sender"], log["sent"]))
    return [tuple(log[name][order].tolist()) for name in ("sent", "sender", "receiver")]


def test_coin_is_same_under_all_other_seeds():
    assert log_of(0) == log_of(1) == log_of(0, learning_seeds=[3, 4, 5])
    assert log_of(0) != log_of(0, coin=1)


@pytest.mark.parametrize(
    ("graph", "workers", "count"),
    [(Ring(), 6, 2), (Ring(), 7, 3), (Complete(), 8, 7), (Graph("star_graph", {"n": 4}), 5, 4)],
    ids=str,
)
def test_matchings_have_every_edge_once(graph, workers, count):
    matchings = matchings_on(graph, workers)
    assert len(matchings) == count
    edges = [(rank, peer) for matching in matchings for rank, peer in matching.items()]
    expected = [
        (rank, peer) for rank in range(workers) for peer in graph.out_peers(rank, 0, workers)
    ]
    assert sorted(edges) == sorted(expected)
    assert all(matching[peer] == rank for matching in matchings for rank, peer in matching.items())


def test_ring_has_chain_and_complete_graph_has_star():
    assert tree_on(Ring(), 6) == ((1, 5), (0, 2), (1, 3), (2,), (5,), (0, 4))
    assert tree_on(Complete(), 4) == ((1, 2, 3), (0,), (0,), (0,))


@pytest.fixture
def uneven(tmp_path):
    """A ring of four whose edges weigh .3 forwards and .2 backwards: doubly stochastic."""
    rows = [
        f"{rank},{(rank + hop) % 4},{weight}"
        for rank in range(4)
        for hop, weight in ((1, 0.3), (3, 0.2))
    ]
    file = tmp_path / "edges.csv"
    file.write_text("\n".join(["source,target,weight", *rows]))
    return Graph(file=str(file), directed=True)


@pytest.fixture
def failing(tmp_path):
    """Edges that are there in every other step."""
    file = tmp_path / "edges.csv"
    file.write_text("step,sender,receiver\n0,0,1\n0,1,0\n1,1,2\n1,2,1\n1,0,2\n1,2,0\n")
    return TimeVarying(file=str(file))


@pytest.mark.parametrize("method", [D2, RelaySGD, MATCHA, CHOCO])
@pytest.mark.parametrize("graph", [Exponential(static=True), "failing"], ids=str)
def test_graph_that_is_directed_or_changes_is_refused(method, graph, request):
    if graph == "failing":
        graph = request.getfixturevalue(graph)
    cluster = Cluster(3 if isinstance(graph, TimeVarying) else 5, network=Network(graph))
    with pytest.raises(InvalidSettingError, match=r"undirected|does not change"):
        method(Rule()).check_cluster(cluster)


def test_asymmetric_mixing_is_refused(uneven):
    cluster = Cluster(4, network=Network(uneven))
    GradientTracking(Rule(), mixing="weights").check_cluster(cluster)
    with pytest.raises(InvalidSettingError, match=r"D2\.mixing: expected a mixing that is symm"):
        D2(Rule(), mixing="weights").check_cluster(cluster)


@pytest.mark.parametrize(
    ("algorithm", "workers"),
    [
        (D2(Rule(), lazy=False), 5),
        (D2(Rule()), 4),
        (D2(Rule()), 3000),
        (MATCHA(Rule(), weight=0.3), 3000),
    ],
)
def test_settings_that_fit_are_accepted(algorithm, workers):
    algorithm.check_cluster(Cluster(workers))
