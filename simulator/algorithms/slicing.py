"""A gradient cut into slices of its layers, and a forward pass layer by layer."""

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from typing import Any, Literal, NamedTuple

from laggard.simulator.algorithms.base import Algorithm
from laggard.simulator.algorithms.bucketing import fill_buckets
from laggard.simulator.engine.node import Node
from laggard.simulator.errors import Positive
from laggard.simulator.learning.rules import Rule
from laggard.simulator.learning.task import Layer
from laggard.simulator.timing.events import Event

MAX_SLICES = 4096
"""The largest number of slices of a layer."""


class SlicedLayer(NamedTuple):
    """A layer with parameters, and the layers behind it that have none.

    Attributes:
        number: the layer's place from the front; the smaller, the more urgent.
        forward, backward: the shares of a mini-batch's work in its two passes.
        slices: the number of equal slices into which it is cut.
        size: the size of a slice, in models.
        columns: the layer's parameters.
    """

    number: int
    forward: float
    backward: float
    slices: int
    size: float
    columns: slice

    def slice_columns(self, number: int) -> slice:
        """The parameters of slice `number`."""
        start = self.columns.start
        params = self.columns.stop - self.columns.start
        first = start + params * number // self.slices
        return slice(first, start + params * (number + 1) // self.slices)


@dataclass(frozen=True)
class Sliced(Algorithm):
    """A method that sends its gradients in slices while the passes before and after go on.

    The backward pass computes the gradients of layers from the last to the first, and each layer's
    forward pass waits only for its own slices. With f_l and b_l the seconds of the passes of layer
    l, and x_l the moment at which all its slices have come back, its forward pass ends at F_l, and
    its gradient is computed at B_l:

        F_l = max(F_{l-1}, x_l of the step before) + f_l,    B_L = F_L + b_L,    B_l = B_{l+1} + b_l

    Attributes:
        slice_bytes: largest size of a slice (bytes); null sends whole layers. No layer has over
            4,096 slices.
        order: the slice that goes first: a slice of the front-most layer, or with `fifo` the slice
            that was computed first.
        backward: the time of a backward pass in forward passes; layers share both by their work.

    Source: Jayarajan et al. (2019), arXiv 1905.03960; Peng et al. (2019), SOSP (ByteScheduler).
    """

    rule: Rule
    slice_bytes: Positive | None = None
    order: Literal["priority", "fifo"] = "priority"
    backward: Positive = field(default=2.0, kw_only=True)

    def layers(self, node: Node) -> list[SlicedLayer]:
        """The layers of the model of `node`, from the front."""
        params, limit = node.weights.shape[1], self.slice_bytes
        return slice_layers(node.layers, params, node.model_bytes, limit, self.backward)


def forward_by_layers(
    node: Node,
    layers: Sequence[SlicedLayer],
    seconds: float,
    await_slices: Callable[[int, int], Generator[Event, Any, None]] | None,
) -> Generator[Event, Any, float]:
    """Make the forward pass of a mini-batch layer by layer; return its start (s).

    Args:
        node: the worker.
        layers: the model's, from the front.
        seconds: the time of both passes at full speed.
        await_slices: `await_slices(layer, slices)` waits for the slices of a layer; None before the
            first update.
    """
    started = node.now
    for layer in layers:
        if await_slices is not None:
            yield from await_slices(layer.number, layer.slices)
        if layer.number == 0:
            started = node.now
        yield node.work(share=layer.forward, of=seconds)
    return started


class SliceQueue:
    """Slices that wait for their turn.

    Args:
        order: `priority`, the front-most layer's first, or `fifo`.
    """

    def __init__(self, order: str) -> None:
        self._by_layer = order == "priority"
        self._numbers = count()  # of equal priority, the first that came
        self._waiting: list[tuple[int, int, Any]] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, layer: int, item: Any) -> None:
        """Add a slice of `layer`."""
        priority = layer if self._by_layer else 0
        heappush(self._waiting, (priority, next(self._numbers), item))

    def take(self) -> Any:
        """Remove and return the next slice."""
        _, _, item = heappop(self._waiting)
        return item


def slice_layers(
    layers: Sequence[Layer],
    params: int,
    model_bytes: float,
    slice_bytes: float | None,
    backward: float,
) -> list[SlicedLayer]:
    """The layers of a model that have parameters, from the front, and how they are cut.

    Args:
        layers: the model's, as `fill_buckets` has them.
        params: the number of its parameters.
        model_bytes: the size of its message.
        slice_bytes: largest size of a slice (bytes); without it, a layer is one slice.
        backward: the work of a backward pass in forward passes.
    """
    result = []
    done = 1 / (1 + backward)  # the backward pass follows the forward pass
    # without a limit each layer is a bucket, the last one first
    buckets = fill_buckets(layers, params, model_bytes, 0.0, backward)
    for number, bucket in zip(reversed(range(len(buckets))), buckets, strict=True):
        share = max(0.0, bucket.ready - done)
        done = bucket.ready
        slices = 1
        if slice_bytes is not None:
            needed = math.ceil(model_bytes * bucket.size / slice_bytes - 1e-9)
            slices = min(max(1, needed), MAX_SLICES)
        size = bucket.size / slices
        result.append(SlicedLayer(number, share / backward, share, slices, size, bucket.columns))
    return result[::-1]
