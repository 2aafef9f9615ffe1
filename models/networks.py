"""Networks without memory: LeNet-5, a multilayer perceptron, logistic regression, residual
networks, `nn.Module`s.
"""

import math
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from inspect import signature
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, Protocol

from laggard.models.layers import Description, Layer, convolution, linear, merge, pointwise

if TYPE_CHECKING:
    from torch import nn

MAPS = (16, 32, 64)
"""Maps of the three stages of a residual network."""
GROUP = 16
"""Maps in a group of group normalisation."""


@dataclass(frozen=True)
class LeNet5:
    """LeNet-5 for images of 28 x 28 pixels: two convolutions and three linear layers, 61,706
    parameters.

    The usual modern variant. Differences from the original: padding replaces the 32 x 32 frame,
    pooling takes the maximum, every second-layer map is connected to every first-layer map, units
    are ReLU, and the outputs are logits of a cross entropy. ReLU comes after pooling: the two
    commute, max(relu(a), relu(b)) = relu(max(a, b)), and it then has a quarter of the work.

    Source: LeCun, Bottou, Bengio, Haffner (1998), Gradient-based learning applied to document
    recognition.
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
        found += [
            linear("full1", 400, 120),
            pointwise("relu3", 120),
            linear("full2", 120, 84),
            pointwise("relu4", 84),
        ]
        return Description([*found, linear("full3", 84, classes)])


@dataclass(frozen=True)
class MLP:
    """Linear layers of the `hidden` sizes with an activation between them, from the flattened input
    to the logits.

    Without hidden layers it is logistic regression. With `tanh` its loss is smooth, so that theory
    about a quadratic holds near a minimum; with `relu` it has kinks.

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
            raise ValueError(
                f"hidden = {list(self.hidden)!s:.40}: expected at most 100 sizes of at most 100000"
            )

    def build(self, shape: tuple[int, ...], classes: int) -> "nn.Module":
        """A fresh network from inputs `(batch, *shape)` to logits `(batch, classes)`."""
        from torch import nn

        unit = {"relu": nn.ReLU, "tanh": nn.Tanh}[self.activation]
        layers: OrderedDict[str, nn.Module] = OrderedDict(flatten=nn.Flatten())
        for number, (inputs, outputs) in enumerate(
            pairwise((math.prod(shape), *self.hidden, classes)), 1
        ):
            layers |= {
                f"full{number}": nn.Linear(inputs, outputs),
                f"{self.activation}{number}": unit(),
            }
        layers.popitem()  # no activation on the logits
        return nn.Sequential(layers)

    def describe(self, shape: tuple[int, ...], classes: int) -> Description:
        """The network of `build`, without torch."""
        found = [pointwise("flatten", math.prod(shape))]
        for number, (inputs, outputs) in enumerate(
            pairwise((math.prod(shape), *self.hidden, classes)), 1
        ):
            found += [
                linear(f"full{number}", inputs, outputs),
                pointwise(f"{self.activation}{number}", outputs),
            ]
        return Description(found[:-1])


@dataclass(frozen=True)
class Logistic:
    """Multinomial logistic regression: one linear layer from the flattened input to the logits, a
    convex problem.
    """

    def build(self, shape: tuple[int, ...], classes: int) -> "nn.Module":
        """A fresh layer from inputs `(batch, *shape)` to logits `(batch, classes)`."""
        from torch import nn

        return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), classes))

    def describe(self, shape: tuple[int, ...], classes: int) -> Description:
        """The layer of `build`, without torch."""
        return Description(
            [pointwise("0", math.prod(shape)), linear("1", math.prod(shape), classes)]
        )


