"""Networks: LeNet-5, a multilayer perceptron, multinomial logistic regression, a small Transformer, an LSTM."""

import math
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from laggard.models.layers import Description, Layer, linear, merge, pointwise

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class LeNet5:
    """LeNet-5 for images of 28 x 28 pixels: two convolutions and three linear layers, 61,706 parameters.

    The usual modern variant. Differences from the original: padding replaces the 32 x 32 frame, pooling takes the
    maximum, every second-layer map is connected to every first-layer map, units are ReLU, and the outputs are logits of
    a cross entropy. ReLU comes after pooling: the two commute, max(relu(a), relu(b)) = relu(max(a, b)), and it then has
    a quarter of the work.

    Source: LeCun, Bottou, Bengio, Haffner (1998), Gradient-based learning applied to document recognition.
    """

    def build(self, shape: tuple[int, ...], classes: int) -> "nn.Module":
        """A fresh network from images `(batch, 1, 28, 28)` to logits `(batch, classes)`.

        Raises:
            ValueError: another shape.
        """
        from torch import nn

        _check_images(shape)
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

    def describe(self, shape: tuple[int, ...], classes: int) -> Description:
        """The network of `build`, without torch.

        Raises:
            ValueError: another shape.
        """
        _check_images(shape)
        found = [Layer("conv1", 6 * 26, 6.0 * 28 * 28, 6.0 * 28 * 28 * 25)]
        found += [pointwise("pool1", 6 * 14 * 14), pointwise("relu1", 6 * 14 * 14)]
        found += [Layer("conv2", 16 * 151, 16.0 * 10 * 10, 16.0 * 10 * 10 * 150)]
        found += [pointwise(name, 16 * 5 * 5) for name in ("pool2", "relu2", "flatten")]
        found += [linear("full1", 400, 120), pointwise("relu3", 120), linear("full2", 120, 84), pointwise("relu4", 84)]
        return Description([*found, linear("full3", 84, classes)])


@dataclass(frozen=True)
class MLP:
    """Linear layers of the `hidden` sizes with ReLU between them, from the flattened input to the logits.

    Without hidden layers it is logistic regression.

    Attributes:
        hidden: units of each hidden layer.

    Raises:
        ValueError: a hidden size below 1.
    """

    hidden: Sequence[int] = (128,)

    def __post_init__(self) -> None:
        if any(size < 1 for size in self.hidden):
            raise ValueError(f"hidden = {list(self.hidden)}: expected sizes of at least 1")
        if len(self.hidden) > 100 or max(self.hidden, default=0) > 100_000:
            raise ValueError(f"hidden = {list(self.hidden)!s:.40}: expected at most 100 sizes of at most 100000")

    def build(self, shape: tuple[int, ...], classes: int) -> "nn.Module":
        """A fresh network from inputs `(batch, *shape)` to logits `(batch, classes)`."""
        from torch import nn

        layers: OrderedDict[str, nn.Module] = OrderedDict(flatten=nn.Flatten())
        for number, (inputs, outputs) in enumerate(pairwise((math.prod(shape), *self.hidden, classes)), 1):
            layers |= {f"full{number}": nn.Linear(inputs, outputs), f"relu{number}": nn.ReLU()}
        layers.popitem()  # no ReLU on the logits
        return nn.Sequential(layers)

    def describe(self, shape: tuple[int, ...], classes: int) -> Description:
        """The network of `build`, without torch."""
        found = [pointwise("flatten", math.prod(shape))]
        for number, (inputs, outputs) in enumerate(pairwise((math.prod(shape), *self.hidden, classes)), 1):
            found += [linear(f"full{number}", inputs, outputs), pointwise(f"relu{number}", outputs)]
        return Description(found[:-1])


@dataclass(frozen=True)
class Logistic:
    """Multinomial logistic regression: one linear layer from the flattened input to the logits, a convex problem."""

    def build(self, shape: tuple[int, ...], classes: int) -> "nn.Module":
        """A fresh layer from inputs `(batch, *shape)` to logits `(batch, classes)`."""
        from torch import nn

        return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), classes))

    def describe(self, shape: tuple[int, ...], classes: int) -> Description:
        """The layer of `build`, without torch."""
        return Description([pointwise("0", math.prod(shape)), linear("1", math.prod(shape), classes)])


