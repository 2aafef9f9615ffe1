"""The protocol of a distribution of durations, and how a worker draws from it."""

import math
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Protocol, TypeGuard, cast

import numpy as np
from numpy.typing import NDArray

from laggard.simulator.errors import (
    HUGE,
    InvalidSettingError,
    Positive,
    Range,
    Settings,
    bounded,
    check_duration,
)
from laggard.simulator.timing.streams import StoredStream

Seconds = NDArray[np.float64]
Variation = Annotated[float, Range(least=1e-6, most=100)]
"""A coefficient of variation: standard deviation over mean."""


class Distribution(Protocol):
    """A distribution of durations: exact `mean` and `std` (s), and `draw` of samples `(n,)`.

    Do not store the generator that `draw` gets. All workers share this object, and before each draw
    it is set to the state of the calling worker. So a law whose draws depend on earlier ones has a
    method `machine(rng)` too: it is called once for each worker, and returns the distribution that
    this worker alone draws from. A law with another distribution for each rank has `of_worker(rank)`.
    """

    @property
    def mean(self) -> float: ...
    @property
    def std(self) -> float: ...
    def draw(self, rng: np.random.Generator, n: int) -> Seconds: ...


def is_law(seconds: float | Distribution) -> TypeGuard[Distribution]:
    """Whether `seconds` is a distribution, not a number."""
    return hasattr(seconds, "draw")


def mean_of(seconds: float | Distribution) -> float:
    """The mean of a duration that is a number or a distribution."""
    if is_law(seconds):
        return seconds.mean
    return cast(float, seconds)


def check_seconds(owner: object, *names: str) -> None:
    """Raise `InvalidSettingError` unless these fields of `owner` are laws, or seconds >= 0."""
    for name in names:
        if not is_law(getattr(owner, name)):
            bounded(owner, name, least=0, most=HUGE)


def on_a_machine(law: Distribution, rng: np.random.Generator) -> Distribution:
    """The distribution of one machine: `law.machine(rng)` where machines differ permanently."""
    machine: Callable[[np.random.Generator], Distribution] | None = getattr(law, "machine", None)
    if machine:
        return machine(rng)
    return law


def of_worker(law: Distribution, rank: int) -> Distribution:
    """The distribution of one worker: `law.of_worker(rank)` where the law has one for each."""
    by_rank: Callable[[int], Distribution] | None = getattr(law, "of_worker", None)
    if by_rank and rank >= 0:  # servers have no mini-batches
        return by_rank(rank)
    return law


def is_same_for_all(law: Distribution) -> bool:
    """Whether all workers have this distribution, whatever machines they are on."""
    return of_worker(on_a_machine(law, np.random.default_rng(0)), 0) == law


def check_workers(law: Distribution, workers: int) -> None:
    """Raise `InvalidSettingError` where the law has no durations for one of the workers."""
    check: Callable[[int], None] | None = getattr(law, "check_workers", None)
    if check:
        check(workers)


@dataclass(frozen=True)
class Scaled(Settings):
    """Durations of `law`, each `factor` times as long, as for mini-batches instead of samples."""

    law: Distribution
    factor: Positive

    @property
    def mean(self) -> float:
        return self.factor * self.law.mean

    @property
    def std(self) -> float:
        return self.factor * self.law.std

    def draw(self, rng: np.random.Generator, n: int) -> Seconds:
        return self.factor * self.law.draw(rng, n)

    def machine(self, rng: np.random.Generator) -> Distribution:
        """One machine's distribution, scaled by `factor`."""
        return Scaled(on_a_machine(self.law, rng), self.factor)

    def of_worker(self, rank: int) -> Distribution:
        """One worker's distribution, scaled by `factor`."""
        return Scaled(of_worker(self.law, rank), self.factor)

    def check_workers(self, workers: int) -> None:
        """Raise as `law` does."""
        check_workers(self.law, workers)


NO_DRAWS = array("d")  # shared by all nodes until their first draw; never filled
# Draws buffered per node: more would cost memory at 65,536 workers, fewer a call of numpy each.
# Another size gives other numbers to laws that draw several arrays a block.
BLOCK = 64


class Durations:
    """The stream of one node's durations: its machine first, then blocks of draws.

    Where the law has `of_worker(rank)`, such as a trace with ranks, durations come from that.
    """

    __slots__ = ("_block", "_law", "_rank", "_stream")

    def __init__(self, law: Distribution, stream: StoredStream, rank: int) -> None:
        law = of_worker(law, rank)
        if hasattr(law, "machine"):
            self._law = stream.draw(partial(on_a_machine, law))
        else:
            self._law = law
        self._stream, self._rank = stream, rank
        self._block = NO_DRAWS  # the next one last

    def next(self) -> float:
        """The next duration in seconds.

        Raises:
            InvalidSettingError: the distribution drew a negative or non-finite duration.
        """
        if not self._block:
            drawn = self._stream.draw(lambda rng: self._law.draw(rng, BLOCK))
            if not _is_block(drawn):
                expected = f"an array of {BLOCK} real numbers, as asked for"
                got = type(drawn).__name__
                if isinstance(drawn, np.ndarray):
                    got = f"an array {drawn.shape} of {drawn.dtype}"
                raise InvalidSettingError(repr(self._law), "draw", expected, got)
            self._block = array("d", drawn[::-1].astype(np.float64).tobytes())
        seconds = self._block.pop()
        # Checked here too: the text of the error costs more than the draw.
        if not 0.0 <= seconds < math.inf:
            node = "worker" if self._rank >= 0 else "node"
            check_duration(seconds, repr(self._law), f"draw for {node} {self._rank}")
        return seconds


def _is_block(drawn: object) -> bool:
    """Whether `drawn` is an array of as many real numbers as `Durations` asks for."""
    if not isinstance(drawn, np.ndarray) or drawn.shape != (BLOCK,):
        return False
    return drawn.dtype.kind in "fiu"
