"""A link, and a message that crosses it."""

import math
from collections.abc import Callable
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
        left: bytes still to pass, as of the moment at which its group brought it up to date.
        group: the messages that it is connected to through links they share, itself included.
        rate: bytes per second; where its group is a `Web`.
        cap, bound, end: where its group is a `Hub`.
    """

    __slots__ = ("bound", "cap", "end", "group", "left", "number", "rate")

    def __init__(self, number: int, size: float, route: tuple["Link", ...], passed: Passed) -> None:
        self.size, self.route, self.passed = size, route, passed
        self.number, self.left = number, size
        self.rate, self.cap, self.bound, self.end = 0.0, math.inf, False, math.inf
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
    """Messages connected through links they share: their rates depend on one another and on nobody else's."""

    def __len__(self) -> int: ...

    def withdraw(self, flow: Rated) -> None:
        """`flow` leaves its links, and the others share them."""
        ...

    def dissolve(self) -> list[Rated]:
        """The messages, each with the bytes `left` now; the group is no more."""
        ...


class Link:
    """One direction of a card or a wire.

    Attributes:
        bandwidth: bytes per second, finite.
        free: the moment (s) at which a queue of messages will have passed; only `fifo` uses it.
        flows: the messages that cross it now; only `fair` uses it, as it does `room` and `waiting`: while rates are
            solved for, the bandwidth that is not given yet and how many messages have no rate yet.
    """

    __slots__ = ("bandwidth", "flows", "free", "room", "waiting")

    def __init__(self, bandwidth: float) -> None:
        self.bandwidth = self.room = bandwidth
        self.free, self.waiting = 0.0, 0
        self.flows: dict[Rated, None] = {}


def slack(size: float, rate: float, now: float) -> float:
    """Bytes that are nothing but rounding, of a message of `size` bytes at `rate` and of the clock at `now`.

    Messages that end together but for rounding end together.
    """
    return 1e-12 * size + 4 * math.ulp(now) * rate
