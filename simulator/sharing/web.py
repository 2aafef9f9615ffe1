"""Max-min fairness where messages meet on several links: progressive filling, of as few messages as need it."""

import math
from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush

from simulator.clock import Clock
from simulator.sharing.alarm import Alarm
from simulator.sharing.filling import ripple
from simulator.sharing.hub import Entry, Hub
from simulator.sharing.link import Link, Rated, slack

STAR = 4
"""Messages of a star from which on it is quicker as a hub."""


class Web:
    """Messages that share links in any way, connected or not, each with a rate, and a heap of the moments they end at.

    Links that messages came to or left in an instant are rated once, after what has been scheduled for it by then;
    and what turns out to be a star on that occasion becomes a hub.
    """

    def __init__(self, env: Clock, hub: Callable[[Link], Hub]) -> None:
        self._env, self._hub = env, hub
        self._flows = 0
        self._touched: dict[Link, None] = {}
        self._ends: list[Entry] = []  # heap; entries whose end is no longer the message's are void
        self._alarm = Alarm(env, self._wake)

    def join(self, flows: Iterable[Rated]) -> None:
        """`flows`, which are on their links already, have their bytes `left` to pass from now on."""
        for flow in flows:
            flow.group, flow.since, flow.rate, flow.neck = self, self._env.now, 0.0, None
            self._flows += 1
            self._touch(flow)

    def withdraw(self, flow: Rated) -> None:
        self._remove(flow)
        self._rest()

    def _touch(self, flow: Rated) -> None:
        for link in flow.route:
            self._touched[link] = None
        self._alarm.ask(self._env.now)

    def _remove(self, flow: Rated) -> None:
        flow.leave()
        flow.end = math.nan
        self._flows -= 1
        self._touch(flow)

    def _wake(self) -> None:
        """Something is through, or links were touched in this instant."""
        done = self._through()
        for flow in done:
            self._remove(flow)
        for flow in sorted(done, key=lambda flow: flow.number):
            flow.passed(0.0)
        if self._touched and not done:
            self._rate()
        self._rest()

    def _through(self) -> list[Rated]:
        done, now = [], self._env.now
        while self._ends:
            end, _, flow = entry = self._ends[0]
            if self._holds(entry):
                if (end - now) * flow.rate > slack(flow.size, flow.rate, now):
                    break
                done.append(flow)
                flow.end = math.nan
            heappop(self._ends)
        return done

    def _rate(self) -> None:
        """Rate anew who is concerned by the coming and going on the links touched."""
        now, touched = self._env.now, [link for link in self._touched if self._rates(link)]
        self._touched = {}
        for flow in ripple(touched):
            flow.left -= flow.rate * (now - flow.since)
            flow.since, flow.rate = now, flow.share
            flow.end = now + flow.left / flow.rate
            heappush(self._ends, (flow.end, flow.number, flow))
        for link in touched:
            if len(link.flows) >= STAR and self._rates(link) and is_star(link):
                self._release(link)
        if len(self._ends) > 2 * self._flows + 16:
            self._ends = [entry for entry in self._ends if self._holds(entry)]
            heapify(self._ends)

    def _rates(self, link: Link) -> bool:
        """Whether there are messages over `link`, and not those of a hub."""
        return bool(link.flows) and next(iter(link.flows)).group is self

    def _holds(self, entry: Entry) -> bool:
        """Whether what is in the heap is still so."""
        end, _, flow = entry
        return end == flow.end and flow.group is self

    def _release(self, link: Link) -> None:
        """The messages over `link` are a hub of their own from now on."""
        for flow in link.flows:
            flow.left -= flow.rate * (self._env.now - flow.since)
            flow.end = math.nan
        self._flows -= len(link.flows)
        self._hub(link).join(link.flows)

    def _rest(self) -> None:
        """Until the first is through, unless links are touched."""
        while self._ends and not self._holds(self._ends[0]):
            heappop(self._ends)
        if self._touched and self._flows:
            self._alarm.ask(self._env.now)
        elif self._ends:
            self._alarm.ask(self._ends[0][0])
        else:
            self._alarm.off()


def is_star(link: Link) -> bool:
    """Whether the messages over `link` share no other link with anybody."""
    return all(crossed is link or len(crossed.flows) == 1 for flow in link.flows for crossed in flow.route)
