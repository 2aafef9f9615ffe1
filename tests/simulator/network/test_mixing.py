"""Mixing matrices are what their names promise, and contract as theory says."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings

from laggard.simulator import InvalidSettingError, Star
from laggard.simulator.network.mixing import MIXINGS, NodePeers, doubly_stochastic, matrix, mixing
from laggard.simulator.network.topology import Complete, Exponential, Graph, Ring, Torus
from tests.simulator.algorithms.conftest import graphs

GRAPHS = [
    Ring(),
    Torus(),
    Complete(),
    Exponential(),
    Exponential(peers=2),
    Exponential(static=True),
]


def stochastic(W, axis):
    return (W >= 0).all() and np.allclose(W.sum(axis=axis), 1, rtol=0, atol=1e-12)


def steps(graph, workers):
    return range(graph.period(workers))


@pytest.mark.parametrize("workers", [1, 2, 5, 6, 8, 9])
@pytest.mark.parametrize("graph", GRAPHS, ids=repr)
def test_uniform_on_a_regular_graph_is_doubly_stochastic(graph, workers):
    for step in steps(graph, workers):
        W = matrix("uniform", graph, step, workers)
        assert stochastic(W, 0)
        assert stochastic(W, 1)
    assert doubly_stochastic("uniform", graph, workers)


@pytest.mark.parametrize("graph", [Ring(), Torus(), Complete()], ids=repr)
def test_metropolis_is_uniform_where_all_degrees_are_the_same(graph):
    for workers in (1, 2, 3, 6, 9):
        one, other = (matrix(name, graph, 0, workers) for name in ("uniform", "metropolis"))
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-15)


@settings(max_examples=40, deadline=None)
@given(graphs(most=12, extra=20))
def test_metropolis_is_symmetric_and_doubly_stochastic_on_every_undirected_graph_and_contracts(
    drawn,
):
    graph, workers = drawn
    W = matrix("metropolis", graph, 0, workers)
    assert stochastic(W, 0)
    assert stochastic(W, 1)
    assert (W == W.T).all() or np.allclose(W, W.T, rtol=0, atol=1e-15)
    assert doubly_stochastic("metropolis", graph, workers)
    assert sorted(np.abs(np.linalg.eigvalsh(W)))[-2] < 1


@settings(max_examples=40, deadline=None)
@given(graphs(directed=True, most=12, extra=20))
def test_uniform_is_column_stochastic_on_every_digraph_and_push_sum_finds_the_mean(drawn):
    graph, workers = drawn
    W = matrix("uniform", graph, 0, workers)
    assert stochastic(W, 0)
    assert doubly_stochastic("uniform", graph, workers) == stochastic(W, 1)
    x, weight = np.arange(workers, dtype=float), np.ones(workers)
    far = np.linalg.matrix_power(W, 20_000)
    np.testing.assert_allclose((far @ x) / (far @ weight), x.mean(), rtol=1e-6)


@settings(max_examples=40, deadline=None)
@given(graphs(directed=True, most=12, extra=20))
def test_a_nodes_mixing_is_its_row_and_column(drawn):
    graph, workers = drawn
    W = matrix("uniform", graph, 3, workers)
    for rank in range(workers):
        mine = mixing("uniform", graph, rank, 3, workers)
        assert list(mine.out) == list(graph.out_peers(rank, 3, workers))
        assert mine.own == pytest.approx(W[rank, rank])
        assert mine.out == {
            peer: W[peer, rank] for peer in range(workers) if peer != rank and W[peer, rank]
        }
        assert mine.into == {
            peer: W[rank, peer] for peer in range(workers) if peer != rank and W[rank, peer]
        }


@pytest.mark.parametrize("workers", [3, 4, 7, 16])
def test_the_eigenvalues_of_the_ring(workers):
    """W = circ(1/3, 1/3, 0, ..., 1/3): 1/3 + 2/3 cos(2 pi k / P)."""
    expected = [1 / 3 + 2 / 3 * math.cos(2 * math.pi * k / workers) for k in range(workers)]
    found = np.linalg.eigvalsh(matrix("uniform", Ring(), 0, workers))
    np.testing.assert_allclose(found, sorted(expected), rtol=0, atol=1e-12)


@pytest.mark.parametrize("workers", [*range(2, 10), 15, 16, 17, 32])
def test_the_exponential_graph_averages_exactly_after_log2_rounds_iff_workers_are_a_power_of_two(
    workers,
):
    graph = Exponential()
    rounds = [matrix("uniform", graph, step, workers) for step in steps(graph, workers)]
    assert len(rounds) == math.ceil(math.log2(workers))
    far = np.abs(np.linalg.multi_dot([*rounds, np.eye(workers)]) - 1 / workers).max()
    if workers & (workers - 1) == 0:
        assert far < 1e-15
    else:
        assert far > 1e-3 / workers


@pytest.mark.parametrize(
    "graph", [Exponential(), Exponential(peers=2), Exponential(static=True)], ids=repr
)
def test_metropolis_needs_an_undirected_graph(graph):
    with pytest.raises(
        InvalidSettingError,
        match=r"Exponential.mixing: expected uniform: metropolis needs an undirected graph",
    ):
        matrix("metropolis", graph, 0, 8)


def test_a_graphs_own_weights_and_what_stays_at_home(tmp_path):
    path = tmp_path / "a.edgelist"
    path.write_text("0 1 0.5\n1 2 0.25\n1 0 0.25\n2 0 1.0\n")
    graph = Graph(file=str(path), directed=True)
    W = matrix("weights", graph, 0, 3)
    np.testing.assert_allclose(W, [[0.5, 0.25, 1.0], [0.5, 0.5, 0.0], [0.0, 0.25, 0.0]])
    assert stochastic(W, 0)
    assert not doubly_stochastic("weights", graph, 3)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0 1 0.7\n0 2 0.7\n1 0 0.5\n2 0 0.5", r"Graph.weight: .* at most 1 .* got '1.4 at 0'"),
        (
            "0 1 -0.5\n1 2 0.5\n2 0 0.5",
            r"Graph.weight: expected a share from 0 to 1 on every edge.*-0.5 on 0 -> 1",
        ),
        (
            "0 1\n1 2\n2 0",
            r"Graph.weight: expected a share from 0 to 1 on every edge.*None on 0 -> 1",
        ),
        (
            "0 1 1.5\n1 2 0.5\n2 0 0.5",
            r"Graph.weight: expected a share from 0 to 1 on every edge.*1.5 on 0 -> 1",
        ),
    ],
)
def test_weights_that_are_no_shares_are_refused(tmp_path, text, said):
    path = tmp_path / "a.edgelist"
    path.write_text(text)
    with pytest.raises(InvalidSettingError, match=said):
        matrix("weights", Graph(file=str(path), directed=True), 0, 3)


def test_only_a_graph_of_ones_own_has_weights():
    with pytest.raises(InvalidSettingError, match=r"Ring.mixing: expected uniform or metropolis"):
        matrix("weights", Ring(), 0, 4)


def test_at_a_star_everybody_keeps_the_own_model():
    assert all((matrix(name, Star(), 0, 3) == np.eye(3)).all() for name in MIXINGS)


def test_steps_repeat_with_the_period():
    graph = Exponential()
    for rank, step in itertools.product(range(6), range(9)):
        assert mixing("uniform", graph, rank, step, 6) == mixing(
            "uniform", graph, rank, step % 3, 6
        )


def test_a_node_is_told_the_mixing_that_it_asks_for():
    """By name and step, also when it asks again; where degrees differ, the two names' weights
    do.
    """
    star = Graph(graph="star_graph", arguments={"n": 3})
    for graph, names in ((star, ["uniform", "metropolis"]), (Exponential(), ["uniform"])):
        peers = NodePeers(graph, 1, 4)
        for name, step in itertools.product([*names, *names], (0, 1, 0, 7)):
            assert peers.mixing(name, step) == mixing(name, graph, 1, step, 4)
    assert mixing("uniform", star, 1, 0, 4) != mixing("metropolis", star, 1, 0, 4)
