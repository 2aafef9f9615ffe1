"""The table of a network's steps for inputs of one shape, and their places in memory."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from torch import nn

from laggard.models.backends.compiled import passes
from laggard.models.backends.compiled.kernels import (
    LANES,
    RELU,
    SAMPLES,
    TILE_SUMS,
    Floats,
    Integers,
)
from laggard.models.backends.compiled.layers import (
    Activation,
    activation_of,
    is_known,
    layers_in_order,
    pair_of,
    require,
)
from laggard.models.modules import BasicBlock

NO_ACTIVATION = Activation()
NO_PLACES = np.zeros(0, np.int64)
ONE_PLACE = np.zeros(1, np.int64)


class Plan(NamedTuple):
    """A network as `passes` takes it.

    Attributes:
        steps: a row for each, `(steps, FIELDS)`.
        numbers: parameters of their units, and what they add to variances, `(steps, 3)`.
        tables: the places that steps name.
        space: the numbers in working memory.
        classes: the number of outputs of a sample.
        batched: whether samples of a mini-batch depend on each other.
    """

    steps: Integers
    numbers: Floats
    tables: Integers
    space: int
    classes: int
    batched: bool


@dataclass
class PlanStep:
    """A step of a plan whose places in working memory are not assigned yet.

    Attributes:
        source: the number of the step whose output is its input; -1 for the network's input.
        other: the number of the step whose output is the second term of an addition.
        channels: the number of channels of its output, before it is flattened; each has a bias.
        shape: the shape of its output for one sample.
        learns: whether it or an earlier step has parameters.
        is_shared: whether several steps take its output.
        weight, bias: their places in the weights; -1 where there is none.
        terms, rows, places, outs: its tables of places, see `passes`.
        kept: numbers per sample that it stores for the backward pass.
    """

    kind: int
    source: int
    shape: tuple[int, ...]
    other: int = -1
    channels: int = 0
    learns: bool = False
    is_shared: bool = False
    weight: int = -1
    bias: int = -1
    kernel: int = 0
    group: int = 0
    length: int = 0
    terms: Integers = field(default_factory=NO_PLACES.copy)
    rows: Integers = field(default_factory=NO_PLACES.copy)
    places: Integers = field(default_factory=NO_PLACES.copy)
    outs: Integers = field(default_factory=NO_PLACES.copy)
    kept: int = 0
    eps: float = 0.0
    unit: Activation = NO_ACTIVATION

    @property
    def size(self) -> int:
        """Features of its output."""
        return math.prod(self.shape)


def build_plan(module: nn.Module, shape: Sequence[int]) -> Plan:
    """The plan of a network for inputs of `shape`.

    Raises:
        NotCompiledError: a part of the module is unknown, or its output for one input is not
            `(classes,)`.
    """
    builder = _Builder(module, tuple(shape))
    last = builder.add(module, -1)
    require(not builder.unused and last == len(builder.steps) - 1)
    require(len(builder.steps[last].shape) == 1)
    return _lay_out(builder.steps, builder.inputs)


class _Builder:
    """Builds the steps of a plan, module by module.

    Attributes:
        unused: parameters, by their ids, that belong to no step yet.
    """

    def __init__(self, module: nn.Module, shape: tuple[int, ...]) -> None:
        self.inputs = shape
        self.steps: list[PlanStep] = []
        self.unused: dict[int, int] = {}
        start = 0
        for parameter in module.parameters():
            require(parameter.requires_grad and parameter.device.type == "cpu")
            self.unused[id(parameter)] = start
            start += parameter.numel()
        require(start > 0 and math.prod(shape) > 0)

    def add(self, module: nn.Module, source: int) -> int:
        """Add the steps of a module that takes the output of step `source`; return the last one."""
        require(is_known(module))
        match module:
            case nn.Sequential():
                for layer in layers_in_order(module):
                    source = self.add(layer, source)
            case BasicBlock():
                return self._add_block(module, source)
            case nn.Conv2d():
                return self._convolve(module, source)
            case nn.Linear():
                return self._multiply(module, source)
            case nn.MaxPool2d() | nn.AvgPool2d() | nn.AdaptiveAvgPool2d():
                return self._pool(module, source)
            case nn.BatchNorm1d() | nn.BatchNorm2d() | nn.GroupNorm() | nn.LayerNorm():
                return self._normalise(module, source)
            case nn.Flatten():
                self._reshape(source)
            case nn.Identity():
                pass
            case _:
                return self._activate(activation_of(module) or NO_ACTIVATION, source)
        return source

    def _shape(self, step: int) -> tuple[int, ...]:
        if step < 0:
            return self.inputs
        return self.steps[step].shape

    def _reshape(self, step: int) -> None:
        flat = (math.prod(self._shape(step)),)
        if step < 0:
            self.inputs = flat
        else:
            require(not self.steps[step].is_shared)
            self.steps[step].shape = flat

    def _append(self, step: PlanStep, layer: nn.Module | None = None) -> int:
        """Add a step, with the parameters of `layer`; return its number."""
        require(step.size > 0)
        step.channels = step.channels or step.shape[0]
        sources = {step.source, step.other} - {-1}
        step.learns = any(self.steps[source].learns for source in sources)
        if layer is not None:
            step.learns = True
            weight = layer._parameters["weight"]
            bias = layer._parameters["bias"]
            require(weight is not None and id(weight) in self.unused)
            step.weight = self.unused.pop(id(weight))
            if bias is not None:
                require(id(bias) in self.unused)
                step.bias = self.unused.pop(id(bias))
        self.steps.append(step)
        return len(self.steps) - 1

    def _activate(self, unit: Activation, source: int) -> int:
        """Apply a unit to the output of step `source`, or to a copy if other steps need the output;
        return the step that applies it.
        """
        is_free = source == len(self.steps) - 1 >= 0 and not self.steps[source].is_shared
        if not is_free or self.steps[source].unit != NO_ACTIVATION:
            shape = self._shape(source)
            source = self._move(source, shape, ONE_PLACE, ONE_PLACE, math.prod(shape))
        self.steps[source].unit = unit
        return source

    def _move(
        self, source: int, shape: tuple[int, ...], xs: Integers, ys: Integers, length: int
    ) -> int:
        """Add a step that moves segments of `length` features from the places `xs` to `ys`, among
        zeros; return its number.
        """
        step = PlanStep(passes.SEGMENTS, source, shape, length=length * SAMPLES)
        step.places = SAMPLES * xs
        step.outs = SAMPLES * ys
        return self._append(step)

    def _multiply(self, layer: nn.Linear, source: int) -> int:
        require(self._shape(source) == (layer.in_features,))
        step = PlanStep(passes.LINEAR, source, (layer.out_features,), kernel=layer.in_features)
        # the weights' gradient needs the places of all samples
        terms = max(layer.in_features, SAMPLES)
        step.terms = SAMPLES * np.arange(terms)
        step.rows = SAMPLES * np.arange(layer.out_features)
        step.places = ONE_PLACE
        step.outs = layer.in_features * np.arange(layer.out_features)  # rows of the weights
        return self._append(step, layer)

    def _convolve(self, layer: nn.Conv2d, source: int) -> int:
        require(len(self._shape(source)) == 3 and self._shape(source)[0] == layer.in_channels)
        assert not isinstance(layer.padding, str)  # see `is_known`
        source = self._pad(source, layer.padding)
        image = self._shape(source)
        window = ImageWindow(layer.kernel_size, layer.stride, layer.dilation)
        down, across = window.outputs(image)
        step = PlanStep(passes.CONVOLUTION, source, (layer.out_channels, down, across))
        step.kernel = math.prod(layer.weight.shape[1:])
        within = window.entries(image)
        channels = image[1] * image[2] * np.arange(layer.in_channels)
        terms = (channels[:, None] + within).ravel()
        # whole tiles, also where a CPU takes smaller ones, which divide these
        surplus = terms[-1:].repeat(-len(terms) % TILE_SUMS)
        step.terms = SAMPLES * np.append(terms, surplus)
        step.rows = SAMPLES * down * across * np.arange(layer.out_channels)
        step.places = SAMPLES * window.places(image)
        step.outs = SAMPLES * np.arange(down * across)
        return self._append(step, layer)

    def _pad(self, source: int, border: tuple[int, ...]) -> int:
        if not any(border):
            return source
        top, left = border
        channels, height, width = self._shape(source)
        padded = (channels, height + 2 * top, width + 2 * left)
        rows = np.arange(padded[0] * padded[1]).reshape(padded[:2])[:, top : top + height]
        ys = padded[2] * rows.ravel() + left
        return self._move(source, padded, width * np.arange(channels * height), ys, width)

    def _pool(self, layer: nn.MaxPool2d | nn.AvgPool2d | nn.AdaptiveAvgPool2d, source: int) -> int:
        image = self._shape(source)
        require(len(image) == 3)
        window = ImageWindow(image[1:])
        if isinstance(layer, nn.MaxPool2d):
            sides = layer.kernel_size, layer.stride, layer.dilation
            window = ImageWindow(*(pair_of(side) for side in sides))
        elif isinstance(layer, nn.AvgPool2d):
            window = ImageWindow(pair_of(layer.kernel_size), pair_of(layer.stride))
        shape = (image[0], *window.outputs(image))
        step = PlanStep(passes.AVERAGE, source, shape)
        if isinstance(layer, nn.MaxPool2d):
            step.kind = passes.POOL
            step.kept = step.size
        entries = window.entries(image)
        if step.kind == passes.POOL:
            # `kernels.pool` compares two entries at a time; a repeated one changes no maximum.
            entries = np.append(entries, entries[-1:].repeat(len(entries) % 2))
        step.terms = SAMPLES * entries
        step.places = SAMPLES * window.places(image)
        return self._append(step)

    def _normalise(self, layer: nn.Module, source: int) -> int:
        shape = self._shape(source)
        kind = passes.GROUP_NORM
        if isinstance(layer, nn.GroupNorm):
            require(shape[0] == layer.num_channels)
            group = layer.num_channels // layer.num_groups
        elif isinstance(layer, nn.LayerNorm):  # one group of channels of one feature
            require(shape == tuple(layer.normalized_shape))
            group = math.prod(shape)
        else:
            assert isinstance(layer, nn.BatchNorm1d | nn.BatchNorm2d)
            require(shape[0] == layer.num_features)
            require(len(shape) == (1 if isinstance(layer, nn.BatchNorm1d) else 3))
            kind, group = passes.BATCH_NORM, 1
        bias = layer._parameters["bias"]
        require(bias is not None)
        assert bias is not None
        step = PlanStep(kind, source, shape, group=group, eps=layer.eps)
        step.channels = bias.numel()
        step.kept = 2 * step.channels // group
        return self._append(step, layer)

    def _add_block(self, block: BasicBlock, source: int) -> int:
        require(source >= 0 and len(self._shape(source)) == 3)
        self.steps[source].is_shared = True
        channels, height, width = self._shape(source)
        last = self.add(block.part, source)
        window = ImageWindow((1, 1), (block.stride, block.stride))
        shape = (channels + block.added, *window.outputs(self._shape(source)))
        if block.stride > 1 or block.added:
            pixels = window.places((channels, height, width))
            starts = height * width * np.arange(channels)
            xs = (starts[:, None] + pixels).ravel()
            source = self._move(source, shape, xs, np.arange(len(xs)), 1)
        require(last != source and self._shape(last) == shape == self._shape(source))
        step = PlanStep(passes.ADD, last, shape, other=source, unit=Activation(RELU))
        return self._append(step)


class ImageWindow(NamedTuple):
    """The places of a convolution kernel or a pooling window in an image that is padded already."""

    sides: tuple[int, ...]
    strides: tuple[int, ...] = (1, 1)
    dilation: tuple[int, ...] = (1, 1)

    def outputs(self, image: Sequence[int]) -> tuple[int, int]:
        """Rows and columns of the result."""
        rows, columns = (
            (length - apart * (side - 1) - 1) // stride + 1
            for length, side, stride, apart in zip(
                image[1:], self.sides, self.strides, self.dilation, strict=True
            )
        )
        require(rows > 0 and columns > 0)
        return rows, columns

    def entries(self, image: Sequence[int]) -> Integers:
        """The offsets of the window's entries from its first entry."""
        rows, columns = (
            apart * np.arange(side) for side, apart in zip(self.sides, self.dilation, strict=True)
        )
        places: Integers = (image[2] * rows[:, None] + columns).ravel()
        return places

    def places(self, image: Sequence[int]) -> Integers:
        """The places of the window's first entry in a channel, by rows of the result."""
        rows, columns = (
            stride * np.arange(count)
            for stride, count in zip(self.strides, self.outputs(image), strict=True)
        )
        places: Integers = (image[2] * rows[:, None] + columns).ravel()
        return places


