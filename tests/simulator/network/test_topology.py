"""Graphs: who talks to whom, against networkx, closed forms, and what a directed edge means."""

import json
import math

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from laggard.models import Quadratic
from laggard.simulator import (
    SERVER,
    SGP,
    Cluster,
    Evaluate,
    InvalidSettingError,
    Network,
    Rule,
    Star,
    Stop,
    simulate,
)
from laggard.simulator.learning.rules.schedules import Step
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
from laggard.simulator.timing.distributions import Gamma

GRAPHS = [
    Ring(),
    Torus(),
    Complete(),
    Exponential(),
    Exponential(peers=2),
    Exponential(static=True),
]
UNDIRECTED = [Ring(), Torus(), Complete()]
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


def test_every_topology_of_the_table_is_tested():
    assert set(TOPOLOGIES.values()) == {type(graph) for graph in GRAPHS} | {
        Auto,
        Star,
        Graph,
        TimeVarying,
    }


@pytest.mark.parametrize("workers", SIZES)
@pytest.mark.parametrize("graph", GRAPHS, ids=repr)
def test_a_graph_is_consistent(graph, workers):
    """Peers once each, never oneself, in rotating order; in-peers mirror out-peers; joined is who
    is ever a peer.
    """
    graph.check(workers)
    period, ever = graph.period(workers), set()
    for step in range(2 * period + 1):
        for rank in range(workers):
            out, into = graph.out_peers(rank, step, workers), graph.in_peers(rank, step, workers)
            for peers in (out, into):
                assert ahead(rank, peers, workers) == sorted(set(ahead(rank, peers, workers)) - {0})
            assert set(into) == {
                peer for peer in range(workers) if rank in graph.out_peers(peer, step, workers)
            }
            assert out == graph.out_peers(rank, step + period, workers)
            ever |= {(rank, peer) for peer in out}
    joined = {
        (one, other)
        for one in range(workers)
        for other in range(workers)
        if graph.joins(one, other, workers)
    }
    assert joined == ever
    assert not any(
        graph.joins(SERVER, rank, workers) or graph.joins(rank, SERVER, workers)
        for rank in range(workers)
    )
    assert not graph.joins(0, workers, workers)
    assert not graph.joins(workers, 0, workers)


@pytest.mark.parametrize("workers", SIZES)
@pytest.mark.parametrize("graph", UNDIRECTED, ids=repr)
def test_undirected_graphs_are(graph, workers):
    assert all(
        graph.out_peers(rank, 0, workers) == graph.in_peers(rank, 0, workers)
        for rank in range(workers)
    )


