"""Decentralised SGD in lock-step: every node averages its model with its neighbours'."""

from dataclasses import dataclass
from itertools import count
from typing import ClassVar, Literal

from simulator.algorithm import Algorithm, Role
from simulator.bounds import Invalid
from simulator.cluster import Cluster
from simulator.mixing import doubly_stochastic
from simulator.node import Node
from simulator.rules import Rule
from simulator.topology import Ring, Topology, graph_of_workers

ORDERS = ("combine_then_adapt", "adapt_then_combine")


@dataclass(frozen=True)
class DPSGD(Algorithm):
    """Decentralised parallel SGD: every node averages its model with its neighbours' and steps by its own gradient.

    combine_then_adapt    x_i <- sum_j W_ij x_j - lr g_i(x_i)      max(t_c, alpha + 2 N beta) a step on a ring
    adapt_then_combine    x_i <- sum_j W_ij (x_j - lr g_j(x_j))    t_c + alpha + 2 N beta

    with W doubly stochastic; times for N bytes, latency alpha, beta seconds a byte, one card a node and gradients of
    t_c seconds. The first order sends what it has before it computes, so that messages and gradient overlap; `mixings`
    is 1, since the model is averaged between read and step. The second is `sgp` without overlap, and on the complete
    graph with weights 1/P and an optimiser that is linear in the gradient (SGD, momentum, Nesterov) `sync_ps`. Each
    node keeps its own state of the optimiser. Staleness 0.

    Source: Lian et al. (2017), arXiv 1705.09056, algorithm 1; adapt-then-combine: Chen & Sayed (2012), arXiv 1111.0034.

    Attributes:
        order: combine_then_adapt, as Lian et al. have it, or adapt_then_combine.
        mixing: W by name; it must be doubly stochastic on the graph, or the nodes' mean would not be the average.
    """

    topology: ClassVar[Topology] = Ring()
    readmits: ClassVar[bool] = False

    rule: Rule
    order: Literal["combine_then_adapt", "adapt_then_combine"] = "combine_then_adapt"
    mixing: Literal["metropolis", "uniform", "weights"] = "metropolis"

    def __post_init__(self) -> None:
        if self.order not in ORDERS:
            raise Invalid("DPSGD", "order", " or ".join(ORDERS), self.order)

    def check(self, cluster: Cluster) -> None:
        graph = graph_of_workers(cluster.network.topology, self.topology, cluster.workers)
        if not doubly_stochastic(self.mixing, graph, cluster.workers):
            expected = "one that is doubly stochastic on this graph, as metropolis on an undirected one; or use sgp"
            raise Invalid("DPSGD", "mixing", expected, self.mixing)

    def worker(self, node: Node) -> Role:
        combine_first = self.order == "combine_then_adapt"
        state = self.rule.init(node.weights, replicas=node.workers)
        for step in count():
            if combine_first:
                self.tell(node, step)
            gradient = yield node.compute(node.weights)
            if combine_first:
                yield from self.combine(node, step)
            weights, state = self.rule.update(node.weights, [gradient], state)
            node.apply(weights, [gradient])
            if not combine_first:
                self.tell(node, step)
                yield from self.combine(node, step)

    def tell(self, node: Node, step: int) -> None:
        """Send the model to the neighbours. A step's messages bear its number: a fast neighbour may be one ahead."""
        for peer in node.out_peers(step):
            node.send(peer, node.weights, tag=step)

    def combine(self, node: Node, step: int) -> Role:
        """Wait for the neighbours' models, and average: x_i <- W_ii x_i + sum_j W_ij x_j."""
        mixing, theirs = node.mixing(self.mixing, step), {}
        for _ in mixing.into:
            peer, theirs[peer] = yield node.receive(tag=step)
        node.weights = sum((weight * theirs[peer] for peer, weight in mixing.into.items()), mixing.own * node.weights)
