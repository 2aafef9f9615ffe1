"""A small Transformer that predicts the next character."""

from collections import OrderedDict
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Transformer:
    """A decoder that predicts at every position of a text what comes next: the loss is the mean over positions.

    Blocks of causal self-attention and a layer of 4 `width` units with GELU, each with layer normalisation before it
    and a residual connection around it; positions are learnt. Without dropout, so that a gradient is a function of
    weights and mini-batch.

    Source: Vaswani et al. (2017), arXiv:1706.03762; layer normalisation first: Xiong et al. (2020), arXiv:2002.04745.

    Raises:
        ValueError: fewer than one block or head, or a width that the heads cannot share.
    """

    width: int = 64
    blocks: int = 2
    heads: int = 4

    def __post_init__(self) -> None:
        if min(self.blocks, self.heads) < 1:
            raise ValueError(f"blocks = {self.blocks}, heads = {self.heads}: expected at least 1 of each")
        if self.width < 1 or self.width % self.heads:
            raise ValueError(f"width = {self.width}: expected a multiple of heads = {self.heads}")

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """A fresh network from characters `(batch, positions)` to logits `(batch, positions, classes)`.

        Raises:
            ValueError: an input is no sequence.
        """
        if len(shape) != 1:
            raise ValueError(
                f"transformer: expected sequences of characters, got inputs of shape {tuple(shape)}: use characters"
            )
        layers: OrderedDict[str, nn.Module] = OrderedDict(embedding=Embedding(classes, shape[0], self.width))
        for number in range(1, self.blocks + 1):
            layers[f"attention{number}"] = Residual(self.width, Attention(self.width, self.heads))
            layers[f"feedforward{number}"] = Residual(self.width, feedforward(self.width))
        return nn.Sequential(layers | {"norm": nn.LayerNorm(self.width), "logits": nn.Linear(self.width, classes)})


class Embedding(nn.Module):
    """The sum of a vector for each character and one for each position, of deviation 0.02."""

    def __init__(self, characters: int, positions: int, width: int) -> None:
        super().__init__()
        self.character = nn.Parameter(0.02 * torch.randn(characters, width))
        self.position = nn.Parameter(0.02 * torch.randn(positions, width))

    def forward(self, x: Tensor) -> Tensor:
        # Data sets hold their inputs as floats, which are exact for so few characters.
        return nn.functional.embedding(x.long(), self.character) + self.position


class Residual(nn.Module):
    """x + part(norm(x))."""

    def __init__(self, width: int, part: nn.Module) -> None:
        super().__init__()
        self.norm, self.part = nn.LayerNorm(width), part

    def forward(self, x: Tensor) -> Tensor:
        return x + self.part(self.norm(x))


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
        return self.output(seen.transpose(-3, -2).flatten(-2))


def feedforward(width: int) -> nn.Module:
    """A hidden layer of four times the width, with GELU."""
    return nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
