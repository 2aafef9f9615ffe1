"""Averages with the neighbours by a matrix W, for gossip methods in lock step."""

from collections.abc import Generator, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from laggard.simulator.algorithms.base import Algorithm
from laggard.simulator.engine.cluster import Cluster
from laggard.simulator.engine.node import Node
from laggard.simulator.errors import InvalidSettingError
from laggard.simulator.learning.rules import Rule
from laggard.simulator.network.mixing import Mixing, doubly_stochastic
from laggard.simulator.network.topology import Ranks, Ring, Topology, graph_of_workers
from laggard.simulator.timing.events import Event

if TYPE_CHECKING:
    from torch import Tensor

MOST_EIGENVALUES = 2048
"""The workers up to which eigenvalues of W are computed: of more it would take minutes."""

Averages = Generator[Event, Any, "list[Tensor]"]


def tell(node: Node, step: int, mixing: Mixing, *models: "Tensor", size: float = 1.0) -> None:
    """Send `models` to the neighbours, tagged by step: a fast neighbour may be one ahead.

    Args:
        size: the size of one model in a message: 1 where it is sent whole.
    """
    for peer in mixing.out:
        node.send(peer, models, tag=step, size=size * len(models))


def combine(node: Node, step: int, mixing: Mixing, *models: "Tensor") -> Averages:
    """Wait for the neighbours' models, and average: x_i <- W_ii x_i + sum_j W_ij x_j."""
    theirs: dict[int, tuple[Tensor, ...]] = {}
    for _ in mixing.into:
        peer, theirs[peer] = yield node.receive(tag=step)
    averages = []
    for place, own in enumerate(models):
        # In the order of peers, not of arrival: the order fixes the last bits of a sum.
        parts = (weight * theirs[peer][place] for peer, weight in mixing.into.items())
        averages.append(sum(parts, mixing.own * own))
    return averages


@lru_cache(maxsize=64)
def neighbours_on(graph: Topology, workers: int) -> tuple[Ranks, ...]:
    """The neighbours of each rank on an undirected graph that does not change.

    Raises:
        InvalidSettingError: it changes from step to step, or an edge has one direction.
    """
    name = type(graph).__name__.lower()
    if graph.period(workers) > 1:
        expected = "a graph that does not change from step to step"
        raise InvalidSettingError("Network", "topology", expected, name)
    neighbours = []
    for rank in range(workers):
        peers = graph.out_peers(rank, 0, workers)
        if set(peers) != set(graph.in_peers(rank, 0, workers)):
            raise InvalidSettingError("Network", "topology", "an undirected graph", name)
        neighbours.append(tuple(sorted(peers)))
    return tuple(neighbours)


@dataclass(frozen=True)
class Averaging(Algorithm):
    """A method whose nodes average with their neighbours in lock step.

    x_i <- sum_j W_ij x_j

    A node that crashes is not readmitted, and the others wait for it forever.

    Attributes:
        mixing: W by name; it must be doubly stochastic on the graph, or the nodes' mean would not
            be the average.
    """

    topology: ClassVar[Topology] = Ring()
    readmits: ClassVar[bool] = False

    rule: Rule
    mixing: Literal["metropolis", "uniform", "weights"] = field(default="metropolis", kw_only=True)

    def links(self, workers: int) -> Iterable[tuple[int, int]]:
        """No required pairs: the method sends along the edges of any graph."""
        return ()

    def check(self, cluster: Cluster) -> None:
        super().check(cluster)
        if not doubly_stochastic(self.mixing, self.graph(cluster), cluster.workers):
            expected = (
                "a mixing that is doubly stochastic on this graph, as metropolis on an undirected "
                "graph; or use sgp"
            )
            raise InvalidSettingError(type(self).__name__, "mixing", expected, self.mixing)

    def graph(self, cluster: Cluster) -> Topology:
        """The graph of the cluster's workers, or the method's own."""
        return graph_of_workers(cluster.network.topology, self.topology, cluster.workers)

    def average(self, node: Node, step: int, *models: "Tensor") -> Averages:
        """Exchange `models` with the neighbours, and return the averages by W."""
        mixing = node.mixing(self.mixing, step)
        tell(node, step, mixing, *models)
        return (yield from combine(node, step, mixing, *models))
