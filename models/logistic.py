"""Multinomial logistic regression."""

import math
from dataclasses import dataclass

from torch import nn


@dataclass(frozen=True)
class Logistic:
    """Multinomial logistic regression: one linear layer from the flattened input to the logits, a convex problem."""

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """A fresh layer from inputs `(batch, *shape)` to logits `(batch, classes)`."""
        return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), classes))
