"""A multilayer perceptron."""

import math
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from torch import nn


@dataclass(frozen=True)
class MLP:
    """Full layers of the `hidden` sizes with ReLU between them, from the flattened input to the logits.

    Without hidden layers it is logistic regression.

    Raises:
        ValueError: a hidden size below 1.
    """

    hidden: Sequence[int] = (128,)

    def __post_init__(self) -> None:
        if any(size < 1 for size in self.hidden):
            raise ValueError(f"hidden = {list(self.hidden)}: expected sizes of at least 1")

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """A fresh network from inputs `(batch, *shape)` to logits `(batch, classes)`."""
        layers: OrderedDict[str, nn.Module] = OrderedDict(flatten=nn.Flatten())
        for number, (inputs, outputs) in enumerate(pairwise((math.prod(shape), *self.hidden, classes)), 1):
            layers |= {f"full{number}": nn.Linear(inputs, outputs), f"relu{number}": nn.ReLU()}
        layers.popitem()  # logits are not cut off at zero
        return nn.Sequential(layers)
