"""Kernels recorded once and replayed: a call costs one launch instead of one for each kernel."""

from collections import OrderedDict
from collections.abc import Callable

import torch
from torch import Tensor

from models.backends.backend import Backend

KEPT = 8  # recordings; each holds weights and gradients of its size
WARM_UP = 2  # calls before a recording: libraries set themselves up, which may not be recorded

Results = tuple[Tensor, Tensor]
Call = Callable[[], Results]
Record = Callable[[Call], Call]


class Graphs:
    """Another backend's gradients as CUDA graphs, one for each size of call.

    A graph's shapes and addresses are fixed. So a call is copied into the recording's own weights and indices, and its
    results out of it; and it is rounded up to one of eight sizes an octave, so that schedules of uneven calls need few
    recordings. The rows that this adds compute on whatever they hold, and are thrown away. The recordings used
    last are kept, and share one pool of memory: they are replayed one at a time. On a CPU nothing is recorded, and all
    else is the same.

    Evaluations, which are rare, are not recorded.

    Args:
        record: makes a replay of a call; None for a CUDA graph on a GPU, and the call itself on a CPU.
    """

    def __init__(self, backend: Backend, record: Record | None = None) -> None:
        self.lanes, self.name = backend.lanes, f"{backend.name}-graphs"
        self._backend, self._record = backend, record
        self._recordings: OrderedDict[tuple[int, ...], Recording] = OrderedDict()

    def gradients(self, weights: Tensor, x: Tensor, y: Tensor, index: Tensor) -> Results:
        key = (rounded_up(len(weights)), index.shape[1], id(x), id(y))  # a recording keeps x and y, and so their ids
        if key not in self._recordings:
            while len(self._recordings) >= KEPT:
                self._recordings.popitem(last=False)
            record = self._record or (recorded if weights.is_cuda else _as_it_is)
            self._recordings[key] = Recording(self._backend, record, key[0], weights, x, y, index)
        self._recordings.move_to_end(key)
        return self._recordings[key](weights, index)

    def outputs(self, weights: Tensor, x: Tensor) -> Tensor:
        return self._backend.outputs(weights, x)


class Recording:
    """A backend's gradients of `size` models, on the data `x` and `y`, recorded.

    Every call of it writes over the same memory; what it answers with is a copy.
    """

    def __init__(
        self, backend: Backend, record: Record, size: int, weights: Tensor, x: Tensor, y: Tensor, index: Tensor
    ) -> None:
        self._weights = weights.new_zeros(size, weights.shape[1])
        self._index = index.new_zeros(size, index.shape[1])
        self._load(weights, index)

        def run() -> Results:
            return backend.gradients(self._weights, x, y, self._index)

        self._replay = record(run)

    def __call__(self, weights: Tensor, index: Tensor) -> Results:
        self._load(weights, index)
        gradients, losses = self._replay()
        return gradients[: len(weights)].clone(), losses[: len(weights)].clone()

    def _load(self, weights: Tensor, index: Tensor) -> None:
        self._weights[: len(weights)].copy_(weights)
        self._index[: len(index)].copy_(index)


def recorded(run: Call) -> Call:
    """`run` as a CUDA graph: what it answers with lies where it lay when it was recorded."""
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(WARM_UP):
            run()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=_pool()):
        results = run()

    def replay() -> Results:
        graph.replay()
        return results

    return replay


def _as_it_is(run: Call) -> Call:
    return run


def rounded_up(size: int) -> int:
    """The next of eight sizes an octave, so that a call grows by an eighth at most; up to 16 every size is one."""
    step = 1 << max(0, size.bit_length() - 4)
    return -(-size // step) * step


_POOLS: list[tuple[int, int]] = []


def _pool() -> tuple[int, int]:
    """The memory that all recordings share."""
    if not _POOLS:
        _POOLS.append(torch.cuda.graph_pool_handle())
    return _POOLS[0]
