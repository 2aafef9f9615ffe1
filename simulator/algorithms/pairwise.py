"""Asynchronous decentralised SGD: pairs of nodes average when one of them asks."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from simulator.algorithm import Algorithm, Role
from simulator.cluster import Cluster
from simulator.node import Node
from simulator.rules import Rule
from simulator.topology import Ring, Topology, asked_by, graph_of_workers

ASK, ANSWER = "may we average?", "yes"


@dataclass(frozen=True)
class ADPSGD(Algorithm):
    """Asynchronous decentralised SGD: a gradient at one's own model, an average with a random neighbour, then the step.

    g_i = g(x_i);    x_i, x_j <- (x_i + x_j) / 2;    x_i <- x_i - lr g_i

    No nodes can wait for one another in a circle, since they are of two halves: the active half asks, and the passive
    half, which asks nobody, answers at once while it computes. The halves are the two colours of a bipartite graph,
    rank 0 active; on any other, even ranks ask odd ones. An average conserves the sum of the models: the passive node
    goes half the way to the model that it was sent, and the active one as far in the other direction once it has the
    answer. Nobody waits for a slow node: with one that is s times slower, P nodes on a free network compute
    P - 1 + 1/s times as many gradients as one. Staleness 0; `mixings` counts the averages between a gradient's read
    and its step. Where a neighbour is down, another is asked.

    Source: Lian et al. (2018), arXiv 1710.06952, algorithm 1, in its deadlock-free form on bipartite graphs.
    """

    topology: ClassVar[Topology] = Ring()

    rule: Rule

    def roles(self, workers: int) -> Mapping[int, Sequence[Callable[[Node], Role]]]:
        return {rank: [self.worker, self.answer] for rank in range(workers)}

    def check(self, cluster: Cluster) -> None:
        asked_by(graph_of_workers(cluster.network.topology, self.topology, cluster.workers), cluster.workers)

    def worker(self, node: Node) -> Role:
        state = self.rule.init(node.weights, replicas=node.workers)
        neighbours = asked_by(node.topology, node.workers)[node.rank]
        while True:
            gradient = yield node.compute(node.weights)
            yield from self.average(node, list(neighbours))
            weights, state = self.rule.update(node.weights, [gradient], state)
            node.apply(weights, [gradient])

    def average(self, node: Node, neighbours: list[int]) -> Role:
        """Average with one of the `neighbours` at random, if any of them is up."""
        while neighbours:
            neighbour = neighbours.pop(node.rng.integers(len(neighbours)))
            mine = node.weights
            node.send(neighbour, mine, tag=ASK)
            answer = node.receive(tag=ANSWER)
            yield answer | node.down(neighbour)
            if answer.fired:
                _, theirs = answer.value
                node.weights = node.weights + (theirs - mine) / 2
                return

    def answer(self, node: Node) -> Role:
        while True:
            asker, theirs = yield node.receive(tag=ASK)
            mine = node.weights
            node.weights = mine + (theirs - mine) / 2
            node.send(asker, mine, tag=ANSWER)
