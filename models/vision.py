"""Networks of torchvision by name: their layers, for runs that only take time."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import repeat
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from laggard.models.layers import Layer, multiplications

if TYPE_CHECKING:
    from torch import Tensor, nn

AUXILIARY = ("inception_v3", "googlenet")
"""Networks with further classifiers, which no measurement counts."""


@dataclass(eq=False)
class NetworkTiming:
    """A network of torchvision on images: nothing is learnt, but its layers say what takes how long.

    Weights are `(ensemble, 0)`. A message has 4 bytes a parameter of the network unless `network.message_bytes` says
    otherwise; layers have their parameters, their activations and their multiplications, for pipelines to cut and for
    gradients to be sent in buckets; `cluster.compute.speed` makes seconds of their operations.

    Args:
        network: a classifier's name in torchvision, such as `resnet50` or `vgg16`.
        image: height and width of an image, in pixels.
        batch: samples in a mini-batch.
        epoch: samples in an epoch; ImageNet's by default.

    Raises:
        ValueError: a number below 1; by `layers`, if torchvision has no such classifier, or it takes no such image.

    Example:
        >>> round(sum(layer.params for layer in NetworkTiming("resnet50").layers()) * 4 / 1e6, 1)
        102.2
    """

    network: str = "resnet50"
    image: int = 224
    batch: int = 32
    epoch: int = 1_281_167
    lanes: int = field(default=1, init=False)

    def __post_init__(self) -> None:
        for name in ("image", "batch", "epoch"):
            if not 1 <= getattr(self, name) <= 10**9:
                raise ValueError(f"{name} = {getattr(self, name)}: expected from 1 to 10^9")

    def layers(self) -> list[Layer]:
        """The layers in the order in which they compute; activations of a mini-batch, work of a sample."""
        layers = vision_layers(self.network, self.image)
        return [layer._replace(activations=self.batch * layer.activations) for layer in layers]

    def start(self, seeds: Sequence[int]) -> "Tensor":
        """No weights."""
        import torch

        return torch.empty(len(seeds), 0)

    def batches(self, rank: int, rngs: Sequence[np.random.Generator]) -> Iterator[None]:
        """Nothing, for ever."""
        return repeat(None)

    def gradients(self, weights: "Tensor", batches: Sequence[None]) -> "tuple[Tensor, Tensor]":
        """No gradients, and losses of 0."""
        import torch

        return torch.empty_like(weights), torch.zeros(weights.shape[:2])

    def evaluate(self, weights: "Tensor") -> "Mapping[str, Tensor]":
        """No measures."""
        return {}


@lru_cache(maxsize=16)
def vision_layers(network: str, image: int) -> tuple[Layer, ...]:
    """The layers of a classifier of torchvision, for one image; only shapes are computed.

    Parameters that belong to no layer count with the first one.

    Raises:
        ValueError: torchvision has no such classifier, or it takes no image of this size.
    """
    import torch

    models = import_torchvision().models
    known = models.list_models(module=models)
    if network not in known:
        raise ValueError(f"network = {network!r}: expected a classifier of torchvision, such as {', '.join(known[:3])}")
    options: dict[str, Any] = {"aux_logits": False, "init_weights": False} if network in AUXILIARY else {}
    with torch.device("meta"), torch.no_grad():
        module: nn.Module = models.get_model(network, **options).eval()
        found: list[Layer] = []
        counted: set[int] = set()

        def note(name: str, leaf: "nn.Module", output: "Tensor") -> None:
            own = [each for each in leaf.parameters() if id(each) not in counted]
            counted.update(map(id, own))
            params = sum(each.numel() for each in own)
            found.append(Layer(name, params, float(output[0].numel()), float(multiplications(leaf, output))))

        for name, leaf in module.named_modules():
            if not list(leaf.children()):
                leaf.register_forward_hook(lambda leaf, _, output, name=name: note(name, leaf, output))
        try:
            module(torch.zeros(1, 3, image, image))
        except (RuntimeError, AssertionError):
            raise ValueError(f"image = {image}: expected a size that {network} takes") from None
    rest = sum(each.numel() for each in module.parameters()) - sum(layer.params for layer in found)
    return (found[0]._replace(params=found[0].params + rest), *found[1:])


def import_torchvision() -> ModuleType:
    """torchvision, even with a torch without CUDA; its import takes 1.5 seconds.

    Its package on PyPI registers its operators in a library built for CUDA. Where that cannot be loaded, its import
    fails because `nms` and `qnms` are missing, which no data set and no classifier needs: declaring the two is enough.
    """
    try:
        import torchvision
    except RuntimeError:
        import torch

        library = torch.library.Library("torchvision", "FRAGMENT")
        for operator in ("nms", "qnms"):
            library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        import torchvision
    module: ModuleType = torchvision
    return module
