"""Methods whose nodes sum their gradients by a collective: settings, links and the update."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Literal

from laggard.simulator.algorithms.collectives import (
    COLLECTIVES,
    Collective,
    in_slices,
    on_servers,
    over_hosts,
)
from laggard.simulator.algorithms.elastic import Elastic
from laggard.simulator.engine.cluster import Cluster
from laggard.simulator.engine.node import Node
from laggard.simulator.errors import InvalidSettingError, PositiveInt
from laggard.simulator.learning.gradients import GradientPromise
from laggard.simulator.learning.promises import Promise
from laggard.simulator.learning.rules import Rule
from laggard.simulator.learning.rules.rule import RuleState
from laggard.simulator.network.topology import Complete, Topology

HIERARCHICAL, MOST_RING_SLICES = "hierarchical", 1024


@dataclass(frozen=True)
class Reducing(Elastic):
    """A method whose nodes sum their gradients by a collective, and each of which updates its own
    model by the mean.

    Attributes:
        collective: the collective that sums the gradients. The naive ring forwards whole gradients;
            on the mesh every node sends its own to every other; with `server` the first of the
            nodes add up gradients and send the sum to all, each of which updates its own model;
            `hierarchical` goes inside and across the network's hosts, or groups.
        ring_slices: parts into which the ring cuts each message, at most 1,024; a node passes one
            on while the next comes, which hides the latency. With `sharing: fifo` only.
        servers: S of `server`, at most all nodes; each adds up one part.
    """

    topology: ClassVar[Topology] = Complete()

    rule: Rule
    collective: Literal[
        "ring",
        "naive_ring",
        "mesh",
        "recursive_doubling",
        "halving_doubling",
        "tree",
        "server",
        "hierarchical",
    ] = "ring"
    ring_slices: PositiveInt = 1
    servers: PositiveInt = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        name = type(self).__name__
        for key, owner in (("ring_slices", "ring"), ("servers", "server")):
            if getattr(self, key) != 1 and self.collective != owner:
                raise InvalidSettingError(
                    name, key, f"1 where collective is not {owner}", getattr(self, key)
                )
        if self.ring_slices > MOST_RING_SLICES:
            raise InvalidSettingError(
                name, "ring_slices", f"at most {MOST_RING_SLICES}", self.ring_slices
            )

    def check(self, cluster: Cluster) -> None:
        super().check(cluster)
        if self.on_crash == "shrink" and (self.collective == HIERARCHICAL or self.servers > 1):
            expected = "stall or restart, where hosts or servers need a fixed number of nodes"
            raise InvalidSettingError(type(self).__name__, "on_crash", expected, self.on_crash)
        if self.collective == HIERARCHICAL and cluster.network.group_size(cluster.workers) is None:
            expected = (
                "the hosts, or groups of equal size in order of rank, over which hierarchical sums"
            )
            raise InvalidSettingError("Network", "hosts", expected, None)
        if self.ring_slices > 1 and cluster.network.sharing != "fifo":
            expected = (
                "fifo for a ring in slices: slices that share a card arrive together, which hides "
                "no latency"
            )
            raise InvalidSettingError("Network", "sharing", expected, cluster.network.sharing)
        if self.servers > cluster.workers:
            expected = f"at most {cluster.workers} workers"
            raise InvalidSettingError(type(self).__name__, "servers", expected, self.servers)

    def links(self, workers: int) -> Iterable[tuple[int, int]]:
        """The pairs of each rank and its partners in the collective."""
        if self.collective == HIERARCHICAL:
            return super().links(workers)
        partners = self.collective_of(1).partners
        return ((rank, peer) for rank in range(workers) for peer in partners(rank, workers))

    def collective_of(self, group_size: int) -> Collective:
        """The collective, on hosts or in groups of `group_size` workers."""
        if self.collective == HIERARCHICAL:
            return over_hosts(group_size)
        if self.ring_slices > 1:
            return in_slices(self.ring_slices)
        if self.servers > 1:
            return on_servers(self.servers)
        return COLLECTIVES[self.collective]

    def step(
        self, node: Node, gradient: GradientPromise, total: Promise, state: RuleState
    ) -> RuleState:
        """Update the node's model by the mean of the gradients, whose sum is `total`; return the
        rule's state.
        """
        nodes = len(node.members)
        mean = gradient.map(lambda _, total: total / nodes, total, batches=nodes)
        weights, state = self.rule.update(node.weights, [mean], state)
        node.apply(weights, [gradient], state)
        return state
