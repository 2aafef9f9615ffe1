"""Any graph that networkx makes or reads, its nodes as ranks."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from simulator.bounds import Invalid
from simulator.topology.edges import Edges, drawn
from simulator.topology.peers import Peers


@dataclass(frozen=True, eq=False)  # a file may change: what was worked out for one graph is not another's
class Graph(Peers):
    """Any graph, directed or not: a networkx generator by name, or a file.

    Nodes become ranks in sorted order; self-loops and parallel edges are dropped. There must be a node per worker, and
    everybody must reach everybody along the edges.

    Source: networkx, Hagberg et al. (2008).

    Attributes:
        graph: a generator's name, as `random_regular_graph`.
        arguments: its arguments, by name or in order; where it takes a `seed`, that is 0 unless given.
        file: .edgelist (two columns, or three with the weight), .adjlist, .graphml, or .json in node-link form.
        directed: whether edges have a direction, where neither generator nor file says so itself.
        weight: the attribute of an edge that says which share of its sender's model goes along it, for the mixing
            `weights`.
    """

    graph: str | None = None
    arguments: dict[str, Any] | list[Any] = field(default_factory=dict)
    file: str | None = None
    directed: bool = False
    weight: str = "weight"

    def __post_init__(self) -> None:
        if (self.graph is None) == (self.file is None):
            raise Invalid("Graph", "graph", "a generator's name or a file, one of the two", self.graph)

    @cached_property
    def edges(self) -> Edges:
        """The graph's edges, between ranks."""
        return drawn(self.graph, self.arguments, self.file, self.directed, self.weight)

    def ranks(self, rank: int, step: int, workers: int) -> Sequence[int]:
        return list(self.edges.out[rank])

    def share(self, sender: int, receiver: int, workers: int) -> float:
        weight = self.edges.out[sender][receiver]
        if weight is None or not 0 < weight <= 1:
            expected = f"a share from 0 to 1 on every edge as its attribute {self.weight!r}"
            raise Invalid("Graph", "weight", expected, f"{weight} on {sender} -> {receiver}")
        return weight

    def check(self, workers: int) -> None:
        what = "graph" if self.file is None else "file"
        if len(self.edges.out) != workers:
            nodes = f"{len(self.edges.out)} nodes"
            raise Invalid("Graph", what, f"a graph with a node for each of workers = {workers}", nodes)
        if not self.edges.connected:
            raise Invalid("Graph", what, "a graph on which everybody reaches everybody", "one that falls apart")
