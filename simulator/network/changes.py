"""Bandwidths and latencies that change over time: rows, which hold from one moment to another, and
step functions.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from laggard.simulator.errors import (
    HUGE,
    InvalidSettingError,
    NonNegative,
    Range,
    Settings,
    bounded,
)

Rank = Annotated[int, Range(whole=True)]
Column = Literal["bandwidth", "latency"]
Pair = tuple[int | None, int | None]
"""The machines that send and receive; None is any."""


@dataclass(frozen=True)
class Change(Settings):
    """A bandwidth, a latency or both that hold from one moment to another instead of the network's
    own.

    With a sender and a receiver it is of the messages between these two, and its bandwidth is that
    of the pair's link:
    with `wiring: cards` a link that they cross besides the cards, with `wiring: pairs` their
    private one. With a sender alone it is of what that node sends, and its bandwidth that of the
    card's up link; with a receiver alone of what that node receives, on the down link; with neither
    of all messages and cards. A private link is as fast as the slower of the two cards would be,
    also where those change.

    Attributes:
        sender: a rank, -1 is the server; None is any.
        receiver: another rank, or None.
        start, end: the moments (s) between which it holds.
        bandwidth: in bytes per second; 0 is an outage, in which bytes wait.
        latency: of the messages that are sent meanwhile, in seconds.
    """

    sender: Rank | None = None
    receiver: Rank | None = None
    start: NonNegative = 0.0
    end: float = math.inf
    bandwidth: float | None = None
    latency: NonNegative | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.end != math.inf:
            bounded(self, "end", above=self.start)
        if self.sender is not None and self.sender == self.receiver:
            raise InvalidSettingError(
                "Change", "receiver", "a rank other than the sender's", self.receiver
            )
        if self.bandwidth is None and self.latency is None:
            raise InvalidSettingError(
                "Change", "bandwidth", "a bandwidth or a latency, or both", None
            )
        if self.bandwidth is None:
            return
        if not (self.bandwidth == 0 or 1e-9 <= self.bandwidth <= HUGE):
            expected = f"bytes per second, 0 or at least 1e-9 and at most {HUGE:g}"
            raise InvalidSettingError("Change", "bandwidth", expected, self.bandwidth)
        if self.bandwidth == 0 and self.end == math.inf:
            raise InvalidSettingError(
                "Change", "end", "the moment at which the outage ends", self.end
            )


@dataclass(frozen=True, eq=False)  # as a key of a cache, quickly
class StepFunction:
    """A value that is constant between moments.

    Attributes:
        moments: increasing (s).
        values: before the first moment, from each to the next, and from the last on for ever.
    """

    moments: Sequence[float]
    values: Sequence[Any]

    @classmethod
    def of(cls, moments: Iterable[float], value: Callable[[float], Any]) -> "StepFunction":
        """`value` from 0 s on, which changes at none but these `moments`."""
        kept, values = list[float](), [value(0.0)]
        for moment in sorted(set(moments)):
            if moment > 0 and (found := value(moment)) != values[-1]:
                kept.append(moment)
                values.append(found)
        return cls(kept, values)

    def at(self, time: float) -> Any:
        """The value at `time` (s)."""
        return self.values[bisect_right(self.moments, time)]

    def until(self, time: float) -> float:
        """The moment (s) up to which the value at `time` holds, may be infinite."""
        passed = bisect_right(self.moments, time)
        if passed < len(self.moments):
            return self.moments[passed]
        return math.inf

    def since(self, time: float) -> float:
        """The moment (s) from which on the value just before `time` has held, may be minus
        infinity.
        """
        passed = bisect_right(self.moments, time)
        passed -= passed > 0 and self.moments[passed - 1] == time
        if passed:
            return self.moments[passed - 1]
        return -math.inf


def overlay(base: StepFunction, layers: Sequence[Sequence[Change]], column: Column) -> StepFunction:
    """`base`, and where rows hold what the first of `layers` says that has one; a layer's rows are
    sorted and apart.
    """
    starts = [[row.start for row in rows] for rows in layers]

    def value(time: float) -> Any:
        for rows, begun in zip(layers, starts, strict=True):
            passed = bisect_right(begun, time)
            if passed and time < rows[passed - 1].end:
                return getattr(rows[passed - 1], column)
        return base.at(time)

    moments = {
        moment
        for rows in layers
        for row in rows
        for moment in (row.start, row.end)
        if moment < math.inf
    }
    return StepFunction.of(moments.union(base.moments), value)


def lowest(one: StepFunction, other: StepFunction) -> StepFunction:
    """The lower of the two at each moment."""
    moments = {*one.moments, *other.moments}
    if one is other:
        return one
    return StepFunction.of(moments, lambda time: min(one.at(time), other.at(time)))


@dataclass(frozen=True)
class Changes:
    """What a network's bandwidths and latencies are over time; outside of all rows, what the
    network says.

    Of rows that hold at once that of the pair counts, else the sender's, else the receiver's, else
    that of all. What `links` says of a pair is changed by rows of that pair alone.

    Attributes:
        rows: of those with the same sender and receiver, no two give a bandwidth, or a latency, at
            once.
    """

    rows: Sequence[Change] = field(repr=False)

    def error(self, index: int, name: str, expected: str) -> InvalidSettingError:
        """What to raise where the field `name` of a row does not fit."""
        return InvalidSettingError(
            "Network", f"changes.{index}.{name}", expected, getattr(self.rows[index], name)
        )

    def by_pair(
        self, column: Column, machine: Callable[[int], int]
    ) -> Mapping[Pair, Sequence[Change]]:
        """The rows with a bandwidth, or a latency, of each pair of machines, sorted by their start.

        Args:
            machine: from a rank to the machine that it stands on.

        Raises:
            InvalidSettingError: two of them hold at once.
        """
        found: dict[Pair, list[int]] = {}
        for index in sorted(range(len(self.rows)), key=lambda index: self.rows[index].start):
            row = self.rows[index]
            if getattr(row, column) is None:
                continue
            sender, receiver = (
                None if rank is None else machine(rank) for rank in (row.sender, row.receiver)
            )
            own = found.setdefault((sender, receiver), [])
            if own and row.start < self.rows[own[-1]].end:
                end = f"{self.rows[own[-1]].end:g}"
                raise self.error(
                    index,
                    "start",
                    f"at least {end}, when the {column} of the same messages before ends",
                )
            own.append(index)
        return {pair: [self.rows[index] for index in own] for pair, own in found.items()}

    def check(self, workers: int, machine: Callable[[int], int]) -> None:
        """Raise `InvalidSettingError` where a row names no node of so many workers, or one machine
        twice.

        Args:
            machine: as in `by_pair`.
        """
        for index, row in enumerate(self.rows):
            for name in ("sender", "receiver"):
                rank = getattr(row, name)
                if rank is not None and not -workers <= rank < workers:
                    expected = (
                        f"a worker below workers = {workers}, or a server from -1 down to "
                        f"-{workers}"
                    )
                    raise self.error(index, name, expected)
            if row.sender is None or row.receiver is None:
                continue
            if machine(row.sender) == machine(row.receiver):
                raise self.error(index, "receiver", "a node on another machine than the sender's")
        for column in ("bandwidth", "latency"):
            self.by_pair(column, machine)
