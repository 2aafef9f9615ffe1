"""RelaySGD: nodes of a tree relay sums of models; all count equally, with a delay by distance."""

from collections.abc import Generator, Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from typing import TYPE_CHECKING, Any, ClassVar

from laggard.simulator.algorithms.averaging import neighbours_on
from laggard.simulator.algorithms.base import Algorithm, Role
from laggard.simulator.engine.cluster import Cluster
from laggard.simulator.engine.node import Node
from laggard.simulator.learning.rules import Rule
from laggard.simulator.network.topology import Ranks, Ring, Topology, graph_of_workers
from laggard.simulator.timing.events import Event

if TYPE_CHECKING:
    from torch import Tensor

Sums = dict[int, "tuple[Tensor, int]"]
"""By neighbour: the sum of models that came from there, and their number."""


@dataclass(frozen=True)
class RelaySGD(Algorithm):
    """RelaySGD: nodes of a tree relay sums of models; all count equally, with a delay by distance.

        h_i = x_i - lr g_i(x_i);    m_ij = h_i + sum_(k != j) m_ki;
        x_i <- (h_i + sum_j m_ji + missing x_i(0)) / P

    where i sends m_ij to its neighbour j, with the number of models in it, and relays what it
    received in the step before. The initial model stands for the `missing` models, which have not
    come yet. So x_i(t + 1) = (1/P) sum_j h_j(t - max(0, dist(i, j) - 1)): every node counts exactly
    1/P, a weight to which gossip averages only tend. Where the nodes' losses differ, they stand
    still only at the minimum of the mean loss, if the optimiser is linear in the gradient. The tree
    is the breadth-first spanning tree of the graph from rank 0; on a ring, the chain without the
    edge opposite to rank 0. Staleness 0: a gradient is taken at the node's own model.

    A message is one model; its number of models counts no bytes. On a tree of more than two nodes
    of degree at most 2 a step takes t_c + alpha + 2 N beta, for N bytes, latency alpha, beta
    seconds a byte, one card per node with either `sharing`, and gradients of t_c seconds. A node
    that crashes is not readmitted, and the others wait for it forever.

    Source: Vogels et al. (2021), arXiv 2110.04175, algorithm 1; the start for what is missing:
    their public code.
    """

    topology: ClassVar[Topology] = Ring()
    readmits: ClassVar[bool] = False

    rule: Rule

    def links(self, workers: int) -> Iterable[tuple[int, int]]:
        """No required pairs: the method sends along the edges of any graph."""
        return ()

    def check(self, cluster: Cluster) -> None:
        topology = cluster.network.topology
        tree_on(graph_of_workers(topology, self.topology, cluster.workers), cluster.workers)

    def worker(self, node: Node) -> Role:
        start, received = node.weights, Sums()
        state = self.rule.init(start, replicas=node.workers)
        for step in count():
            gradient = yield node.compute(node.weights)
            ahead, state = self.rule.update(node.weights, [gradient], state)
            received = yield from self.relay(node, step, ahead, received)
            total, number = add_received(ahead, received)
            mean = (total + (node.workers - number) * start) / node.workers
            node.apply(mean, [gradient])  # not `ahead`, which stands far from all other models

    def relay(
        self, node: Node, step: int, weights: "Tensor", received: Sums
    ) -> Generator[Event, Any, Sums]:
        """Send the neighbours `weights` and what was received from the others; wait for theirs."""
        neighbours = tree_on(node.topology, node.workers)[node.rank]
        for peer in neighbours:
            others = {other: received[other] for other in received if other != peer}
            node.send(peer, add_received(weights, others), tag=step)
        fresh = Sums()
        for _ in neighbours:
            peer, fresh[peer] = yield node.receive(tag=step)
        return {peer: fresh[peer] for peer in neighbours}


def add_received(weights: "Tensor", received: Sums) -> "tuple[Tensor, int]":
    """The sum of a model `(ensemble, params)` and the received models, and their number."""
    number = 1
    for other, others in received.values():
        weights, number = weights + other, number + others
    return weights, number


@lru_cache(maxsize=64)
def tree_on(graph: Topology, workers: int) -> tuple[Ranks, ...]:
    """The neighbours of each rank on the breadth-first spanning tree of a graph from rank 0.

    Raises:
        InvalidSettingError: the graph changes from step to step, or an edge has one direction.
    """
    neighbours = neighbours_on(graph, workers)
    edges: list[list[int]] = [[] for _ in range(workers)]
    reached = [0]
    parents = {0: 0}
    for rank in reached:
        for peer in neighbours[rank]:
            if peer not in parents:
                parents[peer] = rank
                edges[rank].append(peer)
                edges[peer].append(rank)
                reached.append(peer)
    return tuple(tuple(peers) for peers in edges)
