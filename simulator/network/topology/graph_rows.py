"""Graphs in rows of text: tables and lists of edges, lists of neighbours, matrices.

Where two readings are possible, the rows are refused with both.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from laggard.simulator.errors import MOST_COUNT
from laggard.simulator.timing.tables import (
    DECIMAL_COMMA,
    LINE_ENDS,
    SPACE,
    ForeignTable,
    has_decimal_commas,
    numbered_lines,
    parse_foreign_table,
    split_lines,
)

END_COLUMNS = (
    ("source", "target"),
    ("from", "to"),
    ("sender", "receiver"),
    ("src", "dst"),
    ("tail", "head"),
    ("u", "v"),
    ("i", "j"),
    ("node1", "node2"),
    ("id1", "id2"),
    ("fromnode", "tonode"),
    ("fromnodeid", "tonodeid"),
)
"""Names of the two columns of a table of edges, without the signs between their words."""
SEPARATOR = re.compile(r"\s*[,;\t]\s*|\s+")
COMMENTS = ("#", "%")
METIS_WEIGHTS = {"": False, "0": False, "1": True, "00": False, "01": True, "001": True}
"""The third number of METIS's first line -> whether edges have weights; others weigh nodes too."""
NumberedRows = Sequence[tuple[int, Sequence[str]]]
"""The number of a line, and its cells."""
CONVERT = 'convert it: networkx.write_edgelist(graph, "graph.edgelist")'
NODES_WITH_SPACES = (
    "nodes with spaces: use networkx.convert_node_labels_to_integers(graph) before writing it"
)


def from_lines(nx: Any, path: Path, content: bytes, text: str, directed: bool, weight: str) -> Any:
    """The graph of lines with edges, neighbours, or rows of a matrix."""
    if path.suffix == ".lgl":  # whose first nodes are on lines that begin with `#`
        raise ValueError(f"a graph in LGL: {CONVERT}")
    lines = [
        (number, line)
        for number, line in numbered_lines(text)
        if not line.lstrip().startswith(COMMENTS)
    ]
    if path.suffix == ".adjlist":
        return nx.parse_adjlist([line for _, line in lines], create_using=graph_class(nx, directed))
    if not lines:
        raise ValueError("no line with an edge")
    if any("{" in line for _, line in lines):
        rows = [line.strip() for _, line in lines]
        return _from_edges_with_attributes(nx, rows, directed)
    if any("(" in line for _, line in lines):
        raise ValueError(NODES_WITH_SPACES)
    if _end_columns(re.split(r'[,;\t| "]+', lines[0][1])) is not None:
        table = parse_foreign_table("Graph", path, content)
        return table_graph(nx, table, directed, weight)
    metis = _rows_of_metis(text)
    if _is_metis(metis):
        has_empty_line = not all(metis)
        if has_empty_line and _are_lists_of_neighbours(metis):
            raise ValueError("METIS with a node alone, or lists of neighbours and an empty line")
        return _from_metis(nx, metis, weight)
    return cells_graph(nx, path, _split_rows(path, lines), directed, weight)


def _split_rows(path: Path, lines: Sequence[tuple[int, str]]) -> NumberedRows:
    """Split lines without a row of column names into cells; decimal commas become points."""
    text = "".join(line for _, line in lines)
    separator = next((sign for sign in "\t;|," if sign in text), SPACE)
    rows = split_lines("Graph", path, lines, separator)
    if separator == ",":
        words = [word for _, line in lines for word in line.split()]
        numbers = [word for word in words if DECIMAL_COMMA.fullmatch(word)]
        if numbers and len(words) > len(lines):
            got = f"{numbers[0]}, whose comma may be decimal, or between nodes"
            raise ValueError(f"{got}: write a decimal point")
        return rows
    if has_decimal_commas("Graph", path, [row for _, row in rows]):
        return [(number, [cell.replace(",", ".") for cell in row]) for number, row in rows]
    return rows


def graph_class(nx: Any, directed: bool) -> Any:
    if directed:
        return nx.DiGraph
    return nx.Graph


def _from_edges_with_attributes(nx: Any, rows: Sequence[str], directed: bool) -> Any:
    """The graph of edges with a dict of attributes each, as networkx writes them by default."""
    if not all("{" in row for row in rows):  # a line for a node, then one for each neighbour
        return nx.parse_multiline_adjlist(iter(rows), create_using=graph_class(nx, directed))
    lines = []
    for row in rows:
        ends, _, attributes = row.partition("{")
        nodes = SEPARATOR.split(ends.strip().rstrip(",;"))
        if len(nodes) != 2:
            raise ValueError(f"{NODES_WITH_SPACES}, got {row!r}")
        lines.append(f"{nodes[0]} {nodes[1]} {{{attributes}")
    return nx.parse_edgelist(lines, create_using=graph_class(nx, directed), data=True)


