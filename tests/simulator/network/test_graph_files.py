"""Graphs that other tools write are read as they were, or refused in one line."""

import gzip
import json
import random

import networkx as nx
import numpy as np
import pytest
from scipy.io import mmwrite

from laggard.simulator.errors import InvalidSettingError
from laggard.simulator.network.topology import Graph

pytestmark = pytest.mark.filterwarnings("ignore:.*ranks of nodes")


def matrix(graph):
    return nx.to_numpy_array(graph, nodelist=sorted(graph))


def write_json(to_document):
    return lambda graph, path: path.write_text(json.dumps(to_document(graph)))


def write_gzip(graph, path):
    path.write_bytes(gzip.compress("\n".join(nx.generate_edgelist(graph)).encode()))


def write_npy(graph, path):
    with path.open("wb") as file:
        np.save(file, matrix(graph))


def write_matrix_market(graph, path):
    with path.open("wb") as file:
        mmwrite(file, nx.to_scipy_sparse_array(graph, nodelist=sorted(graph)))


WRITERS = {
    "edges": nx.write_edgelist,
    "edges compressed": write_gzip,
    "edges alone": lambda graph, path: nx.write_edgelist(graph, path, data=False),
    "edges with commas": lambda graph, path: nx.write_edgelist(graph, path, ",", data=False),
    "edges with tabs": lambda graph, path: nx.write_edgelist(graph, path, delimiter="\t"),
    "multiline": nx.write_multiline_adjlist,
    "graphml": nx.write_graphml,
    "gexf": nx.write_gexf,
    "gml": nx.write_gml,
    "pajek": nx.write_pajek,
    "node link": write_json(nx.node_link_data),
    "node link of old": write_json(lambda graph: nx.node_link_data(graph, edges="links")),
    "adjacency": write_json(nx.adjacency_data),
    "cytoscape": write_json(nx.cytoscape_data),
    "dict of lists": write_json(nx.to_dict_of_lists),
    "npy": write_npy,
    "matrix": lambda graph, path: np.savetxt(path, matrix(graph)),
    "matrix as csv": lambda graph, path: np.savetxt(path, matrix(graph), "%g", ","),
    "matrix of pandas": lambda graph, path: nx.to_pandas_adjacency(graph).to_csv(path),
    "edges of pandas": lambda graph, path: nx.to_pandas_edgelist(graph).to_csv(path, index=False),
    "edges with index": lambda graph, path: nx.to_pandas_edgelist(graph).to_csv(path, sep=";"),
    "matrix market": write_matrix_market,
}
UNDIRECTED = {"graph6": nx.write_graph6, "sparse6": nx.write_sparse6}
WITH_WEIGHTS = set(WRITERS) - {"edges alone", "edges with commas", "dict of lists"}


def random_graph(rng, directed):
    """A connected graph of 4 to 12 nodes."""
    nodes = rng.randrange(4, 13)
    graph = nx.cycle_graph(nodes, create_using=nx.DiGraph if directed else nx.Graph)
    for _ in range(rng.randrange(nodes)):
        graph.add_edge(*rng.sample(range(nodes), 2))
    return graph


def check_reading(path, graph, weighted):
    read = Graph(file=str(path), directed=graph.is_directed()).edges
    for rank, out in enumerate(read.out):
        assert sorted(out) == sorted(graph[rank])
        if weighted:
            assert out == pytest.approx({node: graph[rank][node]["weight"] for node in out})
    assert len(read.out) == len(graph)


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("form", [*WRITERS, *UNDIRECTED])
def test_every_form_is_read_as_it_was_written(tmp_path, form, directed):
    if directed and form in UNDIRECTED:
        form = "edges"
    for seed in range(5):
        rng = random.Random(seed)
        graph = random_graph(rng, directed)
        weighted = seed % 2 == 1 and form in WITH_WEIGHTS
        if weighted:
            for edge in graph.edges:
                graph.edges[edge]["weight"] = rng.randrange(1, 8) / 8
        path = tmp_path / f"graph{seed}.txt"
        (WRITERS | UNDIRECTED)[form](graph, path)
        check_reading(path, graph, weighted)


def test_lists_of_neighbours_are_read(tmp_path):
    graph = nx.complete_graph(5)
    path = tmp_path / "graph.adjlist"
    nx.write_adjlist(graph, path)
    check_reading(path, graph, False)


@pytest.mark.parametrize("width", [0, 3])
@pytest.mark.parametrize("prefix", ["", "rack-", "Node"])
def test_names_of_nodes_are_ranked_in_natural_order(tmp_path, prefix, width):
    ring = nx.relabel_nodes(nx.cycle_graph(12), {n: f"{prefix}{n:0{width}d}" for n in range(12)})
    path = tmp_path / "graph.txt"
    nx.write_edgelist(ring, path)
    assert sorted(Graph(file=str(path)).edges.out[2]) == [1, 3]


@pytest.mark.parametrize(
    "content",
    [
        b"0 1\n1 0\n",  # a matrix or edges
        b"0 1 1\n1 0 1\n1 1 0\n",
        b"0 1 0.5\n1 2\n",  # edges, or nodes and their neighbours
        b"0,1,0,0\n0,0,1,0\n0,0,0,1\n1,0,0,0\n",  # directed, without saying so
        b"0,1,nan,1\n1,0,1,0\nnan,1,0,1\n1,0,1,0\n",
        b"0 1 0.5\n1 2 0.5\n2 0 0.5\n1 0 0.25\n",  # two weights of an edge
        b"0 1 half\n",
        b"0\n",
        b"(0, 0) (0, 1) {}\n(0, 1) (0, 0) {}\n",
        b"graph {\n0 -- 1;\n}\n",
        b"",
        b"{",
        b"[]",
        b'{"nodes": [{"id": 0}], "links": [{"source": 0}]}',
        b"<graph",
        b"<graphml><graph>",
        b"\x80\x04N.",  # a pickle, which is never loaded
    ],
)
def test_file_without_graph_is_refused_in_one_line(tmp_path, content):
    path = tmp_path / "graph.txt"
    path.write_bytes(content)
    with pytest.raises(InvalidSettingError) as caught:
        Graph(file=str(path)).check(4)
    assert caught.value.field == "file"
    assert "\n" not in str(caught.value)


def refusal(graph, workers):
    """Why a graph is refused; empty where what is left of the file is a graph."""
    try:
        graph.check(workers)
    except InvalidSettingError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    "seeds", [range(100), pytest.param(range(1000, 3000), marks=pytest.mark.slow)]
)
def test_random_graphs_are_read_or_refused(tmp_path, seeds):
    """Half of the files have a fault: a line cut, doubled with another weight, or of other words."""
    forms = ["edges", "edges alone", "edges of pandas", "matrix as csv", "node link", "graphml"]
    for seed in seeds:
        rng = random.Random(seed)
        directed = rng.random() < 0.5
        graph = random_graph(rng, directed)
        nx.set_edge_attributes(graph, 0.5, "weight")
        path = tmp_path / f"{seed}.txt"
        WRITERS[rng.choice(forms)](graph, path)
        if seed % 2 == 0:
            check_reading(path, graph, False)
            continue
        content = path.read_bytes()
        cut = rng.randrange(1, len(content))
        path.write_bytes(content[:cut] + rng.choice([b"", b"\x00", b"\xff\xfe", b"{", b"<", b"("]))
        reason = refusal(Graph(file=str(path), directed=directed), len(graph))
        assert "\n" not in reason
