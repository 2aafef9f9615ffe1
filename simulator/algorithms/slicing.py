"""A gradient cut into slices of its layers, those of the front layers first, and a forward pass
layer by layer.
"""

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

MOST_SLICES = 4096
"""Slices of a layer at most, however large it is."""


class SlicedLayer(NamedTuple):
    """A layer with parameters, and those behind it that have none.

    Attributes:
        number: its place, from the front; the smaller, the more urgent.
        forward, backward: the shares of a mini-batch's work that its two passes take.
        slices: into how many equal slices it is cut.
        size: of one of them, in models.
        columns: its parameters.
    """

    number: int
    forward: float
    backward: float
    slices: int
    size: float
    columns: slice

    def slice_columns(self, number: int) -> slice:
        """The parameters of its slice of that number."""
        start, params = self.columns.start, self.columns.stop - self.columns.start
        return slice(*(start + params * end // self.slices for end in (number, number + 1)))


@dataclass(frozen=True)
class Sliced(Algorithm):
    """A method that sends its gradients in slices while the passes before and after go on.

    The backward pass computes the gradient of one layer after another, the last one first, and each
    layer's forward pass waits for its own slices alone. With f_l and b_l the seconds of the passes
    of layer l, and x_l the moment at which all its slices have come back, it is through its forward
    pass at F_l, and its gradient is there at B_l:

        F_l = max(F_{l-1}, x_l of the step before) + f_l,    B_L = F_L + b_L,    B_l = B_{l+1} + b_l

    Attributes:
        slice_bytes: bytes of a slice at most; null sends whole layers. No layer has over 4,096
            slices.
        order: which slice goes first: that of the front-most layer, or with `fifo` the one that was
            computed first.
        backward: the time of a backward pass in forward passes; layers share both by their work.

    Source: Jayarajan et al. (2019), arXiv 1905.03960; Peng et al. (2019), SOSP (ByteScheduler).
    """

    rule: Rule
    slice_bytes: Positive | None = None
    order: Literal["priority", "fifo"] = "priority"
    backward: Positive = field(default=2.0, kw_only=True)

    def layers(self, node: Node) -> list[SlicedLayer]:
        """The layers of the model of `node`, from the front."""
        return slice_layers(
            node.layers, node.weights.shape[1], node.model_bytes, self.slice_bytes, self.backward
        )


def forward_by_layers(
    node: Node,
    layers: Sequence[SlicedLayer],
    seconds: float,
    await_slices: Callable[[int, int], Generator[Event, Any, None]] | None,
) -> Generator[Event, Any, float]:
    """Make the forward pass of a mini-batch layer by layer; return the moment (s) at which the
    first one begins.

    Args:
        node: the worker.
        layers: the model's, from the front.
        seconds: what both passes take at full speed.
        await_slices: waits until so many slices of the layer of that number have come; None before
            the first update.
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
        order: `priority` for that of the front-most layer, or `fifo` for that which has waited
            longest.
    """

    def __init__(self, order: str) -> None:
        self._by_layer, self._numbers = order == "priority", count()
        self._waiting: list[tuple[int, int, Any]] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, layer: int, item: Any) -> None:
        """Let a slice of `layer` wait."""
        heappush(self._waiting, (layer if self._by_layer else 0, next(self._numbers), item))

    def take(self) -> Any:
        """The slice whose turn it is; it waits no longer."""
        return heappop(self._waiting)[-1]


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
        slice_bytes: the bytes of a slice at most; without it, a layer is one slice.
        backward: the work of a backward pass in forward passes.
    """
    found, done = [], 1 / (1 + backward)
    # a bucket a layer, the last one first
    buckets = fill_buckets(layers, params, model_bytes, 0.0, backward)
    for number, bucket in zip(reversed(range(len(buckets))), buckets, strict=True):
        share, done = max(0.0, bucket.ready - done), bucket.ready
        size = model_bytes * bucket.size
        if slice_bytes is None:
            slices = 1
        else:
            slices = min(max(1, math.ceil(size / slice_bytes - 1e-9)), MOST_SLICES)
        found.append(
            SlicedLayer(
                number, share / backward, share, slices, bucket.size / slices, bucket.columns
            )
        )
    return found[::-1]
