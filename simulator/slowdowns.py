"""What makes a worker slower than its law says, over time."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from simulator.bounds import Invalid, bounded


class Slowdown(Protocol):
    """A factor on a worker's durations that is constant between moments."""

    def hits(self, rank: int) -> bool:
        """Whether worker `rank` is slowed at all."""
        ...

    def at(self, time: float) -> tuple[float, float]:
        """The factor at `time` (s) and the moment until which it holds (s, may be infinite)."""
        ...


@dataclass(frozen=True)
class Factor:
    """A worker that is always `factor` times as slow (0.5: twice as fast)."""

    worker: int
    factor: float

    def __post_init__(self) -> None:
        bounded(self, "worker", least=0, whole=True)
        bounded(self, "factor", above=0)

    def hits(self, rank: int) -> bool:
        return rank == self.worker

    def at(self, time: float) -> tuple[float, float]:
        return self.factor, math.inf


@dataclass(frozen=True)
class Window:
    """A worker that is `factor` times as slow from `start` to `end` (s), and as its law says outside."""

    worker: int
    factor: float
    start: float
    end: float

    def __post_init__(self) -> None:
        bounded(self, "worker", least=0, whole=True)
        bounded(self, "factor", above=0)
        bounded(self, "start", least=0)
        bounded(self, "end", above=self.start)

    def hits(self, rank: int) -> bool:
        return rank == self.worker

    def at(self, time: float) -> tuple[float, float]:
        if time < self.start:
            return 1.0, self.start
        return (self.factor, self.end) if time < self.end else (1.0, math.inf)


SLOWDOWNS: dict[str, type] = {"factor": Factor, "window": Window}


def stretched(seconds: float, now: float, slowdowns: Sequence[Slowdown]) -> float:
    """How long work of `seconds` at full speed takes from `now` on, with the slowdowns' factors multiplied.

    The worker's speed is 1 / prod(factors), constant between the moments at which a factor changes:
    the work done is integrated from one such moment to the next.

    Example:
        >>> stretched(2.0, 0.0, [Window(worker=0, factor=4.0, start=1.0, end=3.0)])  # 1 s, then 0.5 in 2 s, then 0.5
        3.5
    """
    if not slowdowns:
        return seconds
    time, left = now, seconds
    while True:
        factors, untils = zip(*(slowdown.at(time) for slowdown in slowdowns), strict=True)
        factor, until = float(math.prod(factors)), float(min(untils))
        if not 0 < factor < math.inf or until <= time:
            raise Invalid(repr(slowdowns), f"at({time})", "a positive factor that holds for a while", (factor, until))
        if left * factor <= until - time:
            return float(time - now + left * factor)
        left -= (until - time) / factor
        time = until
