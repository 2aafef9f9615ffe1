"""QG-DSGDm: gossip whose momentum follows the averaged model instead of a node's own gradients."""

from dataclasses import dataclass
from itertools import count
from typing import Annotated

from laggard.simulator.algorithms.averaging import Averaging
from laggard.simulator.algorithms.base import Role
from laggard.simulator.engine.cluster import Cluster
from laggard.simulator.engine.node import Node
from laggard.simulator.errors import InvalidSettingError, Range
from laggard.simulator.learning.rules import SGD, Nesterov
from laggard.simulator.learning.rules.scalars import Scalar, cast, complement, reciprocal


@dataclass(frozen=True)
class QGDSGDm(Averaging):
    """QG-DSGDm: decentralised SGD with quasi-global momentum, for nodes whose data differ.

        x_i <- sum_j W_ij (x_j - lr (g_j(x_j) + b m_j));
        m_i <- mu m_i + (1 - mu) (x_i' - x_i) / lr

    where x_i' is the model before the step. So m_i follows the movement of the average, not the
    gradients of the node's own data. b is the momentum of the rule's optimiser, SGD or Nesterov;
    m_i replaces its velocity. With b = mu = 0 it is `dpsgd` with adapt_then_combine. It speeds
    training up but removes no bias: at a fixed point m_i = 0, and the fixed points are those of
    that `dpsgd`. A step at a rate of 0 adds 0 to m_i. Staleness 0.

    On a ring of more than two nodes a step takes t_c + alpha + 2 N beta, for N bytes, latency
    alpha, beta seconds a byte, one card per node with either `sharing`, and gradients of t_c
    seconds.

    Source: Lin et al. (2021), arXiv 2102.04761, algorithm 1, and their public code.

    Attributes:
        decay: mu, what m_i keeps of itself; b by default.
    """

    decay: Annotated[float, Range(least=0, below=1)] | None = None

    def check(self, cluster: Cluster) -> None:
        super().check(cluster)
        if not isinstance(self.rule.optimizer, SGD | Nesterov):
            expected = "sgd or nesterov, whose momentum QG-DSGDm replaces by its own"
            raise InvalidSettingError("Rule", "optimizer", expected, self.rule.optimizer)

    def worker(self, node: Node) -> Role:
        optimizer = self.rule.optimizer
        assert isinstance(optimizer, SGD | Nesterov)
        decay: Scalar = optimizer.momentum if self.decay is None else self.decay
        state = self.rule.init(node.weights, replicas=node.workers)
        momentum = 0 * node.weights
        for step in count():
            before = node.weights
            gradient = yield node.compute(before)
            rate = self.rule.rate(state)
            state = state._replace(optimizer=momentum)
            weights, state = self.rule.update(before, [gradient], state)
            node.apply(weights, [gradient])
            (node.weights,) = yield from self.average(node, step, weights)
            moved = (before - node.weights) * cast(reciprocal(rate), weights)
            momentum = cast(decay, moved) * momentum + cast(complement(decay), moved) * moved
