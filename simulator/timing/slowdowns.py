"""Slowdowns and crashes of workers over time."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any, Protocol

from numpy.random import Generator

from laggard.simulator.errors import (
    InvalidSettingError,
    NonNegative,
    Positive,
    Ratio,
    Settings,
    bounded,
)
from laggard.simulator.timing.steps import StepFunction


class Slowdown(Protocol):
    """A factor on the compute times of some workers that is constant between moments."""

    def hits(self, rank: int) -> bool:
        """Whether worker `rank` is ever slowed."""
        ...

    def at(self, time: float) -> tuple[float, float]:
        """The factor at `time` (s), and the moment (s) until which it holds, which may be inf."""
        ...

    def bound(self, rng: Generator) -> "Slowdown":
        """The slowdown with its random moments drawn from `rng`; itself if it is not random."""
        ...


@dataclass(frozen=True)
class Group(Settings):
    """The workers that a slowdown or a crash affects.

    Attributes:
        worker: one rank.
        workers: several ranks instead, at the same moments.
    """

    worker: int | None = None
    workers: Sequence[int] = ()

    def __post_init__(self) -> None:
        if (self.worker is None) == (not self.workers):
            expected = "either one rank as worker, or ranks as workers"
            raise InvalidSettingError(type(self).__name__, "worker", expected, self.worker)
        for rank in self.ranks:
            if not isinstance(rank, int) or rank < 0:
                field = "workers" if self.workers else "worker"
                raise InvalidSettingError(type(self).__name__, field, "ranks >= 0", rank)
        super().__post_init__()

    @property
    def ranks(self) -> Sequence[int]:
        """The affected ranks."""
        if self.worker is None:
            return self.workers
        return (self.worker,)

    def hits(self, rank: int) -> bool:
        """Whether `rank` is affected."""
        return rank in self.ranks

    def bound(self, rng: Generator) -> Any:
        """The slowdown itself: its moments are not random."""
        return self


@dataclass(frozen=True)
class Factor(Group):
    """Workers that are always `factor` times as slow (0.5: twice as fast).

    Attributes:
        factor: the factor on their compute times.
    """

    _: KW_ONLY
    factor: Ratio

    def at(self, time: float) -> tuple[float, float]:
        return self.factor, math.inf


@dataclass(frozen=True)
class Window(Group):
    """Workers that are `factor` times as slow from `start` to `end`, and unchanged outside.

    Attributes:
        factor: the factor on their compute times.
        start: when the slowdown begins (s).
        end: when it ends (s), above `start`.
    """

    _: KW_ONLY
    factor: Ratio
    start: NonNegative
    end: float

    def __post_init__(self) -> None:
        super().__post_init__()
        bounded(self, "end", above=self.start)

    def at(self, time: float) -> tuple[float, float]:
        if time < self.start:
            return 1.0, self.start
        if time < self.end:
            return self.factor, self.end
        return 1.0, math.inf


@dataclass(frozen=True)
class Markov(Group):
    """Workers that are `factor` times as slow at random times: a two-state Markov chain.

    Each state, slow or normal, lasts for an exponential time of mean `slow_for` or `fast_for`. The
    chain starts in its stationary state, slow with probability p = slow_for / (slow_for +
    fast_for), so the mean speed is 1 - p + p / factor at every moment. With fast_for << slow_for it
    is `Factor`. Workers of one group are slow at the same moments.

    Source: Gilbert (1960), the two-state chain.

    Attributes:
        factor: the factor on their compute times in the slow state.
        slow_for: mean duration of the slow state (s).
        fast_for: mean duration of the normal state (s).
    """

    _: KW_ONLY
    factor: Ratio
    slow_for: Positive
    fast_for: Positive

    @property
    def speed(self) -> float:
        """The mean speed over time, as a fraction of full speed."""
        slow = self.slow_for / (self.slow_for + self.fast_for)
        return 1 - slow + slow / self.factor

    def at(self, time: float) -> tuple[float, float]:
        raise TypeError("the moments of a Markov slowdown are random: bind it to a stream first")

    def bound(self, rng: Generator) -> Slowdown:
        return MarkovPath(self, rng)


MIXING_PERIODS = 100_000
"""Mean periods of a chain after which its state is taken to be independent of the last one."""


class MarkovPath(StepFunction):
    """The random moments of a Markov slowdown, drawn up to the latest time asked for.

    `values` holds the factor of each state drawn so far, and `moments` its end.
    """

    __slots__ = ("_chain", "_rng", "_slow", "ranks")

    moments: list[float]
    values: list[float]

    def __init__(self, chain: Markov, rng: Generator) -> None:
        super().__init__([], [])
        self.ranks = chain.ranks
        self._chain, self._rng = chain, rng
        self._enter(self._draw_state(), 0.0)

    def hits(self, rank: int) -> bool:
        return rank in self.ranks

    def bound(self, rng: Generator) -> Slowdown:
        return self

    def at(self, time: float) -> tuple[float, float]:
        chain = self._chain
        if time - self.moments[-1] > MIXING_PERIODS * (chain.slow_for + chain.fast_for):
            # So long after the last change the state is independent of it: skip to `time` instead
            # of drawing every change before. The state that is skipped is never asked for.
            self.values.append(math.nan)
            self.moments.append(time)
            self._enter(self._draw_state(), time)
        while self.moments[-1] <= time:
            self._enter(not self._slow, self.moments[-1])
        return super().at(time)

    def _draw_state(self) -> bool:
        """Draw from the stationary distribution whether the chain is slow."""
        period = self._chain.slow_for + self._chain.fast_for
        return self._rng.random() * period < self._chain.slow_for

    def _enter(self, slow: bool, begin: float) -> None:
        """Enter a state at `begin` (s), and draw its end."""
        mean = self._chain.slow_for if slow else self._chain.fast_for
        factor = self._chain.factor if slow else 1.0
        self._slow = slow
        self.values.append(factor)
        self.moments.append(begin + self._rng.exponential(mean))


@dataclass(frozen=True)
class Crash(Group):
    """Workers that go down at `at` and return at `back` or never; work and messages are lost.

    A worker that returns keeps its model; its roles start again from their first lines.

    Attributes:
        at: when the workers go down (s).
        back: when they return (s), after `at`; null is never.
    """

    _: KW_ONLY
    at: NonNegative
    back: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.back is not None:
            bounded(self, "back", above=self.at)


def unite_crashes(crashes: Sequence[Crash]) -> list[Crash]:
    """One crash for each time that a worker is down: the union of intervals that touch or overlap.

    Example:
        >>> unite_crashes([Crash(0, at=2.0, back=4.0), Crash(0, at=0.0, back=2.0)])
        [Crash(worker=0, workers=(), at=0.0, back=4.0)]
    """
    by_rank: dict[int, list[Crash]] = {}
    for crash in crashes:
        for rank in crash.ranks:
            by_rank.setdefault(rank, []).append(crash)
    united: list[Crash] = []
    overlaps = False
    for rank, crashes_of_rank in by_rank.items():
        # Below every `at`, which may be 0.
        end = -1.0  # end of the last time down
        for crash in sorted(crashes_of_rank, key=lambda crash: crash.at):
            back = math.inf if crash.back is None else crash.back
            if crash.at > end:
                united.append(Crash(rank, at=crash.at, back=crash.back))
                end = back
                continue
            overlaps = True
            if back > end:
                last = united.pop()
                united.append(Crash(rank, at=last.at, back=crash.back))
                end = back
    if not overlaps:
        return list(crashes)  # as they are listed, which decides between crashes of one instant
    return united


@dataclass(frozen=True)
class Recorded:
    """The slowdowns and crashes of a recording: the same as a list of them, but found by bisection.

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

    @cached_property
    def by_worker(self) -> Mapping[int, StepFunction]:
        """The factor of each worker that is slowed."""
        windows: dict[int, list[Window]] = {}
        for row in self.rows:
            if isinstance(row, Window):
                for rank in row.ranks:
                    windows.setdefault(rank, []).append(row)
        return {rank: multiply_windows(rows) for rank, rows in windows.items()}

    def hits(self, rank: int) -> bool:
        """Whether worker `rank` is ever slowed."""
        return rank in self.by_worker

    def bound(self, rng: Generator) -> "Recorded":
        """The slowdown itself: its moments are not random."""
        return self


