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
    """A distribution of durations. `mean` and `std` are exact, in seconds; `draw` gives `(n,)`
    samples.

    Workers share the generator that `draw` is given, with a state of their own: it must not be
    kept.
    """

    @property
    def mean(self) -> float: ...
    @property
    def std(self) -> float: ...
    def draw(self, rng: np.random.Generator, n: int) -> Seconds: ...


def is_law(seconds: float | Distribution) -> TypeGuard[Distribution]:
    """Whether `seconds` are drawn, not a number."""
    return hasattr(seconds, "draw")


def mean_of(seconds: float | Distribution) -> float:
    """The mean of seconds that are a number or a law."""
    if is_law(seconds):
        return seconds.mean
    return cast(float, seconds)


def check_seconds(owner: object, *names: str) -> None:
    """Raise `InvalidSettingError` unless these fields of `owner` are each a law, or a number of
    seconds >= 0.
    """
    for name in names:
        if not is_law(getattr(owner, name)):
            bounded(owner, name, least=0, most=HUGE)


def on_a_machine(law: Distribution, rng: np.random.Generator) -> Distribution:
    """The distribution of one machine: `law.machine(rng)`, drawn from its stream, where machines
    differ permanently.
    """
    machine: Callable[[np.random.Generator], Distribution] | None = getattr(law, "machine", None)
    if machine:
        return machine(rng)
    return law


def of_worker(law: Distribution, rank: int) -> Distribution:
    """The distribution of one worker: `law.of_worker(rank)` where workers differ by what is known
    of each.
    """
    own: Callable[[int], Distribution] | None = getattr(law, "of_worker", None)
    # servers have no mini-batches
    if own and rank >= 0:
        return own(rank)
    return law


def check_workers(law: Distribution, workers: int) -> None:
    """Raise `InvalidSettingError` where `law.check_workers(workers)` does: it has nothing for one
    of the workers.
    """
    check: Callable[[int], None] | None = getattr(law, "check_workers", None)
    if check:
        check(workers)


@dataclass(frozen=True)
class Scaled(Settings):
    """Durations of `law`, each `factor` times as long: turns seconds per sample into seconds per
    mini-batch.
    """

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
        """One machine's own distribution, scaled likewise."""
        return Scaled(on_a_machine(self.law, rng), self.factor)

    def of_worker(self, rank: int) -> Distribution:
        """One worker's own distribution, scaled likewise."""
        return Scaled(of_worker(self.law, rank), self.factor)

    def check_workers(self, workers: int) -> None:
        """As `law` does."""
        check_workers(self.law, workers)


NONE_DRAWN = array("d")
# draws buffered per worker: more costs memory at 65,536 workers, fewer costs a numpy call each
BLOCK = 64


class Durations:
    """The stream of one node's durations: its machine first, then blocks of draws; raises at an
    invalid duration.

    Where the law has `of_worker(rank)`, as a trace with ranks, the durations are of that.
    """

    __slots__ = ("_block", "_law", "_rank", "_stream")

    def __init__(self, law: Distribution, stream: StoredStream, rank: int) -> None:
        law = of_worker(law, rank)
        if hasattr(law, "machine"):
            self._law = stream.draw(partial(on_a_machine, law))
        else:
            self._law = law
        self._stream, self._rank = stream, rank
        self._block = NONE_DRAWN  # the next one last

    def next(self) -> float:
        """The next duration in seconds.

        Raises:
            InvalidSettingError: the distribution drew a negative or non-finite duration.
        """
        if not self._block:
            drawn = self._stream.draw(lambda rng: self._law.draw(rng, BLOCK))
            if getattr(drawn, "shape", None) != (BLOCK,):
                raise InvalidSettingError(
                    repr(self._law), "draw", f"an array of {BLOCK} numbers, as asked for", drawn
                )
            self._block = array("d", drawn[::-1].astype(np.float64).tobytes())
        seconds = self._block.pop()
        # checked here too: making the error's text costs more than the draw
        if not 0.0 <= seconds < math.inf:
            check_duration(
                seconds,
                repr(self._law),
                f"draw for {'worker' if self._rank >= 0 else 'node'} {self._rank}",
            )
        return seconds
