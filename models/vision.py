"""torchvision's classifiers by name, as modules or as descriptions of their layers."""

from collections import OrderedDict
from dataclasses import dataclass
from functools import lru_cache, partial
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
    """A classifier of torchvision without its stochastic depth, for images of 1 or 3 channels.

    A single channel is repeated three times. Most networks are made for images of 224 x 224 pixels;
    smaller ones work as long as every layer has pixels. A pipeline cannot cut the network.

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
            ValueError: torchvision has no such classifier, or an input is not an image of three
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
            expected = f"expected a network that takes images of {size} pixels"
            raise ValueError(f"network = {self.network}: {expected}") from None


@lru_cache(maxsize=16)
def vision_layers(network: str, image: int = 224, batch: int = 1) -> tuple[Layer, ...]:
    """The layers of a classifier of torchvision in the order of computation, by shapes alone.

    Parameters that belong to no layer count with the first one.

    Args:
        network: the classifier's name in torchvision, such as `resnet50` or `vgg16`.
        image: height and width of an image, in pixels.
        batch: images in a mini-batch; a layer's activations are those of the mini-batch, its work
            that of one image.

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
        layers: list[Layer] = []

        def record(name: str, leaf: "nn.Module", inputs: Any, output: "Tensor") -> None:
            params = sum(parameter.numel() for parameter in leaf.parameters())
            activations = float(batch * output[0].numel())
            layers.append(Layer(name, params, activations, float(multiplications(leaf, output))))

        for name, leaf in module.named_modules():
            if not list(leaf.children()):
                leaf.register_forward_hook(partial(record, name))
        try:
            module(torch.zeros(1, 3, image, image))
        except (RuntimeError, AssertionError):
            raise ValueError(f"image = {image}: expected a size that {network} takes") from None
    params = sum(parameter.numel() for parameter in module.parameters())
    rest = params - sum(layer.params for layer in layers)
    first = layers[0]
    return first._replace(params=first.params + rest), *layers[1:]


def make_classifier(network: str, classes: int, dropout: bool = False) -> "nn.Module":
    """A classifier of torchvision without stochastic depth; its dropout is kept if `dropout`.

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
        expected = f"expected a classifier of torchvision, such as {', '.join(known[:3])}"
        raise ValueError(f"network = {network!r}: {expected}")
    if network in AUXILIARY:
        options["aux_logits"] = False
    module: nn.Module = models.get_model(network, **options)
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
