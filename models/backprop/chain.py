"""A chain of layers whose gradient is written out."""

import torch
from torch import Size, Tensor, nn

from models.backprop.autograd import Autograd, Backpropagation
from models.backprop.layers import chain_of
from models.backprop.laying import Laid, Misfit, lay
from models.backprop.losses import Loss, differentiated
from models.flat import Bound, flatten, shapes, unflatten

SHAPES = 4  # of inputs whose stages are kept: mini-batches, pieces of a test set, and what is left of it


def backpropagation(module: nn.Module, loss: Loss) -> Backpropagation:
    """The way to the gradient of `module` that is known to be fast; the module becomes its own."""
    layers, bound = chain_of(module), Bound(module)
    return Autograd(bound, loss) if layers is None else Chain(bound, loss, layers)


class Chain:
    """The gradient of a chain of well-known layers, without autograd.

    Autograd allots and forgets every intermediate, and its convolutions and poolings are slow for few channels: the
    gradient of LeNet-5 takes a quarter to a half longer. Where the matrix products are autograd's own the
    gradient is the same bit for bit; elsewhere up to rounding. Inputs that the stages do not fit go to autograd.
    """

    def __init__(self, bound: Bound, loss: Loss, layers: list[nn.Module]) -> None:
        self._bound, self._layers, self._loss = bound, layers, differentiated(loss)
        self._autograd = Autograd(bound, loss)
        self._gradient = torch.zeros_like(flatten(bound.parameters).detach())
        self._place = dict(zip(bound.parameters, unflatten(self._gradient, shapes(bound.module)), strict=True))
        self._laid: dict[Size, Laid | None] = {}

    def gradient(self, weights: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        laid = self._fitting(x)
        if laid is None:
            return self._autograd.gradient(weights, x, y)
        loss, gradient = self._loss(self._forward(laid, weights, x), y)
        for stage in laid.back:
            gradient = stage.backward(gradient)
        return self._gradient, loss

    def outputs(self, weights: Tensor, x: Tensor) -> Tensor:
        laid = self._fitting(x)
        return self._autograd.outputs(weights, x) if laid is None else self._forward(laid, weights, x).clone()

    def _forward(self, laid: Laid, weights: Tensor, x: Tensor) -> Tensor:
        self._bound.load(weights)
        for stage in laid.there:
            x = stage.forward(x)
        return x

    def _fitting(self, x: Tensor) -> Laid | None:
        """The stages for inputs of the shape of `x`."""
        if x.shape not in self._laid:
            if len(self._laid) == SHAPES:
                self._laid.clear()
            try:
                self._laid[x.shape] = lay(self._layers, self._place, x)
            except Misfit:
                self._laid[x.shape] = None
        return self._laid[x.shape]
