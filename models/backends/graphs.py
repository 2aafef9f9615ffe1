"""Kernels recorded once and replayed: a call costs one launch instead of one for each kernel."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from laggard.models.backends.batched import Backend
from laggard.models.variants import Indexable

MAX_RECORDINGS = 16  # each holds weights and gradients of its size
POWERS_UP_TO = 256  # models; above that, sizes are eighths of an octave
WARM_UP_CALLS = 2  # calls before a recording: initialisation of libraries cannot be recorded

CallResults = tuple[Tensor, Tensor]
Call = Callable[[], CallResults]


class Graphs:
    """Another backend's gradients as CUDA graphs, one for each size of call.

    A graph's shapes and addresses are fixed. So a call is copied into the recording's memory, and
    its results out of it; its size is rounded up, so that calls of many sizes need few recordings.
    The additional rows hold old values, and their results are discarded. The most recent recordings
    share one pool of memory, since they are replayed one at a time. A pool ends with its last
    recording; the next recording gets a new pool. On a CPU nothing is recorded.

    Evaluations are rare, and not recorded.

    Attributes:
        unrecorded: the other backend, for a call that does not come again.
    """

    def __init__(self, backend: Backend) -> None:
        self.lanes = backend.lanes
        self.name = f"{backend.name}-graphs"
        self.unrecorded = backend
        self._pool: Any = None  # torch does not export the type of a handle
        self._recordings: OrderedDict[tuple[int, ...], Callable[[Tensor, Tensor], CallResults]] = (
            OrderedDict()
        )

    def gradients(self, weights: Tensor, x: Indexable, y: Indexable, index: Tensor) -> CallResults:
        # a recording refers to x and y, so that their ids stay theirs
        key = (rounded_up(len(weights)), index.shape[1], id(x), id(y))
        if key not in self._recordings:
            while len(self._recordings) >= MAX_RECORDINGS:
                self._recordings.popitem(last=False)
            if not self._recordings and weights.is_cuda:
                self._pool = torch.cuda.graph_pool_handle()
            self._recordings[key] = _record_call(
                self.unrecorded, key[0], weights, x, y, index, self._pool
            )
        self._recordings.move_to_end(key)
        return self._recordings[key](weights, index)

    def outputs(self, weights: Tensor, x: Tensor) -> Tensor:
        return self.unrecorded.outputs(weights, x)


def _record_call(
    backend: Backend,
    size: int,
    weights: Tensor,
    x: Indexable,
    y: Indexable,
    index: Tensor,
    pool: Any,
) -> Callable[[Tensor, Tensor], CallResults]:
    """Record a backend's gradients of `size` models on `x` and `y`, of weights and indices.

    Every call overwrites the same memory, and returns a copy.
    """
    own_weights = weights.new_zeros(size, weights.shape[1])
    # 64 bits are what indices are used in
    own_index = index.new_zeros(size, index.shape[1], dtype=torch.int64)

    def load(weights: Tensor, index: Tensor) -> None:
        own_weights[: len(weights)].copy_(weights)
        own_index[: len(index)].copy_(index)

    load(weights, index)
    record = RECORD.get(weights.device.type, _unrecorded)
    replay = record(lambda: backend.gradients(own_weights, x, y, own_index), pool)

    def call(weights: Tensor, index: Tensor) -> CallResults:
        load(weights, index)
        gradients, losses = replay()
        return gradients[: len(weights)].clone(), losses[: len(weights)].clone()

    return call


def record_graph(run: Call, pool: Any) -> Call:
    """`run` as a CUDA graph in a memory `pool`; its results are always in the same memory."""
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(WARM_UP_CALLS):
            run()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        results = run()

    def replay() -> CallResults:
        graph.replay()
        return results

    return replay


def _unrecorded(run: Call, pool: Any) -> Call:
    return run


RECORD: dict[str, Callable[[Call, Any], Call]] = {"cuda": record_graph}
"""The function that makes a call's replay, for each type of device that records."""


def rounded_up(size: int) -> int:
    """The size of the recording for a call of `size` models.

    It is a power of two up to 256, and above that one of eight sizes per factor of two. Small calls
    wait for launches, not for arithmetic, so that fewer recordings are worth additional rows.
    """
    if size <= POWERS_UP_TO:
        return 1 << (size - 1).bit_length()
    step = 1 << (size.bit_length() - 4)
    return -(-size // step) * step
