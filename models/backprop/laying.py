"""The stages that a chain of layers has for inputs of one shape."""

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor, nn

from models.backprop.convolution import Convolution, PooledConvolution
from models.backprop.layers import Pooled
from models.backprop.pooling import Pooling
from models.backprop.stages import Elementwise, Features, Flat, Full, Place, Rectifier, SamplesLast, Stage


class Misfit(ValueError):
    """The stages do not fit: autograd takes over, and says what is wrong, if anything is."""


class Laid(NamedTuple):
    """The stages for inputs of one shape.

    Attributes:
        there: from the inputs to the outputs.
        back: those that the gradient passes, from the outputs to the first that learns.
    """

    there: Sequence[Stage]
    back: Sequence[Stage]


def lay(layers: Sequence[nn.Module], place: Place, x: Tensor) -> Laid:
    """The stages for inputs of the shape and type of `x`.

    Raises:
        Misfit: they do not take such inputs, or do not end in outputs `(batch, classes)`, or nothing learns.
    """
    _fits(x.numel() > 0 and all(x.dtype == parameter.dtype for parameter in place))
    laying = _Laying(place, x)
    for layer in layers:
        laying.add(layer)
    return laying.laid()


class _Laying:
    """Stages one after the other, and the shape of what comes out of the last."""

    def __init__(self, place: Place, x: Tensor) -> None:
        self._place, self._like, self._shape = place, x.new_empty(0), x.shape
        self._stages: list[Stage] = []
        self._images = False  # whether samples are innermost
        self._learning: int | None = None  # the first stage that learns

    def add(self, layer: nn.Module) -> None:
        if isinstance(layer, Pooled | nn.Conv2d | nn.MaxPool2d) and not self._images:
            _fits(len(self._shape) == 4)
            self._append(SamplesLast(self._shape))
            self._images = True
        self._append(self._stage(layer))

    def laid(self) -> Laid:
        _fits(len(self._shape) == 2 and not self._images and self._learning is not None)
        return Laid(self._stages, self._stages[self._learning :][::-1])

    def _append(self, stage: Stage) -> None:
        self._stages.append(stage)
        self._shape = stage.shape
        _fits(min(self._shape) > 0)

    def _stage(self, layer: nn.Module) -> Stage:
        if isinstance(layer, Pooled | nn.Conv2d):
            return self._convolution(layer)
        if isinstance(layer, nn.MaxPool2d):
            return Pooling(self._like, self._shape)
        if isinstance(layer, nn.Flatten):
            return self._flat()
        if isinstance(layer, nn.Linear):
            _fits(len(self._shape) == 2 and not self._images and self._shape[1] == layer.in_features)
            return Full(layer, self._place, self._shape, self._learns_first())
        return Rectifier(self._like, self._shape) if isinstance(layer, nn.ReLU) else Elementwise(layer, self._shape)

    def _convolution(self, layer: Pooled | nn.Conv2d) -> Stage:
        convolution = layer.convolution if isinstance(layer, Pooled) else layer
        room = [side + 2 * edge for side, edge in zip(self._shape[1:3], convolution.padding, strict=True)]
        _fits(self._shape[0] == convolution.in_channels)
        _fits(all(side >= size for side, size in zip(room, convolution.kernel_size, strict=True)))
        kind = PooledConvolution if isinstance(layer, Pooled) else Convolution
        return kind(convolution, self._place, self._shape, self._learns_first())

    def _flat(self) -> Stage:
        if not self._images:
            return Features(self._shape)
        self._images = False
        return Flat(self._like, self._shape)

    def _learns_first(self) -> bool:
        """Whether nothing before the stage to come learns."""
        if self._learning is not None:
            return False
        self._learning = len(self._stages)
        return True


def _fits(condition: bool) -> None:
    if not condition:
        raise Misfit