def _end_columns(names: Sequence[str]) -> tuple[int, int] | None:
    """The indices of the names of both ends of an edge; None where there are none."""
    folded = [re.sub(r"[^a-z0-9]", "", name.casefold()) for name in names]
    for one, other in END_COLUMNS:
        if one in folded and other in folded:
            return folded.index(one), folded.index(other)
    return None


def table_graph(nx: Any, table: ForeignTable, directed: bool, weight: str) -> Any:
    """The graph of a table with column names; Gephi's column `Type` tells if it is directed."""
    places = _end_columns(table.names)
    if places is None:
        raise ValueError(f"the columns {', '.join(table.names)}: name two source and target")
    kind = table.find("type")
    if kind is not None:
        kinds = {row[kind].casefold() for row in table.rows}
        if kinds == {"directed", "undirected"}:
            raise ValueError("directed and undirected edges")
        if kinds in ({"directed"}, {"undirected"}):
            directed = kinds == {"directed"}
    numbers = zip(table.lines, table.rows, strict=True)
    rows = [(number, [table.plain(cell) for cell in row]) for number, row in numbers]
    return _columns_graph(nx, rows, places, table.find(weight), directed, weight)


def _columns_graph(
    nx: Any,
    rows: NumberedRows,
    places: tuple[int, int],
    value: int | None,
    directed: bool,
    weight: str,
) -> Any:
    """The graph of a table of edges, with weights if the table has a column of them."""
    graph = graph_class(nx, directed)()
    for number, row in rows:
        one, other = (row[place] for place in places)
        for node in (one, other):
            if not re.search(r"\w", node):
                raise ValueError(f"{node!r} in line {number}: expected a node")
        share = None
        if value is not None and row[value]:
            try:
                share = float(row[value])
            except ValueError:
                got = f"{row[value]!r} in line {number}"
                raise ValueError(f"{got}: expected a number as {weight}") from None
        if graph.has_edge(one, other) and graph.edges[one, other].get(weight) != share:
            raise ValueError(f"the edge {one}, {other} twice, with different weights")
        graph.add_edge(one, other)
        if share is not None:
            graph.edges[one, other][weight] = share
    return graph


def _rows_of_metis(text: str) -> list[list[str]]:
    """The words of each line of a METIS file from its header on; a node without neighbours has an
    empty line.

    Comments, and empty lines after the last node, are left out.
    """
    rows = [line.split() for line in LINE_ENDS.split(text) if not line.startswith("%")]
    if not rows[-1]:  # behind the end of the last line
        del rows[-1]
    while not rows[0]:
        del rows[0]
    nodes = rows[0][0]
    while not rows[-1] and str(len(rows) - 1) != nodes:
        del rows[-1]
    return rows


def _is_metis(rows: Sequence[Sequence[str]]) -> bool:
    """Whether lines are METIS's: nodes, edges and a format, then the neighbours of each node.

    Each edge is at both its ends, and nodes count from 1. Other lists of edges do not satisfy this,
    unless every edge is a self-loop.
    """
    header, *lists = rows
    if len(header) not in (2, 3):
        return False
    if not all(cell.isdecimal() for row in rows for cell in row):
        return False
    nodes, edges = int(header[0]), int(header[1])
    step = _step_of_metis(header)
    neighbours = [row[::step] for row in lists]
    if len(lists) != nodes or sum(map(len, neighbours)) != 2 * edges:
        return False
    pairs = {(node, int(cell)) for node, row in enumerate(neighbours, 1) for cell in row}
    return all((other, node) in pairs for node, other in pairs)


def _step_of_metis(header: Sequence[str]) -> int:
    """The count of numbers for each neighbour: 1, or 2 where edges have weights."""
    if METIS_WEIGHTS.get("".join(header[2:])):
        return 2
    return 1


def _are_lists_of_neighbours(rows: Sequence[Sequence[str]]) -> bool:
    """Whether each line that is not empty begins with its own node, and lists only such nodes."""
    nodes = [row[0] for row in rows if row]
    return len(set(nodes)) == len(nodes) and {cell for row in rows for cell in row} == set(nodes)


def _from_metis(nx: Any, rows: Sequence[Sequence[str]], weight: str) -> Any:
    header, *lists = rows
    step = _step_of_metis(header)
    graph = nx.Graph()
    graph.add_nodes_from(range(1, len(lists) + 1))
    for node, row in enumerate(lists, 1):
        for place in range(0, len(row), step):
            neighbour = int(row[place])
            graph.add_edge(node, neighbour)
            if step == 2:
                graph.edges[node, neighbour][weight] = float(row[place + 1])
    return graph


