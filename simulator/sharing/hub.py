"""Max-min fairness on a star of messages, in virtual time: they all share one link, and no two of them another."""

import math
from bisect import bisect_left, insort
from collections.abc import Iterable
from heapq import heapify, heappop, heappush

from simulator.clock import Clock
from simulator.sharing.alarm import Alarm
from simulator.sharing.link import Link, Rated, slack

Entry = tuple[float, int, Rated]


class Hub:
    """Messages that share one link, and have the rest of their routes each for itself.

    The narrowest link that a message has for itself is its cap. Where that is narrower than what the others get, it
    binds the message:

        level = (bandwidth - caps of the bound) / number of the others
        rate of a message = min(cap, level)

    The others, all at the same rate, have since some moment each been given the same bytes, the `credit`: who
    joins with N bytes at credit c ends at credit c + N, whoever comes and goes meanwhile. Who is bound ends at a moment
    that does not change either. So a message that joins or leaves costs O(log messages), and one alarm is set, for the
    first to end. Credit is counted from zero anew after as many departures as there are messages, lest it outgrow
    what is left to pass, and whenever nobody shares the level.

    Where nobody is bound it is processor sharing.

    Source: Bertsekas & Gallager, Data Networks, section 6.5.2; Parekh & Gallager (1993), virtual time.
    """

    def __init__(self, env: Clock, link: Link) -> None:
        self._env, self._link, self._alarm = env, link, Alarm(env, self._due)
        self._begin()

    def _begin(self) -> None:
        self._caps: list[Entry] = []  # below the bandwidth, narrowest first: of these the first `_bound` bind
        self._bound, self._room, self._level = 0, self._link.bandwidth, math.inf
        self._credit, self._since = 0.0, self._env.now
        self._goals: list[Entry] = []  # heaps: the credit at which those at the level end,
        self._ends: list[Entry] = []  # and the moment at which the bound end; who moved on is passed over
        self._moved = 0

    def __len__(self) -> int:
        return len(self._link.flows)

    def join(self, flows: Iterable[Rated]) -> None:
        """`flows`, which are on their links already, have their bytes `left` to pass from now on."""
        self._advance()
        bandwidth = self._link.bandwidth
        for flow in flows:
            flow.group = self
            flow.cap = min([link.bandwidth for link in flow.route if link is not self._link], default=math.inf)
            self._free(flow)
            if flow.cap < bandwidth:
                entry = (flow.cap, flow.number, flow)
                insort(self._caps, entry)
                if self._bound and entry < self._caps[self._bound]:
                    self._bind(flow)
        self._settle()

    def withdraw(self, flow: Rated) -> None:
        self._advance()
        self._remove(flow)
        self._settle()

    def dissolve(self) -> list[Rated]:
        """The messages, each with the bytes that it has `left` now, for another group to take in."""
        self._advance()
        self._alarm.off()
        for flow in self._link.flows:
            self._update(flow)
        self._begin()
        return list(self._link.flows)

    def _advance(self) -> None:
        """Count the credit up to now."""
        now = self._env.now
        if self._level < math.inf:
            self._credit += self._level * (now - self._since)
        self._since = now

    def _update(self, flow: Rated) -> None:
        ahead = (flow.end - self._since) * flow.cap if flow.bound else flow.end - self._credit
        flow.left = max(ahead, 0.0)

    def _free(self, flow: Rated) -> None:
        """`flow` has the level from now on."""
        flow.bound, flow.end = False, self._credit + flow.left
        heappush(self._goals, (flow.end, flow.number, flow))

    def _bind(self, flow: Rated) -> None:
        """`flow`, the narrowest or among the bound already, has its cap from now on."""
        self._update(flow)
        flow.bound, flow.end = True, self._since + flow.left / flow.cap
        heappush(self._ends, (flow.end, flow.number, flow))
        self._bound, self._room, self._moved = self._bound + 1, self._room - flow.cap, self._moved + 1

    def _unbind(self, flow: Rated) -> None:
        self._update(flow)
        self._free(flow)
        self._bound, self._room, self._moved = self._bound - 1, self._room + flow.cap, self._moved + 1

    def _remove(self, flow: Rated) -> None:
        flow.leave()
        if flow.cap < self._link.bandwidth:
            del self._caps[bisect_left(self._caps, (flow.cap, flow.number))]
        if flow.bound:
            self._bound, self._room = self._bound - 1, self._room + flow.cap
        flow.end, self._moved = math.nan, self._moved + 1

    def _settle(self) -> None:
        """Whoever came or left: find the level, who is bound, and who ends first."""
        count = len(self._link.flows)
        if not count:
            self._alarm.off()
            self._begin()
            return
        if self._caps:
            self._balance(count)
        else:
            self._level = self._link.bandwidth / count
        if self._moved > count + 16:
            self._count_anew()
        at = math.inf
        while self._goals and (self._goals[0][0] != self._goals[0][2].end or self._goals[0][2].bound):
            heappop(self._goals)
        while self._ends and (self._ends[0][0] != self._ends[0][2].end or not self._ends[0][2].bound):
            heappop(self._ends)
        if self._goals:
            at = self._since + (self._goals[0][0] - self._credit) / self._level
        if self._ends:
            at = min(at, self._ends[0][0])
        self._alarm.ask(at)

    def _balance(self, count: int) -> None:
        """Free those whose caps are above the level, then bind those whose caps are below it.

        Either raises the level, so that nobody who was bound must be freed again.
        """
        if not self._bound:
            self._room = self._link.bandwidth
        while self._bound and (self._room < 0 or self._caps[self._bound - 1][0] > self._shared(count)):
            self._unbind(self._caps[self._bound - 1][2])
        while self._bound < len(self._caps) and self._caps[self._bound][0] < self._shared(count):
            self._bind(self._caps[self._bound][2])
        self._level = self._shared(count)

    def _shared(self, count: int) -> float:
        return self._room / (count - self._bound) if count > self._bound else math.inf

    def _count_anew(self) -> None:
        """Count credit from zero, and forget who moved on."""
        flows = self._link.flows
        for flow in flows:
            if not flow.bound:
                flow.end -= self._credit
        self._credit, self._moved = 0.0, 0
        self._goals = [(flow.end, flow.number, flow) for flow in flows if not flow.bound]
        self._ends = [(flow.end, flow.number, flow) for flow in flows if flow.bound]
        heapify(self._goals)
        heapify(self._ends)
        self._room = self._link.bandwidth - math.fsum(cap for cap, _, _ in self._caps[: self._bound])

    def _due(self) -> None:
        self._advance()
        done = self._through()
        for flow in done:
            self._remove(flow)
        self._settle()
        for flow in sorted(done, key=lambda flow: flow.number) if len(done) > 1 else done:
            flow.passed(0.0)

    def _through(self) -> list[Rated]:
        """The messages whose bytes have passed, but for rounding."""
        done, now = [], self._since
        while self._goals:
            end, _, flow = self._goals[0]
            if end == flow.end and not flow.bound:
                if end - self._credit > slack(max(flow.size, end), self._level, now):
                    break
                done.append(flow)
                flow.end = math.nan
            heappop(self._goals)
        while self._ends:
            end, _, flow = self._ends[0]
            if end == flow.end and flow.bound:
                if (end - now) * flow.cap > slack(flow.size, flow.cap, now):
                    break
                done.append(flow)
                flow.end = math.nan
            heappop(self._ends)
        return done
