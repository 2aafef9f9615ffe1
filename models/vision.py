"""torchvision: its classifiers by name, to train, or as layers for runs that learn nothing, and its
downloads.
"""

from collections import OrderedDict
from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType
from typing import TYPE_CHECKING, Any

from laggard.models.layers import Description, Layer, describe_module, multiplications
from laggard.models.networks import check_channels
from laggard.models.optional import import_optional

if TYPE_CHECKING:
    from torch import Tensor, nn

AUXILIARY = ("inception_v3", "googlenet")
"""Networks with further classifiers, which no measurement counts."""


@dataclass(frozen=True)
class Vision:
    """A classifier of torchvision by name, without its stochastic depth, for images of 3 channels
    or one.

    A single channel is taken three times. Most networks are made for images of 224 x 224 pixels;
    smaller ones are taken where no layer is left without pixels. A pipeline cannot cut the network.

    Args:
        network: its name in torchvision, such as `resnet18` or `mobilenet_v3_small`.
        dropout: whether gradients are taken with its dropout.

    Source: torchvision.models, which names each classifier's paper.
    """

    network: str = "resnet18"
    dropout: bool = False

    def build(self, shape: tuple[int, ...], classes: int) -> "nn.Module":
        """A fresh network from images `(batch, channels, height, width)` to logits `(batch,
        classes)`.

        Raises:
            ValueError: torchvision has no such classifier, or an input is no image of three
                channels or one.
        """
        from torch import nn

        from laggard.models.modules import GrayToColour

        check_channels(shape, channels=(1, 3))
        network = make_classifier(self.network, classes, self.dropout)
        if shape[0] == 3:
            return network
        return nn.Sequential(OrderedDict(colour=GrayToColour(), network=network))

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
            raise ValueError(
                f"network = {self.network}: expected one that takes images of {size} pixels"
            ) from None


@lru_cache(maxsize=16)
def vision_layers(network: str, image: int = 224, batch: int = 1) -> tuple[Layer, ...]:
    """The layers of a classifier of torchvision in the order in which they compute; only shapes are
    computed.

    Parameters that belong to no layer count with the first one.

    Args:
        network: the classifier's name in torchvision, such as `resnet50` or `vgg16`.
        image: height and width of an image, in pixels.
        batch: images in a mini-batch, whose activations a layer has; its work is that of one image.

    Raises:
        ValueError: torchvision has no such classifier, or it takes no image of this size.

    Example:
        >>> round(sum(layer.params for layer in vision_layers("resnet50")) * 4 / 1e6, 1)
        102.2
    """
    import torch

    with torch.device("meta"), torch.no_grad():
        options = {}
        if network in AUXILIARY:
            options["init_weights"] = False
        module = _classifier(network, options).eval()
        found: list[Layer] = []

        def note(name: str, leaf: "nn.Module", output: "Tensor") -> None:
            params = sum(each.numel() for each in leaf.parameters())
            activations = float(batch * output[0].numel())
            found.append(Layer(name, params, activations, float(multiplications(leaf, output))))

        for name, leaf in module.named_modules():
            if not list(leaf.children()):
                leaf.register_forward_hook(
                    lambda leaf, _, output, name=name: note(name, leaf, output)
                )
        try:
            module(torch.zeros(1, 3, image, image))
        except (RuntimeError, AssertionError):
            raise ValueError(f"image = {image}: expected a size that {network} takes") from None
    rest = sum(each.numel() for each in module.parameters()) - sum(layer.params for layer in found)
    return (found[0]._replace(params=found[0].params + rest), *found[1:])


def make_classifier(network: str, classes: int, dropout: bool = False) -> "nn.Module":
    """A classifier of torchvision with its own initial weights, without stochastic depth, and
    `dropout` or none.

    Raises:
        ValueError: torchvision has no such classifier.
    """
    from torch.nn.modules.dropout import _DropoutNd

    options: dict[str, Any] = {"num_classes": classes}
    if network in AUXILIARY:
        options["init_weights"] = True
    module = _classifier(network, options)
    removed: tuple[Any, ...] = (import_torchvision().ops.StochasticDepth,)
    if not dropout:
        removed += (_DropoutNd,)
    for layer in module.modules():
        if isinstance(layer, removed):
            layer.p = 0.0
    return module


def _classifier(network: str, options: dict[str, Any]) -> "nn.Module":
    models = import_torchvision().models
    known = models.list_models(module=models)
    if network not in known:
        raise ValueError(
            f"network = {network!r}: expected a classifier of torchvision, such as "
            f"{', '.join(known[:3])}"
        )
    more = {"aux_logits": False} if network in AUXILIARY else {}
    module: nn.Module = models.get_model(network, **options, **more)
    return module


def import_torchvision() -> ModuleType:
    """Import torchvision, even beside a torch without CUDA; it takes 1.5 seconds.

    Its package on PyPI registers its operators in a library built for CUDA. Where that library
    cannot be loaded, the import fails because the operators `nms` and `qnms` are missing. No data
    set and no classifier needs them, so declaring the two is enough.

    Raises:
        MissingPackageError: torchvision is not installed.
    """
    try:
        return import_optional("torchvision", "vision")
    except RuntimeError:
        import torch

        library = torch.library.Library("torchvision", "FRAGMENT")
        for operator in ("nms", "qnms"):
            library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        return import_optional("torchvision", "vision")
