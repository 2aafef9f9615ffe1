"""Graphs in files of other tools: every form that networkx writes, matrices, and lists of edges.

The content tells the form, not the name of the file. Where two readings are possible, the file is
refused with both.
"""

import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from laggard.files import UnreadableFileError, decode, read_bytes
from laggard.simulator.errors import InvalidSettingError
from laggard.simulator.network.topology.graph_rows import (
    COMMENTS,
    CONVERT,
    cells_graph,
    from_lines,
    graph_class,
    matrix_graph,
    table_graph,
)
from laggard.simulator.timing.tables import (
    PARQUET,
    ForeignTable,
    numbered_lines,
    parse_foreign_table,
)


def read_graph(nx: Any, path: Path, directed: bool, weight: str) -> Any:
    """The graph in a file, as networkx has it.

    Args:
        nx: the module networkx.
        directed: whether edges have a direction, where the file does not say it.
        weight: the edge attribute that stores the numbers of a matrix or a list.

    Raises:
        InvalidSettingError: the file cannot be read, has no known form, or has two.
    """
    try:
        content = read_bytes(path)
        if content.startswith(b"\x93NUMPY"):
            matrix = np.load(io.BytesIO(content), allow_pickle=False)
            return matrix_graph(nx, matrix, directed, weight)
        if content.startswith(PARQUET):
            table = parse_foreign_table("Graph", path, content)
            return table_graph(nx, table, directed, weight)
        if content.startswith((b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")):
            raise ValueError(f"a pickle, which can run code: {CONVERT}")
        text = decode(path, content)
        return _from_text(nx, path, content, text, directed, weight)
    except UnreadableFileError as error:
        raise InvalidSettingError("Graph", "file", "a graph", str(error)) from None
    except InvalidSettingError:
        raise
    except Exception as error:  # whatever a reader raises, it is the file that it does not take
        reason = " ".join(str(error).split()) or type(error).__name__
        if isinstance(error, KeyError):
            reason = f"no key {reason}"
        raise InvalidSettingError("Graph", "file", "a graph", f"{path}: {reason}") from None


def _from_text(nx: Any, path: Path, content: bytes, text: str, directed: bool, weight: str) -> Any:
    start = text.lstrip()
    for matches, read in _forms(nx, directed, weight):
        if matches(start):
            return read(text)
    return from_lines(nx, path, content, text, directed, weight)


def _forms(
    nx: Any, directed: bool, weight: str
) -> list[tuple[Callable[[str], Any], Callable[[str], Any]]]:
    """The forms that a text identifies by its beginning: a test of the text, and its reader."""
    return [
        (re.compile(r"(<.*)?<graphml", re.DOTALL).match, nx.parse_graphml),
        (re.compile(r"(<.*)?<gexf", re.DOTALL).match, _read_gexf(nx)),
        (re.compile(r"<").match, _refuse("XML or HTML other than GraphML and GEXF")),
        (re.compile(r"(#.*\s)*((Creator|Version)\b.*\s+)*graph\s*\[").match, _read_gml(nx)),
        (re.compile(r"[{\[]").match, lambda text: _from_json(nx, text, directed, weight)),
        (re.compile(r"(%.*\s+)*\*(vertices|network)", re.IGNORECASE).match, _read_pajek(nx)),
        (re.compile(r"LEDA\.GRAPH").match, lambda text: nx.parse_leda(text.splitlines())),
        (re.compile(r">>graph6<<").match, lambda text: nx.from_graph6_bytes(_line(text))),
        (re.compile(r">>sparse6<<|:").match, lambda text: nx.from_sparse6_bytes(_line(text))),
        (re.compile(r"%%MatrixMarket").match, lambda text: _from_matrix_market(nx, text, weight)),
        (
            re.compile(
                r"(//.*\s+|#.*\s+|/\*.*?\*/\s*)*(strict\s+)?(di)?graph\b[^\[]*?\{", re.S
            ).match,
            _refuse("a graph in DOT"),
        ),
        (re.compile(r"(c\b.*\n)*p\s+\w+\s+\d+\s+\d+\s*\n").match, _refuse("a graph of DIMACS")),
        (re.compile(r"dl\s+n\s*=", re.IGNORECASE).match, _refuse("a graph of UCINET")),
    ]


def _line(text: str) -> bytes:
    return text.strip().encode("ascii")


def _read_gexf(nx: Any) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        # files of Gephi name the same space of names with and without www
        text = text.replace("http://www.gexf.net/1.3", "http://gexf.net/1.3")
        version = "1.3" if "http://gexf.net/1.3" in text else "1.2draft"
        return nx.read_gexf(io.BytesIO(text.encode()), version=version)

    return read


def _read_gml(nx: Any) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        # Gephi writes its name there without the quotes that networkx wants
        text = re.sub(r"^\s*(Creator|Version)\b.*$", "", text, flags=re.MULTILINE)
        nodes = re.findall(r"\bnode\s*\[[^\[\]]*", text)
        label = "id"
        if nodes and all(re.search(r"\blabel\s", node) for node in nodes):
            label = "label"
        return nx.parse_gml(text.splitlines(), label=label)

    return read


def _read_pajek(nx: Any) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        lines = [line.strip() for _, line in numbered_lines(text)]
        lines = [line for line in lines if not line.startswith(COMMENTS)]
        sections = [line.split()[0].casefold() for line in lines if line.startswith("*")]
        others = set(sections) - {"*network", "*vertices", "*arcs", "*edges"}
        if others:
            raise ValueError(f"a graph of Pajek with {sorted(others)[0]}: write *Arcs or *Edges")
        begin = next(
            place for place, line in enumerate(lines) if line.casefold().startswith("*vertices")
        )
        count = int(lines[begin].split()[1])
        if begin + 1 < len(lines) and lines[begin + 1].startswith("*"):
            # the numbers of nodes without names may be left out
            lines[begin + 1 : begin + 1] = [f'{node} "{node}"' for node in range(1, count + 1)]
        graph = nx.parse_pajek(lines)
        if len(graph) != count:
            raise ValueError(f"{len(graph)} different names of {count} vertices")
        return graph

    return read


def _refuse(form: str) -> Callable[[str], Any]:
    def refuse(text: str) -> Any:
        raise ValueError(f"{form}: {CONVERT}")

    return refuse


def _from_json(nx: Any, text: str, directed: bool, weight: str) -> Any:
    """The graph in a JSON form of networkx, a mapping of neighbours, or rows."""
    document = json.loads(text)
    graph = graph_class(nx, directed)()
    if isinstance(document, list):
        return _from_json_rows(nx, document, directed, weight)
    if "adjacency" in document:
        return nx.adjacency_graph(document)
    if "elements" in document:
        return _from_cytoscape(nx, document, directed)
    if "nodes" in document:
        edges = "links" if "links" in document else "edges"
        return nx.node_link_graph(document, edges=edges)
    if any(isinstance(document.get(key), dict | list) for key in ("graph", "graphs")):
        raise ValueError(f"JSON Graph Format: {CONVERT}")
    for node, neighbours in document.items():
        if not isinstance(neighbours, dict):
            # JSON has texts as keys, so that a neighbour 1 is the node "1"
            graph.add_edges_from((node, str(neighbour)) for neighbour in neighbours)
            continue
        for neighbour, share in neighbours.items():
            attributes = share if isinstance(share, dict) else {weight: share}
            graph.add_edge(node, neighbour, **attributes)
    return graph


def _from_cytoscape(nx: Any, document: Any, directed: bool) -> Any:
    """A graph in JSON of Cytoscape, whose files lack node fields that networkx requires."""
    elements = document["elements"]
    if isinstance(elements, dict):
        elements = [*elements.get("nodes", []), *elements.get("edges", [])]
    graph = graph_class(nx, document.get("directed", directed))()
    for element in elements:
        data = element["data"]
        if "source" in data:
            graph.add_edge(str(data["source"]), str(data["target"]), **data)
        else:
            graph.add_node(str(data["id"]))
    return graph


def _from_json_rows(nx: Any, rows: list[Any], directed: bool, weight: str) -> Any:
    """A graph in JSON lists: edges, or the rows of a matrix."""
    if not rows:
        raise ValueError("an empty list")
    if all(isinstance(row, dict) for row in rows):
        names = list(dict.fromkeys(name for row in rows for name in row))
        cells = [[str(row.get(name, "")) for name in names] for row in rows]
        places = range(1, len(rows) + 1)
        table = ForeignTable("Graph", Path("its list"), names, places, cells, False)
        return table_graph(nx, table, directed, weight)
    numbered = [(number, list(map(str, row))) for number, row in enumerate(rows, 1)]
    return cells_graph(nx, Path(), numbered, directed, weight)


def _from_matrix_market(nx: Any, text: str, weight: str) -> Any:
    from scipy.io import mmread

    header = text.partition("\n")[0].lower()
    if "complex" in header:
        raise ValueError("a matrix of complex numbers")
    matrix = mmread(io.BytesIO(text.encode()))
    dense = matrix.toarray() if hasattr(matrix, "toarray") else matrix
    return matrix_graph(nx, dense, "general" in header, weight)
