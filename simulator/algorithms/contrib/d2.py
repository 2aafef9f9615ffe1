"""D2: decentralised SGD that corrects each node by all that averaging has changed of its model."""

from dataclasses import dataclass
from itertools import count

import numpy as np

from laggard.simulator.algorithms.averaging import MOST_EIGENVALUES, Averaging, neighbours_on
from laggard.simulator.algorithms.base import Role
from laggard.simulator.engine.cluster import Cluster
from laggard.simulator.engine.node import Node
from laggard.simulator.errors import InvalidSettingError
from laggard.simulator.learning.rules import SGD, Nesterov
from laggard.simulator.network.mixing import ROUNDING, matrix, mixing


@dataclass(frozen=True)
class D2(Averaging):
    """D2: decentralised SGD that corrects each node by all that averaging has changed of its model.

        x_i <- sum_j W_ij (2 x_j - x_j' - lr g_j(x_j) + lr' g_j(x_j'))

    with x_j' and lr' of the step before. The first step is that of `dpsgd` with adapt_then_combine.
    The sum of all models changes by -lr sum_i g_i in every step, under any schedule. Where the
    nodes' losses differ, they stand still only at the minimum of the mean loss, which `dpsgd`
    misses. -lr g stands for the optimiser's step, which must be linear in the gradient: SGD, also
    with momentum, or Nesterov. On the complete graph with weights 1/P and `lazy: false` it is
    `sync_ps`. Staleness 0.

    It needs a symmetric W that stays the same and has no eigenvalue of -1/3 or below. W of a ring
    of an even number of nodes has -1/3, at which noise never decays.

    On a ring of more than two nodes a step takes t_c + alpha + 2 N beta, for N bytes, latency
    alpha, beta seconds a byte, one card per node with either `sharing`, and gradients of t_c
    seconds.

    Source: Tang et al. (2018), arXiv 1803.07068, algorithm 1; momentum: the public code of Vogels
    et al. (2021), arXiv 2110.04175; (W + I) / 2: Yuan et al. (2019), arXiv 1702.05122.

    Attributes:
        lazy: use (W + I) / 2 for W, whose eigenvalues are at least 0 on every graph; half of a
            node's average is then its own model.
    """

    lazy: bool = True

    def check(self, cluster: Cluster) -> None:
        super().check(cluster)
        if not isinstance(self.rule.optimizer, SGD | Nesterov):
            expected = "sgd or nesterov, since D2 needs steps that are linear in the gradient"
            raise InvalidSettingError("Rule", "optimizer", expected, self.rule.optimizer)
        graph, workers = self.graph(cluster), cluster.workers
        neighbours_on(graph, workers)  # refuses a graph that changes or is directed
        if self.mixing == "weights":  # the others are symmetric where they are doubly stochastic
            rows = (mixing("weights", graph, rank, 0, workers) for rank in range(workers))
            if any(row.out != row.into for row in rows):
                expected = "a mixing that is symmetric on this graph, as metropolis"
                raise InvalidSettingError("D2", "mixing", expected, self.mixing)
        if self.lazy:
            return
        if workers > MOST_EIGENVALUES:
            expected = f"true for more than {MOST_EIGENVALUES} workers"
            raise InvalidSettingError("D2", "lazy", expected, self.lazy)
        smallest = float(np.linalg.eigvalsh(matrix(self.mixing, graph, 0, workers))[0])
        if smallest <= -1 / 3 + ROUNDING:
            least = f"the least eigenvalue of W on this graph is {smallest:.4g}, not above -1/3"
            raise InvalidSettingError("D2", "lazy", f"true, since {least}", self.lazy)

    def worker(self, node: Node) -> Role:
        state = self.rule.init(node.weights, replicas=node.workers)
        # 2 x - x' - lr g + lr' g' is x - lr g + c, where c sums up the changes by all averages.
        correction = 0 * node.weights
        for step in count():
            gradient = yield node.compute(node.weights)
            weights, state = self.rule.update(node.weights, [gradient], state)
            weights = weights + correction
            node.apply(weights, [gradient])
            (average,) = yield from self.average(node, step, weights)
            if self.lazy:
                average = (average + weights) / 2
            node.weights = average
            correction = correction + (average - weights)
