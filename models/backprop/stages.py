"""Layers as pairs of functions, there and back, on memory that is laid out once.

A stage is made for inputs of one shape and owns whatever it computes: its outputs hold until it runs again.
Images lie with their samples innermost, `(channels, height, width, batch)`, so that whatever is no matrix product runs
along contiguous memory; features lie as everywhere, `(batch, features)`.
"""

from typing import Protocol

import torch
from torch import Tensor, nn

Place = dict[nn.Parameter, Tensor]  # where the gradient of each parameter is written

back_through_relu = torch.ops.aten.threshold_backward.grad_input  # (gradient, output, 0, grad_input=where to write it)


class Stage(Protocol):
    """One step of a chain.

    Attributes:
        shape: of its output.
    """

    shape: torch.Size

    def forward(self, x: Tensor) -> Tensor:
        """The output."""
        ...

    def backward(self, gradient: Tensor) -> Tensor:
        """The gradient at the input from that at the output; those of parameters are written where they belong.

        Where nothing before the stage learns, nobody reads what it answers, and it may be anything.
        """
        ...


class Full:
    """A full layer: y = x W' + b; its gradients are dW = g' x, db = sum of g over samples, dx = g W."""

    def __init__(self, layer: nn.Linear, place: Place, shape: torch.Size, first: bool) -> None:
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
    """y = max(x, 0); the gradient passes where y > 0, as autograd has it."""

    def __init__(self, like: Tensor, shape: torch.Size) -> None:
        self.shape = shape
        self._y, self._back = like.new_empty(shape), like.new_empty(shape)

    def forward(self, x: Tensor) -> Tensor:
        return torch.clamp_min(x, 0, out=self._y)

    def backward(self, gradient: Tensor) -> Tensor:
        return back_through_relu(gradient, self._y, 0, grad_input=self._back)


class Elementwise:
    """An activation that acts on every number alone, in any layout; its derivative is autograd's."""

    def __init__(self, layer: nn.Module, shape: torch.Size) -> None:
        self._layer, self.shape = layer, shape
        self._x = self._y = torch.empty(0)

    @torch.enable_grad()
    def forward(self, x: Tensor) -> Tensor:
        self._x = x.detach().requires_grad_()
        self._y = self._layer(self._x)
        return self._y.detach()

    def backward(self, gradient: Tensor) -> Tensor:
        return torch.autograd.grad(self._y, self._x, gradient)[0]


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
