"""Synchronous SGD without a server: the nodes add up their gradients among themselves."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from simulator.algorithm import Algorithm, Role
from simulator.bounds import Invalid
from simulator.cluster import Cluster
from simulator.collectives import COLLECTIVES, Averaged
from simulator.node import Node
from simulator.rules import Rule
from simulator.topology import Complete, Topology, resolved


@dataclass(frozen=True)
class AllReduce(Algorithm):
    """All-reduce SGD: the nodes add up their gradients by a collective, and each updates its own model by the mean.

    w <- w - lr (1/P) sum_j g_j(w), at every node. The models are equal after every update, to the bit, and so are the
    states of the optimiser that the nodes keep: it is `sync_ps` without a server, and with one worker plain SGD.
    Staleness 0; a compensation sees the mean gradient, which is fresh, so that only `one_over_n` does anything.
    A collective has its members: one that crashes is not let in again, and the others wait for it for ever.

    P nodes that begin together, N bytes, latency alpha, beta seconds a byte, full duplex; a straggler holds everyone:
    ring                2 (P - 1) alpha + 2 ((P - 1) / P) N beta
    naive_ring          (P - 1)(alpha + N beta)
    mesh                alpha + (P - 1) N beta on a card each, alpha + N beta on a link a pair
    recursive_doubling  log2 P (alpha + N beta)
    halving_doubling    2 log2 P alpha + 2 ((P - 1) / P) N beta
    tree                2 ceil(log2 P)(alpha + N beta)

    Source: Patarasuk & Yuan (2009), ring; Thakur, Rabenseifner, Gropp (2005), recursive doubling and halving, tree.

    Attributes:
        collective: how the gradients are added up. The naive ring passes whole gradients on; on the mesh every node
            sends its own to every other.
    """

    topology: ClassVar[Topology] = Complete()
    readmits: ClassVar[bool] = False

    rule: Rule
    collective: Literal["ring", "naive_ring", "mesh", "recursive_doubling", "halving_doubling", "tree"] = "ring"

    def __post_init__(self) -> None:
        if self.collective not in COLLECTIVES:
            raise Invalid("AllReduce", "collective", f"one of {', '.join(COLLECTIVES)}", self.collective)

    def check(self, cluster: Cluster) -> None:
        workers, topology = cluster.workers, resolved(cluster.network.topology, self.topology)
        topology.check(workers)
        for rank in range(workers):
            for peer in COLLECTIVES[self.collective].partners(rank, workers):
                if not topology.joins(rank, peer, workers):
                    joined = f"one whose messages a {type(topology).__name__} carries; this one's go {rank} -> {peer}"
                    raise Invalid("AllReduce", "collective", joined, self.collective)

    def worker(self, node: Node) -> Role:
        reduce = COLLECTIVES[self.collective].reduce
        state = self.rule.init(node.weights)
        while True:
            gradient = yield node.compute(node.weights)
            total = yield from reduce(node, gradient, node.weights.shape[1], node.version)
            mean = Averaged(total, gradient, node.workers)
            weights, state = self.rule.update(node.weights, [mean], state)  # type: ignore[list-item]  # all that a rule reads
            node.apply(weights, [gradient])
