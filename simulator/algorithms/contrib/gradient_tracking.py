"""Gradient tracking: gossip whose nodes step by an estimate of the mean gradient of all."""

from dataclasses import dataclass
from functools import partial
from itertools import count
from operator import add

from laggard.simulator.algorithms.averaging import Averaging
from laggard.simulator.algorithms.base import Role
from laggard.simulator.engine.node import Node
from laggard.simulator.learning.gradients import GradientPromise


@dataclass(frozen=True)
class GradientTracking(Averaging):
    """Gradient tracking: nodes average models, and also estimates of the mean gradient.

        x_i <- sum_j W_ij (x_j - lr y_j);    y_i <- sum_j W_ij y_j + g_i(x_i) - g_i(previous x_i)

    with W doubly stochastic, and y_i = g_i at the start. So sum_i y_i = sum_i g_i at every step,
    and where the nodes' losses differ, they stand still only at the minimum of the mean loss, which
    `dpsgd` misses. The rule's optimiser steps by y_i. On the complete graph with weights 1/P and an
    optimiser that is linear in the gradient it is `sync_ps`. Staleness 0.

    A message is x_j and y_j, of 2 models. On a ring of more than two nodes a step takes t_c + alpha
    + 4 N beta, for N bytes a model, latency alpha, beta seconds a byte, one card per node with
    either `sharing`, and gradients of t_c seconds.

    Source: Nedic, Olshevsky & Shi (2017), arXiv 1607.03218; in this order Xu et al. (2015);
    Koloskova, Lin & Stich (2021), arXiv 2202.03836.
    """

    def worker(self, node: Node) -> Role:
        state = self.rule.init(node.weights, replicas=node.workers)
        estimate = previous = 0 * node.weights
        for step in count():
            gradient = yield node.compute(node.weights)
            tracked: GradientPromise = gradient
            if step > 0:
                # In this order a single node, whose estimate is `previous`, keeps its new gradient.
                tracked = gradient.map(partial(add, estimate - previous))
            weights, state = self.rule.update(node.weights, [tracked], state)
            node.apply(weights, [gradient])
            previous = gradient.value
            models = node.weights, tracked.value
            node.weights, estimate = yield from self.average(node, step, *models)
