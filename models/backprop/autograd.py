"""The gradient of any module, by autograd."""

from typing import Protocol

import torch
from torch import Tensor

from models.backprop.losses import Loss
from models.flat import Bound, flatten


class Backpropagation(Protocol):
    """One model at a time, whose weights `(params,)` come with every call."""

    def gradient(self, weights: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Gradient `(params,)` and loss, a scalar, of inputs `(batch, ...)` and targets `(batch,)`.

        The gradient may be memory that the next call overwrites.
        """
        ...

    def outputs(self, weights: Tensor, x: Tensor) -> Tensor:
        """Outputs `(samples, classes)` on inputs `(samples, ...)`."""
        ...


class Autograd:
    """The gradient of any module."""

    def __init__(self, bound: Bound, loss: Loss) -> None:
        self._bound, self._loss = bound, loss

    @torch.enable_grad()
    def gradient(self, weights: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        loss = self._loss(self._bound.load(weights)(x), y)
        return flatten(torch.autograd.grad(loss, self._bound.parameters, materialize_grads=True)), loss.detach()

    @torch.no_grad()
    def outputs(self, weights: Tensor, x: Tensor) -> Tensor:
        return self._bound.load(weights)(x)