SLOWDOWNS: dict[str, type] = {"factor": Factor, "window": Window, "markov": Markov, "crash": Crash}


def multiply_windows(windows: Sequence[Window]) -> StepFunction:
    """The product of the factors of `windows`, over time."""
    moments = sorted({moment for window in windows for moment in (window.start, window.end)})
    place = {moment: index for index, moment in enumerate(moments)}
    factors = [1.0] * (len(moments) + 1)  # the first before all windows
    for window in windows:
        for index in range(place[window.start], place[window.end]):
            factors[index + 1] *= window.factor
    return StepFunction(moments, factors)


def apply_slowdowns(
    seconds: float, now: float, slowdowns: Sequence[Slowdown | StepFunction]
) -> float:
    """The time that work of `seconds` at full speed takes from `now` on, under all factors.

    The worker's speed is 1 / prod(factors), constant between the moments at which a factor changes:
    the work done is integrated from one such moment to the next.

    Raises:
        InvalidSettingError: a factor is not positive, or holds for no time.

    Example:
        >>> # 1 s at full speed, half a second's work in 2 s, and 0.5 s at full speed
        >>> apply_slowdowns(2.0, 0.0, [Window(0, factor=4.0, start=1.0, end=3.0)])
        3.5
    """
    if not slowdowns:
        return seconds
    time, left = now, seconds
    while True:
        factors, untils = zip(*(slowdown.at(time) for slowdown in slowdowns), strict=True)
        factor = float(math.prod(factors))
        until = float(min(untils))
        if not 0 < factor < math.inf or until <= time:  # a plugin's; else the loop would not end
            expected = "a positive factor that holds for a while"
            got = (factor, until)
            raise InvalidSettingError(repr(slowdowns), f"at({time})", expected, got)
        if left * factor <= until - time:
            return float(time - now + left * factor)
        left -= (until - time) / factor
        time = until
