"""Two ways in which the messages under way share the links they cross: queues, and max-min fairness."""

import itertools
from collections.abc import Callable, Iterable
from typing import cast

from simpy.events import Event

from simulator.bounds import duration
from simulator.clock import Clock

Passed = Callable[[float], None]
"""Told, once it is known, in how many seconds from now the last byte will have left the last link."""


class Link:
    """One direction of a card or a wire.

    Attributes:
        bandwidth: bytes per second, finite.
        free: the moment (s) at which a queue of messages will have passed; only `fifo` uses it.
        flows: the messages that cross it now; only `fair` uses it.
    """

    __slots__ = ("bandwidth", "flows", "free")

    def __init__(self, bandwidth: float) -> None:
        self.bandwidth = bandwidth
        self.free = 0.0
        self.flows: dict[Rated, None] = {}


def call_in(env: Clock, delay: float, call: Callable[[], None]) -> Event:
    """Call `call()` after `delay` seconds; void the event, and it is not called."""
    event = env.timeout(duration(delay, "Network", "bytes over bandwidth"))
    cast(list[Callable[[Event], None]], event.callbacks).append(lambda _: call())
    return event


class Flow:
    """A message under way: its bytes, the links it crosses, whom to tell, and the event that takes it on, if any."""

    __slots__ = ("passed", "route", "size", "timer")

    def __init__(self, size: float, route: tuple[Link, ...], passed: Passed) -> None:
        self.size, self.route, self.passed = size, route, passed
        self.timer: Event | None = None


class FifoSharing:
    """Each link serves whole messages in order of arrival at that link, cut-through.

    The head of a message reaches the next link as soon as this one begins to serve it, or, where the next is the
    faster one, as late as its tail allows: a slow sender does not hold a fast receiver's link. The tail leaves a link
    no earlier than it has left the one before. A busy down link does not hold the up link.
    """

    def __init__(self, env: Clock) -> None:
        self._env = env

    def carry(self, size: float, route: tuple[Link, ...], passed: Passed) -> Flow:
        flow = Flow(size, route, passed)
        self._enter(flow, 0, self._env.now)
        return flow

    def withdraw(self, flow: Flow) -> None:
        """It enters no further link; the time that it was given on those before stays reserved."""
        if flow.timer is not None:
            self._env.void(flow.timer)

    def _enter(self, flow: Flow, hop: int, tail: float) -> None:
        """The head is at link `hop`; the tail left the link before at `tail`."""
        now, link, flow.timer = self._env.now, flow.route[hop], None
        begin = max(now, link.free)
        link.free = tail = max(begin + flow.size / link.bandwidth, tail)
        if hop + 1 == len(flow.route):
            flow.passed(tail - now)
            return
        after = flow.route[hop + 1].bandwidth
        if after > link.bandwidth:
            begin = max(begin, tail - flow.size / after)
        if begin == now:
            self._enter(flow, hop + 1, tail)
        else:
            flow.timer = call_in(self._env, begin - now, lambda: self._enter(flow, hop + 1, tail))


class Rated(Flow):
    """A message at a rate: bytes left as of moment `since`, and bytes per second from then on.

    The first to pass of those connected has the timer.
    """

    __slots__ = ("left", "number", "rate", "since")

    def __init__(self, number: int, size: float, route: tuple[Link, ...], now: float, passed: Passed) -> None:
        super().__init__(size, route, passed)
        self.number = number  # of those that end together, the one sent first ends first
        self.left, self.since, self.rate = size, now, 0.0


class FairSharing:
    """Messages under way share the links max-min fairly at every moment: the fluid model.

    Progressive filling: every message's rate grows alike until a link is full; its messages keep their rate
    and the others grow on. When a message comes or goes, only the messages connected to it through shared
    links are rated anew.

    Source: Bertsekas & Gallager, Data Networks, section 6.5.2; SimGrid's CM02 with all factors 1.
    """

    def __init__(self, env: Clock) -> None:
        self._env = env
        self._numbers = itertools.count()

    def carry(self, size: float, route: tuple[Link, ...], passed: Passed) -> Flow:
        flow = Rated(next(self._numbers), size, route, self._env.now, passed)
        for link in route:
            link.flows[flow] = None
        self._rate(connected(flow.route))
        return flow

    def withdraw(self, flow: Flow) -> None:
        """It leaves its links, and the rest shares them."""
        assert isinstance(flow, Rated)
        self._leave(connected(flow.route), [flow])

    def _rate(self, flows: list[Rated]) -> None:
        """Bring `flows`, a connected component, to now, rate them anew and arm a timer for the first to pass."""
        now = self._env.now
        for flow in flows:
            flow.left = max(flow.left - flow.rate * (now - flow.since), 0.0)
            flow.since = now
            self._disarm(flow)
        fill(flows)
        first = min(flows, key=lambda flow: flow.left / flow.rate)
        first.timer = call_in(self._env, first.left / first.rate, lambda: self._due(first))

    def _disarm(self, flow: Rated) -> None:
        if flow.timer is not None:
            self._env.void(flow.timer)
            flow.timer = None

    def _due(self, first: Rated) -> None:
        first.timer = None
        component = connected(first.route)
        done = [flow for flow in component if flow is first or self._is_through(flow)]
        self._leave(component, done)
        for flow in sorted(done, key=lambda flow: flow.number):
            flow.passed(0.0)

    def _leave(self, component: list[Rated], gone: list[Rated]) -> None:
        """`gone` leave their links, and the rest of their component is rated anew."""
        rest: dict[Rated, None] = dict.fromkeys(component)
        for flow in gone:
            self._disarm(flow)
            del rest[flow]
            for link in flow.route:
                del link.flows[flow]
        while rest:  # what a message held together may fall apart: each piece needs a timer of its own
            piece = connected(next(iter(rest)).route)
            self._rate(piece)
            for flow in piece:
                del rest[flow]

    def _is_through(self, flow: Rated) -> bool:
        """Messages that end together but for rounding end together."""
        return flow.left - flow.rate * (self._env.now - flow.since) <= 1e-12 * flow.size


def connected(route: Iterable[Link]) -> list[Rated]:
    """The messages that share a link with `route`, or with one that does, and so on; oldest first per link."""
    flows: dict[Rated, None] = {}
    seen: set[Link] = set()
    stack = list(route)
    while stack:
        link = stack.pop()
        if link in seen:
            continue
        seen.add(link)
        for flow in link.flows:
            if flow not in flows:
                flows[flow] = None
                stack.extend(flow.route)
    return list(flows)


def fill(flows: list[Rated]) -> None:
    """Set the max-min fair `rate` of each of `flows` (bytes per second) by progressive filling."""
    room = {link: link.bandwidth for flow in flows for link in flow.route}
    waiting = {link: len(link.flows) for link in room}
    unrated = dict.fromkeys(flows)
    while unrated:
        full = min(waiting, key=lambda link: room[link] / waiting[link])
        share = room[full] / waiting[full]
        for flow in [flow for flow in full.flows if flow in unrated]:
            del unrated[flow]
            flow.rate = share
            for link in flow.route:
                room[link] -= share
                waiting[link] -= 1
                if not waiting[link]:
                    del waiting[link], room[link]
