"""Queues: each link serves whole messages, one after another."""

from simpy.events import Event

from laggard.simulator.network.links import Link, Passed
from laggard.simulator.timing.clock import Clock


class Queued:
    """A message in queues.

    Attributes:
        size: its bytes.
        route: the links that it crosses.
        passed: called at its end.
        timer: the event at which it reaches its next link, if any.
    """

    __slots__ = ("passed", "route", "size", "timer")

    def __init__(self, size: float, route: tuple[Link, ...], passed: Passed) -> None:
        self.size = size
        self.route = route
        self.passed = passed
        self.timer: Event | None = None


class FifoSharing:
    """Each link serves whole messages in order of arrival at that link, cut-through.

    The head of a message reaches the next link when this link begins to serve it. Where all links
    that follow are faster, it reaches the next one only as late as its tail allows: a slow sender
    does not occupy a fast receiver's link. The tail leaves a link no earlier than it left the link
    before. A link between two others serves a message for N / b seconds, even if its tail passes
    later. A busy down link does not occupy the up link. So N bytes over free links of b_k bytes
    per second take max_k N / b_k seconds.
    """

    def __init__(self, env: Clock) -> None:
        self._env = env

    def carry(self, size: float, route: tuple[Link, ...], passed: Passed) -> Queued:
        """Carry `size` bytes over `route` from now on, and call `passed` at their end."""
        flow = Queued(size, route, passed)
        self._enter(flow, 0, self._env.now)
        return flow

    def withdraw(self, flow: Queued) -> None:
        """Let `flow` enter no further link; its time on the links before stays reserved."""
        if flow.timer is not None:
            self._env.cancel(flow.timer)

    def _enter(self, flow: Queued, hop: int, tail: float) -> None:
        """Serve `flow` at link `hop`; its tail left the link before at `tail`."""
        now, link = self._env.now, flow.route[hop]
        flow.timer = None
        begin = max(now, link.free)
        link.free = begin + flow.size / link.bandwidth
        tail = max(link.free, tail)
        if hop + 1 == len(flow.route):
            link.free = tail
            flow.passed(tail - now)
            return
        slowest = flow.route[hop + 1].bandwidth
        if hop + 2 < len(flow.route):
            slowest = min(following.bandwidth for following in flow.route[hop + 1 :])
        if slowest > link.bandwidth:
            begin = max(begin, tail - flow.size / slowest)
        if begin == now:
            self._enter(flow, hop + 1, tail)
        else:
            flow.timer = self._env.call_in(begin - now, lambda: self._enter(flow, hop + 1, tail))
