"""Mixing matrices are what their names promise, and contract as theory says."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings

from laggard.simulator import Star
from laggard.simulator.network.mixing import MIXINGS, NodePeers, doubly_stochastic, matrix, mixing
from laggard.simulator.network.topology import Complete, Exponential, Graph, Ring, Torus
from tests.simulator.algorithms.observing import graphs
from tests.simulator.network.test_topology import GRAPHS


def stochastic(W, axis):
    return (W >= 0).all() and np.allclose(W.sum(axis=axis), 1, rtol=0, atol=1e-12)


@pytest.mark.parametrize("workers", [1, 2, 5, 6, 8, 9])
@pytest.mark.parametrize("graph", GRAPHS, ids=repr)
def test_uniform_is_doubly_stochastic_on_regular_graphs(graph, workers):
    for step in range(graph.period(workers)):
        W = matrix("uniform", graph, step, workers)
        assert stochastic(W, 0)
        assert stochastic(W, 1)
    assert doubly_stochastic("uniform", graph, workers)


@pytest.mark.parametrize("graph", [Ring(), Torus(), Complete()], ids=repr)
def test_metropolis_is_uniform_where_degrees_are_equal(graph):
    for workers in (1, 2, 3, 6, 9):
        one, other = (matrix(name, graph, 0, workers) for name in ("uniform", "metropolis"))
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-15)


@settings(max_examples=40, deadline=None)
@given(graphs(most=12, extra=20))
def test_metropolis_contracts_on_every_undirected_graph(drawn):
    graph, workers = drawn
    W = matrix("metropolis", graph, 0, workers)
    assert stochastic(W, 0)
    np.testing.assert_allclose(W, W.T, rtol=0, atol=1e-15)
    assert doubly_stochastic("metropolis", graph, workers)
    assert sorted(np.abs(np.linalg.eigvalsh(W)))[-2] < 1


@settings(max_examples=40, deadline=None)
@given(graphs(directed=True, most=12, extra=20))
def test_uniform_is_column_stochastic_on_every_digraph(drawn):
    graph, workers = drawn
    W = matrix("uniform", graph, 0, workers)
    assert stochastic(W, 0)
    assert doubly_stochastic("uniform", graph, workers) == stochastic(W, 1)


@settings(max_examples=40, deadline=None)
@given(graphs(directed=True, most=12, extra=20))
def test_mixing_of_node_is_row_and_column(drawn):
    graph, workers = drawn
    W = matrix("uniform", graph, 3, workers)
    np.fill_diagonal(others := W.copy(), 0)
    for rank in range(workers):
        node = mixing("uniform", graph, rank, 3, workers)
        assert list(node.out) == list(graph.out_peers(rank, 3, workers))
        assert node.own == pytest.approx(W[rank, rank])
        assert node.out == {
            int(peer): others[peer, rank] for peer in np.flatnonzero(others[:, rank])
        }
        assert node.into == {int(peer): others[rank, peer] for peer in np.flatnonzero(others[rank])}


def test_weights_of_graph_leave_rest_at_sender(tmp_path):
    path = tmp_path / "a.edgelist"
    path.write_text("0 1 0.5\n1 2 0.25\n1 0 0.25\n2 0 1.0\n")
    graph = Graph(file=str(path), directed=True)
    W = matrix("weights", graph, 0, 3)
    np.testing.assert_allclose(W, [[0.5, 0.25, 1.0], [0.5, 0.5, 0.0], [0.0, 0.25, 0.0]])
    assert stochastic(W, 0)
    assert not doubly_stochastic("weights", graph, 3)


def test_nodes_at_star_keep_their_models():
    assert all((matrix(name, Star(), 0, 3) == np.eye(3)).all() for name in MIXINGS)


def test_node_peers_give_mixing_of_name_and_step():
    """Repeated calls give the same; if degrees differ, the weights of the two names differ."""
    star = Graph(graph="star_graph", arguments={"n": 3})
    for graph, names in ((star, ["uniform", "metropolis"]), (Exponential(), ["uniform"])):
        peers = NodePeers(graph, 1, 4)
        for name, step in itertools.product([*names, *names], (0, 1, 0, 7)):
            assert peers.mixing(name, step) == mixing(name, graph, 1, step, 4)
    assert mixing("uniform", star, 1, 0, 4) != mixing("metropolis", star, 1, 0, 4)
