"""Max-min fairness where messages meet on several links: progressive filling."""

from collections.abc import Iterable
from heapq import heapify, heappop, heapreplace

from simulator.clock import Clock
from simulator.sharing.alarm import Alarm
from simulator.sharing.hub import Hub
from simulator.sharing.link import Rated, slack


class Web:
    """Messages connected through links they share, however; all are rated anew when one of them comes or goes.

    What comes and goes in an instant is rated once, after what has been scheduled for the instant by then.
    """

    def __init__(self, env: Clock) -> None:
        self._env, self._since = env, env.now
        self._flows: dict[Rated, None] = {}
        self._torn = False  # whether somebody has left, so that it may have fallen apart
        self._alarm = Alarm(env, self._wake)

    def __len__(self) -> int:
        return len(self._flows)

    def join(self, flows: list[Rated]) -> None:
        """`flows`, which are on their links already, have their bytes `left` to pass from now on."""
        self._advance()
        self._hold(flows)
        self._alarm.ask(self._env.now)

    def withdraw(self, flow: Rated) -> None:
        self._advance()
        self._remove([flow])

    def dissolve(self) -> list[Rated]:
        self._advance()
        self._alarm.off()
        return list(self._flows)

    def _hold(self, flows: list[Rated]) -> None:
        for flow in flows:
            flow.group, flow.rate = self, 0.0
            self._flows[flow] = None

    def _advance(self) -> None:
        """Let the bytes pass that have passed up to now."""
        now = self._env.now
        passed, self._since = now - self._since, now
        if passed:
            for flow in self._flows:
                flow.left -= flow.rate * passed

    def _remove(self, flows: list[Rated]) -> None:
        for flow in flows:
            flow.leave()
            del self._flows[flow]
        self._torn = True
        if self._flows:
            self._alarm.ask(self._env.now)
        else:
            self._alarm.off()

    def _wake(self) -> None:
        """Something is through, or has come or gone in this instant."""
        self._advance()
        now = self._env.now
        done = [flow for flow in self._flows if flow.left <= slack(flow.size, flow.rate, now)]
        if done:
            self._remove(done)
            for flow in sorted(done, key=lambda flow: flow.number):
                flow.passed(0.0)
        elif self._torn:
            self._split()
        else:
            self._rate()

    def _rate(self) -> None:
        """Rate all messages, and be woken when the first is through."""
        fill(self._flows)
        self._alarm.ask(self._since + min([flow.left / flow.rate for flow in self._flows]))

    def _split(self) -> None:
        """Each piece into which it has fallen apart becomes a group of its own."""
        self._torn = False
        rest = self._flows
        while rest:
            piece = connected(next(iter(rest)))
            meeting = {link for flow in piece for link in flow.route if len(link.flows) > 1}
            if len(meeting) <= 1:
                Hub(self._env, meeting.pop() if meeting else piece[0].narrowest).join(piece)
            elif len(piece) == len(self._flows):
                self._rate()
                return
            else:
                web = Web(self._env)
                web._hold(piece)
                web._rate()
            for flow in piece:
                del rest[flow]


def connected(first: Rated) -> list[Rated]:
    """The messages that share a link with `first`, or with one that does, and so on."""
    flows, seen = {first: None}, set()
    stack = [first]
    while stack:
        for link in stack.pop().route:
            if len(link.flows) > 1 and link not in seen:
                seen.add(link)
                fresh = [flow for flow in link.flows if flow not in flows]
                flows.update(dict.fromkeys(fresh))
                stack.extend(fresh)
    return list(flows)


def fill(flows: Iterable[Rated]) -> None:
    """Set the max-min fair `rate` of each of `flows` (bytes per second), which nobody else shares links with.

    Progressive filling: all rates grow alike until a link is full; its messages keep their rate and the others grow on.
    The share that a link can give to each of its messages without a rate only grows when others are given theirs, so
    that a heap in which shares are out of date, but never too high, yields the link that is full next: O(n log n).
    """
    links = {link: None for flow in flows for link in flow.route}
    for flow in flows:
        flow.rate = 0.0
    heap = []
    for index, link in enumerate(links):
        link.room, link.waiting = link.bandwidth, len(link.flows)
        heap.append((link.bandwidth / link.waiting, index, link))
    heapify(heap)
    while heap:
        share, index, link = heap[0]
        if link.waiting:
            current = link.room / link.waiting
            if current > share:
                heapreplace(heap, (current, index, link))
                continue
            for flow in link.flows:
                if not flow.rate:
                    flow.rate = share
                    for crossed in flow.route:
                        crossed.room -= share
                        crossed.waiting -= 1
        heappop(heap)
