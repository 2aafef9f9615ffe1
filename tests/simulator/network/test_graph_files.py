"""Graphs that other tools write are read as they were, or refused in one line."""

import gzip
import json
import random

import networkx as nx
import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
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


PATH_OF_THREE = {(0, 1): 0.5, (1, 2): 0.25}
TRIANGLE = {(0, 1): 1.0, (1, 2): 1.0, (0, 2): 1.0}
HEAD = 'Creator "igraph version 0.10"\nVersion 1\n'
OTHER_TOOLS = {
    "metis": ("3 2\n2\n1 3\n2\n", dict.fromkeys(PATH_OF_THREE)),
    "metis of a ring": (
        "% ring\n4 4\n2 4\n1 3\n2 4\n1 3\n",
        dict.fromkeys([(0, 1), (1, 2), (2, 3), (0, 3)]),
    ),
    "metis with a node alone": ("4 2\n2\n1 4\n\n2\n", {(0, 1): None, (1, 3): None}),
    "lists of neighbours as metis": ("3 1\n2\n1\n", {(0, 2): None}),
    "metis with weights": ("3 2 001\n2 5\n1 5 3 7\n2 7\n", {(0, 1): 5.0, (1, 2): 7.0}),
    "gephi": (
        "Source;Target;Type;Weight\na;b;Undirected;0,5\nb;c;Undirected;0,25\n",
        PATH_OF_THREE,
    ),
    "quoted": ('source,target,weight\n"n, 1","n, 2",0.5\n"n, 2","n, 3",0.25\n', PATH_OF_THREE),
    "with spaces": ("Source,Target,Weight\nn 1,n 2,0.5\nn 2,n 3,0.25\n", PATH_OF_THREE),
    "write.table": ('"from" "to" "weight"\n"1" "a" "b" 0.5\n"2" "b" "c" 0.25\n', PATH_OF_THREE),
    "matrix of R": ('"","V1","V2","V3"\n"1",0,1,1\n"2",1,0,1\n"3",1,1,0\n', TRIANGLE),
    "matrix of Excel": (";n 1;n 2;n 3\nn 1;0;0,5;0\nn 2;0,5;0;0,25\nn 3;0;0,25;0\n", PATH_OF_THREE),
    "trailing": (
        "0,1,0,0,\n1,0,1,0,\n0,1,0,1,\n0,0,1,0,\n",
        {(0, 1): 1.0, (1, 2): 1.0, (2, 3): 1.0},
    ),
    "snap": ("FromNodeId\tToNodeId\n7\t8\n8\t9\n", dict.fromkeys(PATH_OF_THREE)),
    "ncol": ("a b 0.5\nb c 0.25\n", PATH_OF_THREE),
    "igraph": (
        f'{HEAD}graph\n[\n  directed 0\n  node\n  [\n    id 0\n    name "a"\n  ]\n  node\n  [\n    id 1\n  ]\n'
        "  edge\n  [\n    source 1\n    target 0\n    weight 0.5\n  ]\n]\n",
        {(0, 1): 0.5},
    ),
    "gml of gephi": (
        'graph\n[\n  Creator Gephi\n  node\n  [\n    id 0\n    label "a"\n  ]\n  node\n  [\n    id 1\n'
        '    label "b"\n  ]\n  edge\n  [\n    source 0\n    target 1\n    weight 0.5\n  ]\n]\n',
        {(0, 1): 0.5},
    ),
    "gexf 1.3": (
        '<gexf xmlns="http://gexf.net/1.3" version="1.3"><graph><nodes><node id="0"/><node id="1"/></nodes>'
        '<edges><edge id="0" source="0" target="1" weight="0.5"/></edges></graph></gexf>',
        {(0, 1): 0.5},
    ),
    "pajek without names": ("% made\n*Vertices 3\n*Edges\n1 2 0.5\n2 3 0.25\n", PATH_OF_THREE),
    "cytoscape.js": (
        '{"elements": [{"data": {"id": "a"}}, {"data": {"id": "b"}}, '
        '{"data": {"source": "a", "target": "b", "weight": 0.5}}]}',
        {(0, 1): 0.5},
    ),
    "rows of JSON": ('[{"source": 0, "target": 1, "weight": 0.5}]', {(0, 1): 0.5}),
    "matrix of JSON": (
        "[[0,1,0,0],[1,0,1,0],[0,1,0,1],[0,0,1,0]]",
        {(0, 1): 1.0, (1, 2): 1.0, (2, 3): 1.0},
    ),
    "dict of dicts": ('{"0": {"1": 0.5}, "1": {"2": {"weight": 0.25}}}', PATH_OF_THREE),
}


@pytest.mark.parametrize("tool", OTHER_TOOLS)
def test_graphs_of_other_tools_are_read(tmp_path, tool):
    content, expected = OTHER_TOOLS[tool]
    path = tmp_path / "graph.txt"
    path.write_text(content)
    out = Graph(file=str(path)).edges.out
    assert {(a, b): out[a][b] for a in range(len(out)) for b in out[a] if a < b} == expected


def test_table_of_edges_says_their_direction(tmp_path):
    path = tmp_path / "graph.csv"
    path.write_text("Source,Target,Type\n0,1,Directed\n1,2,Directed\n2,0,Directed\n")
    assert [list(out) for out in Graph(file=str(path)).edges.out] == [[1], [2], [0]]
    parquet.write_table(pa.table({"src": [0, 1, 2], "dst": [1, 2, 0]}), path)
    assert [list(out) for out in Graph(file=str(path), directed=True).edges.out] == [[1], [2], [0]]


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
