"""Networks without memory: LeNet-5, a multilayer perceptron, multinomial logistic regression."""

import math
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

from laggard.models.layers import Description, Layer, linear, pointwise

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
    """Linear layers of the `hidden` sizes with an activation between them, from the flattened input to the logits.

    Without hidden layers it is logistic regression. With `tanh` its loss is smooth, so that theory about a quadratic
    holds near a minimum; with `relu` it has kinks.

    Attributes:
        hidden: units of each hidden layer.
        activation: of the hidden units.

    Raises:
        ValueError: a hidden size below 1.
    """

    hidden: Sequence[int] = (128,)
    activation: Literal["relu", "tanh"] = "relu"

    def __post_init__(self) -> None:
        if any(size < 1 for size in self.hidden):
            raise ValueError(f"hidden = {list(self.hidden)}: expected sizes of at least 1")
        if len(self.hidden) > 100 or max(self.hidden, default=0) > 100_000:
            raise ValueError(f"hidden = {list(self.hidden)!s:.40}: expected at most 100 sizes of at most 100000")

    def build(self, shape: tuple[int, ...], classes: int) -> "nn.Module":
        """A fresh network from inputs `(batch, *shape)` to logits `(batch, classes)`."""
        from torch import nn

        unit = {"relu": nn.ReLU, "tanh": nn.Tanh}[self.activation]
        layers: OrderedDict[str, nn.Module] = OrderedDict(flatten=nn.Flatten())
        for number, (inputs, outputs) in enumerate(pairwise((math.prod(shape), *self.hidden, classes)), 1):
            layers |= {f"full{number}": nn.Linear(inputs, outputs), f"{self.activation}{number}": unit()}
        layers.popitem()  # no activation on the logits
        return nn.Sequential(layers)

    def describe(self, shape: tuple[int, ...], classes: int) -> Description:
        """The network of `build`, without torch."""
        found = [pointwise("flatten", math.prod(shape))]
        for number, (inputs, outputs) in enumerate(pairwise((math.prod(shape), *self.hidden, classes)), 1):
            found += [linear(f"full{number}", inputs, outputs), pointwise(f"{self.activation}{number}", outputs)]
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


def _check_images(shape: tuple[int, ...]) -> None:
    if tuple(shape) != (1, 28, 28):
        raise ValueError(f"lenet5: expected inputs of shape (1, 28, 28), got {tuple(shape)}: use mlp or logistic")
