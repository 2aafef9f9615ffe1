"""A link, and a message that crosses it."""

import math
from collections.abc import Callable, Iterable
from typing import Protocol

Passed = Callable[[float], None]
"""Told, once it is known, in how many seconds from now the last byte will have left the last link."""


class Flow:
    """A message under way: its bytes, the links it crosses, and whom to tell."""

    __slots__ = ("passed", "route", "size")

    def __init__(self, size: float, route: tuple["Link", ...], passed: Passed) -> None:
        self.size, self.route, self.passed = size, route, passed


class Rated(Flow):
    """A message at a rate, of those that share max-min fairly.

    Attributes:
        number: of messages that end together, the one sent first ends first.
        left: bytes still to pass, as of the moment `since` (s), at which its group last brought it up to date.
        group: what rates it.
        end: the moment (s), or the credit (bytes), at which it ends.
        rate, share, neck: in a `Web`, its bytes per second, what they are to be, and the full link that holds it.
        cap, bound: in a `Hub`, the bandwidth of the narrowest link that it has for itself, and whether that binds it.
    """

    __slots__ = ("bound", "cap", "end", "group", "left", "neck", "number", "rate", "share", "since")

    def __init__(self, number: int, size: float, route: tuple["Link", ...], passed: Passed) -> None:
        self.size, self.route, self.passed = size, route, passed
        self.number, self.left, self.since, self.end = number, size, 0.0, math.nan
        self.rate, self.share, self.cap, self.bound = 0.0, 0.0, math.inf, False
        self.neck: Link | None = None
        self.group: Group

    @property
    def narrowest(self) -> "Link":
        """The link of its route with the least bandwidth."""
        return min(self.route, key=lambda link: link.bandwidth)

    def enter(self) -> None:
        """It crosses its links from now on."""
        for link in self.route:
            link.flows[self] = None

    def leave(self) -> None:
        """It crosses its links no more."""
        for link in self.route:
            del link.flows[self]


class Group(Protocol):
    """Messages that are rated together, and depend on no message outside."""

    def join(self, flows: Iterable[Rated]) -> None:
        """`flows`, which are on their links already, have their bytes `left` to pass from now on."""
        ...

    def withdraw(self, flow: Rated) -> None:
        """`flow` leaves its links, and the others share them."""
        ...


class Link:
    """One direction of a card or a wire.

    Attributes:
        bandwidth: bytes per second, finite.
        free: the moment (s) at which a queue of messages will have passed; only `fifo` uses it.
        flows: the messages that cross it now; only `fair` uses it, as it does the rest.
        room, waiting: while rates are solved for, bandwidth that is not given yet and messages without a rate.
        level: the rate (bytes per second) at which it was full, if it was.
    """

    __slots__ = ("bandwidth", "flows", "free", "level", "room", "waiting")

    def __init__(self, bandwidth: float) -> None:
        self.bandwidth = self.room = bandwidth
        self.free, self.level, self.waiting = 0.0, math.inf, 0
        self.flows: dict[Rated, None] = {}


def slack(size: float, rate: float, now: float) -> float:
    """Bytes that are nothing but rounding, of a message of `size` bytes at `rate` and of the clock at `now`.

    Messages that end together but for rounding end together.
    """
    return 1e-12 * size + 4 * math.ulp(now) * rate
