"""Which backend computes a run's gradients: the one named, or the fastest in a trial."""

import math
from collections.abc import Callable, Mapping
from functools import partial
from time import perf_counter

import torch
from torch import Tensor, nn

from laggard.models.backends import BACKEND_NAMES
from laggard.models.backends.autograd import Loss
from laggard.models.backends.batched import Backend, Batched, Compiled
from laggard.models.backends.chunked import Chunked, CudaMemory
from laggard.models.backends.graphs import Graphs
from laggard.models.backends.threads import Threads
from laggard.models.backends.unfolded import Unfolded, unfoldable
from laggard.models.variants import Indexable

# calls that are not timed: the first measures memory, the second may be the first of its size
WARM_UP = 2
TIMED = 3  # calls
RACED = 4096  # models in a timed call at most
TOO_SLOW = 3.0  # times the best: not timed again
REUSED = 100  # calls that a recording is taken to serve


class Fastest:
    """For each size of call, the fastest of some backends.

    The first call of each size, in powers of two, is timed on all of them; the fastest then gets
    every call of that size. A backend that records calls is charged a hundredth of the seconds that
    its recording took. A backend that fails is not used. The choice may differ from run to run, and
    with it the last digits; `name` says which were chosen, and a backend named instead of "auto" is
    always used.

    Args:
        candidates: a function that makes each, by name; those not chosen are released.
        clock: seconds, read once the device has finished its work.

    Raises:
        torch.OutOfMemoryError: every candidate ran out of memory.
        RuntimeError: every candidate failed; this is the last one's error.
    """

    def __init__(
        self, candidates: Mapping[str, Callable[[], Backend]], clock: Callable[[], float]
    ) -> None:
        self._candidates, self._clock = candidates, clock
        self._backends: dict[str, Backend] = {}
        self._chosen: dict[tuple[int, int], str] = {}
        self._first = next(iter(candidates))
        self.lanes = self._get(self._first).lanes

    @property
    def name(self) -> str:
        """The backends chosen so far."""
        return ", ".join(sorted(set(self._chosen.values()))) or "auto"

    def gradients(
        self, weights: Tensor, x: Indexable, y: Indexable, index: Tensor
    ) -> tuple[Tensor, Tensor]:
        key = (len(weights).bit_length(), index.shape[1])
        if key not in self._chosen:
            rows = slice(RACED)
            self._chosen[key] = self._race(
                lambda backend: backend.gradients(weights[rows], x, y, index[rows])
            )
        return self._backends[self._chosen[key]].gradients(weights, x, y, index)

    def outputs(self, weights: Tensor, x: Tensor) -> Tensor:
        return self._backends[min(self._chosen.values(), default=self._first)].outputs(weights, x)

    def _race(self, call: Callable[[Backend], object]) -> str:
        """The name of the backend that takes the least time for `call`."""
        best, winner, failure = math.inf, "", None
        for name in self._candidates:
            try:
                backend = self._get(name)
                seconds = self._seconds(partial(call, backend), best)
                seconds += getattr(backend, "preparation", 0.0) / REUSED
            except Exception as error:  # a missing compiler, driver or library: try the others
                failure = error
                continue
            if seconds < best:
                best, winner = seconds, name
        if not winner:
            assert failure is not None
            raise failure
        self._backends = {name: self._backends[name] for name in {winner, *self._chosen.values()}}
        return winner

    def _seconds(self, call: Callable[[], object], best: float) -> float:
        """The least of a few times that `call` takes; fewer where it is far above the `best`."""
        for _ in range(WARM_UP):
            call()
        least = math.inf
        for _ in range(TIMED):
            start = self._clock()
            call()
            least = min(least, self._clock() - start)
            if least > TOO_SLOW * best:
                break
        return least

    def _get(self, name: str) -> Backend:
        if name not in self._backends:
            self._backends[name] = self._candidates[name]()
        return self._backends[name]


def synchronized_clock() -> float:
    """Seconds, read once the GPU has finished all kernels, which run asynchronously."""
    torch.cuda.synchronize()
    return perf_counter()


BATCHED: Mapping[str, Callable[[nn.Module, Loss], Backend]] = {
    "unfold": Unfolded,
    "vmap": Batched,
    "unfold-graphs": lambda module, loss: Graphs(Unfolded(module, loss)),
    "vmap-graphs": lambda module, loss: Graphs(Batched(module, loss)),
    "unfold-compile": lambda module, loss: Compiled(Unfolded(module, loss)),
    "vmap-compile": lambda module, loss: Compiled(Batched(module, loss)),
    "unfold-compile-graphs": lambda module, loss: Graphs(Compiled(Unfolded(module, loss))),
    "vmap-compile-graphs": lambda module, loss: Graphs(Compiled(Batched(module, loss))),
}
"""All models in one call, by name."""

RACING = ("unfold-graphs", "vmap-graphs", "unfold", "vmap")
"""What "auto" tries on a GPU; `torch.compile` would take minutes, and is used only if named."""


def choose(
    name: str,
    module: nn.Module,
    loss: Loss,
    device: torch.device,
    threads: int | None = None,
    chunk: int | None = None,
) -> Backend:
    """The backend called `name` for a module on `device`; "auto" is threads on a CPU, and on a GPU
    the fastest.

    Args:
        threads: of a CPU; None for one per core.
        chunk: models in one batched call at most; None for as many as fit into memory.

    Raises:
        ValueError: an unknown name, or the backend does not support the module.
    """
    if name not in BACKEND_NAMES:
        raise ValueError(
            f"backend = {name!r}: expected {', '.join(BACKEND_NAMES[:-1])} or {BACKEND_NAMES[-1]}"
        )
    on_gpu = device.type == "cuda"
    if name == "threads" or (name == "auto" and not on_gpu):
        return Threads(module, loss, threads)

    def made(name: str) -> Backend:
        return Chunked(BATCHED[name](module, loss), chunk, CudaMemory(device) if on_gpu else None)

    if name != "auto":
        return made(name)
    suited = [name for name in RACING if not name.startswith("unfold") or unfoldable(module)]
    return Fastest({name: partial(made, name) for name in suited}, synchronized_clock)
