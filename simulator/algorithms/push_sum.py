"""Stochastic gradient push: gossip along directed edges, whose bias push-sum weights correct."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, ClassVar, Literal

from laggard.simulator.algorithms.base import Role
from laggard.simulator.algorithms.elastic import Elastic, state_among_members
from laggard.simulator.engine.cluster import Cluster
from laggard.simulator.engine.node import Node
from laggard.simulator.errors import InvalidSettingError, NonNegativeInt, PositiveInt
from laggard.simulator.learning.rules import Rule
from laggard.simulator.network.mixing import mixing
from laggard.simulator.network.topology import Exponential, Topology, graph_of_workers

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class SGP(Elastic):
    """Stochastic gradient push: nodes push shares of their models; weights correct the bias.

        x_i <- x_i - lr g_i(x_i / w_i);
        x_i <- sum_j p_ij x_j,  w_i <- sum_j p_ij w_j,  p column stochastic

    The model of a node is x / w. The sum of w over nodes and messages under way stays P, that of x
    changes by gradients only, and x / w tends to the average on any strongly connected digraph,
    though p need not average. Where p is doubly stochastic, w is 1 after every exchange and this is
    `dpsgd` with adapt_then_combine; on the complete graph with weights 1/P, and with an optimiser
    that is linear in the gradient (SGD, momentum, Nesterov), it is `sync_ps`. Each node keeps its
    own state of the optimiser. Staleness 0. Where nodes go on after a crash, each begins again with
    its model x / w as x and with w = 1, so that the sum of w is the number of nodes.

    With `overlap` tau, one exchange at a time overlaps with the gradients: messages that have
    arrived are received without waiting after each of the next tau - 1 gradients, and waited for
    after the tau-th. For N bytes, latency alpha and beta seconds a byte to one peer, with either
    `sharing`: t_c + alpha + N beta seconds a step; with tau = 1, max(t_c, alpha + N beta). Several
    exchanges at a time, or one every H gradients, are `osgp`.

    Source: Assran et al. (2019), arXiv 1811.10792, algorithms 1 and 2; one exchange at a time as in
    their public code.

    Attributes:
        mixing: p by name: `uniform` divides a model equally among the node and its peers.
        overlap: tau, in gradients; 0 waits for every exchange.
        biased: use x as the model, as if w were 1. While a share of x is under way, w and x are
            smaller, and so are steps. Without overlap it matters where w does not stay 1.
    """

    SPACE: ClassVar = {"algorithm.overlap": {"choice": [0, 1]}}

    topology: ClassVar[Topology] = Exponential(peers=1)
    one_model: ClassVar[bool] = False

    rule: Rule
    mixing: Literal["uniform", "metropolis", "weights"] = "uniform"
    overlap: NonNegativeInt = 0
    biased: bool = False

    def links(self, workers: int) -> Iterable[tuple[int, int]]:
        """No required pairs: the method sends along the edges of any graph."""
        return ()

    def check(self, cluster: Cluster) -> None:
        super().check(cluster)
        workers = cluster.workers
        graph = graph_of_workers(cluster.network.topology, self.topology, workers)
        for step in range(graph.period(workers)):
            for rank in range(workers):
                share = mixing(self.mixing, graph, rank, step, workers).own
                if self.overlap and share == 0:
                    name, kept = type(self).__name__, "a share of its own model"
                    expected = f"weights that leave every node {kept}, with which it computes"
                    raise InvalidSettingError(name, "mixing", expected, self.mixing)

    def worker(self, node: Node) -> Role:
        if self.overlap:
            return self.overlapped(node)
        return self.in_step(node)

    def in_step(self, node: Node) -> Role:
        """Algorithm 1."""
        state = state_among_members(node, self.rule, node.state)
        x, node.weight = node.weights, 1.0
        for step in count():
            gradient = yield node.compute(node.weights)
            x, state = self.rule.update(x, [gradient], state)
            node.apply(self.model(x, node), [gradient], state)
            x = self.push(node, x, step)
            for _ in node.in_peers(step):
                _, (dx, dw) = yield node.receive(tag=step)
                x, node.weight = x + dx, node.weight + dw
            node.weights = self.model(x, node)

    def overlapped(self, node: Node) -> Role:
        """Algorithm 2, with one exchange outstanding at a time."""
        state = state_among_members(node, self.rule, node.state)
        x, node.weight = node.weights, 1.0
        # The present exchange: its number, the step after which it began, its messages still to
        # come.
        exchange, pushed, missing = -1, 0, 0
        for step in count():
            gradient = yield node.compute(node.weights)
            x, state = self.rule.update(x, [gradient], state)
            node.apply(self.model(x, node), [gradient], state)
            while missing and (step - pushed >= self.overlap or node.arrived(exchange)):
                _, (dx, dw) = yield node.receive(tag=exchange)
                x, node.weight = x + dx, node.weight + dw
                missing -= 1
            if not missing:
                exchange, pushed = exchange + 1, step
                missing = len(node.in_peers(exchange))
                x = self.push(node, x, exchange)
            node.weights = self.model(x, node)

    def model(self, x: "Tensor", node: Node) -> "Tensor":
        """z = x / w."""
        if self.biased or node.weight == 1.0:
            return x
        return x / node.weight

    def push(self, node: Node, x: "Tensor", exchange: int) -> "Tensor":
        """Send each peer its share of x and w; return the node's own share of x."""
        shares, w = node.mixing(self.mixing, exchange), node.weight
        parts = {shares.own: shares.own * x}
        for peer, share in shares.out.items():
            if share not in parts:  # most are equal
                parts[share] = share * x
            node.send(peer, (parts[share], share * w), tag=exchange)
        node.weight = shares.own * w
        return parts[shares.own]