class _Gradients(NamedTuple):
    """The slots of working memory for the gradients at the network's input and at each step's
    output.

    Attributes:
        slots: the slot of each gradient; -1 where it is not needed.
        new: for each step, whether it is the first to add to its source's gradient, and to that of
            its other input.
        slot_count: the number of slots.
    """

    slots: list[int]
    new: list[tuple[bool, bool]]
    slot_count: int


def _assign_gradients(steps: Sequence[PlanStep]) -> _Gradients:
    """Go through the steps as the backward pass does: a slot is free again after its step."""
    # Place 0 is the network's input, and place n + 1 the output of step n.
    needed = [False, *(step.learns for step in steps)]
    for step in steps:
        if step.kind in (passes.BATCH_NORM, passes.GROUP_NORM):
            needed[step.source + 1] = True  # computed with the gradient of the gains
    slots = [-1] * len(needed)
    new = [(False, False)] * len(steps)
    count, free = 1, list[int]()
    slots[-1] = 0
    for number in reversed(range(len(steps))):
        step = steps[number]
        if slots[number + 1] < 0:
            continue
        is_new = dict[int, bool]()
        for value in (step.other + 1, step.source + 1):  # in the order of the backward pass
            is_new[value] = needed[value] and slots[value] < 0
            if is_new[value]:
                if not free:
                    free.append(count)
                    count += 1
                slots[value] = free.pop()
        free.append(slots[number + 1])
        new[number] = is_new[step.source + 1], is_new[step.other + 1]
    return _Gradients(slots, new, count)


