"""Methods without a server whose nodes may go on after a crash."""

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from laggard.simulator.algorithms.base import Algorithm
from laggard.simulator.engine.cluster import Cluster
from laggard.simulator.engine.node import Node
from laggard.simulator.errors import InvalidSettingError, NonNegative
from laggard.simulator.learning.rules import Rule, RuleState
from laggard.simulator.timing.failures import CrashRule


@dataclass(frozen=True)
class Elastic(Algorithm):
    """A method whose nodes depend on all others, and which may go on after a crash.

    The keys are here; `engine/regrouping` stops the nodes, lets them meet and starts them again.

    The step under way is lost, with its gradients. With constant times, for steps of s seconds, a
    crash at T, a return at R and r = `restart_seconds`:

    `restart`: the run ends (R - T) + r + (T mod s) later than without a crash: the time away, the
    meeting, and the lost part of a step.
    `shrink`: (T mod s) + r is lost at the crash, and r at the return; the steps between them are of
    the nodes that are up.

    A node that leaves at a drawn time (`cluster.members`) goes between two steps, so T mod s is 0.

    Its roles begin with `node.state`, the optimiser's state after the last update, where that is
    not None, and hand it to `node.apply`.

    Attributes:
        one_model: whether all nodes have the same model after as many updates.
        on_crash: what the other nodes do when one crashes. `stall`: they wait for it forever, and
            it is not readmitted. `restart`: all stop until it is back, then go on from the last
            update, as a job that is started again. `shrink`: they go on without it, and it joins
            between two steps with the model of the lowest rank, as in Horovod Elastic and torchft.
        restart_seconds: the time that the nodes take to notice a crash or a return, and to meet
            (s).

    Source: the closed forms follow from the rule; Horovod, docs/elastic.rst.
    """

    one_model: ClassVar[bool] = True
    readmits: ClassVar[bool] = False

    on_crash: Literal["stall", "restart", "shrink"] = field(default="stall", kw_only=True)
    restart_seconds: NonNegative = field(default=0.0, kw_only=True)

    @property
    def crash_rule(self) -> CrashRule | None:
        if self.on_crash == "stall":
            return None
        return CrashRule(self.on_crash == "shrink", self.restart_seconds, self.one_model)

    def check(self, cluster: Cluster) -> None:
        if self.restart_seconds and self.on_crash == "stall":
            expected = "0 where on_crash is stall, since the nodes do not meet again"
            raise InvalidSettingError(
                type(self).__name__, "restart_seconds", expected, self.restart_seconds
            )


def state_among_members(node: Node, rule: Rule, state: RuleState | None) -> RuleState:
    """The state of a node's own rule, `state` or the first one, among the present members.

    Each member sees an equal share of the mini-batches, by which a schedule in epochs counts.
    """
    if state is None:
        state = rule.init(node.weights)
    return state._replace(replicas=len(node.members))
