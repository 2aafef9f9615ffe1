"""Queues: each link serves whole messages, one after another."""

from simpy.events import Event

from laggard.simulator.network.links import Flow, Link, Passed
from laggard.simulator.timing.clock import Clock


class Queued(Flow):
    """A message in queues, and the event that takes it on to its next link, if any."""

    __slots__ = ("timer",)

    def __init__(self, size: float, route: tuple[Link, ...], passed: Passed) -> None:
        super().__init__(size, route, passed)
        self.timer: Event | None = None


class FifoSharing:
    """Each link serves whole messages in order of arrival at that link, cut-through.

    The head of a message reaches the next link as soon as this one begins to serve it, or, where
    all that follow are faster, as late as its tail allows: a slow sender does not hold a fast
    receiver's link. The tail leaves a link no earlier than it has left the one before. A busy down
    link does not hold the up link. So N bytes over links of b_k bytes per second that are free take
    max_k N / b_k seconds.
    """

    def __init__(self, env: Clock) -> None:
        self._env = env

    def carry(self, size: float, route: tuple[Link, ...], passed: Passed) -> Flow:
        """Carry `size` bytes over `route` from now on; call `passed` with the delay of the last
        byte.
        """
        flow = Queued(size, route, passed)
        self._enter(flow, 0, self._env.now)
        return flow

    def withdraw(self, flow: Flow) -> None:
        """It enters no further link; the time that it was given on those before stays reserved."""
        assert isinstance(flow, Queued)
        if flow.timer is not None:
            self._env.cancel(flow.timer)

    def _enter(self, flow: Queued, hop: int, tail: float) -> None:
        """The head is at link `hop`; the tail left the link before at `tail`."""
        now, link, flow.timer = self._env.now, flow.route[hop], None
        begin = max(now, link.free)
        link.free = begin + flow.size / link.bandwidth
        tail = max(link.free, tail)
        if hop + 1 == len(flow.route):
            link.free = tail
            flow.passed(tail - now)
            return
        after = flow.route[hop + 1].bandwidth
        if hop + 2 < len(flow.route):
            after = min(link.bandwidth for link in flow.route[hop + 1 :])
        if after > link.bandwidth:
            begin = max(begin, tail - flow.size / after)
        if begin == now:
            self._enter(flow, hop + 1, tail)
        else:
            flow.timer = self._env.call_in(begin - now, lambda: self._enter(flow, hop + 1, tail))