@dataclass(frozen=True)
class ResNet:
    """A residual network for small images: of depth 6 n + 2, three stages of n blocks with 16, 32
    and 64 maps.

    A convolution of 3 x 3, then blocks of two, each convolution followed by a norm and ReLU; the
    second and third stages halve the image. Shortcuts have no parameters. The mean over the image
    goes into one linear layer. For CIFAR-10, depth 20 has 269,722 parameters.

    Args:
        depth: layers with weights: 8, 14, 20, 32, 44, 56, 110.
        norm: `batch`, as in the paper, by the statistics of a gradient's mini-batch, and in an
            evaluation by averages over a sample of the training set; or `group`, of 16 maps each,
            by those of one image.

    Source: He, Zhang, Ren, Sun (2016), arXiv:1512.03385, section 4.2; Wu, He (2018),
    arXiv:1803.08494.

    Raises:
        ValueError: a depth that is not 6 n + 2, or an unknown norm.
    """

    depth: int = 20
    norm: Literal["batch", "group"] = "batch"

    def __post_init__(self) -> None:
        if self.depth % 6 != 2 or not 8 <= self.depth <= 1202:
            raise ValueError(
                f"depth = {self.depth}: expected 6 n + 2, such as 8, 20 or 56, and at most 1202"
            )
        if self.norm not in ("batch", "group"):
            raise ValueError(f"norm = {self.norm!r}: expected 'batch' or 'group'")

    def build(self, shape: tuple[int, ...], classes: int) -> "nn.Module":
        """A fresh network from images `(batch, channels, height, width)` to logits `(batch,
        classes)`.

        Raises:
            ValueError: an input is no image.
        """
        from torch import nn

        from laggard.models.modules import BasicBlock, convolution_of_3

        check_channels(shape)

        def norm(maps: int) -> "nn.Module":
            if self.norm == "batch":
                return nn.BatchNorm2d(maps)
            return nn.GroupNorm(maps // GROUP, maps)

        first = convolution_of_3(shape[0], MAPS[0])
        layers: OrderedDict[str, nn.Module] = OrderedDict(
            conv=first, norm=norm(MAPS[0]), relu=nn.ReLU()
        )
        for number, (inputs, maps, stride) in enumerate(self._blocks(), 1):
            one, other = convolution_of_3(inputs, maps, stride), convolution_of_3(maps, maps)
            part = nn.Sequential(one, norm(maps), nn.ReLU(), other, norm(maps))
            layers[f"block{number}"] = BasicBlock(part, stride, added=maps - inputs)
        ends = {
            "pool": nn.AdaptiveAvgPool2d(1),
            "flatten": nn.Flatten(),
            "logits": nn.Linear(MAPS[-1], classes),
        }
        return nn.Sequential(layers | ends)

    def describe(self, shape: tuple[int, ...], classes: int) -> Description:
        """The network of `build`, without torch.

        Raises:
            ValueError: an input is no image.
        """
        check_channels(shape)
        channels, height, width = shape
        maps, places = MAPS[0], height * width
        found = [
            convolution("conv", channels, maps, 3, places),
            pointwise("norm", maps * places, 2 * maps),
        ]
        found.append(pointwise("relu", maps * places))
        for number, (inputs, maps, stride) in enumerate(self._blocks(), 1):
            height, width = -(-height // stride), -(-width // stride)
            places = height * width
            norm, relu = (
                pointwise("norm", maps * places, 2 * maps),
                pointwise("relu", maps * places),
            )
            one, other = (convolution("conv", each, maps, 3, places) for each in (inputs, maps))
            found.append(merge(f"block{number}", [one, norm, relu, other, norm]))
        found += [
            pointwise("pool", maps),
            pointwise("flatten", maps),
            linear("logits", maps, classes),
        ]
        return Description(found, unfolds=False, least=2 if self.norm == "batch" else 1)

    def _blocks(self) -> Iterator[tuple[int, int, int]]:
        """Maps that go into a block, maps of its outputs, and its stride."""
        inputs = MAPS[0]
        for maps in MAPS:
            for number in range(self.depth // 6):
                yield inputs, maps, 2 if number == 0 and maps != MAPS[0] else 1
                inputs = maps


class TorchModule(Protocol):
    """What a class that derives from `nn.Module` has; the arguments of its `__init__` are config
    keys.

    Two are none: `shape` is that of one input, `classes` their number.
    """

    forward: Any
    named_parameters: Any
    named_buffers: Any


@dataclass(frozen=True)
class ModuleNetwork:
    """A network that is built by a class which derives from `nn.Module`."""

    make: "Callable[..., nn.Module]"

    def build(self, shape: tuple[int, ...], classes: int) -> "nn.Module":
        """A fresh module; it is told the shape of an input and the number of classes where it asks
        for them.
        """
        known = {"shape": shape, "classes": classes}
        return self.make(
            **{key: known[key] for key in signature(self.make).parameters if key in known}
        )


def _check_images(shape: tuple[int, ...]) -> None:
    if tuple(shape) != (1, 28, 28):
        raise ValueError(
            f"lenet5: expected inputs of shape (1, 28, 28), got {tuple(shape)}: use mlp or logistic"
        )


def check_channels(shape: tuple[int, ...], channels: tuple[int, ...] = ()) -> None:
    """Raise `ValueError` unless inputs have the shape of an image, with one of these numbers of
    channels, if any.
    """
    if len(shape) != 3 or (channels and shape[0] not in channels):
        wanted = f"({' or '.join(map(str, channels)) or 'channels'}, height, width)"
        raise ValueError(
            f"model: expected images of shape {wanted}, got inputs of shape {tuple(shape)}: use mlp"
        )
