"""The modules of a Transformer."""

import torch
from torch import Tensor, nn


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
