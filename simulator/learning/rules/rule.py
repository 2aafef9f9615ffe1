"""Rules as pure functions: compensation, mean, clip, weight decay, optimiser, schedule."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from laggard.memory import add, multiply
from laggard.simulator.errors import InvalidSettingError, Settings
from laggard.simulator.learning.gradients import GradientPromise, check_is_gradient
from laggard.simulator.learning.promises import evaluate
from laggard.simulator.learning.rules.clipping import Clip, Unclipped
from laggard.simulator.learning.rules.damping import Compensation, Uncompensated
from laggard.simulator.learning.rules.optimizers import SGD, Optimizer
from laggard.simulator.learning.rules.scalars import (
    NUMBER,
    NonNegativeScalar,
    Scalar,
    cast,
    is_zero,
)
from laggard.simulator.learning.rules.schedules import Chained, Constant, Progress, Schedule
from laggard.simulator.learning.weights import form_error, has_form_of, mean

if TYPE_CHECKING:
    from torch import Tensor

ALL_WORKERS = -1
"""The key of the state that all workers' gradients share."""


class RuleState(NamedTuple):
    """A rule's state: the optimiser's, the compensation's per worker, and the progress.

    Attributes:
        workers: the compensation's state by the worker's rank, or of `ALL_WORKERS`.
        replicas: the number of nodes with such a state each.
    """

    optimizer: Any
    workers: Mapping[int, Any]
    progress: Progress
    replicas: int = 1


