"""Any graph that networkx generates or reads, with ranks as nodes."""

import inspect
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from laggard.files import describe_numbering, natural_key
from laggard.limits import limit_calls
from laggard.simulator.errors import MOST_COUNT, InvalidSettingError
from laggard.simulator.network.topology.graph_file import read_graph
from laggard.simulator.network.topology.regular import Peers

MOST_CALLS = 6_500_000  # seconds; enough for a complete graph of 1,000 workers


@dataclass(frozen=True)
class Edges:
    """The edges of a graph, between ranks, with their weights.

    Attributes:
        out: for each rank, the ranks to which its edges lead, and their weights where they have
            one.
        connected: whether every rank can be reached from every other.
    """

    out: Sequence[Mapping[int, float | None]]
    connected: bool


def _node_order(node: Any) -> tuple[Any, ...]:
    """Sort numbers by value, also those spelt in a file, then tuples of them, then names in natural
    order.
    """
    if isinstance(node, tuple):
        return 1, tuple(_node_order(part) for part in node)
    try:
        return 0, float(node)
    except (TypeError, ValueError):
        return 2, natural_key(str(node))


def _largest(arguments: Any) -> float:
    """The largest number in arguments, but for the seed."""
    if isinstance(arguments, dict):
        return _largest([value for key, value in arguments.items() if key != "seed"])
    if isinstance(arguments, list):
        return max(map(_largest, arguments), default=0)
    if isinstance(arguments, int | float):
        return abs(arguments)
    return 0


def _generate(nx: Any, name: str, arguments: dict[str, Any] | list[Any], directed: bool) -> Any:
    maker = getattr(nx, name, None)
    if not getattr(maker, "__module__", "").startswith("networkx.generators."):
        expected = "the name of a networkx generator, as random_regular_graph"
        raise InvalidSettingError("Graph", "graph", expected, name)
    parameters = [key for key in inspect.signature(maker).parameters if "backend" not in key]  # type: ignore[arg-type]
    defaults: dict[str, Any] = {}
    if "seed" in parameters:
        defaults["seed"] = 0
    if directed and "create_using" in parameters:
        defaults["create_using"] = nx.DiGraph
    elif directed:
        defaults["directed"] = True
    largest = _largest(arguments)
    if largest > MOST_COUNT:
        raise InvalidSettingError("Graph", "arguments", f"numbers of at most {MOST_COUNT}", largest)
    try:
        named = arguments
        if isinstance(named, list):
            named = dict(zip(parameters[: len(named)], named, strict=True))
        with limit_calls(MOST_CALLS):
            graph = maker(**defaults | named)  # type: ignore[misc]
    except Exception as error:  # of any type: the generator does not accept the arguments
        expected = f"those of {name}({', '.join(parameters)})"
        got = f"{arguments}: {error}"
        raise InvalidSettingError("Graph", "arguments", expected, got) from None
    if not isinstance(graph, nx.Graph):
        expected = "the name of a networkx generator of one graph"
        raise InvalidSettingError("Graph", "graph", expected, name)
    return graph


@dataclass(frozen=True, eq=False)  # a file may change, so that equal fields may be different graphs
class Graph(Peers):
    """Any graph, directed or not: a networkx generator by name, or a file.

    Nodes become ranks in sorted order; self-loops and parallel edges are dropped. There must be a
    node per worker, and every node must be reachable from every other along the edges.

    Source: networkx, Hagberg et al. (2008).

    Attributes:
        graph: a generator's name, as `random_regular_graph`.
        arguments: its arguments, by name or in order; where it takes a `seed`, that is 0 unless
            given.
        file: any form that networkx writes except pickles and DOT; METIS; a square matrix as CSV,
            .npy or Matrix Market; or edges, two columns, or three with the weight, below names such
            as `source` and `target` or without names. It may be compressed.
        directed: whether edges have a direction, where neither the generator nor the file
            determines it.
        weight: the edge attribute with the share of its sender's model that goes along it, for the
            mixing `weights`.
    """

    graph: str | None = None
    arguments: dict[str, Any] | list[Any] = field(default_factory=dict)
    file: str | None = None
    directed: bool = False
    weight: str = "weight"

    def __post_init__(self) -> None:
        if (self.graph is None) == (self.file is None):
            raise InvalidSettingError(
                "Graph", "graph", "a generator's name or a file, one of the two", self.graph
            )

    @cached_property
    def edges(self) -> Edges:
        """The graph's edges, between ranks.

        Raises:
            InvalidSettingError: there is no such generator or file, or it cannot be made or read.
        """
        # here, since importing it takes longer than simulating a small cluster
        import networkx as nx

        if self.file is not None:
            made = read_graph(nx, Path(self.file), self.directed, self.weight)
        else:
            made = _generate(nx, str(self.graph), self.arguments, self.directed)
        made = (nx.DiGraph if made.is_directed() else nx.Graph)(made)  # parallel edges become one
        made.remove_edges_from(list(nx.selfloop_edges(made)))
        if not made:
            raise InvalidSettingError("Graph", self._source, "a graph with nodes", "an empty one")
        ranks = {node: rank for rank, node in enumerate(sorted(made, key=_node_order))}
        if self.file is not None:
            described = describe_numbering({str(node): rank for node, rank in ranks.items()})
            if described is not None:
                warnings.warn(f"{self.file}: ranks of nodes: {described}", stacklevel=2)
        out: list[dict[int, float | None]] = [{} for _ in ranks]
        for one, other, value in made.edges(data=self.weight):
            out[ranks[one]][ranks[other]] = value
            if not made.is_directed():
                out[ranks[other]][ranks[one]] = value
        return Edges(
            out, nx.is_strongly_connected(made) if made.is_directed() else nx.is_connected(made)
        )

    @property
    def _source(self) -> str:
        """The setting that the graph comes from."""
        if self.file is None:
            return "graph"
        return "file"

    def ranks(self, rank: int, step: int, workers: int) -> Sequence[int]:
        return list(self.edges.out[rank])

    def share(self, sender: int, receiver: int, workers: int) -> float:
        weight = self.edges.out[sender][receiver]
        if weight is None or not 0 < weight <= 1:
            expected = f"a share from 0 to 1 on every edge as its attribute {self.weight!r}"
            raise InvalidSettingError(
                "Graph", "weight", expected, f"{weight} on {sender} -> {receiver}"
            )
        return weight

    def check(self, workers: int) -> None:
        if len(self.edges.out) != workers:
            nodes = f"{len(self.edges.out)} nodes"
            raise InvalidSettingError(
                "Graph", self._source, f"a graph with a node for each of workers = {workers}", nodes
            )
        if not self.edges.connected:
            expected = "a graph in which every node can reach every other"
            raise InvalidSettingError("Graph", self._source, expected, "a disconnected one")
