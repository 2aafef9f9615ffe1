"""Optimisers: from the mean gradient of an update to the change of the weights."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from laggard.memory import add, multiply
from laggard.simulator.errors import Settings
from laggard.simulator.learning.rules.compiled_adam import loops_for, step_in_loops
from laggard.simulator.learning.rules.scalars import (
    Decay,
    Momentum,
    NonNegativeScalar,
    Scalar,
    cast,
    complement,
    is_zero,
    sqrt,
)

if TYPE_CHECKING:
    from torch import Tensor


class Optimizer(Protocol):
    """An optimiser."""

    def init(self, weights: "Tensor") -> Any:
        """The state before the first step; zeros unless a subclass says otherwise."""
        return zeros(weights)

    def step(
        self, gradient: "Tensor", state: Any, weights: "Tensor", lr: Scalar
    ) -> "tuple[Tensor, Any]":
        """The change of the weights `(ensemble, params)` for one gradient, and the next state."""
        ...


@dataclass(frozen=True)
class SGD(Settings):
    """Stochastic gradient descent, with heavy-ball momentum where momentum is not 0.

        b <- momentum b + g;  w <- w - lr b.  With momentum 0: w <- w - lr g

    Momentum below 0 opposes the last step: Mitliagkas et al. (2016), arXiv 1605.09774, use it
    against asynchrony.

    Source: Polyak (1964); Sutskever et al. (2013); `torch.optim.SGD`.

    Attributes:
        momentum: the decay factor of the velocity b.
    """

    momentum: Momentum = 0.0

    def init(self, weights: "Tensor") -> "Tensor | None":
        if is_zero(self.momentum):
            return None
        return zeros(weights)

    def step(
        self, gradient: "Tensor", state: "Tensor | None", weights: "Tensor", lr: Scalar
    ) -> "tuple[Tensor, Tensor | None]":
        if state is None:
            return multiply(gradient, -cast(lr, weights)), None
        velocity = add(multiply(state, cast(self.momentum, weights)), gradient)
        return multiply(velocity, -cast(lr, weights)), velocity


@dataclass(frozen=True)
class Nesterov(Settings, Optimizer):
    """Stochastic gradient descent with Nesterov's momentum.

        b <- momentum b + g;  w <- w - lr (g + momentum b).  With momentum 0 it is SGD

    Source: Nesterov (1983) as in Sutskever et al. (2013); `torch.optim.SGD(nesterov=True)`.

    Attributes:
        momentum: the decay factor of the velocity b.
    """

    momentum: Decay = 0.9

    def step(
        self, gradient: "Tensor", state: "Tensor", weights: "Tensor", lr: Scalar
    ) -> "tuple[Tensor, Tensor]":
        momentum = cast(self.momentum, weights)
        velocity = momentum * state + gradient
        return (gradient + momentum * velocity) * -cast(lr, weights), velocity


@dataclass(frozen=True)
class Adagrad(Settings, Optimizer):
    """Steps divided by the root of all squared gradients so far.

        s <- s + g^2;  w <- w - lr g / (sqrt(s) + eps)

    Source: Duchi et al. (2011); `torch.optim.Adagrad`.

    Attributes:
        eps: keeps the divisor from 0.
    """

    eps: NonNegativeScalar = 1e-10

    def step(
        self, gradient: "Tensor", state: "Tensor", weights: "Tensor", lr: Scalar
    ) -> "tuple[Tensor, Tensor]":
        squares = state + gradient * gradient
        divisor = squares.sqrt() + cast(self.eps, weights)
        return gradient * -cast(lr, weights) / divisor, squares


@dataclass(frozen=True)
class RMSProp(Settings, Optimizer):
    """Steps divided by the root of a running mean of squared gradients.

        s <- decay s + (1 - decay) g^2;  w <- w - lr g / (sqrt(s) + eps)

    Source: Tieleman & Hinton (2012); `torch.optim.RMSprop`, where decay is alpha.

    Attributes:
        decay: the decay factor of the running mean.
        eps: keeps the divisor from 0.
    """

    decay: Decay = 0.99
    eps: NonNegativeScalar = 1e-8

    def step(
        self, gradient: "Tensor", state: "Tensor", weights: "Tensor", lr: Scalar
    ) -> "tuple[Tensor, Tensor]":
        squares = running(self.decay, state, gradient * gradient)
        divisor = squares.sqrt() + cast(self.eps, weights)
        return gradient * -cast(lr, weights) / divisor, squares


class Moments(NamedTuple):
    """Adam's state: running means of g and g^2, and beta1^t and beta2^t for their bias."""

    first: "Tensor"
    second: "Tensor"
    power1: Scalar
    power2: Scalar


@dataclass(frozen=True)
class Adam(Settings):
    """Running means of the gradient and of its square, both corrected for their start at zero.

        m <- beta1 m + (1 - beta1) g;  v <- beta2 v + (1 - beta2) g^2;
        w <- w - lr (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps).

    Source: Kingma & Ba (2015), arXiv 1412.6980, algorithm 1, with eps where `torch.optim.Adam` has
    it.

    Attributes:
        beta1: decay of the running mean of gradients.
        beta2: decay of the running mean of their squares.
        eps: keeps the divisor from 0.
    """

    beta1: Decay = 0.9
    beta2: Decay = 0.999
    eps: NonNegativeScalar = 1e-8

    def init(self, weights: "Tensor") -> Moments:
        return Moments(zeros(weights), zeros(weights), 1.0, 1.0)

    def step(
        self, gradient: "Tensor", state: Moments, weights: "Tensor", lr: Scalar
    ) -> "tuple[Tensor, Moments]":
        # powers as products: the same for floats and tensors
        power1 = state.power1 * self.beta1
        power2 = state.power2 * self.beta2
        size, root = -lr / (1 - power1), sqrt(1 - power2)
        if (loops := loops_for(gradient)) is not None:
            means = state.first, state.second
            decays = self.beta1, complement(self.beta1), self.beta2, complement(self.beta2)
            sizes = size, root, self.eps
            m, v, change = step_in_loops(loops, gradient, means, decays, sizes)
            return change, Moments(m, v, power1, power2)
        m = running(self.beta1, state.first, gradient)
        v = running(self.beta2, state.second, gradient * gradient)
        # In place, on tensors that are new: the same bits in half the memory.
        divisor = v.sqrt().div_(cast(root, weights)).add_(cast(self.eps, weights))
        change = multiply(m, cast(size, weights)).div_(divisor)
        return change, Moments(m, v, power1, power2)


@dataclass(frozen=True)
class AdamW(Adam):
    """Adam with decoupled weight decay: w also shrinks by lr weight_decay w.

    Source: Loshchilov & Hutter (2019), arXiv 1711.05101, algorithm 2; `torch.optim.AdamW`.

    Attributes:
        weight_decay: the share, times the learning rate, by which a weight shrinks in each step.
    """

    weight_decay: NonNegativeScalar = 0.01

    def step(
        self, gradient: "Tensor", state: Moments, weights: "Tensor", lr: Scalar
    ) -> "tuple[Tensor, Moments]":
        change, state = super().step(gradient, state, weights, lr)
        return change - cast(lr * self.weight_decay, weights) * weights, state


def zeros(weights: "Tensor") -> "Tensor":
    """Zeros in the shape of `weights`."""
    return weights.new_zeros(weights.shape)


def running(decay: Scalar, mean: "Tensor", value: "Tensor") -> "Tensor":
    """The running mean `decay mean + (1 - decay) value`."""
    result = multiply(mean, cast(decay, mean))
    return result.add_(multiply(value, cast(complement(decay), mean)))
