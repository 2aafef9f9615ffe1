"""The modules of networks for images and texts that torch does not have."""

import torch
from torch import Tensor, nn
from torch.nn.functional import pad


class GrayToColour(nn.Module):
    """Images of one channel `(batch, 1, height, width)` as three equal channels."""

    def forward(self, x: Tensor) -> Tensor:
        return x.expand(-1, 3, -1, -1)


class BasicBlock(nn.Module):
    """relu(shortcut(x) + part(x)), where `part` are two convolutions of 3 x 3 with norms and a ReLU between them.

    The shortcut has no parameters: where `part` halves the image and adds maps, it takes every second pixel and has
    zeros for the added maps (option A).
    """

    def __init__(self, part: nn.Sequential, stride: int, added: int) -> None:
        super().__init__()
        self.part, self.stride, self.added = part, stride, added

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x[..., :: self.stride, :: self.stride]
        outputs: Tensor = (pad(shortcut, (0, 0, 0, 0, 0, self.added)) + self.part(x)).relu()
        return outputs


def convolution_of_3(inputs: int, outputs: int, stride: int = 1) -> nn.Conv2d:
    """A convolution of 3 x 3 without a bias, initialised for ReLU: deviation sqrt(2 / (9 outputs))."""
    layer = nn.Conv2d(inputs, outputs, kernel_size=3, stride=stride, padding=1, bias=False)
    nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return layer


class CharacterEmbedding(nn.Embedding):
    """A vector for each character."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.long())  # data sets hold their inputs as floats, which are exact for so few characters


class Recurrence(nn.LSTM):
    """An LSTM from `(batch, positions, width)` to its outputs at every position, without its last state."""

    def __init__(self, width: int) -> None:
        super().__init__(width, width, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        outputs: Tensor = super().forward(x)[0]
        return outputs


class Embedding(nn.Module):
    """The sum of a vector for each character and one for each position, of deviation 0.02."""

    def __init__(self, characters: int, positions: int, width: int) -> None:
        super().__init__()
        self.character = nn.Parameter(0.02 * torch.randn(characters, width))
        self.position = nn.Parameter(0.02 * torch.randn(positions, width))

    def forward(self, x: Tensor) -> Tensor:
        # Data sets hold their inputs as floats, which are exact for so few characters.
        outputs: Tensor = nn.functional.embedding(x.long(), self.character) + self.position
        return outputs


class Residual(nn.Module):
    """x + part(norm(x))."""

    def __init__(self, width: int, part: nn.Module) -> None:
        super().__init__()
        self.norm, self.part = nn.LayerNorm(width), part

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = x + self.part(self.norm(x))
        return outputs


class Attention(nn.Module):
    """softmax(Q K^T / sqrt(width / heads)) V of every head, where a position sees itself and those before it."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.inputs, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        each = self.inputs(x).unflatten(-1, (3, self.heads, -1)).movedim(-3, 0).transpose(-3, -2)
        queries, keys, values = each.unbind(0)  # (batch, heads, positions, width / heads)
        scores = queries @ keys.transpose(-1, -2) / queries.shape[-1] ** 0.5
        future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=x.device).triu(1)
        seen = scores.masked_fill(future, float("-inf")).softmax(-1) @ values
        outputs: Tensor = self.output(seen.transpose(-3, -2).flatten(-2))
        return outputs
