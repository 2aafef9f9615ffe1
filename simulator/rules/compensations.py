"""Compensations: what a late gradient is worth.

A compensation sees one gradient (value, the weights it was taken at, staleness, worker), the weights now, and
the state that it keeps for that worker. `correct` changes the gradient before the optimiser sees it; `scale`
changes the step after the optimiser, since an optimiser that normalises its gradient (Adam, Adagrad, RMSProp)
undoes any constant factor before it.
"""

from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from simulator.bounds import Invalid, bounded
from simulator.gradients import Settled
from simulator.rules.optimizers import running
from simulator.rules.scalars import Scalar, cast


class Compensation(Protocol):
    """A correction for staleness."""

    def init(self, weights: Tensor) -> Any:
        """The state for a worker that has sent no gradient yet."""
        ...

    def correct(self, value: Tensor, gradient: Settled, weights: Tensor, state: Any) -> tuple[Tensor, Any]:
        """The corrected gradient `(ensemble, params)`, and the worker's state after it."""
        ...

    def scale(self, gradient: Settled) -> float:
        """The gradient's factor on the step after the optimiser."""
        ...


@dataclass(frozen=True)
class Uncompensated:
    """A late gradient is worth as much as a fresh one."""

    def init(self, weights: Tensor) -> None:
        return None

    def correct(self, value: Tensor, gradient: Settled, weights: Tensor, state: Any) -> tuple[Tensor, Any]:
        return value, state

    def scale(self, gradient: Settled) -> float:
        return 1.0


@dataclass(frozen=True)
class Damped(Uncompensated):
    """A late gradient counts `weight(gradient)` of a fresh one, before the optimiser or after it.

    Attributes:
        on: `gradient` scales the gradient before the optimiser, as the papers do; under Adam, Adagrad and
            RMSProp a constant factor there does next to nothing, and `step` scales the step after it.
    """

    on: Literal["gradient", "step"] = "gradient"

    def __post_init__(self) -> None:
        if self.on not in ("gradient", "step"):
            raise Invalid(type(self).__name__, "on", "gradient or step", self.on)

    def weight(self, gradient: Settled) -> float:
        """What a gradient counts, in (0, 1]."""
        return 1.0

    def correct(self, value: Tensor, gradient: Settled, weights: Tensor, state: Any) -> tuple[Tensor, Any]:
        return (value * self.weight(gradient) if self.on == "gradient" else value), state

    def scale(self, gradient: Settled) -> float:
        return self.weight(gradient) if self.on == "step" else 1.0


@dataclass(frozen=True)
class Staleness(Damped):
    """A gradient of staleness tau counts 1 / max(1, tau): fresh and once-stale gradients count in full.

    Source: Zhang et al. (2016), arXiv 1511.05950.
    """

    def weight(self, gradient: Settled) -> float:
        return 1 / max(1, gradient.staleness)


@dataclass(frozen=True)
class OneOverN(Damped):
    """Every gradient counts 1 / workers, however stale it is."""

    workers: int = field(kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        bounded(self, "workers", least=1)

    def weight(self, gradient: Settled) -> float:
        return 1 / self.workers


@dataclass(frozen=True)
class DCASGDc(Uncompensated):
    """DC-ASGD with a constant strength: the gradient moved to the weights now by a cheap Hessian, g g^T's diagonal.

    g + strength g*g*(w - w_read), where w_read are the weights the gradient was taken at (the backup kept for
    that worker). With strength 0 it is plain ASGD.

    Source: Zheng et al. (2017), arXiv 1609.08326, algorithm 2; their CIFAR-10 strength is 0.04.
    """

    strength: Scalar = 0.04

    def __post_init__(self) -> None:
        bounded(self, "strength", least=0)

    def correct(self, value: Tensor, gradient: Settled, weights: Tensor, state: Any) -> tuple[Tensor, Any]:
        return value + cast(self.strength, value) * value * value * (weights - gradient.weights), state


@dataclass(frozen=True)
class DCASGDa(Uncompensated):
    """DC-ASGD with a strength that adapts: divided by the root of the worker's mean squared gradient.

    s <- decay s + (1 - decay) g*g;  g + strength / sqrt(s + 1e-7) g*g*(w - w_read), with s kept per worker.
    With strength 0 it is plain ASGD.

    Source: Zheng et al. (2017), arXiv 1609.08326, DC-ASGD-a; CIFAR-10: strength 2, decay 0.95.
    """

    strength: Scalar = 2.0
    decay: Scalar = 0.95

    def __post_init__(self) -> None:
        bounded(self, "strength", least=0)
        bounded(self, "decay", least=0, below=1)

    def init(self, weights: Tensor) -> Tensor:  # type: ignore[override]
        return torch.zeros_like(weights)

    def correct(self, value: Tensor, gradient: Settled, weights: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        squares = running(self.decay, state, value * value)
        strength = cast(self.strength, value) / (squares + 1e-7).sqrt()
        return value + strength * value * value * (weights - gradient.weights), squares


COMPENSATIONS: dict[str, type] = {
    "none": Uncompensated,
    "staleness": Staleness,
    "one_over_n": OneOverN,
    "dc_asgd_c": DCASGDc,
    "dc_asgd_a": DCASGDa,
}
