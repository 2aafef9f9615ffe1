"""Two ways in which the messages under way share the links they cross: queues, and max-min fairness."""

import itertools
import math
from collections.abc import Callable, Iterable

import simpy

from simulator.bounds import duration

Passed = Callable[[float], None]
"""Told, once it is known, in how many seconds from now the last byte will have left the last link."""


class Link:
    """One direction of a card or a wire.

    Attributes:
        bandwidth: bytes per second.
        free: the moment (s) at which a queue of messages will have passed; only `fifo` uses it.
        flows: the messages that cross it now; only `fair` uses it.
    """

    __slots__ = ("bandwidth", "flows", "free")

    def __init__(self, bandwidth: float) -> None:
        self.bandwidth = bandwidth
        self.free = 0.0
        self.flows: dict[Flow, None] = {}


def call_at(env: simpy.Environment, delay: float, call: Callable[[], None]) -> None:
    """Call `call()` after `delay` seconds."""
    event = env.timeout(duration(delay, "Network", "bytes over bandwidth"))
    assert event.callbacks is not None
    event.callbacks.append(lambda _: call())


class FifoSharing:
    """Each link serves whole messages in order of arrival at that link, cut-through.

    The head of a message reaches the next link as soon as this one begins to serve it; the tail leaves a
    link no earlier than it has left the one before. A busy down link does not hold the up link.
    """

    def __init__(self, env: simpy.Environment) -> None:
        self._env = env

    def carry(self, size: float, route: tuple[Link, ...], passed: Passed) -> None:
        self._enter(size, route, 0, self._env.now, passed)

    def _enter(self, size: float, route: tuple[Link, ...], hop: int, tail: float, passed: Passed) -> None:
        """The head is at link `hop`; the tail left the link before at `tail`."""
        now, link = self._env.now, route[hop]
        begin = max(now, link.free)
        link.free = tail = max(begin + size / link.bandwidth, tail)
        if hop + 1 == len(route):
            passed(tail - now)
        elif begin == now:
            self._enter(size, route, hop + 1, tail, passed)
        else:
            call_at(self._env, begin - now, lambda: self._enter(size, route, hop + 1, tail, passed))


class Flow:
    """A message under way: bytes left as of moment `since`, and its rate from then on."""

    __slots__ = ("left", "number", "passed", "rate", "rated", "route", "since", "size")

    def __init__(self, number: int, size: float, route: tuple[Link, ...], now: float, passed: Passed) -> None:
        self.number = number  # of those that end together, the one sent first ends first
        self.size = self.left = size
        self.route, self.passed = route, passed
        self.since, self.rate = now, 0.0
        self.rated = 0  # how often the rate was set; a timer of an older rate is void


class FairSharing:
    """Messages under way share the links max-min fairly at every moment: the fluid model.

    Progressive filling: every message's rate grows alike until a link is full; its messages keep their rate
    and the others grow on. When a message comes or goes, only the messages connected to it through shared
    links are rated anew.

    Source: Bertsekas & Gallager, Data Networks, section 6.5.2; SimGrid's CM02 with all factors 1.
    """

    def __init__(self, env: simpy.Environment) -> None:
        self._env = env
        self._numbers = itertools.count()

    def carry(self, size: float, route: tuple[Link, ...], passed: Passed) -> None:
        flow = Flow(next(self._numbers), size, route, self._env.now, passed)
        for link in route:
            link.flows[flow] = None
        self._rate(connected(flow.route))

    def _rate(self, flows: list[Flow]) -> None:
        """Bring `flows`, a connected component, to now, rate them anew and arm a timer for the first to pass."""
        now = self._env.now
        for flow in flows:
            flow.left = max(flow.left - flow.rate * (now - flow.since), 0.0)
            flow.since = now
        fill(flows)
        first = min(flows, key=lambda flow: flow.left / flow.rate)
        rated = first.rated
        call_at(self._env, first.left / first.rate, lambda: self._due(first, rated))

    def _due(self, first: Flow, rated: int) -> None:
        if first.rated != rated:
            return
        component = connected(first.route)
        done = [flow for flow in component if flow is first or self._is_through(flow)]
        for flow in done:
            flow.rated += 1
            for link in flow.route:
                del link.flows[flow]
        rest: dict[Flow, None] = dict.fromkeys(component)
        for flow in done:
            del rest[flow]
        while rest:  # what a message held together may fall apart: each piece needs a timer of its own
            piece = connected(next(iter(rest)).route)
            self._rate(piece)
            for flow in piece:
                del rest[flow]
        for flow in sorted(done, key=lambda flow: flow.number):
            flow.passed(0.0)

    def _is_through(self, flow: Flow) -> bool:
        """Messages that end together but for rounding end together."""
        return flow.left - flow.rate * (self._env.now - flow.since) <= 1e-12 * flow.size


def connected(route: Iterable[Link]) -> list[Flow]:
    """The messages that share a link with `route`, or with one that does, and so on; oldest first per link."""
    flows: dict[Flow, None] = {}
    seen: set[Link] = set()
    stack = list(route)
    while stack:
        link = stack.pop()
        if link in seen or link.bandwidth == math.inf:
            continue
        seen.add(link)
        for flow in link.flows:
            if flow not in flows:
                flows[flow] = None
                stack.extend(flow.route)
    return list(flows)


def fill(flows: list[Flow]) -> None:
    """Set the max-min fair `rate` of each of `flows` (bytes per second) by progressive filling."""
    room = {link: link.bandwidth for flow in flows for link in flow.route if link.bandwidth < math.inf}
    waiting = {link: len(link.flows) for link in room}
    unrated = dict.fromkeys(flows)
    while unrated:
        full = min(waiting, key=lambda link: room[link] / waiting[link])
        share = room[full] / waiting[full]
        for flow in [flow for flow in full.flows if flow in unrated]:
            del unrated[flow]
            flow.rate = share
            flow.rated += 1
            for link in flow.route:
                if link in room:
                    room[link] -= share
                    waiting[link] -= 1
                    if not waiting[link]:
                        del waiting[link], room[link]
