"""Feed-forward networks: LeNet-5, a multilayer perceptron, logistic regression, ResNets."""

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
    """LeNet-5 for images of 28 x 28 pixels, in 10 classes with 61,706 parameters.

    Two convolutions and three linear layers, in the usual modern variant: padding replaces the
    32 x 32 frame, pooling takes the maximum, every second-layer map is connected to every
    first-layer map, units are ReLU, and the outputs are logits of a cross entropy. ReLU comes after
    pooling: the two commute, max(relu(a), relu(b)) = relu(max(a, b)), and it then has a quarter of
    the work.

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
        places, halved = 28 * 28, 14 * 14
        first = Layer("conv1", 6 * (25 + 1), 6.0 * places, 6.0 * places * 25)
        layers = [first, pointwise("pool1", 6 * halved), pointwise("relu1", 6 * halved)]
        places, inputs = 10 * 10, 6 * 25
        layers.append(Layer("conv2", 16 * (inputs + 1), 16.0 * places, 16.0 * places * inputs))
        for name in ("pool2", "relu2", "flatten"):
            layers.append(pointwise(name, 16 * 5 * 5))
        layers.append(linear("full1", 400, 120))
        layers.append(pointwise("relu3", 120))
        layers.append(linear("full2", 120, 84))
        layers.append(pointwise("relu4", 84))
        layers.append(linear("full3", 84, classes))
        return Description(layers)


@dataclass(frozen=True)
class MLP:
    """Linear layers with an activation between them, from the flattened input to the logits.

    Without hidden layers it is logistic regression. With `tanh` its loss is smooth, so that theory
    about a quadratic holds near a minimum; with `relu` it has kinks.

    Attributes:
        hidden: units of each hidden layer.
        activation: the activation of the hidden units.

    Raises:
        ValueError: a hidden size below 1.
    """

    hidden: Sequence[int] = (128,)
    activation: Literal["relu", "tanh"] = "relu"

    def __post_init__(self) -> None:
        sizes = list(self.hidden)
        if any(size < 1 for size in sizes):
            raise ValueError(f"hidden = {sizes}: expected sizes of at least 1")
        if len(sizes) > 100 or max(sizes, default=0) > 100_000:
            expected = "at most 100 sizes of at most 100000"
            raise ValueError(f"hidden = {sizes!s:.40}: expected {expected}")

    def build(self, shape: tuple[int, ...], classes: int) -> "nn.Module":
        """A fresh network from inputs `(batch, *shape)` to logits `(batch, classes)`."""
        from torch import nn

        unit = {"relu": nn.ReLU, "tanh": nn.Tanh}[self.activation]
        layers: OrderedDict[str, nn.Module] = OrderedDict(flatten=nn.Flatten())
        for number, inputs, outputs in self._sizes(shape, classes):
            layers[f"full{number}"] = nn.Linear(inputs, outputs)
            layers[f"{self.activation}{number}"] = unit()
        layers.popitem()  # no activation on the logits
        return nn.Sequential(layers)

    def describe(self, shape: tuple[int, ...], classes: int) -> Description:
        """The network of `build`, without torch."""
        layers = [pointwise("flatten", math.prod(shape))]
        for number, inputs, outputs in self._sizes(shape, classes):
            layers.append(linear(f"full{number}", inputs, outputs))
            layers.append(pointwise(f"{self.activation}{number}", outputs))
        return Description(layers[:-1])

    def _sizes(self, shape: tuple[int, ...], classes: int) -> Iterator[tuple[int, int, int]]:
        """The number of each linear layer, from 1, its inputs and its outputs."""
        sizes = math.prod(shape), *self.hidden, classes
        for number, (inputs, outputs) in enumerate(pairwise(sizes), 1):
            yield number, inputs, outputs


@dataclass(frozen=True)
class Logistic:
    """Multinomial logistic regression: one linear layer on the flattened input; convex."""

    def build(self, shape: tuple[int, ...], classes: int) -> "nn.Module":
        """A fresh layer from inputs `(batch, *shape)` to logits `(batch, classes)`."""
        from torch import nn

        return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), classes))

    def describe(self, shape: tuple[int, ...], classes: int) -> Description:
        """The layer of `build`, without torch."""
        inputs = math.prod(shape)
        return Description([pointwise("0", inputs), linear("1", inputs, classes)])


@dataclass(frozen=True)
class ResNet:
    """A residual network for small images, of depth 6 n + 2: three stages of n blocks.

    The stages have 16, 32 and 64 maps. A convolution of 3 x 3 comes first, then blocks of two
    convolutions, each followed by a norm and ReLU; the second and third stages halve the image.
    Shortcuts have no parameters. The mean over the image goes into one linear layer. For CIFAR-10,
    depth 20 has 269,722 parameters.

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
            expected = "6 n + 2, such as 8, 20 or 56, and at most 1202"
            raise ValueError(f"depth = {self.depth}: expected {expected}")
        if self.norm not in ("batch", "group"):
            raise ValueError(f"norm = {self.norm!r}: expected 'batch' or 'group'")

    def build(self, shape: tuple[int, ...], classes: int) -> "nn.Module":
        """A fresh network from images `(batch, channels, height, width)` to logits `(batch,
        classes)`.

        Raises:
            ValueError: an input is not an image.
        """
        from torch import nn

        from laggard.models.modules import BasicBlock, convolution_of_3

        check_channels(shape)

        def norm(maps: int) -> "nn.Module":
            if self.norm == "batch":
                return nn.BatchNorm2d(maps)
            return nn.GroupNorm(maps // GROUP, maps)

        layers: OrderedDict[str, nn.Module] = OrderedDict()
        # Layers draw their initial weights in this order: another order is another network.
        layers["conv"] = convolution_of_3(shape[0], MAPS[0])
        layers["norm"] = norm(MAPS[0])
        layers["relu"] = nn.ReLU()
        for number, (inputs, maps, stride) in enumerate(self._blocks(), 1):
            first = convolution_of_3(inputs, maps, stride)
            second = convolution_of_3(maps, maps)
            part = nn.Sequential(first, norm(maps), nn.ReLU(), second, norm(maps))
            layers[f"block{number}"] = BasicBlock(part, stride, added=maps - inputs)
        layers["pool"] = nn.AdaptiveAvgPool2d(1)
        layers["flatten"] = nn.Flatten()
        layers["logits"] = nn.Linear(MAPS[-1], classes)
        return nn.Sequential(layers)

    def describe(self, shape: tuple[int, ...], classes: int) -> Description:
        """The network of `build`, without torch.

        Raises:
            ValueError: an input is not an image.
        """
        check_channels(shape)
        channels, height, width = shape
        maps, places = MAPS[0], height * width
        layers = [convolution("conv", channels, maps, 3, places)]
        layers.append(pointwise("norm", maps * places, 2 * maps))
        layers.append(pointwise("relu", maps * places))
        for number, (inputs, maps, stride) in enumerate(self._blocks(), 1):
            height = math.ceil(height / stride)
            width = math.ceil(width / stride)
            places = height * width
            first = convolution("conv", inputs, maps, 3, places)
            second = convolution("conv", maps, maps, 3, places)
            norm = pointwise("norm", maps * places, 2 * maps)
            relu = pointwise("relu", maps * places)
            layers.append(merge(f"block{number}", [first, norm, relu, second, norm]))
        layers.append(pointwise("pool", maps))
        layers.append(pointwise("flatten", maps))
        layers.append(linear("logits", maps, classes))
        least = 2 if self.norm == "batch" else 1
        return Description(layers, unfolds=False, least=least)

    def _blocks(self) -> Iterator[tuple[int, int, int]]:
        """The input maps, the output maps and the stride of each block."""
        inputs = MAPS[0]
        for maps in MAPS:
            for _ in range(self.depth // 6):
                stride = 1 if maps == inputs else 2  # the first block of a stage halves the image
                yield inputs, maps, stride
                inputs = maps


class TorchModule(Protocol):
    """A class that derives from `nn.Module`; the arguments of its `__init__` are config keys.

    Two are not: `shape` is the shape of an input, `classes` the number of classes.
    """

    forward: Any
    named_parameters: Any
    named_buffers: Any


@dataclass(frozen=True)
class ModuleNetwork:
    """A network built by a class that derives from `nn.Module`."""

    make: "Callable[..., nn.Module]"

    def build(self, shape: tuple[int, ...], classes: int) -> "nn.Module":
        """A fresh module, with `shape` and `classes` where the class has these arguments."""
        parameters = signature(self.make).parameters
        arguments: dict[str, Any] = {}
        if "shape" in parameters:
            arguments["shape"] = shape
        if "classes" in parameters:
            arguments["classes"] = classes
        return self.make(**arguments)


def _check_images(shape: tuple[int, ...]) -> None:
    if tuple(shape) != (1, 28, 28):
        expected = "expected inputs of shape (1, 28, 28)"
        raise ValueError(f"lenet5: {expected}, got {tuple(shape)}: use mlp or logistic")


def check_channels(shape: tuple[int, ...], channels: tuple[int, ...] = ()) -> None:
    """Raise `ValueError` unless `shape` is that of an image, with one of the `channels` if any."""
    if len(shape) == 3 and (not channels or shape[0] in channels):
        return
    numbers = " or ".join(map(str, channels)) or "channels"
    expected = f"expected images of shape ({numbers}, height, width)"
    raise ValueError(f"model: {expected}, got inputs of shape {tuple(shape)}: use mlp")