@pytest.mark.parametrize("workers", SIZES)
def test_ring_torus_and_complete_are_networkxs(workers):
    rows = max(
        side for side in range(1, workers + 1) if workers % side == 0 and side * side <= workers
    )
    for graph, theirs in [
        (Ring(), nx.cycle_graph(workers)),
        (Complete(), nx.complete_graph(workers)),
        (
            Torus(),
            nx.convert_node_labels_to_integers(
                nx.grid_2d_graph(rows, workers // rows, periodic=True)
            ),
        ),
    ]:
        theirs = nx.Graph(theirs)
        theirs.remove_edges_from(list(nx.selfloop_edges(theirs)))
        assert set(digraph(graph, 0, workers).edges) == set(theirs.to_directed().edges)


def test_two_workers_on_a_ring_have_one_neighbour_and_a_torus_of_sides_two_has_two():
    assert Ring().out_peers(0, 0, 2) == (1,)
    assert Torus(rows=2).out_peers(0, 0, 4) == (1, 2)
    assert Torus(rows=1).out_peers(2, 0, 5) == Ring().out_peers(2, 0, 5)


def test_rows_must_divide_the_workers():
    Torus(rows=3).check(12)
    with pytest.raises(
        InvalidSettingError, match=r"Torus.rows: expected a divisor of workers = 12, got 5"
    ):
        Torus(rows=5).check(12)
    with pytest.raises(InvalidSettingError, match="rows"):
        Torus(rows=0)


@pytest.mark.parametrize("workers", [2, 3, 6, 8, 9, 16])
def test_the_exponential_graph_cycles_through_the_powers_of_two_below_the_workers(workers):
    powers = [2**k for k in range(math.ceil(math.log2(workers)))]
    steps = range(2 * len(powers))
    one = [ahead(1, Exponential().out_peers(1, step, workers), workers) for step in steps]
    assert one == [[power] for power in powers * 2]
    two = [ahead(1, Exponential(peers=2).out_peers(1, step, workers), workers) for step in steps]
    assert two == [sorted({powers[t % len(powers)], powers[(t + 1) % len(powers)]}) for t in steps]
    assert ahead(1, Exponential(static=True).out_peers(1, 5, workers), workers) == powers


def test_the_exponential_graph_is_directed():
    assert Exponential().joins(0, 4, 16)
    assert not Exponential().joins(4, 0, 16)
    with pytest.raises(
        InvalidSettingError, match=r"Exponential.peers: expected a number >= 1 and <= 2"
    ):
        Exponential(peers=3)


def test_a_star_has_any_number_of_servers_and_its_workers_no_peers():
    star = Star()
    assert star.joins(0, SERVER, 4)
    assert star.joins(-3, 2, 4)
    assert not star.joins(-1, -2, 4)
    assert not star.joins(0, 1, 4)
    assert star.out_peers(0, 0, 4) == star.in_peers(0, 0, 4) == ()


def test_auto_is_what_the_method_asks_for():
    assert resolve_topology(Auto(), Ring()) == Ring()
    assert resolve_topology(Star(), Ring()) == Star()


def test_a_generator_by_name():
    graph = Graph(graph="random_regular_graph", arguments={"d": 3, "n": 10, "seed": 4})
    graph.check(10)
    assert set(digraph(graph, 7, 10).edges) == set(
        nx.random_regular_graph(3, 10, seed=4).to_directed().edges
    )
    by_position = Graph(graph="random_regular_graph", arguments=[3, 10, 4])
    assert digraph(by_position, 0, 10).edges == digraph(graph, 0, 10).edges


def test_a_random_graph_without_a_seed_is_one_and_the_same():
    one, other = (
        digraph(Graph(graph="gnp_random_graph", arguments=[40, 0.3]), 0, 40) for _ in range(2)
    )
    assert one.edges == other.edges


def test_a_directed_generator_is_directed():
    cycle = Graph(graph="cycle_graph", arguments=[5], directed=True)
    cycle.check(5)
    assert cycle.out_peers(0, 0, 5) == (1,)
    assert cycle.in_peers(0, 0, 5) == (4,)
    assert cycle.joins(4, 0, 5)
    assert not cycle.joins(0, 4, 5)


WEIGHTED = nx.Graph()
WEIGHTED.add_weighted_edges_from([(10, 2, 0.5), (2, 33, 0.25), (33, 10, 0.125)])


def edgelist(path, graph):
    nx.write_weighted_edgelist(graph, path)


def node_link(path, graph):
    path.write_text(json.dumps(nx.node_link_data(graph, edges="links")))


@pytest.mark.parametrize(
    ("suffix", "write", "weighted"),
    [
        (".edgelist", edgelist, True),
        (".edgelist", lambda path, graph: nx.write_edgelist(graph, path, data=False), False),
        (".adjlist", lambda path, graph: nx.write_adjlist(graph, path), False),
        (".graphml", lambda path, graph: nx.write_graphml(graph, path), True),
        (".json", node_link, True),
    ],
)
def test_files_and_nodes_by_their_numbers(tmp_path, suffix, write, weighted):
    """Nodes 2, 10, 33 become 0, 1, 2 though texts sort otherwise."""
    path = tmp_path / f"graph{suffix}"
    write(path, WEIGHTED)
    graph = Graph(file=str(path))
    graph.check(3)
    assert [graph.out_peers(rank, 0, 3) for rank in range(3)] == [(1, 2), (2, 0), (0, 1)]
    if weighted:
        assert [graph.share(0, 1, 3), graph.share(1, 2, 3), graph.share(2, 0, 3)] == [
            0.5,
            0.125,
            0.25,
        ]
    else:
        with pytest.raises(
            InvalidSettingError, match=r"Graph.weight: .*'weight', got 'None on 0 -> 1'"
        ):
            graph.share(0, 1, 3)


def test_the_weight_may_have_another_name(tmp_path):
    path = tmp_path / "graph.graphml"
    nx.write_graphml(nx.DiGraph([(0, 1, {"p": 0.3}), (1, 0, {"p": 0.7})]), path)
    graph = Graph(file=str(path), weight="p")
    assert (graph.share(0, 1, 2), graph.share(1, 0, 2)) == (0.3, 0.7)


@pytest.mark.parametrize(
    ("graph", "said"),
    [
        (lambda: Graph(), r"Graph.graph: expected a generator's name or a file"),
        (lambda: Graph(graph="cycle_graph", file="a.json"), r"Graph.graph: expected a generator's name or a file"),
        (lambda: Graph(graph="cycl_graph"), r"Graph.graph: expected the name of a networkx generator.*'cycl_graph'"),
        (lambda: Graph(graph="read_edgelist"), r"Graph.graph: expected the name of a networkx generator"),
        (lambda: Graph(graph="cycle_graph"), r"Graph.arguments: expected those of cycle_graph\(n"),
        (lambda: Graph(graph="cycle_graph", arguments={"m": 3}), r"Graph.arguments: expected those of cycle_graph\(n"),
        (lambda: Graph(graph="cycle_graph", arguments=[5, None, 1, 2, 3]), "Graph.arguments"),
        (lambda: Graph(graph="bull_graph", arguments=[5, 6, 7, 8]), "Graph.arguments"),
        (lambda: Graph(graph="cycle_graph", arguments=[5]), r"Graph.graph: .* workers = 4, got '5 nodes'"),
        (lambda: Graph(graph="empty_graph", arguments=[4]), r"Graph.graph: .* every node can reach every other"),
        (lambda: Graph(graph="path_graph", arguments=[4], directed=True), "every node can reach every other"),
        (lambda: Graph(graph="null_graph"), "a graph with nodes"),
        (lambda: Graph(file="none.edgelist"), r"Graph.file: .* got 'none.edgelist: No such file or directory'"),
        (lambda: Graph(file="none.csv"), r"Graph.file: expected a name that ends in one of .edgelist"),
    ],
)  # fmt: skip
def test_what_is_no_graph_of_so_many_workers_is_refused(graph, said):
    with pytest.raises(InvalidSettingError, match=said):
        graph().check(4)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.json", "{"),
        ("a.json", "[]"),
        ("a.graphml", "<graph"),
        ("a.edgelist", "0 1 half\n"),
        ("a.edgelist", "0\n"),
    ],
)
def test_a_broken_file_is_refused(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(InvalidSettingError, match=r"Graph.file: "):
        Graph(file=str(path)).check(2)


def test_a_file_that_has_changed_is_another_graph(tmp_path):
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
def test_a_graph_written_step_by_step_is_the_graph(tmp_path, graph, workers):
    """Nodes have the same peers at every step, in the same order, and SGP learns the same weights
    bit for bit.
    """
    period = graph.period(workers)
    edges = [
        [(rank, peer) for rank in range(workers) for peer in graph.out_peers(rank, step, workers)]
        for step in range(period)
    ]
    read = write_steps(tmp_path / "steps.csv", edges)
    read.check(workers)
    assert read.period(workers) == period
    for step in range(2 * period):
        for rank in range(workers):
            assert read.out_peers(rank, step, workers) == graph.out_peers(rank, step, workers)
            assert read.in_peers(rank, step, workers) == graph.in_peers(rank, step, workers)
    weights = [
        simulate(Cluster(workers, Gamma(1.0, 0.3), network=Network(topology=each)), SGP(Rule()),
                 Quadratic(dim=5, noise=0.1), stop=Stop(updates=40)).weights
        for each in (graph, read)
    ]  # fmt: skip
    assert (weights[0] == weights[1]).all()


def test_push_sum_agrees_over_edges_that_come_and_go(tmp_path):
    """Of a ring a node has its edge in every third step only: models come together once learning
    rates are nothing.
    """
    steps = [[(rank, (rank + 1) % 6) for rank in range(6) if rank % 3 == step] for step in range(3)]
    graph = write_steps(tmp_path / "steps.csv", steps)
    cluster = Cluster(6, Gamma(1.0, 0.3), network=Network(topology=graph))
    task = Quadratic(dim=5, noise=1.0)
    wide = simulate(
        cluster, SGP(Rule(lr=0.1)), task, stop=Stop(updates=600), evaluate=Evaluate(nodes=True)
    )
    still = simulate(
        cluster, SGP(Rule(lr=0.1, schedule=Step(20, 1e-9, "updates"))), task,
        stop=Stop(updates=600), evaluate=Evaluate(nodes=True),
    )  # fmt: skip
    apart = [outcome.metrics["consensus"][-1] for outcome in (wide, still)]
    assert apart[1] < 1e-6 < apart[0]


def test_the_weight_of_an_edge_is_a_share_and_the_same_in_all_steps(tmp_path):
    heading = "step,sender,receiver,weight"
    graph = write_steps(tmp_path / "a.csv", [[(0, 1, 0.3), (1, 0, 0.7)], [(0, 1, 0.3)]], heading)
    assert (graph.share(0, 1, 2), graph.share(1, 0, 2)) == (0.3, 0.7)
    other = write_steps(
        tmp_path / "b.csv",
        [[(0, 1, 0.3), (1, 0, ""), (1, 2, 1.5), (2, 0, 0)], [(0, 1, 0.4)]],
        heading,
    )
    for pair in ((0, 1), (1, 0), (1, 2), (2, 0)):
        with pytest.raises(
            InvalidSettingError, match=r"TimeVarying.file: expected a column weight"
        ):
            other.share(*pair, 3)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "a file that can be read, got .*none.csv: No such file"),
        ("sender,receiver\n0,1\n", "a file with the columns step, sender, receiver"),
        ("step,sender,receiver\n", "an edge in each of the steps"),
        (
            "step,sender,receiver\n0,0,1\n0,1,0\n2,0,1\n",
            r"an edge in each of the steps .* got 'steps \[0, 2\]",
        ),
        ("step,sender,receiver\n0,0,1\n0,1,1\n", "two different ranks in every row, got .*line 3"),
        (
            "step,sender,receiver\n0,0,1\n0,one,0\n",
            "two different ranks in every row, got .*line 3",
        ),
        ("step,sender,receiver\n0,0,1\n0,-1,0\n", "two different ranks in every row, got .*line 3"),
        ("step,sender,receiver\n0,0,1\n0,1\n", "two different ranks in every row, got .*line 3"),
        ("step,sender,receiver\n0,0,1\n0,1,2\n", "ranks below workers = 2, got 'an edge 1 -> 2'"),
        ("step,sender,receiver\n0,0,1\n", "every worker can reach every other"),
    ],
)
def test_what_is_no_sequence_of_graphs_is_refused(tmp_path, text, said):
    path = tmp_path / ("none.csv" if text is None else "steps.csv")
    if text is not None:
        path.write_text(text)
    with pytest.raises(InvalidSettingError, match=f"TimeVarying.file: expected .*{said}"):
        TimeVarying(str(path)).check(2)


@given(st.integers(1, 40), st.integers(0, 200))
def test_every_step_of_an_exponential_graph_is_regular(workers, step):
    for graph in (Exponential(), Exponential(peers=2), Exponential(static=True)):
        degrees = {
            len(peers(rank, step, workers))
            for peers in (graph.out_peers, graph.in_peers)
            for rank in range(workers)
        }
        assert len(degrees) == 1


@pytest.mark.parametrize(
    "graph",
    [
        Graph("grid_graph", {"dim": [10**9, 2]}),
        Graph("gnp_random_graph", {"n": 10**9, "p": 0.5, "seed": 10**12}),
        Graph("path_graph", {"n": 3, "more": 1}),
    ],
)
def test_arguments_of_a_graph_that_cannot_be_made_are_refused(graph):
    with pytest.raises(InvalidSettingError, match=r"Graph.arguments: expected"):
        graph.check(4)
