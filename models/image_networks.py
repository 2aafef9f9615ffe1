"""Networks for colour images: the residual networks of CIFAR-10, and the classifiers of torchvision."""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from laggard.models.layers import Description, convolution, describe_module, linear, merge, pointwise
from laggard.models.vision import make_classifier

if TYPE_CHECKING:
    from torch import nn

MAPS = (16, 32, 64)
"""Maps of the three stages of a residual network."""
GROUP = 16
"""Maps in a group of group normalisation."""


@dataclass(frozen=True)
class ResNet:
    """A residual network for small images: of depth 6 n + 2, three stages of n blocks with 16, 32 and 64 maps.

    A convolution of 3 x 3, then blocks of two, each convolution followed by a norm and ReLU; the second and third
    stages halve the image. Shortcuts have no parameters. The mean over the image goes into one linear layer. For
    CIFAR-10, depth 20 has 269,722 parameters.

    Args:
        depth: layers with weights: 8, 14, 20, 32, 44, 56, 110.
        norm: `batch`, as in the paper, by the statistics of a gradient's mini-batch, and in an evaluation by averages
            over a sample of the training set; or `group`, of 16 maps each, by those of one image.

    Source: He, Zhang, Ren, Sun (2015), arXiv:1512.03385, section 4.2; Wu, He (2018), arXiv:1803.08494.

    Raises:
        ValueError: a depth that is not 6 n + 2, or an unknown norm.
    """

    depth: int = 20
    norm: Literal["batch", "group"] = "batch"

    def __post_init__(self) -> None:
        if self.depth % 6 != 2 or not 8 <= self.depth <= 1202:
            raise ValueError(f"depth = {self.depth}: expected 6 n + 2, such as 8, 20 or 56, and at most 1202")
        if self.norm not in ("batch", "group"):
            raise ValueError(f"norm = {self.norm!r}: expected 'batch' or 'group'")

    def build(self, shape: tuple[int, ...], classes: int) -> "nn.Module":
        """A fresh network from images `(batch, channels, height, width)` to logits `(batch, classes)`.

        Raises:
            ValueError: an input is no image.
        """
        from torch import nn

        from laggard.models.modules import BasicBlock, convolution_of_3

        _check_channels(shape)

        def norm(maps: int) -> "nn.Module":
            return nn.BatchNorm2d(maps) if self.norm == "batch" else nn.GroupNorm(maps // GROUP, maps)

        first = convolution_of_3(shape[0], MAPS[0])
        layers: OrderedDict[str, nn.Module] = OrderedDict(conv=first, norm=norm(MAPS[0]), relu=nn.ReLU())
        for number, (inputs, maps, stride) in enumerate(self._blocks(), 1):
            one, other = convolution_of_3(inputs, maps, stride), convolution_of_3(maps, maps)
            part = nn.Sequential(one, norm(maps), nn.ReLU(), other, norm(maps))
            layers[f"block{number}"] = BasicBlock(part, stride, added=maps - inputs)
        ends = {"pool": nn.AdaptiveAvgPool2d(1), "flatten": nn.Flatten(), "logits": nn.Linear(MAPS[-1], classes)}
        return nn.Sequential(layers | ends)

    def describe(self, shape: tuple[int, ...], classes: int) -> Description:
        """The network of `build`, without torch.

        Raises:
            ValueError: an input is no image.
        """
        _check_channels(shape)
        channels, height, width = shape
        maps, places = MAPS[0], height * width
        found = [convolution("conv", channels, maps, 3, places), pointwise("norm", maps * places, 2 * maps)]
        found.append(pointwise("relu", maps * places))
        for number, (inputs, maps, stride) in enumerate(self._blocks(), 1):
            height, width = -(-height // stride), -(-width // stride)
            places = height * width
            norm, relu = pointwise("norm", maps * places, 2 * maps), pointwise("relu", maps * places)
            one, other = (convolution("conv", each, maps, 3, places) for each in (inputs, maps))
            found.append(merge(f"block{number}", [one, norm, relu, other, norm]))
        found += [pointwise("pool", maps), pointwise("flatten", maps), linear("logits", maps, classes)]
        return Description(found, unfolds=False, least=2 if self.norm == "batch" else 1)

    def _blocks(self) -> Iterator[tuple[int, int, int]]:
        """Maps that go into a block, maps of its outputs, and its stride."""
        inputs = MAPS[0]
        for maps in MAPS:
            for number in range(self.depth // 6):
                yield inputs, maps, 2 if number == 0 and maps != MAPS[0] else 1
                inputs = maps


@dataclass(frozen=True)
class Vision:
    """A classifier of torchvision by name, without its stochastic depth, for images of 3 channels or one.

    A single channel is taken three times. Most networks are made for images of 224 x 224 pixels; smaller ones are taken
    where no layer is left without pixels. A pipeline cannot cut the network.

    Args:
        network: its name in torchvision, such as `resnet18` or `mobilenet_v3_small`.
        dropout: whether gradients are taken with its dropout.

    Source: torchvision.models, which names each classifier's paper.
    """

    network: str = "resnet18"
    dropout: bool = False

    def build(self, shape: tuple[int, ...], classes: int) -> "nn.Module":
        """A fresh network from images `(batch, channels, height, width)` to logits `(batch, classes)`.

        Raises:
            ValueError: torchvision has no such classifier, or an input is no image of three channels or one.
        """
        from torch import nn

        from laggard.models.modules import GrayToColour

        _check_channels(shape, channels=(1, 3))
        network = make_classifier(self.network, classes, self.dropout)
        return network if shape[0] == 3 else nn.Sequential(OrderedDict(colour=GrayToColour(), network=network))

    def describe(self, shape: tuple[int, ...], classes: int) -> Description:
        """The network of `build`, built without memory.

        Raises:
            ValueError: torchvision has no such classifier, or it takes no images of this size.
        """
        import torch

        with torch.device("meta"):
            module = self.build(shape, classes)
        try:
            return describe_module(module, shape, classes)
        except (RuntimeError, AssertionError):
            size = " x ".join(map(str, shape[1:]))
            raise ValueError(f"network = {self.network}: expected one that takes images of {size} pixels") from None


def _check_channels(shape: tuple[int, ...], channels: tuple[int, ...] = ()) -> None:
    if len(shape) != 3 or (channels and shape[0] not in channels):
        wanted = f"({' or '.join(map(str, channels)) or 'channels'}, height, width)"
        raise ValueError(f"model: expected images of shape {wanted}, got inputs of shape {tuple(shape)}: use mlp")
