"""Max-min fairness, in virtual time, of messages that share one link and no other."""

import math
from bisect import bisect_left, insort
from collections.abc import Iterable
from heapq import heapify, heappop, heappush

from laggard.simulator.network.links import Link, Rated, Timer, slack
from laggard.simulator.timing.clock import Clock

StarEntry = tuple[float, int, Rated]


class ProcessorSharingStar:
    """Messages that share one link; no other link of a message's route is used by another message.

    The bandwidth of the narrowest link that a message has to itself is its cap. A message whose cap
    is below the rate of the others is bound by it:

        level = (bandwidth - caps of the bound) / number of the others
        rate of a message = min(cap, level)

    The others all have the same rate. The bytes that each of them has received since a common start
    are the virtual service: a message that joins with N bytes at virtual service v ends at v + N,
    whatever joins or leaves meanwhile. A bound message ends at a fixed moment. So a join or a
    departure costs O(log messages), and one timer is set, for the first end. Virtual service
    restarts from zero after as many departures as there are messages, to limit rounding, and
    whenever the link is empty.

    Where no message is bound, this is processor sharing.

    Attributes:
        link: the shared link.

    Source: Bertsekas & Gallager, Data Networks, section 6.5.2; Parekh & Gallager (1993), virtual
    time.
    """

    def __init__(self, env: Clock, link: Link) -> None:
        self._env = env
        self.link = link
        self._timer = Timer(env, self.complete)
        self._reset()

    def _reset(self) -> None:
        # below the bandwidth, smallest first; the first `_bound` of them bind
        self._caps: list[StarEntry] = []
        self._bound = 0
        self._unallocated = self.link.bandwidth
        self._level = math.inf
        self._virtual_service = 0.0
        self._since = self._env.now
        # both heaps may hold outdated entries
        # heap of the virtual service at which unbound messages end
        self._unbound_ends: list[StarEntry] = []
        self._bound_ends: list[StarEntry] = []  # heap of the moments at which bound ones do
        self._moved = 0

    def __len__(self) -> int:
        return len(self.link.flows)

    def join(self, flows: Iterable[Rated]) -> None:
        """Start to transfer the bytes `left` of `flows`, which are on their links already."""
        self._advance()
        bandwidth = self.link.bandwidth
        for flow in flows:
            flow.group = self
            flow.cap = min(
                [link.bandwidth for link in flow.route if link is not self.link], default=math.inf
            )
            self._free(flow)
            if flow.cap < bandwidth:
                entry = (flow.cap, flow.number, flow)
                insort(self._caps, entry)
                # It lies among the bound ones, which must stay the first of `_caps`.
                if self._bound and entry < self._caps[self._bound]:
                    self._bind(flow)
        self._reschedule()

    def withdraw(self, flow: Rated) -> None:
        """Remove `flow` from its links, which the others then share."""
        self._advance()
        self._remove(flow)
        self._reschedule()

    def dissolve(self) -> list[Rated]:
        """Remove and return the messages, with `left` up to date, so that another group can take
        them.
        """
        self._advance()
        self._timer.cancel()
        for flow in self.link.flows:
            self._update(flow)
        self._reset()
        return list(self.link.flows)

    def _advance(self) -> None:
        """Bring the virtual service up to now."""
        now = self._env.now
        if self._level < math.inf:
            self._virtual_service += self._level * (now - self._since)
        self._since = now

    def _update(self, flow: Rated) -> None:
        if flow.bound:
            ahead = (flow.end - self._since) * flow.cap
        else:
            ahead = flow.end - self._virtual_service
        flow.left = max(ahead, 0.0)

    def _free(self, flow: Rated) -> None:
        """Give `flow` the level as its rate."""
        flow.bound = False
        flow.end = self._virtual_service + flow.left
        heappush(self._unbound_ends, (flow.end, flow.number, flow))

    def _bind(self, flow: Rated) -> None:
        """Give `flow` its cap as its rate."""
        self._update(flow)
        flow.bound = True
        flow.end = self._since + flow.left / flow.cap
        heappush(self._bound_ends, (flow.end, flow.number, flow))
        self._bound += 1
        self._unallocated -= flow.cap
        self._moved += 1

    def _unbind(self, flow: Rated) -> None:
        self._update(flow)
        self._free(flow)
        self._bound -= 1
        self._unallocated += flow.cap
        self._moved += 1

    def _remove(self, flow: Rated) -> None:
        flow.leave()
        if flow.cap < self.link.bandwidth:
            # A pair is below the triple that it begins, so that no two messages are compared.
            del self._caps[bisect_left(self._caps, (flow.cap, flow.number))]
        if flow.bound:
            self._bound -= 1
            self._unallocated += flow.cap
        flow.end = math.nan
        self._moved = self._moved + 1

    def _reschedule(self) -> None:
        """After a join or a departure: find the level, the bound messages, and the first end."""
        count = len(self.link.flows)
        if not count:
            self._timer.cancel()
            self._reset()
            return
        if self._caps:
            self._balance(count)
        else:
            self._level = self.link.bandwidth / count
        if self._moved > count + 16:
            self._restart_service()
        at = math.inf
        if unbound := earliest(self._unbound_ends, bound=False):
            at = self._since + (unbound[0] - self._virtual_service) / self._level
        if bound := earliest(self._bound_ends, bound=True):
            at = min(at, bound[0])
        self._timer.schedule(at)

    def _balance(self, count: int) -> None:
        """Free those whose caps are above the level, then bind those whose caps are below it.

        Both raise the level, so that no message changes twice.
        """
        if not self._bound:
            self._unallocated = self.link.bandwidth
        while self._bound and (
            self._unallocated < 0 or self._caps[self._bound - 1][0] > self._level_at(count)
        ):
            self._unbind(self._caps[self._bound - 1][2])
        while self._bound < len(self._caps) and self._caps[self._bound][0] < self._level_at(count):
            self._bind(self._caps[self._bound][2])
        self._level = self._level_at(count)

    def _level_at(self, count: int) -> float:
        if count > self._bound:
            return self._unallocated / (count - self._bound)
        return math.inf

    def _restart_service(self) -> None:
        """Restart virtual service from zero, and remove outdated entries."""
        flows = self.link.flows
        for flow in flows:
            if not flow.bound:
                flow.end -= self._virtual_service
        self._virtual_service, self._moved = 0.0, 0
        self._unbound_ends = [(flow.end, flow.number, flow) for flow in flows if not flow.bound]
        self._bound_ends = [(flow.end, flow.number, flow) for flow in flows if flow.bound]
        heapify(self._unbound_ends)
        heapify(self._bound_ends)
        self._unallocated = self.link.bandwidth - math.fsum(
            cap for cap, _, _ in self._caps[: self._bound]
        )

    def complete(self) -> None:
        """Let the messages end whose bytes have passed."""
        self._advance()
        done = self._take_ended()
        for flow in done:
            self._remove(flow)
        self._reschedule()
        for flow in sorted(done, key=lambda flow: flow.number) if len(done) > 1 else done:
            flow.passed(0.0)

    def _take_ended(self) -> list[Rated]:
        """The messages whose bytes have all passed, up to rounding."""
        done, now = [], self._since
        while entry := earliest(self._unbound_ends, bound=False):
            end, _, flow = entry
            # `end` counts bytes since the service began, and its rounding is a share of that count.
            if end - self._virtual_service > slack(max(flow.size, end), self._level, now):
                break
            done.append(flow)
            flow.end = math.nan
        while entry := earliest(self._bound_ends, bound=True):
            end, _, flow = entry
            if (end - now) * flow.cap > slack(flow.size, flow.cap, now):
                break
            done.append(flow)
            flow.end = math.nan
        return done


def earliest(ends: list[StarEntry], bound: bool) -> StarEntry | None:
    """The first up-to-date entry of the heap `ends`; outdated entries before it are removed."""
    while ends and (ends[0][0] != ends[0][2].end or ends[0][2].bound != bound):
        heappop(ends)
    if ends:
        return ends[0]
    return None
