"""Local steps between averages by a collective, without a server."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal

from laggard.simulator.algorithms.base import Role
from laggard.simulator.algorithms.collectives.reducing import Reducing
from laggard.simulator.algorithms.collectives.schedule import ALL
from laggard.simulator.algorithms.compressing import Compressing
from laggard.simulator.algorithms.elastic import state_among_members
from laggard.simulator.algorithms.local_steps import (
    OuterOptimizer,
    restart_optimizer,
    take_local_steps,
)
from laggard.simulator.engine.node import Node
from laggard.simulator.errors import PositiveInt
from laggard.simulator.learning.promises import known
from laggard.simulator.learning.rules import Rule, RuleState

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class LocalAllReduce(Compressing, Reducing):
    """Local SGD by all-reduce: the nodes average their models by a collective after H local steps.

        x_i <- w;    H times x_i <- x_i - lr g(x_i);    w <- sum_i (n_i / n) x_i

    at every node, where node i learns from n_i samples and n = sum_i n_i; with `weighting: equal`
    each of P nodes counts 1/P. An update is a round; staleness 0. Models are equal after every
    update, bit for bit. It is `local_sgd` without a server, and with H = 1, equal weights and a
    rule that is linear in the gradient (SGD, momentum, Nesterov) `all_reduce`.

    A round takes H t_c and one collective: on a ring, for P equal nodes, N bytes, latency alpha and
    beta seconds a byte, H t_c + 2 (P - 1) alpha + 2 ((P - 1) / P) N beta. All wait for the slowest.
    A node keeps the state of its optimiser from one round to the next. After a crash the round
    under way is lost; a node that lacked only the sum takes the state of one that had it.

    Source: McMahan et al. (2017), arXiv 1602.05629; Lin et al. (2020), arXiv 1808.07217, by
    all-reduce.

    Attributes:
        local_steps: H, mini-batches of each node from one average to the next.
        weighting: the weight of a node in the average: by its number of samples, or equal.
        reset: whether the nodes' optimisers reset their buffers at every average.
    """

    only_collectives: ClassVar[bool] = True

    local_steps: PositiveInt = field(default=8, kw_only=True)
    weighting: Literal["samples", "equal"] = field(default="samples", kw_only=True)
    reset: bool = field(default=False, kw_only=True)

    def updates_in_parts(self, workers: int) -> bool:
        return False  # the rule is the nodes' own, who have whole models

    def worker(self, node: Node) -> Role:
        collective = self.collective_of(node.group_size)
        encoder = self.encoder(node)
        if self.compress is not None:
            collective = collective.of_bucket(ALL, encoder.size)
        reduce = collective.reduce
        params = node.weights.shape[1]
        inner, outer = node.state or (None, self.outer().init(node.weights))
        inner = state_among_members(node, self.rule, inner)
        share = 1 / len(node.members)
        if self.weighting == "samples":
            share = node.sample_share
        while True:
            read = node.weights
            if self.reset:
                inner = restart_optimizer(node, self.rule, inner)
            model, inner, gradients = yield from take_local_steps(
                node, self.rule, read, inner, self.local_steps
            )
            if self.compress is not None:
                yield node.work(encoder.seconds)
                # The shares of nodes add up to 1: their models have the mean change from `read`.
                model = read + encoder.encode_change(model - read, gradients[-1])
            total = yield from reduce(node, known(share * model), params, node.version)
            weights, outer = self.next_weights(read, total.value, outer)
            node.apply(weights, gradients, (inner, outer))

    def outer(self) -> Rule:
        """The rule of the common model."""
        return Rule(lr=1.0)

    def next_weights(
        self, weights: "Tensor", average: "Tensor", state: RuleState
    ) -> "tuple[Tensor, RuleState]":
        """The next common model `(ensemble, params)`, and its rule's state."""
        return average, state


@dataclass(frozen=True)
class DiLoCoAllReduce(OuterOptimizer, LocalAllReduce):
    """DiLoCo by all-reduce: the average of the models is used as a gradient by an outer optimiser.

        d = w - sum_i (n_i / n) x_i;    b <- momentum b + d;    w <- w - outer_lr (d + momentum b)

    at every node, after H steps of each. The outer step along -d is Nesterov's here. All else is as
    in `local_all_reduce`, to which SGD with outer_lr 1 and no momentum reduces it. It is `diloco`
    without a server.

    Attributes:
        outer_lr, outer_momentum: the learning rate and the momentum of the outer optimiser.
        outer_optimizer: Nesterov, or SGD with heavy-ball momentum.

    Source: Douillard et al. (2023), arXiv 2311.08105, algorithm 1.
    """