def _lay_out(steps: Sequence[PlanStep], inputs: tuple[int, ...]) -> Plan:
    """Lay out working memory: the input, each step's output and what it keeps, gradients, and
    scratch memory.
    """
    sizes = [math.prod(inputs), *(step.size for step in steps)]
    widest = max(sizes)
    outputs, kept, end = [0], [0], sizes[0]
    for step in steps:
        outputs.append(end)
        kept.append(end + step.size)
        end += step.size + step.kept
    gradients = _assign_gradients(steps)
    scratch = end + gradients.slot_count * widest
    rows = list[list[int]]()
    tables = list[Integers]()
    filled = 0
    for number, step in enumerate(steps):
        values = step.source + 1, step.other + 1, number + 1
        places = [SAMPLES * outputs[value] for value in values]
        for slot in (gradients.slots[value] for value in values):
            places.append(SAMPLES * (end + slot * widest) if slot >= 0 else -1)
        row = [step.kind, *places, *gradients.new[number]]
        row += [SAMPLES * scratch, SAMPLES * kept[number + 1], step.weight, step.bias]
        row += [sizes[step.source + 1], step.size, step.channels]
        row += [step.kernel, step.group, step.length, step.unit.kind]
        for table in (step.terms, step.rows, step.places, step.outs):
            row.append(filled)
            filled += len(table)
            tables.append(table)
        rows.append([*row, filled])
    numbers = np.array([[*step.unit[1:], step.eps] for step in steps], np.float32)
    sums = TILE_SUMS * LANES * max(len(step.terms) for step in steps)
    # Scratch memory holds a block and its product (`add_outer_products`), or sums of correlations.
    space = SAMPLES * scratch + max(SAMPLES * (widest + SAMPLES), sums)
    batched = any(step.kind == passes.BATCH_NORM for step in steps)
    return Plan(np.array(rows), numbers, np.concatenate(tables), space, sizes[-1], batched)
