"""Who may talk to whom. Workers are ranks 0, 1, ..., parameter servers are `SERVER` = -1, -2, ...

Steps are those of a node's own loop: a graph may change from one to the next, as the exponential one does.
"""

from simulator.topology.gossip import asked_by, graph_of_workers
from simulator.topology.graph import Graph
from simulator.topology.peers import Peers
from simulator.topology.protocol import SERVER, Ranks, Topology
from simulator.topology.regular import Complete, Exponential, Ring, Torus
from simulator.topology.star import Auto, Star, resolved

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
    "Torus", "asked_by", "graph_of_workers", "resolved",
]  # fmt: skip
