"""Decentralised SGD: nodes average with neighbours, in lock step (D-PSGD) or pairs (AD-PSGD)."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import ClassVar, Literal

from laggard.simulator.algorithms.averaging import Averaging, combine, tell
from laggard.simulator.algorithms.base import Algorithm, Role
from laggard.simulator.algorithms.elastic import Elastic, state_among_members
from laggard.simulator.engine.cluster import Cluster
from laggard.simulator.engine.node import Node
from laggard.simulator.errors import InvalidSettingError
from laggard.simulator.learning.rules import Rule
from laggard.simulator.network.topology import Ring, Topology, asked_by, graph_of_workers


@dataclass(frozen=True)
class DPSGD(Averaging, Elastic):
    """Decentralised parallel SGD: a node averages with its neighbours and steps by its gradient.

        x_i <- sum_j W_ij x_j - lr g_i(x_i)      by combine_then_adapt
        x_i <- sum_j W_ij (x_j - lr g_j(x_j))    by adapt_then_combine

    with W doubly stochastic. On a ring a step takes max(t_c, alpha + 2 N beta) seconds by the
    first, and t_c + alpha + 2 N beta by the second, for N bytes, latency alpha, beta seconds a
    byte, one card per node with either `sharing`, and gradients of t_c seconds.

    combine_then_adapt sends before it computes, so that messages and gradient overlap; `mixings` is
    1, since the model is averaged between read and step. adapt_then_combine equals `sgp` without
    overlap. On the complete graph with weights 1/P, and with an optimiser that is linear in the
    gradient (SGD, momentum, Nesterov), it equals `sync_ps`.

    Each node keeps its own state of the optimiser. W does not depend on the nodes' numbers of
    samples. Staleness 0. With `on_crash: shrink` the graph is that of the nodes that are up, and
    may fall apart.

    Source: Lian et al. (2017), arXiv 1705.09056, algorithm 1; adapt-then-combine: Chen & Sayed
    (2012), arXiv 1111.0034.

    Attributes:
        order: combine_then_adapt, as in Lian et al., or adapt_then_combine.
    """

    one_model: ClassVar[bool] = False

    order: Literal["combine_then_adapt", "adapt_then_combine"] = "combine_then_adapt"

    def check(self, cluster: Cluster) -> None:
        if self.on_crash == "shrink" and self.mixing != "metropolis":
            expected = "metropolis where on_crash is shrink: it is doubly stochastic on any nodes"
            raise InvalidSettingError("DPSGD", "mixing", expected, self.mixing)
        super().check(cluster)

    def worker(self, node: Node) -> Role:
        combine_first = self.order == "combine_then_adapt"
        state = state_among_members(node, self.rule, node.state)
        for step in count():
            mixing = node.mixing(self.mixing, step)
            if combine_first:  # the messages travel while the gradient is computed
                tell(node, step, mixing, node.weights)
            gradient = yield node.compute(node.weights)
            if combine_first:
                (node.weights,) = yield from combine(node, step, mixing, node.weights)
            weights, state = self.rule.update(node.weights, [gradient], state)
            node.apply(weights, [gradient], state)
            if not combine_first:
                tell(node, step, mixing, node.weights)
                (node.weights,) = yield from combine(node, step, mixing, node.weights)


ASK, ANSWER = "may we average?", "yes"


@dataclass(frozen=True)
class ADPSGD(Algorithm):
    """Asynchronous decentralised SGD: a gradient, an average with a random neighbour, the step.

        g_i = g(x_i);    x_i, x_j <- (x_i + x_j) / 2;    x_i <- x_i - lr g_i

    There is no deadlock, since nodes are in two halves: the active half asks, and the passive half
    only answers, at once while it computes. The halves are the two colours of a bipartite graph,
    rank 0 active; on any other, even ranks ask odd ones. An average conserves the sum of the
    models: the passive node moves half way to the model that it received, and the active one by the
    opposite amount once it has the answer. No node waits for a slow one: with one that is s times
    slower, P nodes on a free network compute P - 1 + 1/s times as many gradients as one. Staleness
    0; `mixings` counts the averages between a gradient's read and its step. Where a neighbour is
    down, another is asked.

    Source: Lian et al. (2018), arXiv 1710.06952, algorithm 1, in its deadlock-free form on
    bipartite graphs.
    """

    topology: ClassVar[Topology] = Ring()

    rule: Rule

    def roles(self, workers: int) -> Mapping[int, Sequence[Callable[[Node], Role]]]:
        return {rank: [self.worker, self.answer] for rank in range(workers)}

    def links(self, workers: int) -> Iterable[tuple[int, int]]:
        """No required pairs: the method sends along the edges of any graph."""
        return ()

    def check(self, cluster: Cluster) -> None:
        asked_by(
            graph_of_workers(cluster.network.topology, self.topology, cluster.workers),
            cluster.workers,
        )

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
            own = node.weights
            node.send(neighbour, own, tag=ASK)
            answer = node.receive(tag=ANSWER)
            yield answer | node.down(neighbour)
            if answer.fired:
                _, theirs = answer.value
                # The opposite of the neighbour's move, so that the sum of all models stays.
                node.weights = node.weights + (theirs - own) / 2
                return

    def answer(self, node: Node) -> Role:
        while True:
            asker, theirs = yield node.receive(tag=ASK)
            own = node.weights
            node.weights = own + (theirs - own) / 2
            node.send(asker, own, tag=ANSWER)


class OverlapADPSGD(ADPSGD):
    """Asynchronous decentralised SGD that averages while it computes: `adpsgd`, messages hidden.

        g_i = g(x_i);    meanwhile x_i, x_j <- (x_i + x_j) / 2;    then x_i <- x_i - lr g_i

    An average begins with the gradient instead of after it, so that an active node takes max(t_c, 2
    (alpha + N beta)) seconds a step to a neighbour that nobody else asks, where `adpsgd` takes t_c
    + 2 (alpha + N beta), with either `sharing`. The gradient is taken before the average in both.
    On a free network the two take the same time.

    Source: Lian et al. (2018), arXiv 1710.06952; their public code averages while the next gradient
    is computed.
    """

    def worker(self, node: Node) -> Role:
        state = self.rule.init(node.weights, replicas=node.workers)
        neighbours = asked_by(node.topology, node.workers)[node.rank]
        while True:
            work = node.compute(node.weights)
            yield from self.average(node, list(neighbours))
            gradient = yield work
            weights, state = self.rule.update(node.weights, [gradient], state)
            node.apply(weights, [gradient])
