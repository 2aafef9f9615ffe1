"""Lion: steps of one size in every coordinate, by the sign of a momentum."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from laggard.simulator.errors import Settings
from laggard.simulator.learning.rules.optimizers import Optimizer, running
from laggard.simulator.learning.rules.scalars import Decay, NonNegativeScalar, Scalar, cast

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Lion(Settings, Optimizer):
    """Steps by the sign of a mean of the gradient and the momentum.

        w <- w - lr (sign(beta1 m + (1 - beta1) g) + weight_decay w);  m <- beta2 m + (1 - beta2) g

    Source: Chen et al. (2023), arXiv 2302.06675, algorithm 2.

    Attributes:
        beta1: the weight of the momentum in a step's direction.
        beta2: decay of the momentum, a running mean of gradients.
        weight_decay: the share, times the learning rate, by which a weight shrinks in each step.
    """

    beta1: Decay = 0.9
    beta2: Decay = 0.99
    weight_decay: NonNegativeScalar = 0.0

    def step(
        self, gradient: "Tensor", state: "Tensor", weights: "Tensor", lr: Scalar
    ) -> "tuple[Tensor, Tensor]":
        direction = running(self.beta1, state, gradient).sign()
        change = direction + cast(self.weight_decay, weights) * weights
        return change * -cast(lr, weights), running(self.beta2, state, gradient)
