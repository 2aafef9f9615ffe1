"""A rule: compensation per gradient, mean, schedule, optimiser; pure functions that know no clock."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from typing import Any, NamedTuple

from torch import Tensor

from simulator.bounds import Invalid, bounded
from simulator.gradients import Settled
from simulator.promises import together
from simulator.rules.optimizers import SGD, Optimizer
from simulator.rules.scalars import Scalar, cast
from simulator.rules.schedules import Constant, Progress, Schedule
from simulator.rules.uncompensated import Compensation, Uncompensated

EVERYBODY = -1
"""Whose state it is that all workers' gradients share."""


class RuleState(NamedTuple):
    """What a rule remembers: the optimiser's state, the compensation's per worker, and how far it has come.

    Attributes:
        workers: the compensation's state by the worker's rank, or `EVERYBODY`'s.
        replicas: how many nodes learn alike, each with a state of its own.
    """

    optimizer: Any
    workers: Mapping[int, Any]
    progress: Progress
    replicas: int = 1


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

    def init(self, weights: Tensor, replicas: int = 1) -> RuleState:
        """The state before the first update of `weights` `(ensemble, params)`.

        Where `replicas` nodes learn alike, each with a state of its own, each sees so small a part of an epoch's
        gradients: its epochs count `replicas` times, so that a schedule in epochs is the cluster's.

        Raises:
            Invalid: a hyper-parameter that is a tensor, but not one number a member.
        """
        for part in (self, self.optimizer, self.schedule, self.compensation):
            for name, value in vars(part).items():
                if isinstance(value, Tensor) and value.shape != (weights.shape[0], 1):
                    expected = f"a number, or a tensor (ensemble, 1) = ({weights.shape[0]}, 1)"
                    raise Invalid(type(part).__name__, name, expected, tuple(value.shape))
        return RuleState(self.optimizer.init(weights), {}, Progress(), replicas)

    def update(
        self, weights: Tensor, gradients: Sequence[Settled], state: RuleState, combine: "Combine | None" = None
    ) -> tuple[Tensor, RuleState]:
        """The weights `(ensemble, params)` after one update by `gradients`, and the state after it.

        The values of all gradients are asked for at once, so that they are evaluated together. `combine` makes one
        gradient of several: their `mean`, or their `total`.
        """
        if weights.numel() == 0:  # timing only: an update of nothing
            return weights, state
        lr = self.lr * self.schedule(state.progress)
        workers = dict(state.workers)
        corrected = []
        for gradient, value in zip(gradients, together(gradients), strict=True):
            whose = EVERYBODY if self.compensation.shared else gradient.worker
            before = workers[whose] if whose in workers else self.compensation.init(weights)
            value, workers[whose] = self.compensation.correct(value, gradient, weights, before, lr)
            corrected.append(value)
        scale = sum(self.compensation.scale(gradient, lr) for gradient in gradients) / len(gradients)
        epochs = sum(gradient.share for gradient in gradients)
        combined = (combine or mean)(corrected)
        return self.step(weights, combined, state._replace(workers=workers), epochs, scale)

    def step(
        self, weights: Tensor, gradient: Tensor, state: RuleState, epochs: float, scale: Scalar = 1.0
    ) -> tuple[Tensor, RuleState]:
        """The optimiser's and the schedule's part of an update: one gradient `(ensemble, params)` of many mini-batches.

        Args:
            epochs: the part of an epoch that those mini-batches are.
            scale: a factor on the step.
        """
        if weights.numel() == 0:
            return weights, state
        lr = self.lr * self.schedule(state.progress)
        change, optimizer = self.optimizer.step(gradient, state.optimizer, weights, lr)
        progress = Progress(state.progress.updates + 1, state.progress.epochs + state.replicas * epochs)
        weights = weights + (change * cast(scale, change) if isinstance(scale, Tensor) or scale != 1 else change)
        return weights, state._replace(optimizer=optimizer, progress=progress)


Combine = Callable[[Sequence[Tensor]], Tensor]
"""Makes one gradient `(ensemble, params)` of several."""


def total(values: Sequence[Tensor]) -> Tensor:
    """The sum of gradients `(ensemble, params)`, added up in the order in which they are given."""
    return reduce(add, values)


def mean(values: Sequence[Tensor]) -> Tensor:
    """The mean of gradients `(ensemble, params)`, added up in the order in which they are given."""
    return total(values) if len(values) == 1 else total(values) / len(values)
