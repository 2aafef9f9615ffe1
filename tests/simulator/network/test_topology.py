"""Graphs: who talks to whom, against networkx, closed forms, and what a directed edge means."""

import itertools
import math

import networkx as nx
import pytest

from laggard.simulator import (
    SERVER,
    InvalidSettingError,
    Star,
)
from laggard.simulator.network.topology import (
    TOPOLOGIES,
    Auto,
    Complete,
    Exponential,
    Graph,
    Ring,
    TimeVarying,
    Torus,
    resolve_topology,
)

GRAPHS = [
    Ring(),
    Torus(),
    Complete(),
    Exponential(),
    Exponential(peers=2),
    Exponential(static=True),
]
SIZES = [1, 2, 3, 4, 6, 7, 12, 16]


def digraph(topology, step, workers):
    """A step's edges as networkx has them."""
    made = nx.DiGraph()
    made.add_nodes_from(range(workers))
    made.add_edges_from(
        (rank, peer) for rank in range(workers) for peer in topology.out_peers(rank, step, workers)
    )
    return made


def ahead(rank, peers, workers):
    return [(peer - rank) % workers for peer in peers]


def test_every_topology_of_table_is_tested():
    assert set(TOPOLOGIES.values()) == {type(graph) for graph in GRAPHS} | {
        Auto,
        Star,
        Graph,
        TimeVarying,
    }


@pytest.mark.parametrize("workers", SIZES)
@pytest.mark.parametrize("graph", GRAPHS, ids=repr)
def test_graph_is_consistent(graph, workers):
    """A node has each peer once, in rotating order, and never itself. In-peers mirror out-peers;
    joined nodes are peers at some step.
    """
    graph.check(workers)
    period, ever = graph.period(workers), set()
    for step, rank in itertools.product(range(2 * period + 1), range(workers)):
        out, into = graph.out_peers(rank, step, workers), graph.in_peers(rank, step, workers)
        for peers in (out, into):
            assert ahead(rank, peers, workers) == sorted(set(ahead(rank, peers, workers)) - {0})
        senders = [peer for peer in range(workers) if rank in graph.out_peers(peer, step, workers)]
        assert set(into) == set(senders)
        assert out == graph.out_peers(rank, step + period, workers)
        ever |= {(rank, peer) for peer in out}
    pairs = itertools.product(range(SERVER, workers + 1), repeat=2)
    assert {pair for pair in pairs if graph.joins(*pair, workers)} == ever