@dataclass(frozen=True)
class Transformer:
    """A decoder that predicts the next character at every position of a text: the loss is the mean over positions.

    Blocks of causal self-attention and a layer of 4 `width` units with GELU, each with layer normalisation before it
    and a residual connection around it; positions are learnt. Without dropout, so that a gradient is a function of
    weights and mini-batch.

    Source: Vaswani et al. (2017), arXiv:1706.03762; layer normalisation first: Xiong et al. (2020), arXiv:2002.04745.

    Attributes:
        width: numbers in the vector of a position.
        blocks: how many blocks there are.
        heads: of attention in a block; they divide `width`.

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

    def build(self, shape: tuple[int, ...], classes: int) -> "nn.Module":
        """A fresh network from characters `(batch, positions)` to logits `(batch, positions, classes)`.

        Raises:
            ValueError: an input is no sequence.
        """
        from torch import nn

        from laggard.models.transformer import Attention, Embedding, Residual

        _check_sequences("transformer", shape)
        layers: OrderedDict[str, nn.Module] = OrderedDict(embedding=Embedding(classes, shape[0], self.width))
        for number in range(1, self.blocks + 1):
            layers[f"attention{number}"] = Residual(self.width, Attention(self.width, self.heads))
            widen, narrow = nn.Linear(self.width, 4 * self.width), nn.Linear(4 * self.width, self.width)
            layers[f"feedforward{number}"] = Residual(self.width, nn.Sequential(widen, nn.GELU(), narrow))
        return nn.Sequential(layers | {"norm": nn.LayerNorm(self.width), "logits": nn.Linear(self.width, classes)})

    def describe(self, shape: tuple[int, ...], classes: int) -> Description:
        """The network of `build`, without torch.

        Raises:
            ValueError: an input is no sequence.
        """
        _check_sequences("transformer", shape)
        rows, width = shape[0], self.width
        norm = pointwise("norm", rows * width, params=2 * width)
        attention = [norm, linear("inputs", width, 3 * width, rows), linear("output", width, width, rows)]
        widen, narrow = linear("widen", width, 4 * width, rows), linear("narrow", 4 * width, width, rows)
        feedforward = [norm, widen, pointwise("gelu", 4 * rows * width), narrow]
        found = [pointwise("embedding", rows * width, params=(classes + rows) * width)]
        for number in range(1, self.blocks + 1):
            found += [merge(f"attention{number}", attention), merge(f"feedforward{number}", feedforward)]
        return Description([*found, norm, linear("logits", width, classes, rows)], labels=shape, unfolds=False)


@dataclass(frozen=True)
class LSTM:
    """A recurrent network that predicts the next character at every position: the loss is the mean over positions.

    Characters are embedded as vectors of the `width`; each of the `depth` layers is an LSTM with as many units, whose
    outputs go into the next one, and the last one's into a linear layer. States are 0 at the start of a text.

    Attributes:
        width: units of a layer, and numbers that stand for a character.
        depth: layers.

    Source: Hochreiter, Schmidhuber (1997), Long short-term memory; forget gates: Gers, Schmidhuber, Cummins (2000).

    Raises:
        ValueError: a width or a depth below 1.
    """

    width: int = 64
    depth: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.width <= 10_000:
            raise ValueError(f"width = {self.width}: expected a number from 1 to 10000")
        if not 1 <= self.depth <= 100:
            raise ValueError(f"depth = {self.depth}: expected a number from 1 to 100")

    def build(self, shape: tuple[int, ...], classes: int) -> "nn.Module":
        """A fresh network from characters `(batch, positions)` to logits `(batch, positions, classes)`.

        Raises:
            ValueError: an input is no sequence.
        """
        from torch import nn

        from laggard.models.recurrent import CharacterEmbedding, Recurrence

        _check_sequences("lstm", shape)
        layers: OrderedDict[str, nn.Module] = OrderedDict(embedding=CharacterEmbedding(classes, self.width))
        layers |= {f"lstm{number}": Recurrence(self.width) for number in range(1, self.depth + 1)}
        return nn.Sequential(layers | {"logits": nn.Linear(self.width, classes)})

    def describe(self, shape: tuple[int, ...], classes: int) -> Description:
        """The network of `build`, without torch.

        Raises:
            ValueError: an input is no sequence.
        """
        _check_sequences("lstm", shape)
        rows, width = shape[0], self.width
        matrices, biases = 8 * width**2, 8 * width
        recurrence = Layer("", matrices + biases, float(rows * width), float(rows * matrices))
        found = [pointwise("embedding", rows * width, params=classes * width)]
        found += [recurrence._replace(name=f"lstm{number}") for number in range(1, self.depth + 1)]
        return Description([*found, linear("logits", width, classes, rows)], labels=shape, unfolds=False)


def _check_images(shape: tuple[int, ...]) -> None:
    if tuple(shape) != (1, 28, 28):
        raise ValueError(f"lenet5: expected inputs of shape (1, 28, 28), got {tuple(shape)}: use mlp or logistic")


def _check_sequences(name: str, shape: tuple[int, ...]) -> None:
    if len(shape) != 1:
        raise ValueError(
            f"{name}: expected sequences of characters, got inputs of shape {tuple(shape)}: use characters"
        )
