"""Layers and max-pooling as pairs of functions, forward and backward, on memory that is allocated once."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import torch
from torch import Tensor, nn

GradientViews = Mapping[Tensor, Tensor]  # where the gradient of each parameter is written

back_through_relu = torch.ops.aten.threshold_backward.grad_input  # (gradient, output, 0, grad_input=where to write it)


class LayerStage(Protocol):
    """One step of a chain.

    Attributes:
        shape: of its output.
    """

    shape: torch.Size

    def forward(self, x: Tensor) -> Tensor:
        """The output."""
        ...

    def backward(self, gradient: Tensor) -> Tensor:
        """The gradient at the input from that at the output; those of parameters are written to their places.

        Where no earlier stage has parameters the result is not used, and may be anything.
        """
        ...


class Linear:
    """A linear layer: y = x W' + b; its gradients are dW = g' x, db = sum of g over samples, dx = g W."""

    def __init__(self, layer: nn.Linear, place: GradientViews, shape: torch.Size, first: bool) -> None:
        self._weight, self._to_weight = layer.weight.detach(), place[layer.weight]
        self._bias, self._to_bias = (None, None) if layer.bias is None else (layer.bias.detach(), place[layer.bias])
        self._y = self._weight.new_empty(shape[0], layer.out_features)
        self._back = None if first else self._weight.new_empty(shape)
        self._x = self._y
        self.shape = self._y.shape

    def forward(self, x: Tensor) -> Tensor:
        self._x = x
        if self._bias is None:
            return torch.mm(x, self._weight.t(), out=self._y)
        return torch.addmm(self._bias, x, self._weight.t(), out=self._y)

    def backward(self, gradient: Tensor) -> Tensor:
        torch.mm(gradient.t(), self._x, out=self._to_weight)
        if self._to_bias is not None:
            torch.sum(gradient, 0, out=self._to_bias)
        return gradient if self._back is None else torch.mm(gradient, self._weight, out=self._back)


class Rectifier:
    """y = max(x, 0); the gradient passes where y > 0, as in autograd."""

    def __init__(self, like: Tensor, shape: torch.Size) -> None:
        self.shape = shape
        self._y, self._back = like.new_empty(shape), like.new_empty(shape)

    def forward(self, x: Tensor) -> Tensor:
        return torch.clamp_min(x, 0, out=self._y)

    def backward(self, gradient: Tensor) -> Tensor:
        back: Tensor = back_through_relu(gradient, self._y, 0, grad_input=self._back)
        return back


class Elementwise:
    """An elementwise activation; its derivative is autograd's."""

    def __init__(self, layer: nn.Module, shape: torch.Size) -> None:
        self._layer, self.shape = layer, shape
        self._x = self._y = torch.empty(0)

    @torch.enable_grad()
    def forward(self, x: Tensor) -> Tensor:
        self._x = x.detach().requires_grad_()
        self._y = self._layer(self._x)
        return self._y.detach()

    def backward(self, gradient: Tensor) -> Tensor:
        back: Tensor = torch.autograd.grad(self._y, self._x, gradient)[0]
        return back


class SamplesLast:
    """`(batch, channels, height, width)` seen as `(channels, height, width, batch)`."""

    def __init__(self, shape: torch.Size) -> None:
        self.shape = torch.Size((*shape[1:], shape[0]))

    def forward(self, x: Tensor) -> Tensor:
        return x.movedim(0, -1)

    def backward(self, gradient: Tensor) -> Tensor:
        return gradient.movedim(-1, 0)


class Flat:
    """Images `(channels, height, width, batch)` as features `(batch, features)`."""

    def __init__(self, like: Tensor, shape: torch.Size) -> None:
        self._y = like.new_empty(shape[-1], shape[:-1].numel())
        self._back = like.new_empty(shape)
        self.shape = self._y.shape

    def forward(self, x: Tensor) -> Tensor:
        return self._y.copy_(x.reshape(-1, x.shape[-1]).t())

    def backward(self, gradient: Tensor) -> Tensor:
        self._back.view(-1, len(gradient)).copy_(gradient.t())
        return self._back


class Features:
    """Inputs `(batch, ...)` as features `(batch, features)`."""

    def __init__(self, shape: torch.Size) -> None:
        self._from = shape
        self.shape = torch.Size((shape[0], shape[1:].numel()))

    def forward(self, x: Tensor) -> Tensor:
        return x.reshape(self.shape)

    def backward(self, gradient: Tensor) -> Tensor:
        return gradient.view(self._from)


class MaxPool:
    """The elementwise maximum of four tensors, and its gradient, which goes to the first of equals, as in torch."""

    def __init__(self, like: Tensor, shape: torch.Size) -> None:
        self._upper, self._lower, self._largest = (like.new_empty(shape) for _ in range(3))
        self._to_upper, self._to_lower, self._difference = (like.new_empty(shape) for _ in range(3))

    def forward(self, inputs: Sequence[Tensor]) -> Tensor:
        """The elementwise maximum of the four `inputs`, taken in pairs."""
        torch.maximum(inputs[0], inputs[1], out=self._upper)
        torch.maximum(inputs[2], inputs[3], out=self._lower)
        return torch.maximum(self._upper, self._lower, out=self._largest)

    def backward(self, inputs: Sequence[Tensor], gradient: Tensor, into: Sequence[Tensor]) -> None:
        """Write `gradient` to the place of the maximum, and zero to the others."""
        self._split(gradient, self._upper, self._lower, self._to_upper, self._to_lower)
        self._split(self._to_upper, inputs[0], inputs[1], into[0], into[1])
        self._split(self._to_lower, inputs[2], inputs[3], into[2], into[3])

    def _split(self, gradient: Tensor, first: Tensor, second: Tensor, to_first: Tensor, to_second: Tensor) -> None:
        """Pass `gradient` to the second only where it is greater."""
        torch.sub(second, first, out=self._difference)
        back_through_relu(gradient, self._difference, 0, grad_input=to_second)
        torch.sub(gradient, to_second, out=to_first)


class Pooling:
    """Max-pooling of squares of two by two, without an odd row or column at the end."""

    def __init__(self, like: Tensor, shape: torch.Size) -> None:
        self._back = like.new_zeros(shape)
        self.shape = torch.Size((shape[0], shape[1] // 2, shape[2] // 2, shape[3]))
        self._max_pool = MaxPool(like, self.shape)
        self._inputs: Sequence[Tensor] = ()

    def forward(self, x: Tensor) -> Tensor:
        self._inputs = _squares(x)
        return self._max_pool.forward(self._inputs)

    def backward(self, gradient: Tensor) -> Tensor:
        self._max_pool.backward(self._inputs, gradient, _squares(self._back))
        return self._back


def _squares(x: Tensor) -> list[Tensor]:
    """Four views of `x` `(channels, height, width, batch)`: each square's values in reading order."""
    height, width = (2 * (size // 2) for size in x.shape[1:3])
    return [x[:, row:height:2, column:width:2] for row in (0, 1) for column in (0, 1)]
