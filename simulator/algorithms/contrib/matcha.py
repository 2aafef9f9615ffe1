"""MATCHA: gossip over a random part of the graph's matchings in each step."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from typing import Annotated, ClassVar

import numpy as np

from laggard.simulator.algorithms.averaging import MOST_EIGENVALUES, combine, neighbours_on, tell
from laggard.simulator.algorithms.base import Algorithm, Role
from laggard.simulator.engine.cluster import Cluster
from laggard.simulator.engine.node import Node
from laggard.simulator.errors import InvalidSettingError, NonNegativeInt, Positive, Range
from laggard.simulator.learning.rules import Rule
from laggard.simulator.network.mixing import Mixing
from laggard.simulator.network.topology import Ring, Topology, graph_of_workers


@dataclass(frozen=True)
class MATCHA(Algorithm):
    """MATCHA: decentralised SGD over random matchings, so that a step sends fewer messages.

        x_i <- sum_j W_ij (x_j - lr g_j(x_j)),    W = I - a sum_m B_m L_m

    where the edges are cut into matchings, in each of which a node has at most one neighbour, and
    L_m is the Laplacian of matching m. B_m is 1 with probability c, by a coin that all nodes share.
    With L the Laplacian of the graph, E[W] = I - a c L. With c = 1 and W's weights for a it is
    `dpsgd` with adapt_then_combine. All matchings have the same c; the paper chooses
    probabilities of the same mean for which the graph stays best connected. Edges are taken in the
    order of ranks, each into the first matching that is free at both ends. Staleness 0.

    A step sends 2 c E messages on average, of E edges. It takes a node with k active neighbours t_c
    + alpha + k N beta, for N bytes, latency alpha, beta seconds a byte, one card per node with
    either `sharing`, and gradients of t_c seconds, and only t_c where k = 0: of two nodes t_c + c
    (alpha + N beta) on average. A node that crashes is not readmitted, and the others wait for it
    forever.

    Source: Wang et al. (2019), arXiv 1905.09435; their public code.

    Attributes:
        activation: c, the probability of each matching.
        weight: a, the weight of a neighbour; by default the weight with the least bound on the
            contraction of the nodes' distances.
        coin: the seed of the coin, independent of all other seeds.
    """

    topology: ClassVar[Topology] = Ring()
    readmits: ClassVar[bool] = False

    rule: Rule
    activation: Annotated[float, Range(above=0, most=1)] = 0.5
    weight: Positive | None = None
    coin: NonNegativeInt = 0

    def links(self, workers: int) -> Iterable[tuple[int, int]]:
        """No required pairs: the method sends along the edges of any graph."""
        return ()

    def check(self, cluster: Cluster) -> None:
        topology, workers = cluster.network.topology, cluster.workers
        neighbours_on(graph_of_workers(topology, self.topology, workers), workers)
        if self.weight is None and workers > MOST_EIGENVALUES:
            expected = f"a number for more than {MOST_EIGENVALUES} workers"
            raise InvalidSettingError("MATCHA", "weight", expected, None)

    def worker(self, node: Node) -> Role:
        matchings = matchings_on(node.topology, node.workers)
        weight = self.weight
        if weight is None:
            weight = best_weight(node.topology, node.workers, self.activation)
        # Each node has a stream of its own from the same seed: they agree without a message.
        coin = np.random.default_rng(self.coin)
        state = self.rule.init(node.weights, replicas=node.workers)
        for step in count():
            gradient = yield node.compute(node.weights)
            weights, state = self.rule.update(node.weights, [gradient], state)
            node.apply(weights, [gradient])
            active = coin.random(len(matchings)) < self.activation
            weights_of = dict[int, float]()
            for matching, is_active in zip(matchings, active, strict=True):
                if is_active and node.rank in matching:
                    weights_of[matching[node.rank]] = weight
            if weights_of:
                mixing = Mixing(1 - sum(weights_of.values()), weights_of, weights_of)
                tell(node, step, mixing, node.weights)
                (node.weights,) = yield from combine(node, step, mixing, node.weights)


@lru_cache(maxsize=64)
def matchings_on(graph: Topology, workers: int) -> tuple[dict[int, int], ...]:
    """Matchings that together have all edges of a graph; each maps a rank to its partner.

    Raises:
        InvalidSettingError: the graph changes from step to step, or an edge has one direction.
    """
    matchings: list[dict[int, int]] = []
    for rank, peers in enumerate(neighbours_on(graph, workers)):
        for peer in peers:
            if peer < rank:
                continue
            free = (each for each in matchings if rank not in each and peer not in each)
            matching = next(free, None)
            if matching is None:
                matching = {}
                matchings.append(matching)
            matching[rank] = peer
            matching[peer] = rank
    return tuple(matchings)


@lru_cache(maxsize=64)
def best_weight(graph: Topology, workers: int, activation: float) -> float:
    """The weight a with the least bound on the mean squared distance of the nodes after a step.

    The bound is the largest eigenvalue of E[W W] besides the 1 of the mean. Each eigenvalue l of L
    besides 0 gives E[W W] the eigenvalue 1 - 2 a c l + a^2 c l (c l + 2 - 2 c), since
    L_m L_m = 2 L_m. The largest is that of the least or of the greatest l. That of the least l is
    minimal at a = 1 / (c l_least + 2 - 2 c). Both are equal at
    a = 2 / (c l_least + c l_greatest + 2 - 2 c). The smaller of these two a is best; with c = 1 it
    is 2 / (l_least + l_greatest).
    """
    if workers == 1:
        return 0.0  # there is no neighbour
    laplacian = np.zeros((workers, workers))
    for rank, peers in enumerate(neighbours_on(graph, workers)):
        laplacian[rank, rank] = len(peers)
        laplacian[rank, list(peers)] = -1
    c = activation
    least, greatest = c * np.linalg.eigvalsh(laplacian)[[1, -1]]
    return float(min(1 / (least + 2 - 2 * c), 2 / (least + greatest + 2 - 2 * c)))
