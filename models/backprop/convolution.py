"""Convolution as one matrix product, with the pooling that follows it in the same."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from models.backprop.pooling import Tournament
from models.backprop.stages import Place
from models.backprop.windows import Sides, Windows


class Products:
    """The products Y = W X of a layer's kernels W with the windows X of its input; dW = G X', dX = W' G.

    Each kernel takes `positions` by `positions` places in a window, which is as large as so many neighbouring windows
    of the layer together; W holds it in every one of them, among zeros.

    Attributes:
        shape: of the products, `(positions * positions, channels, height, width, batch)`.
    """

    def __init__(self, layer: nn.Conv2d, place: Place, shape: torch.Size, first: bool, positions: int) -> None:
        self._kernels, self._to_kernels = layer.weight.detach(), place[layer.weight]
        size = _both(
            side + (positions - 1) * stride for side, stride in zip(layer.kernel_size, layer.stride, strict=True)
        )
        step = _both(positions * stride for stride in layer.stride)
        self._windows = Windows(self._kernels, shape, size, step, _both(layer.padding), first)
        self.shape = torch.Size((positions**2, len(self._kernels), *self._windows.count, shape[3]))
        self._matrix = self._kernels.new_zeros(positions**2 * len(self._kernels), len(self._windows.columns))
        self._to_matrix = torch.empty_like(self._matrix)
        self._y = self._kernels.new_empty(self.shape)
        self._back = None if first else torch.empty_like(self._windows.columns)
        self._placed, self._from_placed = (
            _placed(matrix, self._kernels.shape, size, layer.stride, positions)
            for matrix in (self._matrix, self._to_matrix)
        )

    def forward(self, x: Tensor) -> Tensor:
        """The products, without the bias."""
        self._placed.copy_(self._kernels)
        torch.mm(self._matrix, self._windows.cut(x), out=self._y.view(len(self._matrix), -1))
        return self._y

    def backward(self, gradient: Tensor) -> Tensor | None:
        """The gradient at the input, unless nobody needs it; that of the kernels is written."""
        gradient = gradient.view(len(self._matrix), -1)
        torch.mm(gradient, self._windows.columns.t(), out=self._to_matrix)
        torch.sum(self._from_placed, (0, 1), out=self._to_kernels)
        if self._back is None:
            return None
        return self._windows.add_up(torch.mm(self._matrix.t(), gradient, out=self._back))


class Bias:
    """A number added to every entry of a channel, or none."""

    def __init__(self, layer: nn.Conv2d, place: Place) -> None:
        self._bias, self._to_bias = (None, None) if layer.bias is None else (layer.bias.detach(), place[layer.bias])

    def forward(self, y: Tensor) -> Tensor:
        """`y` `(channels, height, width, batch)` with it, in place."""
        return y if self._bias is None else y.add_(self._bias[:, None, None, None])

    def backward(self, gradient: Tensor) -> None:
        if self._to_bias is not None:
            torch.sum(gradient, (1, 2, 3), out=self._to_bias)


class Convolution:
    """A convolution."""

    def __init__(self, layer: nn.Conv2d, place: Place, shape: torch.Size, first: bool) -> None:
        self._products, self._bias = Products(layer, place, shape, first, positions=1), Bias(layer, place)
        self.shape = self._products.shape[1:]

    def forward(self, x: Tensor) -> Tensor:
        return self._bias.forward(self._products.forward(x)[0])

    def backward(self, gradient: Tensor) -> Tensor:
        self._bias.backward(gradient)
        back = self._products.backward(gradient)
        return gradient if back is None else back


class PooledConvolution:
    """A convolution and max-pooling by two: the four products of a square lie in four rows of one matrix.

    Their largest is a matter of contiguous memory, and a quarter of the windows is cut out, of 36 instead of 25
    entries where kernels are five by five. The bias commutes with the maximum.
    """

    def __init__(self, layer: nn.Conv2d, place: Place, shape: torch.Size, first: bool) -> None:
        self._products, self._bias = Products(layer, place, shape, first, positions=2), Bias(layer, place)
        self.shape = self._products.shape[1:]
        self._tournament = Tournament(layer.weight.detach(), self.shape)
        self._to_products = layer.weight.detach().new_empty(self._products.shape)
        self._back_to_players = self._to_products.unbind()
        self._players = self._back_to_players

    def forward(self, x: Tensor) -> Tensor:
        self._players = self._products.forward(x).unbind()
        return self._bias.forward(self._tournament.play(self._players))

    def backward(self, gradient: Tensor) -> Tensor:
        self._bias.backward(gradient)
        self._tournament.back(self._players, gradient, self._back_to_players)
        back = self._products.backward(self._to_products)
        return gradient if back is None else back


def _placed(matrix: Tensor, kernels: torch.Size, size: Sides, stride: Sides, positions: int) -> Tensor:
    """The kernels in all their places in `matrix`: a view `(positions, positions, *kernels)`."""
    channels = kernels[0]
    row, window = matrix.shape[1], size[0] * size[1]
    across, down = channels * row + stride[1], positions * channels * row + stride[0] * size[1]
    return matrix.as_strided((positions, positions, *kernels), (down, across, row, window, size[1], 1))


def _both(sides: Iterable[Any]) -> Sides:
    height, width = sides
    return height, width
