"""Slowdowns and crashes as a table has them: any number of rows, found by bisection."""

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from numpy.random import Generator

from laggard.simulator.timing.slowdowns import Crash, Slowdown, Window


@dataclass(frozen=True)
class Piecewise:
    """A worker's factor that is constant between moments, and 1 before the first of them.

    Attributes:
        worker: its rank.
        moments: increasing (s).
        factors: from each moment to the next, the last one for ever.
    """

    worker: int
    moments: Sequence[float]
    factors: Sequence[float]

    def hits(self, rank: int) -> bool:
        return rank == self.worker

    def at(self, time: float) -> tuple[float, float]:
        passed = bisect_right(self.moments, time)
        if passed < len(self.moments):
            until = self.moments[passed]
        else:
            until = math.inf
        return self.factors[passed - 1] if passed else 1.0, until

    def bound(self, rng: Generator) -> Slowdown:
        return self


@dataclass(frozen=True)
class Recorded:
    """What happened to workers, one row after another: they act as the rows would, each on its own.

    Attributes:
        rows: windows, whose factors multiply where they overlap, and crashes.
    """

    rows: Sequence[Window | Crash]

    @property
    def crashes(self) -> list[Crash]:
        """The crashes among the rows."""
        return [row for row in self.rows if isinstance(row, Crash)]

    @property
    def ranks(self) -> list[int]:
        """The workers that the rows name."""
        return sorted({rank for row in self.rows for rank in row.ranks})

    @property
    def factor(self) -> float:
        """The least factor of any worker at any time."""
        return min([1.0, *(min(own.factors) for own in self.by_worker.values())])

    @cached_property
    def by_worker(self) -> Mapping[int, Piecewise]:
        """The factors of each worker that is slowed."""
        windows: dict[int, list[Window]] = {}
        for row in self.rows:
            if isinstance(row, Window):
                for rank in row.ranks:
                    windows.setdefault(rank, []).append(row)
        return {rank: _multiply(rank, own) for rank, own in windows.items()}

    def hits(self, rank: int) -> bool:
        """Whether worker `rank` is slowed at all."""
        return rank in self.by_worker

    def bound(self, rng: Generator) -> "Recorded":
        """Itself: its moments are not random."""
        return self


def _multiply(worker: int, windows: Sequence[Window]) -> Piecewise:
    """The product of the windows' factors, between the moments at which one begins or ends."""
    moments = sorted({moment for window in windows for moment in (window.start, window.end)})
    place = {moment: index for index, moment in enumerate(moments)}
    factors = [1.0] * len(moments)
    for window in windows:
        for index in range(place[window.start], place[window.end]):
            factors[index] *= window.factor
    return Piecewise(worker, moments, factors)
