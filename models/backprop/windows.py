"""The windows of images as the columns of a matrix, and back."""

import torch
from torch import Tensor

Sides = tuple[int, int]  # in height, in width


class Windows:
    """Windows of one `size`, a `step` apart, on images of `shape` `(channels, height, width, batch)`.

    The images lie in a `border` of zeros.

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
            self._lay_out_the_way_back(step)

    def cut(self, images: Tensor) -> Tensor:
        """The columns of `images`."""
        self._images.copy_(images)
        self._cut_out.copy_(self._cut)
        return self.columns

    def add_up(self, columns: Tensor) -> Tensor:
        """The sum of the windows in `columns` where they were cut out: the transpose of `cut`.

        Along rows first, then along columns: height + width additions of a window's, instead of height * width.
        """
        windows = columns.view(self._cut.shape)
        self._rows.zero_()
        for at, reached in enumerate(self._columns_reached):
            reached.add_(windows[:, :, at])
        self._framed.zero_()
        for at, reached in enumerate(self._rows_reached):
            reached.add_(self._rows[:, at])
        return self._images

    def _lay_out_the_way_back(self, step: Sides) -> None:
        channels, high, wide, down, across, batch = self._cut.shape
        self._rows = self._framed.new_empty(channels, high, down, self._framed.shape[2], batch)
        self._columns_reached = [self._rows[:, :, :, _places(at, step[1], across)] for at in range(wide)]
        self._rows_reached = [self._framed[:, _places(at, step[0], down)] for at in range(high)]


def _places(start: int, step: int, count: int) -> slice:
    """`count` places from `start`, a `step` apart."""
    return slice(start, start + step * (count - 1) + 1, step)
