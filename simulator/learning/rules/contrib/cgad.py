"""CGAD: an outer Adam whose moments count late changes of a model less, and very late ones not."""

from dataclasses import dataclass
from math import cos, exp, pi
from typing import TYPE_CHECKING

from laggard.simulator.errors import NonNegative, Positive, Settings
from laggard.simulator.learning.rules.optimizers import Adam, Moments
from laggard.simulator.learning.rules.scalars import Decay, NonNegativeScalar

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class CGAD(Settings):
    """The outer step of a change d of a model that is tau updates late, by Adam.

    s(tau) d, with s(tau) = gamma(tau) e^(-alpha tau), stands for the gradient, and
    gamma(tau) = (1 + cos(pi tau / cutoff)) / 2 below the cutoff, and 0 from there on, where both
    moments only decay. A fresh change is a step of Adam.

    Source: Shah, Sun (2026), arXiv 2605.09126, of which the abstract was read: it has s(tau) and a
    cosine gate that falls to 0 at the cutoff. The form of the gate is recalled. Its alpha and
    cutoff were not found, and have no default; Adam's constants are Adam's own.

    Attributes:
        decay: alpha, by update.
        cutoff: the staleness in updates from which on a change counts nothing.
        beta1: Adam's decay of the running mean of gradients.
        beta2: Adam's decay of the running mean of their squares.
        eps: keeps Adam's divisor from 0.
    """

    decay: NonNegative
    cutoff: Positive
    beta1: Decay = 0.9
    beta2: Decay = 0.999
    eps: NonNegativeScalar = 1e-8

    def weight(self, staleness: int) -> float:
        """s(tau).

        Example:
            >>> [CGAD(decay=0.0, cutoff=4.0).weight(tau) for tau in (0, 2, 4, 9)]
            [1.0, 0.5, 0.0, 0.0]
        """
        if staleness >= self.cutoff:
            return 0.0
        return (1 + cos(pi * staleness / self.cutoff)) / 2 * exp(-self.decay * staleness)

    def adam(self) -> Adam:
        """The optimiser of the moments."""
        return Adam(self.beta1, self.beta2, self.eps)

    def step(
        self, change: "Tensor", state: Moments, weights: "Tensor", lr: float, staleness: int
    ) -> "tuple[Tensor, Moments]":
        """The step of the weights `(ensemble, params)`, and the next moments."""
        return self.adam().step(self.weight(staleness) * change, state, weights, lr)
