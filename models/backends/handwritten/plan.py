"""Which modules are chains of layers with a handwritten gradient, and their stages for inputs of one shape."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from torch import Tensor, nn

from laggard.models.backends.handwritten.convolution import Convolution, ConvolutionPool
from laggard.models.backends.handwritten.stages import (
    Elementwise,
    Features,
    Flat,
    GradientViews,
    LayerStage,
    Linear,
    Pooling,
    Rectifier,
    SamplesLast,
)

ELEMENTWISE = (nn.ELU, nn.GELU, nn.Hardtanh, nn.Identity, nn.LeakyReLU, nn.Sigmoid, nn.SiLU, nn.Softplus, nn.Tanh)
KNOWN_LAYERS = (nn.Conv2d, nn.Flatten, nn.Linear, nn.MaxPool2d, nn.ReLU, *ELEMENTWISE)
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks", "forward")
FEW_CHANNELS = 8  # with fewer, torch's convolutions use their vectors badly; with more they are faster


class ConvPool(nn.Module):
    """A convolution and the max-pooling by two that follows it, as one layer."""

    def __init__(self, convolution: nn.Conv2d) -> None:
        super().__init__()
        self.convolution = convolution


def chain_of(module: nn.Module) -> list[nn.Module] | None:
    """The layers of a chain, in order, or None: the module is no such chain, or autograd is faster.

    A chain is an `nn.Sequential`, possibly nested, of known layers (not of subclasses) without hooks, whose parameters
    are all trainable and belong to one layer each. ReLU before max-pooling is moved after it, which is the same
    function for a quarter of the work.
    """
    layers = _unpacked(module)
    parameters = list(module.parameters())
    owned = [parameter for layer in layers for parameter in layer.parameters()]
    if [id(parameter) for parameter in owned] != [id(parameter) for parameter in parameters]:
        return None
    if not all(parameter.requires_grad and parameter.device.type == "cpu" for parameter in parameters):
        return None
    return _join_pooling(layers) if all(_is_known(layer) for layer in layers) else None


def _unpacked(module: nn.Module) -> list[nn.Module]:
    if type(module) is not nn.Sequential or _is_hooked(module):
        return [module]
    return [layer for part in module for layer in _unpacked(part)]


def _is_hooked(layer: nn.Module) -> bool:
    """Whether a layer has hooks or a replaced `forward`."""
    return any(layer.__dict__.get(hook) for hook in HOOKS)


def _is_known(layer: nn.Module) -> bool:
    if type(layer) not in KNOWN_LAYERS or _is_hooked(layer):
        return False
    if isinstance(layer, nn.Conv2d):
        simple = layer.groups == 1 and layer.dilation == (1, 1) and layer.padding_mode == "zeros"
        return (
            simple
            and isinstance(layer.padding, tuple)
            and layer.in_channels < FEW_CHANNELS
            and layer.out_channels <= 2 * FEW_CHANNELS
        )
    if isinstance(layer, nn.MaxPool2d):
        square = [_pair(sides) for sides in (layer.kernel_size, layer.stride, layer.padding, layer.dilation)]
        return square == [(2, 2), (2, 2), (0, 0), (1, 1)] and not layer.ceil_mode and not layer.return_indices
    if isinstance(layer, nn.Flatten):
        return (layer.start_dim, layer.end_dim) == (1, -1)
    return isinstance(layer, nn.ReLU) or not getattr(layer, "inplace", False)


def _pair(sides: int | tuple[int, ...]) -> tuple[int, ...]:
    return (sides, sides) if isinstance(sides, int) else tuple(sides)


def _join_pooling(layers: list[nn.Module]) -> list[nn.Module]:
    """The same function, with each convolution and its pooling joined."""
    layers = list(layers)
    for at, (one, other) in enumerate(pairwise(list(layers))):
        if isinstance(one, nn.ReLU) and isinstance(other, nn.MaxPool2d):
            layers[at : at + 2] = other, one
    joined: list[nn.Module] = []
    for layer in layers:
        if isinstance(layer, nn.MaxPool2d) and joined and isinstance(joined[-1], nn.Conv2d):
            joined[-1] = ConvPool(joined[-1])
        else:
            joined.append(layer)
    return joined


class ShapeMismatchError(ValueError):
    """The stages do not fit the input: autograd is used, which raises if the input is invalid."""


class LayerPlan(NamedTuple):
    """The stages for inputs of one shape.

    Attributes:
        forward: from the inputs to the outputs.
        backward: those that the gradient passes, from the outputs to the first with parameters.
    """

    forward: Sequence[LayerStage]
    backward: Sequence[LayerStage]


def build_plan(layers: Sequence[nn.Module], place: GradientViews, x: Tensor) -> LayerPlan:
    """The stages for inputs of the shape and type of `x`.

    Raises:
        ShapeMismatchError: they do not take such inputs, do not end in `(batch, classes)`, or have no parameters.
    """
    _fits(x.numel() > 0 and all(x.dtype == parameter.dtype for parameter in place))
    builder = _PlanBuilder(place, x)
    for layer in layers:
        builder.add(layer)
    return builder.build()


class _PlanBuilder:
    """The stages so far, and the shape of the last one's output."""

    def __init__(self, place: GradientViews, x: Tensor) -> None:
        self._place, self._like, self._shape = place, x.new_empty(0), x.shape
        self._stages: list[LayerStage] = []
        self._images = False  # whether samples are innermost
        self._learning: int | None = None  # the first stage with parameters

    def add(self, layer: nn.Module) -> None:
        if isinstance(layer, ConvPool | nn.Conv2d | nn.MaxPool2d) and not self._images:
            _fits(len(self._shape) == 4)
            self._append(SamplesLast(self._shape))
            self._images = True
        self._append(self._stage(layer))

    def build(self) -> LayerPlan:
        _fits(len(self._shape) == 2 and not self._images and self._learning is not None)
        return LayerPlan(self._stages, self._stages[self._learning :][::-1])

    def _append(self, stage: LayerStage) -> None:
        self._stages.append(stage)
        self._shape = stage.shape
        _fits(min(self._shape) > 0)

    def _stage(self, layer: nn.Module) -> LayerStage:
        if isinstance(layer, ConvPool | nn.Conv2d):
            return self._convolution(layer)
        if isinstance(layer, nn.MaxPool2d):
            return Pooling(self._like, self._shape)
        if isinstance(layer, nn.Flatten):
            return self._flat()
        if isinstance(layer, nn.Linear):
            _fits(len(self._shape) == 2 and not self._images and self._shape[1] == layer.in_features)
            return Linear(layer, self._place, self._shape, self._learns_first())
        return Rectifier(self._like, self._shape) if isinstance(layer, nn.ReLU) else Elementwise(layer, self._shape)

    def _convolution(self, layer: ConvPool | nn.Conv2d) -> LayerStage:
        convolution = layer.convolution if isinstance(layer, ConvPool) else layer
        assert not isinstance(convolution.padding, str)  # see `_is_known`
        padded = [side + 2 * edge for side, edge in zip(self._shape[1:3], convolution.padding, strict=True)]
        _fits(self._shape[0] == convolution.in_channels)
        _fits(all(side >= size for side, size in zip(padded, convolution.kernel_size, strict=True)))
        kind = ConvolutionPool if isinstance(layer, ConvPool) else Convolution
        return kind(convolution, self._place, self._shape, self._learns_first())

    def _flat(self) -> LayerStage:
        if not self._images:
            return Features(self._shape)
        self._images = False
        return Flat(self._like, self._shape)

    def _learns_first(self) -> bool:
        """Whether no stage before the next one has parameters."""
        if self._learning is not None:
            return False
        self._learning = len(self._stages)
        return True


def _fits(condition: bool) -> None:
    if not condition:
        raise ShapeMismatchError
