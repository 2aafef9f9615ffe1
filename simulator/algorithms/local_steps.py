"""The local steps of a worker, and the outer optimiser of DiLoCo."""

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from laggard.simulator.algorithms.base import Algorithm
from laggard.simulator.engine.node import Node
from laggard.simulator.errors import Positive, Range
from laggard.simulator.learning.gradients import GradientPromise
from laggard.simulator.learning.rules import SGD, Nesterov, Rule, RuleState
from laggard.simulator.timing.events import Event

if TYPE_CHECKING:
    from torch import Tensor

Correction = Callable[[GradientPromise, "Tensor"], GradientPromise]
"""A function of a gradient and its model `(ensemble, params)` that returns the step's gradient."""


class LocalSteps(NamedTuple):
    """The result of local steps.

    Attributes:
        model: the worker's model `(ensemble, params)`.
        state: the state of the rule.
        gradients: the gradients of the steps, in their order.
    """

    model: "Tensor"
    state: RuleState
    gradients: list[GradientPromise]


def take_local_steps(
    node: Node,
    rule: Rule,
    read: "Tensor",
    state: RuleState,
    number: int,
    correct: Correction = lambda gradient, _: gradient,
) -> Generator[Event, Any, LocalSteps]:
    """Make a number of local steps: x <- read, then each time x <- x - lr g(x), or as `rule` steps.

    The gradients that are returned have no values any more: a round of many steps would hold too
    many. `correct` sees each value.

    Args:
        read: the model `(ensemble, params)` that was read, whose owner's updates make the gradients
            stale.
        correct: a function applied to each gradient before its step.
    """
    model = read
    gradients = list[GradientPromise]()
    for _ in range(number):
        gradient = yield node.compute(model, read)
        model, state = rule.update(model, [correct(gradient, model)], state)
        gradient.release()
        gradients.append(gradient)
    return LocalSteps(model, state, gradients)


def restart_optimizer(node: Node, rule: Rule, state: RuleState) -> RuleState:
    """The state of a rule whose optimiser restarts and whose schedule continues."""
    fresh = rule.init(node.weights, replicas=state.replicas)
    return fresh._replace(progress=state.progress)


@dataclass(frozen=True)
class OuterOptimizer(Algorithm):
    """DiLoCo's outer step: the change of the average model is a gradient.

    d = w - x for the average x of the workers' models. With Nesterov b <- momentum b + d,
    w <- w - outer_lr (d + momentum b); with SGD w <- w - outer_lr b.

    Attributes:
        outer_lr, outer_momentum: the learning rate and the momentum of the outer optimiser.
        outer_optimizer: Nesterov, or SGD with heavy-ball momentum.
    """

    outer_lr: Positive = field(default=0.7, kw_only=True)
    outer_momentum: Annotated[float, Range(least=0, below=1)] = field(default=0.9, kw_only=True)
    outer_optimizer: Literal["nesterov", "sgd"] = field(default="nesterov", kw_only=True)

    def outer(self) -> Rule:
        """The rule of the outer step."""
        if self.outer_optimizer == "nesterov":
            return Rule(Nesterov(momentum=self.outer_momentum), lr=self.outer_lr)
        return Rule(SGD(momentum=self.outer_momentum), lr=self.outer_lr)

    def next_weights(
        self, weights: "Tensor", average: "Tensor", state: RuleState
    ) -> "tuple[Tensor, RuleState]":
        """The next weights `(ensemble, params)`, and the state of the outer rule."""
        return self.outer().step(weights, weights - average, state, epochs=0.0)
