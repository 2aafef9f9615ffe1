"""Graphs in files of other tools: every form that networkx writes, matrices, and lists of edges.

The content tells the form, not the name of the file. Where two readings are possible, the file is
refused with both.
"""

import io
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from laggard.files import UnreadableFileError, decode, read_bytes
from laggard.simulator.errors import MOST_COUNT, InvalidSettingError

END_COLUMNS = (
    ("source", "target"),
    ("from", "to"),
    ("sender", "receiver"),
    ("src", "dst"),
    ("tail", "head"),
    ("u", "v"),
    ("i", "j"),
    ("node1", "node2"),
)
"""Names of the two columns of a table of edges."""
SEPARATOR = re.compile(r"\s*[,;\t]\s*|\s+")
CONVERT = 'convert it: networkx.write_edgelist(graph, "graph.edgelist")'
NODES_WITH_SPACES = (
    "nodes with spaces: use networkx.convert_node_labels_to_integers(graph) before writing it"
)


def read_graph(nx: Any, path: Path, directed: bool, weight: str) -> Any:
    """The graph in a file, as networkx has it.

    Args:
        nx: the module networkx.
        directed: whether edges have a direction, where the file does not say it.
        weight: the attribute of edges in which numbers of a matrix or a list are kept.

    Raises:
        InvalidSettingError: the file cannot be read, has no known form, or has two.
    """
    try:
        content = read_bytes(path)
        if content.startswith(b"\x93NUMPY"):
            matrix = np.load(io.BytesIO(content), allow_pickle=False)
            return _from_matrix(nx, matrix, directed, weight)
        if content.startswith((b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")):
            raise ValueError(f"a pickle, which can run code: {CONVERT}")
        text = decode(path, content)
        return _from_text(nx, path, text, directed, weight)
    except UnreadableFileError as error:
        raise InvalidSettingError("Graph", "file", "a graph", str(error)) from None
    except InvalidSettingError:
        raise
    except Exception as error:  # whatever a reader raises, it is the file that it does not take
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InvalidSettingError("Graph", "file", "a graph", f"{path}: {reason}") from None


def _from_text(nx: Any, path: Path, text: str, directed: bool, weight: str) -> Any:
    start = text.lstrip()
    for matches, read in _forms(nx, directed, weight):
        if matches(start):
            return read(text)
    if path.suffix == ".adjlist":
        return nx.parse_adjlist(text.splitlines(), create_using=_graph_class(nx, directed))
    rows = [line.strip() for line in text.splitlines()]
    rows = [row for row in rows if row and not row.startswith(("#", "%"))]
    if not rows:
        raise ValueError("no line with an edge")
    if any("{" in row for row in rows):
        return _from_edges_with_attributes(nx, rows, directed)
    if any("(" in row for row in rows):
        raise ValueError(NODES_WITH_SPACES)
    cells = [SEPARATOR.split(row) for row in rows]
    return _from_cells(nx, path, cells, directed, weight)


def _forms(
    nx: Any, directed: bool, weight: str
) -> list[tuple[Callable[[str], Any], Callable[[str], Any]]]:
    """Forms that tell what they are: whether a text is of the form, and how it is read."""
    return [
        (re.compile(r"<.*<graphml", re.DOTALL).match, nx.parse_graphml),
        (re.compile(r"<.*<gexf", re.DOTALL).match, _read_gexf(nx)),
        (re.compile(r"(#.*\s)*(Creator.*\s)*graph\s*\[").match, _read_gml(nx)),
        (re.compile(r"[{\[]").match, lambda text: _from_json(nx, json.loads(text), directed)),
        (re.compile(r"\*(vertices|network)", re.IGNORECASE).match, _read_pajek(nx)),
        (re.compile(r"LEDA\.GRAPH").match, lambda text: nx.parse_leda(text.splitlines())),
        (re.compile(r">>graph6<<").match, lambda text: nx.from_graph6_bytes(_line(text))),
        (re.compile(r">>sparse6<<|:").match, lambda text: nx.from_sparse6_bytes(_line(text))),
        (re.compile(r"%%MatrixMarket").match, lambda text: _from_matrix_market(nx, text, weight)),
        (re.compile(r"(strict\s+)?(di)?graph\b.*\{", re.DOTALL).match, _refuse_dot),
    ]


def _line(text: str) -> bytes:
    return text.strip().encode("ascii")


def _graph_class(nx: Any, directed: bool) -> Any:
    if directed:
        return nx.DiGraph
    return nx.Graph


def _read_gexf(nx: Any) -> Callable[[str], Any]:
    return lambda text: nx.read_gexf(io.BytesIO(text.encode()))


def _read_gml(nx: Any) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        lines = text.splitlines()
        label = "id"
        if re.search(r"^\s*label\b", text, re.MULTILINE):
            label = "label"
        return nx.parse_gml(lines, label=label)

    return read


def _read_pajek(nx: Any) -> Callable[[str], Any]:
    return lambda text: nx.parse_pajek(text.splitlines())


def _refuse_dot(text: str) -> Any:
    raise ValueError(f"a graph in DOT: {CONVERT}")


def _from_json(nx: Any, document: Any, directed: bool) -> Any:
    """A graph in one of the JSON forms of networkx, a mapping of neighbours, or pairs."""
    graph = _graph_class(nx, directed)()
    if isinstance(document, list):
        graph.add_edges_from((one, other) for one, other in document)
        return graph
    if "adjacency" in document:
        return nx.adjacency_graph(document)
    if "elements" in document:
        return nx.cytoscape_graph(document)
    if "nodes" in document:
        edges = "links" if "links" in document else "edges"
        return nx.node_link_graph(document, edges=edges)
    for node, neighbours in document.items():
        # JSON has texts as keys, so that a neighbour 1 is the node "1"
        graph.add_edges_from((node, str(neighbour)) for neighbour in neighbours)
    return graph


def _from_matrix_market(nx: Any, text: str, weight: str) -> Any:
    from scipy.io import mmread

    header = text.partition("\n")[0].lower()
    matrix = mmread(io.BytesIO(text.encode()))
    dense = matrix.toarray() if hasattr(matrix, "toarray") else matrix
    return _from_matrix(nx, dense, "general" in header, weight)


def _from_edges_with_attributes(nx: Any, rows: Sequence[str], directed: bool) -> Any:
    """Edges with a dict of attributes each, as networkx writes them by default."""
    if not all("{" in row for row in rows):  # a line for a node, then one for each neighbour
        return nx.parse_multiline_adjlist(iter(rows), create_using=_graph_class(nx, directed))
    lines = []
    for row in rows:
        ends, _, attributes = row.partition("{")
        nodes = SEPARATOR.split(ends.strip().rstrip(",;"))
        if len(nodes) != 2:
            raise ValueError(f"{NODES_WITH_SPACES}, got {row!r}")
        lines.append(f"{nodes[0]} {nodes[1]} {{{attributes}")
    return nx.parse_edgelist(lines, create_using=_graph_class(nx, directed), data=True)


def _from_cells(nx: Any, path: Path, cells: list[list[str]], directed: bool, weight: str) -> Any:
    """A matrix, a table of edges with names, a list of edges, or a list of neighbours."""
    labelled = _strip_labels(cells)
    if labelled is not None:
        names, cells = labelled
        graph = _from_matrix(nx, _numbers(cells), directed, weight)
        return nx.relabel_nodes(graph, dict(enumerate(names)))
    names = [cell.strip('"').casefold() for cell in cells[0]]
    for one, other in END_COLUMNS:
        if one in names and other in names:
            places = names.index(one), names.index(other)
            value = names.index(weight.casefold()) if weight.casefold() in names else None
            return _from_columns(nx, cells[1:], places, value, directed, weight)
    widths = {len(row) for row in cells}
    is_matrix = widths == {len(cells)} and _numbers(cells) is not None
    is_edges = widths <= {2, 3} and len(widths) == 1
    if is_matrix and is_edges and path.suffix != ".edgelist":
        raise ValueError(
            f"{len(cells)} rows of {len(cells)} numbers may be a matrix or edges: write the edges "
            "below a row of names, source and target"
        )
    if is_matrix and not (is_edges and path.suffix == ".edgelist"):
        return _from_matrix(nx, _numbers(cells), directed, weight)
    if is_edges:
        value = 2 if widths == {3} else None
        return _from_columns(nx, cells, (0, 1), value, directed, weight)
    if 1 in widths or max(widths) > 3:
        # networkx writes the neighbours of each node in a line
        return nx.from_dict_of_lists(
            {row[0]: row[1:] for row in cells}, create_using=_graph_class(nx, directed)
        )
    raise ValueError("lines of two and of three words may be edges, or nodes with their neighbours")


def _strip_labels(cells: list[list[str]]) -> tuple[list[str], list[list[str]]] | None:
    """The nodes and the numbers of a matrix with names above and before it, as pandas writes it."""
    names = [cell.strip('"') for cell in cells[0]]
    rows = cells[1:]
    # a number in the corner is that of a matrix without names
    if len(names) == len(rows) + 1 and not _is_numeric_text(names[0]):
        names = names[1:]
    if len(names) != len(rows) or len(set(names)) < len(names):
        return None
    if [row[0].strip('"') for row in rows] != names:
        return None
    if any(len(row) != len(rows) + 1 for row in rows):
        return None
    return names, [row[1:] for row in rows]


def _is_numeric_text(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _numbers(cells: Sequence[Sequence[str]]) -> Any:
    """The cells as an array, or None where one is no number."""
    try:
        return np.array([[float(cell) for cell in row] for row in cells])
    except ValueError:
        return None


def _from_columns(
    nx: Any,
    rows: Sequence[Sequence[str]],
    places: tuple[int, int],
    value: int | None,
    directed: bool,
    weight: str,
) -> Any:
    """The edges of a table, with a weight where there is such a column."""
    graph = _graph_class(nx, directed)()
    for row in rows:
        one, other = (row[place].strip('"') for place in places)
        share = None
        if value is not None:
            share = float(row[value])
        if graph.has_edge(one, other) and graph.edges[one, other].get(weight) != share:
            raise ValueError(f"the edge {one}, {other} twice, with different weights")
        graph.add_edge(one, other)
        if share is not None:
            graph.edges[one, other][weight] = share
    return graph


def _from_matrix(nx: Any, matrix: Any, directed: bool, weight: str) -> Any:
    """The graph with an edge from i to j where row i has a number other than 0 in column j.

    Raises:
        ValueError: the matrix is not square, has other than finite numbers, or is asymmetric where
            edges have no direction.
    """
    if matrix is None:
        raise ValueError("a matrix with cells that are no numbers")
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"a matrix of shape {matrix.shape}, not a square one")
    if len(matrix) > MOST_COUNT:
        raise ValueError(f"a matrix of {len(matrix)} nodes, more than {MOST_COUNT}")
    if not np.isfinite(matrix).all():
        raise ValueError("a matrix with numbers that are not finite")
    if not directed and not np.allclose(matrix, matrix.T, rtol=1e-9, atol=0):
        raise ValueError("an asymmetric matrix: set directed to true")
    graph = _graph_class(nx, directed)()
    graph.add_nodes_from(range(len(matrix)))
    for one, other in np.argwhere(matrix).tolist():
        graph.add_edge(one, other, **{weight: float(matrix[one, other])})
    return graph
