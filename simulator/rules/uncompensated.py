"""What a compensation is: the worth of a late gradient; and the one that does nothing.

A compensation sees one gradient (value, the weights it was taken at, staleness, worker), the weights now, the
learning rate of the step to come, and the state that it keeps for that worker. `correct` changes the gradient
before the optimiser sees it; `scale` changes the step after the optimiser, since an optimiser that normalises its
gradient (Adam, Adagrad, RMSProp) undoes any constant factor before it.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from torch import Tensor

from simulator.gradients import Settled
from simulator.rules.scalars import Scalar


class Compensation(Protocol):
    """A correction for staleness.

    Attributes:
        shared: whether all workers' gradients share one state, instead of one a worker.
    """

    shared: ClassVar[bool]

    def init(self, weights: Tensor) -> Any:
        """The state for a worker that has sent no gradient yet."""
        ...

    def correct(self, value: Tensor, gradient: Settled, weights: Tensor, state: Any, lr: Scalar) -> tuple[Tensor, Any]:
        """The corrected gradient `(ensemble, params)`, and the state after it.

        Args:
            value: the gradient `(ensemble, params)`, which was taken at `gradient.weights`.
            gradient: whose it is: its worker, its staleness.
            weights: the weights `(ensemble, params)` that it is to change.
            lr: the learning rate of the step, its schedule in it.
        """
        ...

    def scale(self, gradient: Settled, lr: Scalar) -> Scalar:
        """The gradient's factor on the step after the optimiser."""
        ...


@dataclass(frozen=True)
class Uncompensated:
    """A late gradient is worth as much as a fresh one: w <- w - lr g(w_read)."""

    shared: ClassVar[bool] = False

    def init(self, weights: Tensor) -> Any:
        return None

    def correct(self, value: Tensor, gradient: Settled, weights: Tensor, state: Any, lr: Scalar) -> tuple[Tensor, Any]:
        return value, state

    def scale(self, gradient: Settled, lr: Scalar) -> Scalar:
        return 1.0
