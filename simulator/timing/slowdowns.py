"""Slowdowns and crashes of workers over time."""

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
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


class Slowdown(Protocol):
    """A factor on the durations of some workers that is constant between moments."""

    def hits(self, rank: int) -> bool:
        """Whether worker `rank` is slowed at all."""
        ...

    def at(self, time: float) -> tuple[float, float]:
        """The factor at `time` (s) and the moment until which it holds (s, may be infinite)."""
        ...

    def bound(self, rng: Generator) -> "Slowdown":
        """The slowdown with its random moments drawn from `rng`; itself if it is not random."""
        ...


@dataclass(frozen=True)
class Group(Settings):
    """The worker, or the workers together, that are affected.

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
        """Whether `rank` is among them."""
        return rank in self.ranks

    def bound(self, rng: Generator) -> Any:
        """Itself: its moments are not random."""
        return self


@dataclass(frozen=True)
class Factor(Group):
    """Workers that are always `factor` times as slow (0.5: twice as fast).

    Attributes:
        factor: how many times as long their mini-batches take.
    """

    _: KW_ONLY
    factor: Ratio

    def at(self, time: float) -> tuple[float, float]:
        return self.factor, math.inf


@dataclass(frozen=True)
class Window(Group):
    """Workers that are `factor` times as slow from `start` to `end` (s), and unchanged outside.

    Attributes:
        factor: how many times as long their mini-batches take meanwhile.
        start: when it begins (s).
        end: when it is over (s), above `start`.
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
            return (self.factor, self.end)
        return (1.0, math.inf)


@dataclass(frozen=True)
class Markov(Group):
    """Workers that are `factor` times as slow at random times: a Markov chain with two states, slow
    and normal.

    Either state lasts for an exponential time, of mean `slow_for` or `fast_for` (s), and the chain
    starts in its stationary state, slow with probability p = slow_for / (slow_for + fast_for): the
    mean speed is 1 - p + p / factor at every moment. With fast_for << slow_for it is `Factor`.
    Workers of one group are slow at the same moments.

    Source: Gilbert (1960), the two-state chain.

    Attributes:
        factor: how many times as long their mini-batches take while they are slow.
        slow_for: mean time that they are slow (s).
        fast_for: mean time that they are not (s).
    """

    _: KW_ONLY
    factor: Ratio
    slow_for: Positive
    fast_for: Positive

    @property
    def speed(self) -> float:
        """The mean speed, 1 where nothing is slow."""
        slow = self.slow_for / (self.slow_for + self.fast_for)
        return 1 - slow + slow / self.factor

    def at(self, time: float) -> tuple[float, float]:
        raise TypeError("the moments of a Markov slowdown are random: bind it to a stream first")

    def bound(self, rng: Generator) -> Slowdown:
        return Path(self, rng)


FORGOTTEN = 100_000
"""Mean periods of a chain after which its state is taken to be independent of the last one."""


class Path:
    """The random moments of a Markov slowdown, drawn as far as needed."""

    def __init__(self, chain: Markov, rng: Generator) -> None:
        self._chain, self._rng = chain, rng
        self._slow_first = self._draw_state()
        self._changes = [0.0]
        self.ranks = chain.ranks
        self._draw()

    def hits(self, rank: int) -> bool:
        return rank in self.ranks

    def at(self, time: float) -> tuple[float, float]:
        if time - self._changes[-1] > FORGOTTEN * (self._chain.slow_for + self._chain.fast_for):
            self._skip(time)
        while self._changes[-1] <= time:
            self._draw()
        passed = bisect_right(self._changes, time)
        return self._chain.factor if self._is_slow(passed) else 1.0, self._changes[passed]

    def bound(self, rng: Generator) -> Slowdown:
        return self

    def _skip(self, time: float) -> None:
        """Enter the stationary state at `time`: so long after the last change, the state does not
        depend on it.
        """
        slow = self._draw_state()
        self._changes.append(time)
        if self._is_slow(len(self._changes)) != slow:
            self._changes.append(time)

    def _draw_state(self) -> bool:
        """Whether the chain is slow, in its stationary state."""
        return (
            self._rng.random() * (self._chain.slow_for + self._chain.fast_for)
            < self._chain.slow_for
        )

    def _is_slow(self, number: int) -> bool:
        """Whether the chain is slow in its `number`-th state, from 1."""
        return (number % 2 == 1) == self._slow_first

    def _draw(self) -> None:
        """Draw the end of the last state."""
        slow = self._is_slow(len(self._changes))
        mean = self._chain.slow_for if slow else self._chain.fast_for
        self._changes.append(self._changes[-1] + self._rng.exponential(mean))


@dataclass(frozen=True)
class Crash(Group):
    """Workers that go down at `at` (s) and return at `back` or never; their work and messages are
    lost.

    A worker that returns has the model that it had, and its roles start anew.

    Attributes:
        at: when they go down (s).
        back: when they return (s), after `at`; null is never.
    """

    _: KW_ONLY
    at: NonNegative
    back: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.back is not None:
            bounded(self, "back", above=self.at)


SLOWDOWNS: dict[str, type] = {"factor": Factor, "window": Window, "markov": Markov, "crash": Crash}


def apply_slowdowns(seconds: float, now: float, slowdowns: Sequence[Slowdown]) -> float:
    """How long work of `seconds` at full speed takes from `now` on, with the slowdowns' factors
    multiplied.

    The worker's speed is 1 / prod(factors), constant between the moments at which a factor changes:
    the work done is integrated from one such moment to the next.

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
        factor, until = float(math.prod(factors)), float(min(untils))
        if not 0 < factor < math.inf or until <= time:
            raise InvalidSettingError(
                repr(slowdowns),
                f"at({time})",
                "a positive factor that holds for a while",
                (factor, until),
            )
        if left * factor <= until - time:
            return float(time - now + left * factor)
        left -= (until - time) / factor
        time = until