@dataclass(frozen=True)
class Rule(Settings):
    """A learning rule: it computes new weights from the gradients of one update.

    For gradients g_1 .. g_K with compensation C, optimiser O and schedule s:
    w <- w + mean_k scale_k * O(clip(mean_k C(g_k)) + weight_decay w; lr * s(progress)).

    Attributes:
        optimizer: makes a step of the mean gradient.
        lr: the learning rate, a float or `(ensemble, 1)`.
        schedule: the factor on the learning rate as training goes on.
        compensation: the correction of a late gradient.
        clip: a bound on the gradient of an update, before weight decay.
        weight_decay: coupled with the gradient, as in `torch.optim`. It applies to the weights that
            the update changes, however stale its gradients are.
    """

    optimizer: Optimizer = field(default_factory=SGD)
    lr: NonNegativeScalar = 0.05
    schedule: Schedule = field(default_factory=Constant)
    compensation: Compensation = field(default_factory=Uncompensated)
    clip: Clip = field(default_factory=Unclipped)
    weight_decay: NonNegativeScalar = 0.0

    def with_shapes(self, shapes: Mapping[str, tuple[int, ...]]) -> "Rule":
        """The rule for a model whose parameters have these shapes, by name and in their order.

        Raises:
            InvalidSettingError: the optimiser needs others.
        """
        optimizer: Any = self.optimizer
        return replace(self, optimizer=optimizer.with_shapes(shapes))

    def of_part(self, place: slice) -> "Rule":
        """The rule of a node that has a part of the model alone, by a rule with shapes.

        Raises:
            InvalidSettingError: the optimiser needs more of the model.
        """
        of_part = getattr(self.optimizer, "of_part", None)
        if of_part is None:
            expected = "an optimiser of single numbers: no node has the whole model"
            raise InvalidSettingError("Rule", "optimizer", expected, self.optimizer)
        return replace(self, optimizer=of_part(place))

    @property
    def needs_shapes(self) -> bool:
        """Whether the optimiser treats matrices and vectors in different ways."""
        return bool(getattr(self.optimizer, "needs_shapes", False))

    def init(self, weights: "Tensor", replicas: int = 1) -> RuleState:
        """The state before the first update of `weights` `(ensemble, params)`.

        Where `replicas` nodes have a state each, each sees a fraction 1 / replicas of an epoch's
        gradients: its epochs count `replicas` times, so that a schedule in epochs follows the
        cluster's.

        Raises:
            InvalidSettingError: a hyper-parameter is a tensor without one number per member.
        """
        from torch import Tensor

        schedules: Sequence[Schedule] = [self.schedule]
        if isinstance(self.schedule, Chained):
            schedules = self.schedule.schedules
        for part in (self, self.optimizer, *schedules, self.compensation, self.clip):
            for name, value in vars(part).items():
                if isinstance(value, Tensor) and value.shape != (weights.shape[0], 1):
                    expected = f"a number, or a tensor (ensemble, 1) = ({weights.shape[0]}, 1)"
                    owner = type(part).__name__
                    got = tuple(value.shape)
                    raise InvalidSettingError(owner, name, expected, got)
        return RuleState(self.optimizer.init(weights), {}, Progress(), replicas)

    def update(
        self,
        weights: "Tensor",
        gradients: Sequence[GradientPromise],
        state: RuleState,
        combine: "Combine | None" = None,
    ) -> "tuple[Tensor, RuleState]":
        """The weights `(ensemble, params)` after one update by `gradients`, and the state after it.

        The values of all gradients are evaluated together. `combine` makes one gradient of them:
        their `mean`, or their `total`.

        Raises:
            TypeError: one is no gradient, or its value has another shape or precision than the
                weights.
            ValueError: there is no gradient.
        """
        if not gradients:
            raise ValueError(f"rule.update: expected one gradient or more, got {gradients!r}")
        for gradient in gradients:
            check_is_gradient("rule.update", gradient)
        if weights.shape[1] == 0:  # timing only
            return weights, state
        lr = self.rate(state)
        compensation = self.compensation
        shared = getattr(compensation, "shared", Compensation.shared)
        workers = dict(state.workers)  # a copy: states are values, as weights are
        corrected = []
        for gradient, value in zip(gradients, evaluate(gradients), strict=True):
            if not has_form_of(value, weights):
                place = f"rule.update: the gradient of worker {gradient.worker}"
                raise form_error(place, value, weights)
            key = ALL_WORKERS if shared else gradient.worker
            if key not in workers:
                workers[key] = compensation.init(weights)
            value, workers[key] = compensation.correct(value, gradient, weights, workers[key], lr)
            corrected.append(value)
        scales = [compensation.scale(gradient, lr) for gradient in gradients]
        scale = sum(scales) / len(scales)
        epochs = sum(gradient.share for gradient in gradients)
        combined = (combine or mean)(corrected)
        return self.step(weights, combined, state._replace(workers=workers), epochs, scale)

    def step(
        self,
        weights: "Tensor",
        gradient: "Tensor",
        state: RuleState,
        epochs: float,
        scale: Scalar = 1.0,
    ) -> "tuple[Tensor, RuleState]":
        """An update by one gradient `(ensemble, params)`, which is clipped but not compensated.

        Args:
            epochs: its mini-batches as a fraction of an epoch.
            scale: a factor on the step.
        """
        if weights.numel() == 0:
            return weights, state
        lr = self.rate(state)
        with flush_denormals():
            gradient = self.clip(gradient)
            if not is_zero(self.weight_decay):
                gradient = gradient + cast(self.weight_decay, weights) * weights
            change, optimizer = self.optimizer.step(gradient, state.optimizer, weights, lr)
        updates = state.progress.updates + 1
        progress = Progress(updates, state.progress.epochs + state.replicas * epochs)
        if not isinstance(scale, NUMBER) or scale != 1:
            change = multiply(change, cast(scale, change))
        return add(weights, change), state._replace(optimizer=optimizer, progress=progress)

    def rate(self, state: RuleState) -> Scalar:
        """The learning rate of the next step, lr * s(progress).

        It is a number, as a float or a tensor without dimensions, or `(ensemble, 1)`. A step of SGD
        is `gradient * -cast(rate, weights)`.
        """
        factor = self.schedule(state.progress)
        # A constant rate stays the same tensor, which `cast` copies to a device only once.
        if isinstance(factor, NUMBER) and factor == 1:
            return self.lr
        return self.lr * factor


SMALLEST = 5e-324


@contextmanager
def flush_denormals() -> Iterator[None]:
    """Round numbers below 1e-38 (1e-308 in double precision) to 0 in this thread, if the CPU can.

    The momentum of a member whose gradient is 0 shrinks to such numbers and stays there, and a CPU
    needs many times as long for them: a run of LeNet-5 under Adam took 1.5 times as long with all
    units dead. Only for the optimiser: the sums of the clock need such numbers.
    """
    from torch import set_flush_denormal

    before = SMALLEST * 1.0 == 0.0  # torch has no function that reads the setting
    set_flush_denormal(True)
    try:
        yield
    finally:
        set_flush_denormal(before)


Combine = Callable[[Sequence["Tensor"]], "Tensor"]
"""Combines gradients `(ensemble, params)` into one."""
