"""Compensations that correct a late gradient by coordinate."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from laggard.simulator.learning.gradients import GradientPromise
from laggard.simulator.learning.rules.damping import Uncompensated
from laggard.simulator.learning.rules.optimizers import running, zeros
from laggard.simulator.learning.rules.scalars import Decay, NonNegativeScalar, Scalar, cast

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class DCASGDc(Uncompensated):
    """DC-ASGD with a constant strength: a Taylor correction by the diagonal of g g^T.

        g <- g + strength g*g*(w - w_read)

    where w_read are the weights at which the gradient was taken (that worker's backup). With
    strength 0 it is plain ASGD.

    Source: Zheng et al. (2017), arXiv 1609.08326, algorithm 2; their CIFAR-10 strength is 0.04.

    Attributes:
        strength: lambda, the weight of the correction.
    """

    strength: NonNegativeScalar = 0.04

    def correct(
        self, value: "Tensor", gradient: GradientPromise, weights: "Tensor", state: Any, lr: Scalar
    ) -> "tuple[Tensor, Any]":
        correction = cast(self.strength, value) * value * value * (weights - gradient.weights)
        return value + correction, state


@dataclass(frozen=True)
class DCASGDa(Uncompensated):
    """DC-ASGD with an adaptive strength, over the root of the worker's mean squared gradient.

        s <- decay s + (1 - decay) g*g;    g <- g + strength / sqrt(s + 10^-7) g*g*(w - w_read)

    with one s per worker. With strength 0 it is plain ASGD.

    Source: Zheng et al. (2017), arXiv 1609.08326, DC-ASGD-a; CIFAR-10: strength 2, decay 0.95. The
    paper has one s; one per worker is what its authors' code has (Multiverso, dcasgda_updater.h).

    Attributes:
        strength: lambda_0, the weight of the correction.
        decay: m, the decay factor of the running mean of squared gradients.
    """

    strength: NonNegativeScalar = 2.0
    decay: Decay = 0.95

    def init(self, weights: "Tensor") -> Any:
        return zeros(weights)

    def correct(
        self, value: "Tensor", gradient: GradientPromise, weights: "Tensor", state: Any, lr: Scalar
    ) -> "tuple[Tensor, Any]":
        squares = running(self.decay, state, value * value)
        strength = cast(self.strength, value) / (squares + 1e-7).sqrt()
        return value + strength * value * value * (weights - gradient.weights), squares


class Steps(NamedTuple):
    """The state of `GapAware`: the weights at the last update, and the mean of squared steps.

    Attributes:
        missing: decay to the power of the number of steps: the weight of the start at zero in the
            mean.
    """

    weights: "Tensor"
    squares: "Tensor"
    missing: Scalar


@dataclass(frozen=True)
class GapAware(Uncompensated):
    """A gradient is divided, by coordinate, by 1 + the gap of its model in typical steps.

        g <- g / (1 + |w - w_read| / C);    C = sqrt(s / (1 - decay^t))
        s <- decay s + (1 - decay) (w_t - w_{t-1})^2

    C is the root mean square of the model's own steps, whatever the optimiser; under SGD with
    velocity v it is lr sqrt(mean of v^2). (FTPipe takes the largest learning rate there where a
    schedule changes it.) A fresh gradient counts in full; so does the first, before there was any
    step.

    Attributes:
        decay: the decay factor of the running mean.

    Source: Barkai, Hakimi, Schuster (2020), arXiv 1909.10802; C as in the public code of FTPipe.
    """

    shared: ClassVar[bool] = True

    decay: Decay = 0.999

    def init(self, weights: "Tensor") -> Any:
        return Steps(weights, zeros(weights), 1.0)

    def correct(
        self, value: "Tensor", gradient: GradientPromise, weights: "Tensor", state: Any, lr: Scalar
    ) -> "tuple[Tensor, Any]":
        # Other weights than at the last call: the model has made a step since. The identity is safe
        # since weights are values, and an update corrects all its gradients at one object.
        if weights is not state.weights:
            squares = running(self.decay, state.squares, (weights - state.weights).square())
            state = Steps(weights, squares, state.missing * self.decay)
        gap = (weights - gradient.weights).abs()
        typical = (state.squares / cast(1 - state.missing, value)).sqrt()
        defined = (gap > 0) & (typical > 0)  # before the first step it is 0 / 0
        return (value * typical / (typical + gap)).where(defined, value), state
