"""The gradient of any module, by autograd."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from laggard.models.flat import Bound, flatten

# outputs (batch, classes), targets (batch,) -> their mean loss, a scalar
Loss = Callable[[Tensor, Tensor], Tensor]


class Autograd:
    """One model at a time of a module, which it takes over; weights `(params,)` come with every
    call.
    """

    def __init__(self, module: nn.Module, loss: Loss) -> None:
        self._bound, self._loss = Bound(module), loss

    @torch.enable_grad()
    def gradient(self, weights: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Gradient `(params,)` and loss, a scalar, of inputs `(batch, ...)` and targets
        `(batch,)`.
        """
        loss = self._loss(self._bound.load(weights)(x), y)
        return flatten(
            torch.autograd.grad(loss, self._bound.parameters, materialize_grads=True)
        ), loss.detach()

    @torch.no_grad()
    def outputs(self, weights: Tensor, x: Tensor) -> Tensor:
        """Outputs `(samples, classes)` on inputs `(samples, ...)`."""
        outputs: Tensor = self._bound.load(weights)(x)
        return outputs
