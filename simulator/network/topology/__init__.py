"""Topologies: which nodes may send to which. Workers are ranks 0, 1, ..., parameter servers are `SERVER` = -1, -2, ...

Steps are those of a node's own loop: a graph may change from one to the next, as the exponential one does.
"""

from laggard.simulator.network.topology.graph import Graph
from laggard.simulator.network.topology.regular import Complete, Exponential, Peers, Ring, Torus
from laggard.simulator.network.topology.topology import (
    SERVER,
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
}

__all__ = [
    "SERVER", "TOPOLOGIES", "Auto", "Complete", "Exponential", "Graph", "Peers", "Ranks", "Ring", "Star", "Topology",
    "Torus", "asked_by", "graph_of_workers", "resolve_topology",
]  # fmt: skip
