"""Local steps between averages by a collective, without a server."""

import math
from collections.abc import Sequence
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
from laggard.simulator.engine.cluster import Cluster
from laggard.simulator.engine.node import Node
from laggard.simulator.errors import InvalidSettingError, NonNegative, PositiveInt
from laggard.simulator.learning.promises import known
from laggard.simulator.learning.rules import Chained, Rule, RuleState, WarmUp
from laggard.simulator.learning.rules.schedules import Schedule

if TYPE_CHECKING:
    from torch import Tensor

STEP_ROUNDING = 1e-9  # relative, of a number of steps


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
            steps = self.steps_of_round(node, inner)
            model, inner, gradients = yield from take_local_steps(
                node, self.rule, read, inner, steps
            )
            if self.compress is not None:
                yield node.work(encoder.seconds)
                # The shares of nodes add up to 1: their models have the mean change from `read`.
                model = read + encoder.encode_change(model - read, gradients[-1])
            total = yield from reduce(node, known(share * model), params, node.version)
            weights, outer = self.next_weights(read, total.value, outer)
            node.apply(weights, gradients, (inner, outer))

    def steps_of_round(self, node: Node, state: RuleState) -> int:
        """The local steps of a round that begins with this state of the nodes' rule."""
        return self.local_steps

    def outer(self) -> Rule:
        """The rule of the common model."""
        return Rule(lr=1.0)

    def next_weights(
        self, weights: "Tensor", average: "Tensor", state: RuleState
    ) -> "tuple[Tensor, RuleState]":
        """The next common model `(ensemble, params)`, and its rule's state."""
        return average, state


@dataclass(frozen=True)
class QSR(LocalAllReduce):
    """QSR: local SGD by all-reduce whose rounds grow as the learning rate falls.

        H = max(H_base, floor(growth / s^2))

    local steps, at most `most_steps`, in a round that begins where the schedule's factor on the
    learning rate is s. With eta = s lr and growth = (alpha / lr)^2 this is the paper's
    max(H_base, floor((alpha / eta)^2)), and members of an ensemble have the same rounds at
    different lr. A warm-up does not count in s: its rounds are as long as at the full rate. All
    else is as in `local_all_reduce`, which `qsr` equals where the schedule is constant.

    The first node notes the `local_steps` of each round. Without learning no schedule advances, and
    H stays that of the full rate.

    Source: Gu, Lyu, Arora, Zhang, Huang (2024), arXiv 2310.14423.

    Attributes:
        local_steps: H_base, the fewest local steps of a round.
        growth: (alpha / lr)^2, for the paper's alpha.
        most_steps: the most local steps of a round, however low the rate. The paper ends the last
            round with the training, whose end a method does not know here.
    """

    one_schedule: ClassVar[bool] = True

    local_steps: PositiveInt = field(default=4, kw_only=True)
    growth: NonNegative = field(default=4.0, kw_only=True)
    most_steps: PositiveInt = field(default=100, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.most_steps < self.local_steps:
            expected = f"at least local_steps = {self.local_steps}"
            raise InvalidSettingError("QSR", "most_steps", expected, self.most_steps)

    def check(self, cluster: Cluster) -> None:
        from torch import Tensor

        super().check(cluster)
        for schedule in _schedules(self.rule):
            for name, value in vars(schedule).items():
                if isinstance(value, Tensor):
                    expected = "one number for all members of an ensemble, whose rounds it sets"
                    raise InvalidSettingError(type(schedule).__name__, name, expected, value)

    def steps_of_round(self, node: Node, state: RuleState) -> int:
        factor = 1.0
        for schedule in _schedules(self.rule):
            if not isinstance(schedule, WarmUp):
                factor *= float(schedule(state.progress))
        square = factor * factor
        grown = math.inf
        if square > 0:
            # 4 / 0.1^2 is 399.99... in floating point
            grown = (1 + STEP_ROUNDING) * self.growth / square
        steps = max(self.local_steps, math.floor(min(grown, self.most_steps)))
        if node.rank == node.members[0]:
            node.note("local_steps", steps)
        return steps


def _schedules(rule: Rule) -> Sequence[Schedule]:
    """The schedules whose factors the learning rate is multiplied by."""
    if isinstance(rule.schedule, Chained):
        return rule.schedule.schedules
    return [rule.schedule]


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
