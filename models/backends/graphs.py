"""Kernels recorded once and replayed: a call costs one launch instead of one for each kernel."""

from collections import OrderedDict
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from laggard.models.backends.batched import Backend

MOST_RECORDINGS = 8  # each holds weights and gradients of its size
WARM_UP_CALLS = 2  # calls before a recording: initialisation of libraries cannot be recorded

CallResults = tuple[Tensor, Tensor]
Call = Callable[[], CallResults]


class Graphs:
    """Another backend's gradients as CUDA graphs, one for each size of call.

    A graph's shapes and addresses are fixed. So a call is copied into the recording's own weights and indices, and its
    results out of it; and it is rounded up to one of eight sizes per factor of two, so that calls of many sizes need
    few recordings. The additional rows hold old values, and their results are discarded. The most recent recordings are
    kept, and share one pool of memory, since they are replayed one at a time. On a CPU nothing is recorded.

    Evaluations are rare, and not recorded.
    """

    def __init__(self, backend: Backend) -> None:
        self.lanes, self.name = backend.lanes, f"{backend.name}-graphs"
        self._backend = backend
        self._recordings: OrderedDict[tuple[int, ...], Callable[[Tensor, Tensor], CallResults]] = OrderedDict()

    def gradients(self, weights: Tensor, x: Tensor, y: Tensor, index: Tensor) -> CallResults:
        # a recording refers to x and y, so that their ids stay theirs
        key = (rounded_up(len(weights)), index.shape[1], id(x), id(y))
        if key not in self._recordings:
            while len(self._recordings) >= MOST_RECORDINGS:
                self._recordings.popitem(last=False)
            self._recordings[key] = _record_call(self._backend, key[0], weights, x, y, index)
        self._recordings.move_to_end(key)
        return self._recordings[key](weights, index)

    def outputs(self, weights: Tensor, x: Tensor) -> Tensor:
        return self._backend.outputs(weights, x)


def _record_call(
    backend: Backend, size: int, weights: Tensor, x: Tensor, y: Tensor, index: Tensor
) -> Callable[[Tensor, Tensor], CallResults]:
    """A backend's gradients of `size` models on the data `x` and `y`, recorded: a function of weights and indices.

    Every call overwrites the same memory, and returns a copy.
    """
    own_weights, own_index = weights.new_zeros(size, weights.shape[1]), index.new_zeros(size, index.shape[1])

    def load(weights: Tensor, index: Tensor) -> None:
        own_weights[: len(weights)].copy_(weights)
        own_index[: len(index)].copy_(index)

    load(weights, index)
    replay = RECORD.get(weights.device.type, _unrecorded)(lambda: backend.gradients(own_weights, x, y, own_index))

    def call(weights: Tensor, index: Tensor) -> CallResults:
        load(weights, index)
        gradients, losses = replay()
        return gradients[: len(weights)].clone(), losses[: len(weights)].clone()

    return call


def record_graph(run: Call) -> Call:
    """`run` as a CUDA graph, whose results are always in the same memory."""
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(WARM_UP_CALLS):
            run()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=_pool()):
        results = run()

    def replay() -> CallResults:
        graph.replay()
        return results

    return replay


def _unrecorded(run: Call) -> Call:
    return run


RECORD: dict[str, Callable[[Call], Call]] = {"cuda": record_graph}
"""What makes a call's replay, on each type of device that records."""


def rounded_up(size: int) -> int:
    """The next of eight sizes per factor of two: at most an eighth more; sizes up to 16 stay."""
    step = 1 << max(0, size.bit_length() - 4)
    return -(-size // step) * step


@cache
def _pool() -> Any:  # torch does not export the type
    """The memory pool that all recordings share."""
    return torch.cuda.graph_pool_handle()
