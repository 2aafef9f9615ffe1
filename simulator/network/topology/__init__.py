"""Topologies: which nodes may send to which. Workers are ranks 0, 1, ..., parameter servers are
`SERVER` = -1, -2, ...

Steps are those of a node's own loop: a graph may change from one to the next, as the exponential
one does.
"""

from collections.abc import Callable, Iterable

from laggard.simulator.network.topology.graph import Graph
from laggard.simulator.network.topology.regular import (
    Complete,
    CompleteWithServers,
    Exponential,
    Peers,
    Ring,
    Torus,
)
from laggard.simulator.network.topology.time_varying import TimeVarying
from laggard.simulator.network.topology.topology import (
    MOST_LINKS,
    SERVER,
    Among,
    Auto,
    Ranks,
    Star,
    Topology,
    asked_by,
    graph_of_workers,
    resolve_topology,
)

TOPOLOGIES: dict[str, type] = {
    "auto": Auto,
    "star": Star,
    "ring": Ring,
    "torus": Torus,
    "complete": Complete,
    "exponential": Exponential,
    "graph": Graph,
    "time_varying": TimeVarying,
}


def names_of_topologies(
    own: Topology, links: Callable[[int], Iterable[tuple[int, int]]], workers: int
) -> str:
    """The names of topologies that join all pairs of `links(workers)`, as `auto or star`."""
    fitting = ["auto"]
    for name in ("star", "ring", "torus", "complete", "exponential"):
        graph = TOPOLOGIES[name]()
        if graph == own or all(graph.joins(*pair, workers) for pair in links(workers)):
            fitting.append(name)
    *others, last = fitting
    if others:
        return f"{', '.join(others)} or {last}"
    return last


__all__ = [
    "MOST_LINKS",
    "SERVER",
    "TOPOLOGIES",
    "Among",
    "Auto",
    "Complete",
    "CompleteWithServers",
    "Exponential",
    "Graph",
    "Peers",
    "Ranks",
    "Ring",
    "Star",
    "TimeVarying",
    "Topology",
    "Torus",
    "asked_by",
    "graph_of_workers",
    "names_of_topologies",
    "resolve_topology",
]
