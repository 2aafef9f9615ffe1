"""The table of a chain's steps for inputs of one shape, and their places in memory."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from torch import nn

from laggard.models.backends.compiled import passes
from laggard.models.backends.compiled.convolution import Convolution
from laggard.models.backends.compiled.kernels import SAMPLES, Floats, Integers
from laggard.models.backends.compiled.layers import Activation, activation_of, chain_of, require

NO_ACTIVATION = Activation()
# entries; products with larger ones, which are written out, would take long to compile
LARGEST_KERNEL = 64


class Plan(NamedTuple):
    """A chain as `passes` takes it.

    Attributes:
        steps: a row for each, `(steps, FIELDS)`.
        numbers: parameters of their units, `(steps, 2)`.
        first: the first step with parameters.
        space: the numbers in working memory.
        classes: the number of outputs of a sample.
        convolutions: the convolutions to generate.
    """

    steps: Integers
    numbers: Floats
    first: int
    space: int
    classes: int
    convolutions: tuple[Convolution, ...]


@dataclass
class PlanStep:
    """A step, without its places in working memory.

    Attributes:
        inputs, outputs: features of a sample.
        weight, bias: their places in the weights; -1 where there is none.
        image: channels, height and width of its input, of its output for a convolution.
        border: rows above and columns to the left that padding adds.
    """

    kind: int
    inputs: int
    outputs: int
    weight: int = -1
    bias: int = -1
    image: tuple[int, ...] = (1, 1, 1)
    border: tuple[int, int] = (0, 0)
    unit: Activation = NO_ACTIVATION
    convolution: Convolution | None = None


def build_plan(module: nn.Module, shape: Sequence[int]) -> Plan:
    """The plan of a chain for inputs of `shape`.

    Raises:
        NotCompiledError: the module is not a chain, or does not take such inputs to `(classes,)`.
    """
    chain = _Chain(tuple(shape))
    for layer in chain_of(module):
        chain.add(layer)
    require(len(chain.shape) == 1)
    return _lay_out(chain.steps)


class _Chain:
    """The steps so far, and the shape of their output."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape, self.steps = shape, list[PlanStep]()
        self._params = 0

    def add(self, layer: nn.Module) -> None:
        require(math.prod(self.shape) > 0)
        if isinstance(layer, nn.Conv2d):
            self._convolve(layer)
        elif isinstance(layer, nn.MaxPool2d):
            self._pool()
        elif isinstance(layer, nn.Flatten):
            self.shape = (math.prod(self.shape),)
        elif isinstance(layer, nn.Linear):
            require(self.shape == (layer.in_features,))
            inputs, outputs = layer.in_features, layer.out_features
            step = PlanStep(passes.LINEAR, inputs, outputs, image=(outputs, 1, 1))
            self._append(step, (outputs,), layer)
        else:
            self._activate(activation_of(layer) or Activation())

    def _append(
        self, step: PlanStep, shape: tuple[int, ...], layer: nn.Linear | nn.Conv2d | None = None
    ) -> None:
        if layer is not None:
            step.weight = self._params
            self._params += layer.weight.numel()
            if layer.bias is not None:
                step.bias = self._params
                self._params += layer.bias.numel()
        self.steps.append(step)
        self.shape = shape

    def _activate(self, unit: Activation) -> None:
        if not self.steps or self.steps[-1].unit != Activation():
            size = math.prod(self.shape)
            self._append(PlanStep(passes.COPY, size, size), self.shape)
        self.steps[-1].unit = unit

    def _convolve(self, layer: nn.Conv2d) -> None:
        require(len(self.shape) == 3 and self.shape[0] == layer.in_channels)
        assert not isinstance(layer.padding, str)  # see `chain_of`
        self._pad(layer.padding)
        channels, height, width = self.shape
        high, wide = layer.kernel_size
        require(height >= high and width >= wide and high * wide <= LARGEST_KERNEL)
        first = all(step.weight < 0 for step in self.steps)
        biased = layer.bias is not None
        kernel = layer.out_channels, high, wide
        convolution = Convolution(
            channels, height, width, *kernel, biased, pools=False, first=first
        )
        shape = (convolution.outputs, convolution.down, convolution.across)
        sizes = math.prod(self.shape), math.prod(shape)
        step = PlanStep(passes.CONVOLUTION, *sizes, image=shape, convolution=convolution)
        self._append(step, shape, layer)

    def _pad(self, border: tuple[int, ...]) -> None:
        if not any(border):
            return
        top, left = border
        channels, height, width = self.shape
        shape = (channels, height + 2 * top, width + 2 * left)
        sizes = math.prod(self.shape), math.prod(shape)
        self._append(PlanStep(passes.PAD, *sizes, image=self.shape, border=(top, left)), shape)

    def _pool(self) -> None:
        require(len(self.shape) == 3)
        shape = (self.shape[0], self.shape[1] // 2, self.shape[2] // 2)
        require(math.prod(shape) > 0)
        outputs = math.prod(shape)
        last = self.steps[-1] if self.steps else None
        if last and last.convolution and not last.convolution.pools and last.unit == Activation():
            # The convolution pools its own outputs, row by row, while they are in the cache.
            last.convolution = last.convolution._replace(pools=True)
            last.outputs, last.image = outputs, shape
            self.shape = shape
        else:
            step = PlanStep(passes.POOL, math.prod(self.shape), outputs, image=self.shape)
            self._append(step, shape)


def _lay_out(steps: Sequence[PlanStep]) -> Plan:
    """Lay out working memory: two gradients in turn, scratch memory, images, and all outputs."""
    convolutions = tuple(step.convolution for step in steps if step.convolution)
    widest = max(max(step.inputs, step.outputs) for step in steps)
    scratch = 2 * widest
    scratch_sizes = [widest + SAMPLES, *(convolution.scratch for convolution in convolutions)]
    image = scratch + max(scratch_sizes)
    x = image + max((convolution.image for convolution in convolutions), default=0)
    y = x + steps[0].inputs
    next_convolution, rows = passes.CONVOLUTION, list[list[int]]()
    for number, step in enumerate(steps):
        winners = y + step.outputs
        # Two places in turn: the gradient at a step's output is that at the next one's input.
        gradients = (widest, 0) if number % 2 else (0, widest)
        places = [SAMPLES * place for place in (x, y, *gradients, scratch, image, winners)]
        sizes = (step.weight, step.bias, step.inputs, step.outputs)
        kind = step.kind
        if step.convolution is not None:  # each has its own generated code
            kind = next_convolution
            next_convolution += 1
        rows.append([kind, *places, *sizes, step.unit.kind, *step.image, *step.border])
        x, y = y, winners + step.outputs
    first = next(number for number, step in enumerate(steps) if step.weight >= 0)
    numbers = np.array([step.unit[1:] for step in steps], np.float32)
    return Plan(np.array(rows), numbers, first, SAMPLES * y, steps[-1].outputs, convolutions)
