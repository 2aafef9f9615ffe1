"""Compensations that make the whole of a late gradient count less."""

from dataclasses import dataclass, field
from typing import Any, Literal

from torch import Tensor

from simulator.bounds import Invalid, bounded
from simulator.gradients import Settled
from simulator.rules.scalars import Scalar, at_least_one, cast
from simulator.rules.uncompensated import Uncompensated


@dataclass(frozen=True)
class Damped(Uncompensated):
    """A late gradient counts `weight` of a fresh one, before the optimiser or after it.

    Attributes:
        on: `gradient` scales the gradient before the optimiser, as the papers do; under Adam, Adagrad and
            RMSProp a constant factor there does next to nothing, and `step` scales the step after it.
    """

    on: Literal["gradient", "step"] = "gradient"

    def __post_init__(self) -> None:
        if self.on not in ("gradient", "step"):
            raise Invalid(type(self).__name__, "on", "gradient or step", self.on)

    def weight(self, gradient: Settled, lr: Scalar) -> Scalar:
        """What a gradient counts, in (0, 1]."""
        return 1.0

    def correct(self, value: Tensor, gradient: Settled, weights: Tensor, state: Any, lr: Scalar) -> tuple[Tensor, Any]:
        return (value * cast(self.weight(gradient, lr), value) if self.on == "gradient" else value), state

    def scale(self, gradient: Settled, lr: Scalar) -> Scalar:
        return self.weight(gradient, lr) if self.on == "step" else 1.0


@dataclass(frozen=True)
class Staleness(Damped):
    """A gradient of staleness tau counts 1 / max(1, tau): fresh and once-stale gradients count in full.

    w <- w - lr / max(1, tau) g(w_read) under plain SGD.

    Source: Zhang et al. (2016), arXiv 1511.05950.
    """

    def weight(self, gradient: Settled, lr: Scalar) -> Scalar:
        return 1 / max(1, gradient.staleness)


@dataclass(frozen=True)
class OneOverN(Damped):
    """Every gradient counts 1 / workers, however stale it is: the 1/N rule.

    w <- w - lr / workers g(w_read) under plain SGD. With one worker it is plain ASGD.

    Attributes:
        workers: N; the cluster's number of workers by default.
    """

    workers: int = field(kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        bounded(self, "workers", least=1)

    def weight(self, gradient: Settled, lr: Scalar) -> Scalar:
        return 1 / self.workers


@dataclass(frozen=True)
class DelayAdaptive(Damped):
    """A learning rate that a gradient's own staleness bounds: min(lr, ceiling / tau).

    w <- w - min(lr, c / tau) g(w_read) under plain SGD: a gradient of staleness tau counts min(1, c / (lr tau)).
    Gradients no staler than c / lr count in full; with a ceiling above lr times every staleness it is plain ASGD.

    Attributes:
        ceiling: c, a learning rate times a staleness.

    Source: Mishchenko et al. (2022), arXiv 2206.07638; Koloskova et al. (2022), arXiv 2206.08307.
    """

    ceiling: Scalar = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        bounded(self, "ceiling", above=0)

    def weight(self, gradient: Settled, lr: Scalar) -> Scalar:
        return 1 / at_least_one(lr * gradient.staleness / self.ceiling)
