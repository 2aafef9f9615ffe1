"""A rule: compensation per gradient, mean, schedule, optimiser; pure functions that know no clock."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch import Tensor

from simulator.bounds import Invalid, bounded
from simulator.gradients import Gradient, together
from simulator.rules.compensations import Compensation, Uncompensated
from simulator.rules.optimizers import SGD, Optimizer
from simulator.rules.scalars import Scalar
from simulator.rules.schedules import Constant, Progress, Schedule


class RuleState(NamedTuple):
    """What a rule remembers: the optimiser's state, the compensation's per worker, and how far it has come."""

    optimizer: Any
    workers: Mapping[int, Any]
    progress: Progress


@dataclass(frozen=True)
class Rule:
    """From the gradients of one update to the new weights.

    For gradients g_1 .. g_K with compensation C, optimiser O and schedule s:
    w <- w + mean_k scale_k * O(mean_k C(g_k); lr * s(progress)).

    Attributes:
        lr: the learning rate, a float or `(ensemble, 1)`.
    """

    optimizer: Optimizer = field(default_factory=SGD)
    lr: Scalar = 0.05
    schedule: Schedule = field(default_factory=Constant)
    compensation: Compensation = field(default_factory=Uncompensated)

    def __post_init__(self) -> None:
        bounded(self, "lr", least=0)

    def init(self, weights: Tensor) -> RuleState:
        """The state before the first update of `weights` `(ensemble, params)`.

        Raises:
            Invalid: a hyper-parameter that is a tensor, but not one number a member.
        """
        for part in (self, self.optimizer, self.schedule, self.compensation):
            for name, value in vars(part).items():
                if isinstance(value, Tensor) and value.shape != (weights.shape[0], 1):
                    expected = f"a number, or a tensor (ensemble, 1) = ({weights.shape[0]}, 1)"
                    raise Invalid(type(part).__name__, name, expected, tuple(value.shape))
        return RuleState(self.optimizer.init(weights), {}, Progress())

    def update(self, weights: Tensor, gradients: Sequence[Gradient], state: RuleState) -> tuple[Tensor, RuleState]:
        """The weights `(ensemble, params)` after one update by `gradients`, and the state after it.

        The values of all gradients are asked for at once, so that they are evaluated together.
        """
        if weights.numel() == 0:  # timing only: an update of nothing
            return weights, state
        workers = dict(state.workers)
        corrected = []
        for gradient, value in zip(gradients, together(gradients), strict=True):
            before = workers[gradient.worker] if gradient.worker in workers else self.compensation.init(weights)
            value, workers[gradient.worker] = self.compensation.correct(value, gradient, weights, before)
            corrected.append(value)
        lr = self.lr * self.schedule(state.progress)
        change, optimizer = self.optimizer.step(mean(corrected), state.optimizer, weights, lr)
        scale = sum(self.compensation.scale(gradient) for gradient in gradients) / len(gradients)
        updates, epochs = state.progress
        progress = Progress(updates + 1, epochs + sum(gradient.share for gradient in gradients))
        return weights + (change if scale == 1 else change * scale), RuleState(optimizer, workers, progress)


def mean(values: Sequence[Tensor]) -> Tensor:
    """The mean of gradients `(ensemble, params)`, added up in the order in which they are given."""
    total = values[0]
    for value in values[1:]:
        total = total + value
    return total if len(values) == 1 else total / len(values)