@pytest.mark.parametrize("workers", SIZES)
def test_ring_torus_and_complete_match_networkx(workers):
    rows = max(side for side in range(1, workers + 1) if workers % side == 0 and side**2 <= workers)
    grid = nx.grid_2d_graph(rows, workers // rows, periodic=True)
    for graph, expected in [
        (Ring(), nx.cycle_graph(workers)),
        (Complete(), nx.complete_graph(workers)),
        (Torus(), nx.Graph(nx.convert_node_labels_to_integers(grid))),
    ]:
        expected.remove_edges_from(list(nx.selfloop_edges(expected)))
        assert set(digraph(graph, 0, workers).edges) == set(expected.to_directed().edges)


def test_torus_has_given_rows():
    Torus(rows=3).check(12)
    assert ahead(0, Torus(rows=3).out_peers(0, 0, 12), 12) == [1, 3, 4, 8]


@pytest.mark.parametrize("workers", [2, 3, 6, 8, 9, 16])
def test_exponential_graph_cycles_through_powers_of_two(workers):
    powers = [2**k for k in range(math.ceil(math.log2(workers)))]

    def peers(step, **settings):
        return ahead(1, Exponential(**settings).out_peers(1, step, workers), workers)

    for step in range(2 * len(powers)):
        one, two = (powers[(step + more) % len(powers)] for more in (0, 1))
        assert peers(step) == [one]
        assert peers(step, peers=2) == sorted({one, two})
    assert peers(5, static=True) == powers


def test_star_joins_servers_and_workers():
    pairs = [(0, SERVER), (-3, 2), (-1, -2), (0, 1)]
    assert [Star().joins(*pair, 4) for pair in pairs] == [True, True, False, False]
    assert Star().out_peers(0, 0, 4) == Star().in_peers(0, 0, 4) == ()


def test_auto_is_topology_of_method():
    assert resolve_topology(Auto(), Ring()) == Ring()
    assert resolve_topology(Star(), Ring()) == Star()


def test_generator_is_called_with_arguments():
    graph = Graph(graph="random_regular_graph", arguments={"d": 3, "n": 10, "seed": 4})
    graph.check(10)
    expected = nx.random_regular_graph(3, 10, seed=4).to_directed().edges
    assert set(digraph(graph, 7, 10).edges) == set(expected)
    by_position = Graph(graph="random_regular_graph", arguments=[3, 10, 4])
    assert set(digraph(by_position, 0, 10).edges) == set(expected)


def test_random_graph_without_seed_is_always_same():
    settings = {"graph": "gnp_random_graph", "arguments": [40, 0.3]}
    one, other = (digraph(Graph(**settings), 0, 40) for _ in range(2))
    assert one.edges == other.edges


def test_directed_generator_is_directed():
    cycle = Graph(graph="cycle_graph", arguments=[5], directed=True)
    cycle.check(5)
    assert (cycle.out_peers(0, 0, 5), cycle.in_peers(0, 0, 5)) == ((1,), (4,))
    assert [cycle.joins(4, 0, 5), cycle.joins(0, 4, 5)] == [True, False]


def test_nodes_of_file_are_ordered_by_number(tmp_path):
    """Nodes 2, 10, 33 become 0, 1, 2 though texts sort otherwise."""
    path = tmp_path / "graph.edgelist"
    for text in ("10 2\n10 33\n2 33\n", "10 2 0.5\n2 33 0.25\n33 10 0.125\n"):
        path.write_text(text)
        graph = Graph(file=str(path))
        with pytest.warns(UserWarning, match="2 is 0, 10 is 1, 33 is 2"):
            graph.check(3)
        assert [graph.out_peers(rank, 0, 3) for rank in range(3)] == [(1, 2), (2, 0), (0, 1)]
    assert [graph.share(*edge, 3) for edge in [(0, 1), (1, 2), (2, 0)]] == [0.5, 0.125, 0.25]


def test_weight_may_have_another_name(tmp_path):
    path = tmp_path / "graph.graphml"
    nx.write_graphml(nx.DiGraph([(0, 1, {"p": 0.3}), (1, 0, {"p": 0.7})]), path)
    graph = Graph(file=str(path), weight="p")
    assert (graph.share(0, 1, 2), graph.share(1, 0, 2)) == (0.3, 0.7)


def test_changed_file_is_read_again(tmp_path):
    path = tmp_path / "a.edgelist"
    path.write_text("0 1\n1 2\n")
    assert Graph(file=str(path)).out_peers(0, 0, 3) == (1,)
    path.write_text("0 2\n1 2\n")
    assert Graph(file=str(path)).out_peers(0, 0, 3) == (2,)


def write_steps(path, steps, heading="step,sender,receiver"):
    rows = [",".join(map(str, (step, *edge))) for step, edges in enumerate(steps) for edge in edges]
    path.write_text("\n".join([heading, *rows]) + "\n")
    return TimeVarying(str(path))


@pytest.mark.parametrize("workers", [2, 5, 8])
@pytest.mark.parametrize("graph", [Exponential(), Exponential(peers=2), Ring()], ids=repr)
def test_graph_written_step_by_step_is_same(tmp_path, graph, workers):
    """Nodes have the same peers at every step, in the same order."""
    ranks, period = range(workers), graph.period(workers)
    edges = [
        [(rank, peer) for rank in ranks for peer in graph.out_peers(rank, step, workers)]
        for step in range(period)
    ]
    read = write_steps(tmp_path / "steps.csv", edges)
    read.check(workers)
    assert read.period(workers) == period
    for step, rank in itertools.product(range(2 * period), ranks):
        assert read.out_peers(rank, step, workers) == graph.out_peers(rank, step, workers)
        assert read.in_peers(rank, step, workers) == graph.in_peers(rank, step, workers)


def test_weight_of_edge_is_share_in_all_steps(tmp_path):
    heading = "step,sender,receiver,weight"
    graph = write_steps(tmp_path / "a.csv", [[(0, 1, 0.3), (1, 0, 0.7)], [(0, 1, 0.3)]], heading)
    assert (graph.share(0, 1, 2), graph.share(1, 0, 2)) == (0.3, 0.7)
    wrong = [[(0, 1, 0.3), (1, 0, ""), (1, 2, 1.5), (2, 0, 0)], [(0, 1, 0.4)]]
    graph = write_steps(tmp_path / "b.csv", wrong, heading)
    for pair in ((0, 1), (1, 0), (1, 2), (2, 0)):
        with pytest.raises(InvalidSettingError, match=r"TimeVarying\.file"):
            graph.share(*pair, 3)
