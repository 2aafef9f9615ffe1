"""Networks: LeNet-5, a multilayer perceptron, multinomial logistic regression, and a small Transformer."""

import math
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class LeNet5:
    """LeNet-5 for images of 28 x 28 pixels: two convolutions and three linear layers, 61,706 parameters.

    The usual modern variant. Differences from the original: padding replaces the 32 x 32 frame, pooling takes the
    maximum, every second-layer map is connected to every first-layer map, units are ReLU, and the outputs are logits of
    a cross entropy. ReLU comes after pooling: the two commute, max(relu(a), relu(b)) = relu(max(a, b)), and it then has
    a quarter of the work.

    Source: LeCun, Bottou, Bengio, Haffner (1998), Gradient-based learning applied to document recognition.
    """

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """A fresh network from images `(batch, 1, 28, 28)` to logits `(batch, classes)`.

        Raises:
            ValueError: another shape.
        """
        if tuple(shape) != (1, 28, 28):
            raise ValueError(f"lenet5: expected inputs of shape (1, 28, 28), got {tuple(shape)}: use mlp or logistic")
        return nn.Sequential(
            OrderedDict(
                conv1=nn.Conv2d(1, 6, kernel_size=5, padding=2),
                pool1=nn.MaxPool2d(2),
                relu1=nn.ReLU(),
                conv2=nn.Conv2d(6, 16, kernel_size=5),
                pool2=nn.MaxPool2d(2),
                relu2=nn.ReLU(),
                flatten=nn.Flatten(),
                full1=nn.Linear(16 * 5 * 5, 120),
                relu3=nn.ReLU(),
                full2=nn.Linear(120, 84),
                relu4=nn.ReLU(),
                full3=nn.Linear(84, classes),
            )
        )


@dataclass(frozen=True)
class MLP:
    """Linear layers of the `hidden` sizes with ReLU between them, from the flattened input to the logits.

    Without hidden layers it is logistic regression.

    Raises:
        ValueError: a hidden size below 1.
    """

    hidden: Sequence[int] = (128,)

    def __post_init__(self) -> None:
        if any(size < 1 for size in self.hidden):
            raise ValueError(f"hidden = {list(self.hidden)}: expected sizes of at least 1")
        if len(self.hidden) > 100 or max(self.hidden, default=0) > 100_000:
            raise ValueError(f"hidden = {list(self.hidden)!s:.40}: expected at most 100 sizes of at most 100000")

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """A fresh network from inputs `(batch, *shape)` to logits `(batch, classes)`."""
        layers: OrderedDict[str, nn.Module] = OrderedDict(flatten=nn.Flatten())
        for number, (inputs, outputs) in enumerate(pairwise((math.prod(shape), *self.hidden, classes)), 1):
            layers |= {f"full{number}": nn.Linear(inputs, outputs), f"relu{number}": nn.ReLU()}
        layers.popitem()  # no ReLU on the logits
        return nn.Sequential(layers)


@dataclass(frozen=True)
class Logistic:
    """Multinomial logistic regression: one linear layer from the flattened input to the logits, a convex problem."""

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        """A fresh layer from inputs `(batch, *shape)` to logits `(batch, classes)`."""
        return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), classes))


@dataclass(frozen=True)
class Transformer:
    """A decoder that predicts the next character at every position of a text: the loss is the mean over positions.

    Blocks of causal self-attention and a layer of 4 `width` units with GELU, each with layer normalisation before it
    and a residual connection around it; positions are learnt. Without dropout, so that a gradient is a function of
    weights and mini-batch.

    Source: Vaswani et al. (2017), arXiv:1706.03762; layer normalisation first: Xiong et al. (2020), arXiv:2002.04745.

    Raises:
        ValueError: fewer than one block or head, or a width that is not divisible by the heads.
    """

    width: int = 64
    blocks: int = 2
    heads: int = 4

    def __post_init__(self) -> None:
        if min(self.blocks, self.heads) < 1 or self.blocks > 100:
            raise ValueError(f"blocks = {self.blocks}, heads = {self.heads}: expected at least 1 of each, at most 100")
        if not 1 <= self.width <= 100_000 or self.width % self.heads:
            raise ValueError(f"width = {self.width}: expected a multiple of heads = {self.heads}, at most 100000")

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
            widen, narrow = nn.Linear(self.width, 4 * self.width), nn.Linear(4 * self.width, self.width)
            layers[f"feedforward{number}"] = Residual(self.width, nn.Sequential(widen, nn.GELU(), narrow))
        return nn.Sequential(layers | {"norm": nn.LayerNorm(self.width), "logits": nn.Linear(self.width, classes)})


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