@dataclass(frozen=True)
class OverlapSGP(SGP):
    """Overlap SGP: shares are pushed every H gradients, and awaited tau gradients later.

        x_i <- x_i - lr g_i(x_i / w_i);
        every H-th step  (x_i, w_i) <- p_ii (x_i, w_i), and p_ji (x_i, w_i) to peer j

    After the gradient of step k a node waits for the shares of exchanges that it began at step k -
    tau or earlier, and adds those of later exchanges that have arrived; then it pushes. So ceil(tau
    / H) exchanges are outstanding, and a node computes at most tau + H - 1 gradients ahead of
    another whose shares it receives in every exchange. With H = 1 and tau = 0 or 1 it is `sgp` with
    that overlap. With tau <= 1 times do not change the weights. For N bytes, latency alpha and beta
    seconds a byte to one peer, and E = alpha + N beta, H gradients of t_c seconds take:

    tau = 0         H t_c + E
    tau > 0         max(H t_c + max(0, E - tau t_c) / ceil(tau / H), N beta)
    tau > 0, H = 1  max(t_c, E / tau, N beta)

    with `sharing: fifo`; with `fair` if tau <= H or H t_c >= N beta. Else messages of successive
    exchanges share a card fairly, so that all of them end late, and it takes longer.

    A graph that changes from step to step changes from exchange to exchange.

    Source: Assran et al. (2019), arXiv 1811.10792, overlap SGP, in which messages may be late by up
    to tau steps.

    Attributes:
        overlap: tau, in gradients; 0 waits for every exchange.
        local_steps: H, in gradients.
    """

    SPACE: ClassVar = {
        "algorithm.overlap": {"choice": [2, 4]},
        "algorithm.local_steps": {"choice": [1, 4]},
    }

    overlap: NonNegativeInt = 2
    local_steps: PositiveInt = 1

    def worker(self, node: Node) -> Role:
        state = state_among_members(node, self.rule, node.state)
        x, node.weight = node.weights, 1.0
        awaited: list[int] = []  # the exchange of each message to come, the oldest first
        for step in count(1):
            gradient = yield node.compute(node.weights)
            x, state = self.rule.update(x, [gradient], state)
            node.apply(self.model(x, node), [gradient], state)
            begins = step % self.local_steps == 0
            number = step // self.local_steps - 1
            if begins and not self.overlap:
                x = self.begin(node, x, number, awaited)
            late = []
            for exchange in awaited:
                due = self.local_steps * (exchange + 1) + self.overlap
                if due <= step or node.arrived(exchange):
                    _, (dx, dw) = yield node.receive(tag=exchange)
                    x, node.weight = x + dx, node.weight + dw
                else:
                    late.append(exchange)
            mixed = begins or len(late) < len(awaited)
            awaited = late
            if begins and self.overlap:
                x = self.begin(node, x, number, awaited)
            if mixed:
                node.weights = self.model(x, node)

    def begin(self, node: Node, x: "Tensor", exchange: int, awaited: list[int]) -> "Tensor":
        """Push shares to the peers, and expect a message of each; return the node's share of x."""
        awaited.extend([exchange] * len(node.in_peers(exchange)))
        return self.push(node, x, exchange)
