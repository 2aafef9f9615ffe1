"""The gradient of any module, by autograd."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from laggard.models.flat import Bound, flatten

# outputs (batch, classes), targets (batch,) -> their mean loss, a scalar
Loss = Callable[[Tensor, Tensor], Tensor]


class Autograd:
    """Computes one model's gradient at a time, at the weights `(params,)` of each call.

    It takes over the module, whose parameters it overwrites.
    """

    def __init__(self, module: nn.Module, loss: Loss) -> None:
        self._bound = Bound(module)
        self._loss = loss

    @torch.enable_grad()
    def gradient(self, weights: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Gradient `(params,)` and loss, a scalar, of inputs and targets `(batch, ...)`."""
        module = self._bound.load(weights)
        loss = self._loss(module(x), y)
        # a parameter that is not used has a gradient of zeros
        gradients = torch.autograd.grad(loss, self._bound.parameters, materialize_grads=True)
        return flatten(gradients), loss.detach()

    @torch.no_grad()
    def outputs(self, weights: Tensor, x: Tensor) -> Tensor:
        """Outputs `(samples, classes)` on inputs `(samples, ...)`."""
        outputs: Tensor = self._bound.load(weights)(x)
        return outputs
