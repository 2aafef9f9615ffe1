"""Graphs as networkx makes or reads them, their nodes as ranks."""

import inspect
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simulator.bounds import Invalid


@dataclass(frozen=True)
class Edges:
    """What is left of a graph: edges between ranks, with their weights.

    Attributes:
        out: for each rank, the ranks to which its edges lead, and their weights where they have one.
        connected: whether every rank can be reached from every other.
    """

    out: Sequence[Mapping[int, float | None]]
    connected: bool


def drawn(
    graph: str | None, arguments: dict[str, Any] | list[Any], file: str | None, directed: bool, weight: str
) -> Edges:
    """The edges of the graph that a networkx generator makes, or that a file holds.

    Raises:
        Invalid: there is no such generator or file, or it cannot be made or read.
    """
    import networkx as nx  # here, since importing it takes longer than simulating a small cluster

    if file is None:
        assert graph is not None
        made = _generated(nx, graph, arguments, directed)
    else:
        made = _read(nx, Path(file), directed)
    made = (nx.DiGraph if made.is_directed() else nx.Graph)(made)  # parallel edges become one
    made.remove_edges_from(list(nx.selfloop_edges(made)))
    if not made:
        raise Invalid("Graph", "graph" if file is None else "file", "a graph with nodes", "an empty one")
    ranks = {node: rank for rank, node in enumerate(sorted(made, key=_order))}
    out: list[dict[int, float | None]] = [{} for _ in ranks]
    for one, other, value in made.edges(data=weight):
        out[ranks[one]][ranks[other]] = value
        if not made.is_directed():
            out[ranks[other]][ranks[one]] = value
    return Edges(out, nx.is_strongly_connected(made) if made.is_directed() else nx.is_connected(made))


def _order(node: Any) -> tuple[Any, ...]:
    """Numbers by their value, though a file spells them, then tuples of them, then texts."""
    if isinstance(node, tuple):
        return 1, tuple(_order(part) for part in node)
    try:
        return 0, float(node)
    except (TypeError, ValueError):
        return 2, str(node)


def _generated(nx: Any, name: str, arguments: dict[str, Any] | list[Any], directed: bool) -> Any:
    maker = getattr(nx, name, None)
    if not getattr(maker, "__module__", "").startswith("networkx.generators."):
        raise Invalid("Graph", "graph", "the name of a networkx generator, as random_regular_graph", name)
    known = [key for key in inspect.signature(maker).parameters if "backend" not in key]  # type: ignore[arg-type]
    given: dict[str, Any] = {"seed": 0} if "seed" in known else {}
    if directed:
        given |= {"create_using": nx.DiGraph} if "create_using" in known else {"directed": True}
    try:
        named = dict(zip(known[: len(arguments)], arguments, strict=True)) if isinstance(arguments, list) else arguments
        made = maker(**given | named)  # type: ignore[misc]
    except (TypeError, ValueError, AttributeError, nx.NetworkXException) as error:
        raise Invalid("Graph", "arguments", f"those of {name}({', '.join(known)})", f"{arguments}: {error}") from None
    if not isinstance(made, nx.Graph):
        raise Invalid("Graph", "graph", "the name of a networkx generator of one graph", name)
    return made


def _read(nx: Any, path: Path, directed: bool) -> Any:
    kind = nx.DiGraph if directed else nx.Graph
    readers = {
        ".edgelist": lambda: nx.read_edgelist(path, create_using=kind, data=_columns(path)),
        ".adjlist": lambda: nx.read_adjlist(path, create_using=kind),
        ".graphml": lambda: nx.read_graphml(path),
        ".json": lambda: _from_json(nx, path),
    }
    if path.suffix not in readers:
        raise Invalid("Graph", "file", f"a name that ends in one of {', '.join(readers)}", str(path))
    try:
        return readers[path.suffix]()
    except OSError as error:
        raise Invalid("Graph", "file", "a file that can be read", f"{path}: {error.strerror}") from None
    except (AttributeError, LookupError, SyntaxError, TypeError, ValueError, nx.NetworkXException) as error:
        raise Invalid("Graph", "file", f"a graph as {path.suffix} has it", f"{path}: {error}") from None


def _columns(path: Path) -> Any:
    """What networkx is to read beside the two ends of an edge: the weight, where there is a third column."""
    lines = (line.partition("#")[0].split() for line in path.read_text().splitlines())
    return (("weight", float),) if len(next(filter(None, lines), ())) > 2 else False


def _from_json(nx: Any, path: Path) -> Any:
    document = json.loads(path.read_text())
    return nx.node_link_graph(document, edges="links" if "links" in document else "edges")
