"""Convolution as one matrix product over windows (im2col), with the pooling that follows it."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from laggard.models.backends.handwritten.stages import GradientViews, MaxPool

Sides = tuple[int, int]  # in height, in width


class Windows:
    """Windows of one `size`, a `step` apart, on images of `shape` `(channels, height, width, batch)`.

    The images have a `border` of zeros.

    Attributes:
        count: how many windows an image has from top to bottom, and from left to right.
        columns: a matrix `(channels * size, count * batch)`, a column per window.
    """

    def __init__(self, like: Tensor, shape: torch.Size, size: Sides, step: Sides, border: Sides, first: bool) -> None:
        channels, *sides, batch = shape
        height, width = (side + 2 * edge for side, edge in zip(sides, border, strict=True))
        self.count = ((height - size[0]) // step[0] + 1, (width - size[1]) // step[1] + 1)
        self._framed = like.new_zeros(channels, height, width, batch)
        self._images = self._framed[:, border[0] : height - border[0], border[1] : width - border[1]]
        channel, row, column, sample = self._framed.stride()
        self._cut = self._framed.as_strided(
            (channels, *size, *self.count, batch), (channel, row, column, step[0] * row, step[1] * column, sample)
        )
        self._cut_out = like.new_empty(self._cut.shape)
        self.columns = self._cut_out.view(channels * size[0] * size[1], -1)
        if not first:
            self._allocate_backward(step)

    def cut(self, images: Tensor) -> Tensor:
        """The columns of `images`."""
        self._images.copy_(images)
        self._cut_out.copy_(self._cut)
        return self.columns

    def add_up(self, columns: Tensor) -> Tensor:
        """The sum of the windows in `columns` at their places in the images: the transpose of `cut`.

        Along rows first, then along columns: height + width additions per window, instead of height * width.
        """
        windows = columns.view(self._cut.shape)
        self._rows.zero_()
        for at, reached in enumerate(self._columns_reached):
            reached.add_(windows[:, :, at])
        self._framed.zero_()
        for at, reached in enumerate(self._rows_reached):
            reached.add_(self._rows[:, at])
        return self._images

    def _allocate_backward(self, step: Sides) -> None:
        channels, high, wide, down, across, batch = self._cut.shape
        self._rows = self._framed.new_empty(channels, high, down, self._framed.shape[2], batch)
        self._columns_reached = [self._rows[:, :, :, _window_places(at, step[1], across)] for at in range(wide)]
        self._rows_reached = [self._framed[:, _window_places(at, step[0], down)] for at in range(high)]


def _window_places(start: int, step: int, count: int) -> slice:
    """`count` places from `start`, a `step` apart."""
    return slice(start, start + step * (count - 1) + 1, step)


class Im2col:
    """The products Y = W X of a layer's kernels W with the windows X of its input; dW = G X', dX = W' G.

    A window here covers `positions` by `positions` neighbouring windows of the layer; W holds each kernel at every one
    of these positions, among zeros.

    Attributes:
        shape: of the products, `(positions * positions, channels, height, width, batch)`.
    """

    def __init__(self, layer: nn.Conv2d, place: GradientViews, shape: torch.Size, first: bool, positions: int) -> None:
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
            _placed(matrix, self._kernels.shape, size, _both(layer.stride), positions)
            for matrix in (self._matrix, self._to_matrix)
        )

    def forward(self, x: Tensor) -> Tensor:
        """The products, without the bias."""
        self._placed.copy_(self._kernels)
        torch.mm(self._matrix, self._windows.cut(x), out=self._y.view(len(self._matrix), -1))
        return self._y

    def backward(self, gradient: Tensor) -> Tensor | None:
        """The gradient at the input, if it is needed; the gradient of the kernels is written to its place."""
        gradient = gradient.view(len(self._matrix), -1)
        torch.mm(gradient, self._windows.columns.t(), out=self._to_matrix)
        torch.sum(self._from_placed, (0, 1), out=self._to_kernels)
        if self._back is None:
            return None
        return self._windows.add_up(torch.mm(self._matrix.t(), gradient, out=self._back))


class Bias:
    """The bias of a convolution, if it has one."""

    _bias: Tensor | None
    _to_bias: Tensor | None

    def __init__(self, layer: nn.Conv2d, place: GradientViews) -> None:
        self._bias, self._to_bias = (None, None) if layer.bias is None else (layer.bias.detach(), place[layer.bias])

    def forward(self, y: Tensor) -> Tensor:
        """Add it to `y` `(channels, height, width, batch)`, in place."""
        return y if self._bias is None else y.add_(self._bias[:, None, None, None])

    def backward(self, gradient: Tensor) -> None:
        if self._to_bias is not None:
            torch.sum(gradient, (1, 2, 3), out=self._to_bias)


class Convolution:
    """A convolution."""

    def __init__(self, layer: nn.Conv2d, place: GradientViews, shape: torch.Size, first: bool) -> None:
        self._products, self._bias = Im2col(layer, place, shape, first, positions=1), Bias(layer, place)
        self.shape = self._products.shape[1:]

    def forward(self, x: Tensor) -> Tensor:
        return self._bias.forward(self._products.forward(x)[0])

    def backward(self, gradient: Tensor) -> Tensor:
        self._bias.backward(gradient)
        back = self._products.backward(gradient)
        return gradient if back is None else back


class ConvolutionPool:
    """A convolution and max-pooling by two: the four products of a square lie in four rows of one matrix.

    So the maximum is taken over contiguous memory, and a quarter as many windows are copied, of 36 instead of 25
    entries for kernels of five by five. The bias commutes with the maximum.
    """

    def __init__(self, layer: nn.Conv2d, place: GradientViews, shape: torch.Size, first: bool) -> None:
        self._products, self._bias = Im2col(layer, place, shape, first, positions=2), Bias(layer, place)
        self.shape = self._products.shape[1:]
        self._max_pool = MaxPool(layer.weight.detach(), self.shape)
        self._to_products = layer.weight.detach().new_empty(self._products.shape)
        self._to_inputs = self._to_products.unbind()
        self._inputs = self._to_inputs

    def forward(self, x: Tensor) -> Tensor:
        self._inputs = self._products.forward(x).unbind()
        return self._bias.forward(self._max_pool.forward(self._inputs))

    def backward(self, gradient: Tensor) -> Tensor:
        self._bias.backward(gradient)
        self._max_pool.backward(self._inputs, gradient, self._to_inputs)
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
