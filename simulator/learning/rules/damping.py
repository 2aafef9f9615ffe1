"""The protocol of a compensation, and compensations that scale a late gradient down."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from laggard.simulator.errors import PositiveInt, Settings
from laggard.simulator.learning.gradients import GradientPromise
from laggard.simulator.learning.rules.scalars import PositiveScalar, Scalar, at_least_one, cast

if TYPE_CHECKING:
    from torch import Tensor


class Compensation(Protocol):
    """A correction for staleness.

    Where it has `check_workers(workers)`, that raises `InvalidSettingError` for a number of workers
    that it does not fit.

    Attributes:
        shared: whether all workers' gradients share one state, instead of one a worker; False for a
            compensation without this attribute.
    """

    shared: ClassVar[bool] = False

    def init(self, weights: "Tensor") -> Any:
        """The state before a worker's first gradient."""
        ...

    def correct(
        self, value: "Tensor", gradient: GradientPromise, weights: "Tensor", state: Any, lr: Scalar
    ) -> "tuple[Tensor, Any]":
        """The corrected gradient `(ensemble, params)`, and the state after it.

        Args:
            value: the gradient `(ensemble, params)`, which was taken at `gradient.weights`.
            gradient: its promise, with its worker and staleness.
            weights: the weights `(ensemble, params)` to be updated.
            lr: the learning rate of the step, with its schedule.
        """
        ...

    def scale(self, gradient: GradientPromise, lr: Scalar) -> Scalar:
        """The gradient's factor on the step after the optimiser."""
        ...


@dataclass(frozen=True)
class Uncompensated(Settings):
    """A late gradient counts as much as a fresh one.

    w <- w - lr g(w_read)
    """

    shared: ClassVar[bool] = False

    def init(self, weights: "Tensor") -> Any:
        return None

    def correct(
        self, value: "Tensor", gradient: GradientPromise, weights: "Tensor", state: Any, lr: Scalar
    ) -> "tuple[Tensor, Any]":
        return value, state

    def scale(self, gradient: GradientPromise, lr: Scalar) -> Scalar:
        return 1.0


@dataclass(frozen=True)
class Damped(Uncompensated):
    """A late gradient counts `weight` times a fresh one, before the optimiser or after it.

    Attributes:
        on: `gradient` scales the gradient before the optimiser, as the papers do; under Adam,
            Adagrad and RMSProp a constant factor there has almost no effect, and `step` scales the
            step after it.
    """

    on: Literal["gradient", "step"] = "gradient"

    def weight(self, gradient: GradientPromise, lr: Scalar) -> Scalar:
        """The factor of a gradient, in (0, 1]."""
        return 1.0

    def correct(
        self, value: "Tensor", gradient: GradientPromise, weights: "Tensor", state: Any, lr: Scalar
    ) -> "tuple[Tensor, Any]":
        if self.on == "gradient":
            value = value * cast(self.weight(gradient, lr), value)
        return value, state

    def scale(self, gradient: GradientPromise, lr: Scalar) -> Scalar:
        if self.on == "step":
            return self.weight(gradient, lr)
        return 1.0


@dataclass(frozen=True)
class Staleness(Damped):
    """A gradient of staleness tau counts 1 / max(1, tau): fresh and once-stale ones in full.

        w <- w - lr / max(1, tau) g(w_read)

    under plain SGD.

    Source: Zhang et al. (2016), arXiv 1511.05950.
    """

    def weight(self, gradient: GradientPromise, lr: Scalar) -> Scalar:
        return 1 / max(1, gradient.staleness)


@dataclass(frozen=True)
class OneOverN(Damped):
    """Every gradient counts 1 / workers, however stale it is: the 1/N rule.

        w <- w - lr / workers g(w_read)

    under plain SGD. With one worker it is plain ASGD.

    Attributes:
        workers: N; the cluster's number of workers by default.
    """

    workers: PositiveInt = field(kw_only=True)

    def weight(self, gradient: GradientPromise, lr: Scalar) -> Scalar:
        return 1 / self.workers


@dataclass(frozen=True)
class DelayAdaptive(Damped):
    """A learning rate bounded by the gradient's staleness: min(lr, ceiling / tau).

        w <- w - min(lr, c / tau) g(w_read)

    under plain SGD: a gradient of staleness tau counts min(1, c / (lr tau)). Gradients no staler
    than c / lr count in full; with a ceiling above lr times every staleness it is plain ASGD.

    Attributes:
        ceiling: c, a learning rate times a staleness.

    Source: Mishchenko et al. (2022), arXiv 2206.07638; Koloskova et al. (2022), arXiv 2206.08307.
    """

    ceiling: PositiveScalar = 0.5

    def weight(self, gradient: GradientPromise, lr: Scalar) -> Scalar:
        return 1 / at_least_one(lr * gradient.staleness / self.ceiling)