def cells_graph(nx: Any, path: Path, rows: NumberedRows, directed: bool, weight: str) -> Any:
    """The graph of a matrix, a list of edges, or lists of neighbours, without column names."""
    cells = [row for _, row in rows]
    labelled = _strip_labels(cells)
    if labelled is not None:
        names, numbers = labelled
        graph = matrix_graph(nx, _numbers(numbers), directed, weight)
        return nx.relabel_nodes(graph, dict(enumerate(names)))
    widths = {len(row) for row in cells}
    is_matrix = widths == {len(cells)} and _numbers(cells) is not None
    is_edges = widths <= {2, 3} and len(widths) == 1
    if is_matrix and is_edges and path.suffix != ".edgelist":
        raise ValueError(
            f"{len(cells)} rows of {len(cells)} numbers may be a matrix or edges: write the edges "
            "below a row of names, source and target"
        )
    if is_matrix and not (is_edges and path.suffix == ".edgelist"):
        return matrix_graph(nx, _numbers(cells), directed, weight)
    if is_edges:
        _check_first_row(cells)
        value = 2 if widths == {3} else None
        return _columns_graph(nx, rows, (0, 1), value, directed, weight)
    if widths <= {2, 3}:
        raise ValueError(
            "lines of two and of three words may be edges, or nodes with their neighbours"
        )
    return _from_neighbours(nx, rows, directed)


def _check_first_row(cells: Sequence[Sequence[str]]) -> None:
    """Refuse two names that only the first row has: they may be names of columns."""
    others = {end for row in cells[1:] for end in row[:2]}
    first = cells[0][:2]
    if len(cells) > 1 and not others & set(first):
        raise ValueError(
            f"{', '.join(first)} in the first row alone: name columns source and target"
        )


def _from_neighbours(nx: Any, rows: NumberedRows, directed: bool) -> Any:
    """The graph of lists of neighbours, as networkx writes them: each line is a node, then its
    neighbours.

    Raises:
        ValueError: the lines are no such lists: a node has no line, or two.
    """
    lists: dict[str, Sequence[str]] = {}
    for number, (node, *neighbours) in rows:
        if node in lists:
            raise ValueError(f"no edges, and no lists of neighbours: {node!r} twice, line {number}")
        lists[node] = neighbours
    for number, (_, *neighbours) in rows:
        for neighbour in neighbours:
            if neighbour not in lists:
                got = f"{neighbour!r} in line {number} has no line of its own"
                raise ValueError(f"no edges, and no lists of neighbours: {got}")
    if not any(lists.values()):
        raise ValueError("one word in every line: expected two nodes")
    return nx.from_dict_of_lists(lists, create_using=graph_class(nx, directed))


def _strip_labels(
    cells: Sequence[Sequence[str]],
) -> tuple[Sequence[str], list[Sequence[str]]] | None:
    """The nodes and the numbers of a matrix with names above and before it.

    R writes the numbers 1, 2, ... before rows that have no names, and may leave out the corner.
    """
    names = cells[0]
    rows = cells[1:]
    # a number in the corner is that of a matrix without names
    if len(names) == len(rows) + 1 and not _is_numeric_text(names[0]):
        names = names[1:]
    if len(names) != len(rows) or any(len(row) != len(rows) + 1 for row in rows):
        return None
    before = [row[0] for row in rows]
    numbers = [row[1:] for row in rows]
    if before != list(names):
        if _numbers(numbers) is None:  # such as edges between names
            return None
        if before != [str(number) for number in range(1, len(rows) + 1)]:
            got = f"{', '.join(names)} above, and {', '.join(before)} before"
            raise ValueError(f"a matrix with {got}")
    if len(set(names)) < len(names):
        raise ValueError("a matrix with a name twice above it")
    return names, numbers


def _is_numeric_text(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _numbers(cells: Sequence[Sequence[str]]) -> Any:
    """The cells as an array; None if a cell is not a number."""
    try:
        return np.array([[float(cell) for cell in row] for row in cells])
    except ValueError:
        return None


def matrix_graph(nx: Any, matrix: Any, directed: bool, weight: str) -> Any:
    """The graph with an edge from i to j where the entry in row i and column j is not 0.

    Raises:
        ValueError: the matrix is not square, has an entry that is not a finite number, or is
            asymmetric where edges have no direction.
    """
    if matrix is None:
        raise ValueError("a matrix with cells that are no numbers")
    if matrix.dtype.kind not in "biuf":
        raise ValueError(f"a matrix of type {matrix.dtype}, not of real numbers")
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"a matrix of shape {matrix.shape}, not a square one")
    if len(matrix) > MOST_COUNT:
        raise ValueError(f"a matrix of {len(matrix)} nodes, more than {MOST_COUNT}")
    if not np.isfinite(matrix).all():
        raise ValueError("a matrix with numbers that are not finite")
    if not directed and not np.allclose(matrix, matrix.T, rtol=1e-9, atol=0):
        raise ValueError("an asymmetric matrix: set directed to true")
    graph = graph_class(nx, directed)()
    graph.add_nodes_from(range(len(matrix)))
    for one, other in np.argwhere(matrix).tolist():
        graph.add_edge(one, other, **{weight: float(matrix[one, other])})
    return graph
