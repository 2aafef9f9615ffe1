"""The fastest of several backends, found by trying."""

import math
from collections.abc import Callable, Mapping
from functools import partial
from time import perf_counter

import torch
from torch import Tensor

from models.backends.backend import Backend

WARM_UP = 2  # calls that are not timed: the first measures memory, the second may be the first of its size
TIMED = 3  # calls
RACED = 4096  # models in a timed call at most
HOPELESS = 3.0  # times the best: not tried again


class Fastest:
    """Whichever of several backends takes the gradients of a call's size fastest.

    The first call of each size, in powers of two, is given to all of them, for a moment; then the fastest has it, and
    all others of its size. One that fails is out of the race. Which one wins may differ from run to run, and with it
    the last digits; `name` says who won, and naming a backend instead of "auto" makes that certain.

    Args:
        candidates: what makes each, by name; those that lose a race are forgotten.
        clock: seconds, once all that was asked of the device is done.

    Raises:
        torch.OutOfMemoryError: memory is too short for every candidate.
        RuntimeError: every candidate failed, the last one with this.
    """

    def __init__(self, candidates: Mapping[str, Callable[[], Backend]], clock: Callable[[], float]) -> None:
        self._candidates, self._clock = candidates, clock
        self._kept: dict[str, Backend] = {}
        self._chosen: dict[tuple[int, int], str] = {}
        self._first = next(iter(candidates))
        self.lanes = self._made(self._first).lanes

    @property
    def name(self) -> str:
        """The winners so far."""
        return ", ".join(sorted(set(self._chosen.values()))) or "auto"

    def gradients(self, weights: Tensor, x: Tensor, y: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        key = (len(weights).bit_length(), index.shape[1])
        if key not in self._chosen:
            rows = slice(RACED)
            self._chosen[key] = self._race(lambda backend: backend.gradients(weights[rows], x, y, index[rows]))
        return self._kept[self._chosen[key]].gradients(weights, x, y, index)

    def outputs(self, weights: Tensor, x: Tensor) -> Tensor:
        return self._kept[min(self._chosen.values(), default=self._first)].outputs(weights, x)

    def _race(self, call: Callable[[Backend], object]) -> str:
        """The name of the backend that does `call` in the least time."""
        best, winner, failure = math.inf, "", None
        for name in self._candidates:
            try:
                seconds = self._seconds(partial(call, self._made(name)), best)
            except Exception as error:  # a compiler, a driver or a library that is not there: others may do
                failure = error
                continue
            if seconds < best:
                best, winner = seconds, name
        if not winner:
            assert failure is not None
            raise failure
        self._kept = {name: self._kept[name] for name in {winner, *self._chosen.values()}}
        return winner

    def _seconds(self, call: Callable[[], object], best: float) -> float:
        """The least time that `call` takes, of a few times unless it is hopelessly beyond the `best`."""
        for _ in range(WARM_UP):
            call()
        least = math.inf
        for _ in range(TIMED):
            start = self._clock()
            call()
            least = min(least, self._clock() - start)
            if least > HOPELESS * best:
                break
        return least

    def _made(self, name: str) -> Backend:
        if name not in self._kept:
            self._kept[name] = self._candidates[name]()
        return self._kept[name]


def settled() -> float:
    """Seconds, once the GPU has done what it was told: kernels run on while Python goes ahead."""
    torch.cuda.synchronize()
    return perf_counter()
