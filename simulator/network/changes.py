"""Bandwidths and latencies that change over time, as rows that hold from one moment to another."""

import math
from collections.abc import Callable, Mapping, Sequence
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
from laggard.simulator.timing.steps import StepFunction

Rank = Annotated[int, Range(whole=True)]
Column = Literal["bandwidth", "latency"]
Pair = tuple[int | None, int | None]
"""The machines that send and receive; None is any."""


@dataclass(frozen=True)
class Change(Settings):
    """A bandwidth, a latency or both that replace the network's from one moment to another.

    With a sender and a receiver, it applies to the messages from one to the other, and its
    bandwidth is that of the pair's link: with `wiring: cards` a link that they cross besides the
    cards, with `wiring: pairs` their private link. With a sender alone, it applies to all messages
    from that node, and to its card's up link. With a receiver alone, it applies to all messages to
    that node, and to its card's down link. With neither, it applies to all messages and all cards.
    A private link is as fast as the slower of the two cards would be, also where those change.
    A server that is `colocated` with a worker has that worker's rows, also for its latency.

    Attributes:
        sender: a rank, -1 is the server; None is any.
        receiver: another rank, or None.
        start, end: the moments (s) between which it holds.
        bandwidth: the new bandwidth (bytes/s); 0 is an outage, in which bytes wait.
        latency: the latency (s) of the messages that are sent in that time.
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
            expected = "a rank other than the sender's"
            raise InvalidSettingError("Change", "receiver", expected, self.receiver)
        if self.bandwidth is None:
            if self.latency is None:
                expected = "a bandwidth or a latency, or both"
                raise InvalidSettingError("Change", "bandwidth", expected, None)
            return
        if not (self.bandwidth == 0 or 1e-9 <= self.bandwidth <= HUGE):
            expected = f"bytes per second, 0 or at least 1e-9 and at most {HUGE:g}"
            raise InvalidSettingError("Change", "bandwidth", expected, self.bandwidth)
        if self.bandwidth == 0 and self.end == math.inf:
            expected = "the moment at which the outage ends"
            raise InvalidSettingError("Change", "end", expected, self.end)


@dataclass(frozen=True)
class Changes:
    """The bandwidths and latencies of a network over time; outside of all rows, the network's own.

    Where several rows hold at once, the pair's row counts, else the sender's, else the receiver's,
    else the row for all nodes. Only rows of a pair change the values of that pair in `links`.

    Attributes:
        rows: the changes; no two rows with the same sender and receiver set a bandwidth, or a
            latency, at the same time.
    """

    rows: Sequence[Change] = field(repr=False)

    def error(self, index: int, name: str, expected: str) -> InvalidSettingError:
        """The error of the field `name` of a row."""
        got = getattr(self.rows[index], name)
        return InvalidSettingError("Network", f"changes.{index}.{name}", expected, got)

    def by_pair(
        self, column: Column, machine: Callable[[int], int]
    ) -> Mapping[Pair, Sequence[Change]]:
        """The rows of each pair of machines with a bandwidth, or a latency, sorted by their start.

        Args:
            machine: gives the machine of a rank.

        Raises:
            InvalidSettingError: two of them hold at the same time.
        """
        rows: dict[Pair, list[Change]] = {}
        for index, row in sorted(enumerate(self.rows), key=lambda item: item[1].start):
            if getattr(row, column) is None:
                continue
            sender = None if row.sender is None else machine(row.sender)
            receiver = None if row.receiver is None else machine(row.receiver)
            of_pair = rows.setdefault((sender, receiver), [])
            if of_pair and row.start < of_pair[-1].end:
                earliest = f"at least {of_pair[-1].end:g}"
                expected = f"{earliest}, when the {column} of the same messages before ends"
                raise self.error(index, "start", expected)
            of_pair.append(row)
        return rows

    def check(self, workers: int, sharing: str, machine: Callable[[int], int]) -> None:
        """Raise `InvalidSettingError` where a row does not fit the network.

        Args:
            sharing: the network's; queues (`fifo`) have constant bandwidths.
            machine: as in `by_pair`.
        """
        for index, row in enumerate(self.rows):
            for name in ("sender", "receiver"):
                rank = getattr(row, name)
                if rank is not None and not -workers <= rank < workers:
                    servers = f"or a server from -1 down to -{workers}"
                    raise self.error(index, name, f"a worker below workers = {workers}, {servers}")
            if row.bandwidth is not None and sharing != "fair":
                raise self.error(index, "bandwidth", "null: only sharing: fair changes bandwidths")
            if row.sender is None or row.receiver is None:
                continue
            if machine(row.sender) == machine(row.receiver):
                raise self.error(index, "receiver", "a node on another machine than the sender's")
        for column in ("bandwidth", "latency"):
            self.by_pair(column, machine)


def overlay(base: StepFunction, layers: Sequence[Sequence[Change]], column: Column) -> StepFunction:
    """`base`, replaced where rows hold by the value of the first of `layers` with such a row.

    Args:
        layers: rows of one pair each, as `Changes.by_pair` has them.
    """
    functions = [_value_of_rows(rows, column) for rows in layers]
    functions.append(base)
    moments = {moment for function in functions for moment in function.moments}

    def value(time: float) -> Any:
        values = (function.at(time)[0] for function in functions)
        return next(value for value in values if value is not None)

    return StepFunction.sample(moments, value)


def _value_of_rows(rows: Sequence[Change], column: Column) -> StepFunction:
    """The value over time of the row that holds; None between rows."""
    moments, values = list[float](), [None]
    for row in rows:
        if moments and moments[-1] == row.start:  # the row follows the last one without a gap
            values.pop()
        else:
            moments.append(row.start)
        values.append(getattr(row, column))
        if row.end < math.inf:
            moments.append(row.end)
            values.append(None)
    return StepFunction(moments, values)


def lowest(one: StepFunction, other: StepFunction) -> StepFunction:
    """The lower of the two at each moment."""
    moments = {*one.moments, *other.moments}
    return StepFunction.sample(moments, lambda time: min(one.at(time)[0], other.at(time)[0]))
