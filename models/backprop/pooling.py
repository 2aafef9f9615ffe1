"""Max-pooling over squares of two by two, as a tournament."""

from collections.abc import Sequence

import torch
from torch import Tensor

from models.backprop.stages import back_through_relu


class Tournament:
    """The largest of four tensors in every place, and the way back to it; of equals the first wins, as in torch."""

    def __init__(self, like: Tensor, shape: torch.Size) -> None:
        self._upper, self._lower, self._largest = (like.new_empty(shape) for _ in range(3))
        self._to_upper, self._to_lower, self._ahead = (like.new_empty(shape) for _ in range(3))

    def play(self, players: Sequence[Tensor]) -> Tensor:
        """The largest of the four `players`, who play in pairs."""
        torch.maximum(players[0], players[1], out=self._upper)
        torch.maximum(players[2], players[3], out=self._lower)
        return torch.maximum(self._upper, self._lower, out=self._largest)

    def back(self, players: Sequence[Tensor], gradient: Tensor, into: Sequence[Tensor]) -> None:
        """Write `gradient` into the winner's place, zero into the others'."""
        self._split(gradient, self._upper, self._lower, self._to_upper, self._to_lower)
        self._split(self._to_upper, players[0], players[1], into[0], into[1])
        self._split(self._to_lower, players[2], players[3], into[2], into[3])

    def _split(self, gradient: Tensor, first: Tensor, second: Tensor, to_first: Tensor, to_second: Tensor) -> None:
        """The second wins only where it is ahead."""
        torch.sub(second, first, out=self._ahead)
        back_through_relu(gradient, self._ahead, 0, grad_input=to_second)
        torch.sub(gradient, to_second, out=to_first)


class Pooling:
    """The largest of every square of two by two; an odd row or column at the end is left out."""

    def __init__(self, like: Tensor, shape: torch.Size) -> None:
        self._back = like.new_zeros(shape)
        self.shape = torch.Size((shape[0], shape[1] // 2, shape[2] // 2, shape[3]))
        self._tournament = Tournament(like, self.shape)
        self._players: Sequence[Tensor] = ()

    def forward(self, x: Tensor) -> Tensor:
        self._players = _squares(x)
        return self._tournament.play(self._players)

    def backward(self, gradient: Tensor) -> Tensor:
        self._tournament.back(self._players, gradient, _squares(self._back))
        return self._back


def _squares(x: Tensor) -> list[Tensor]:
    """Four views of `x` `(channels, height, width, batch)`: each square's values in reading order."""
    height, width = (2 * (size // 2) for size in x.shape[1:3])
    return [x[:, row:height:2, column:width:2] for row in (0, 1) for column in (0, 1)]
