"""Timers: moments that a role waits for while its node is free."""

from collections.abc import Callable

from laggard.simulator.errors import check_duration
from laggard.simulator.recording.counters import Counters
from laggard.simulator.timing.clock import Clock
from laggard.simulator.timing.events import Owner, Timeout

MOST_IDLE_TIMERS = 10_000
"""Timers in a row between which nothing happens; roles that only wait for timers are stopped."""


class Timers:
    """The timers of all nodes that have not fired.

    A role that waits for one timer after another would keep a run going for ever. So a timer that
    can have no effect is never scheduled, and the run ends as `stalled` once no other event is
    left.

    Args:
        all_gone: whether every worker is down, and none returns.
    """

    def __init__(self, env: Clock, counters: Counters, all_gone: Callable[[], bool]) -> None:
        self._env = env
        self._counters = counters
        self._all_gone = all_gone
        self._pending: dict[int, dict[Timeout, None]] = {}  # by rank, oldest first
        self._number = 0  # number of pending timers
        self._idle = 0  # timers in a row between which nothing happened
        self._seen = (-1, -1)  # gradients begun and messages delivered when the last one started

    def start(self, node: Owner, seconds: float) -> Timeout:
        """A timer of `node` that fires in `seconds`, after all messages of that instant.

        Raises:
            InvalidSettingError: a negative or infinite duration.
        """
        check_duration(seconds, f"node {node.rank}", "after")
        timer = Timeout(node, TIMER_ENDS)
        if not self._useless():
            self._pending.setdefault(node.rank, {})[timer] = None
            self._number += 1
            self._env.after_messages(seconds, timer)
        return timer

    def withdraw(self, timer: Timeout) -> None:
        """Cancel `timer`, if it has not fired: it leaves the clock's queue."""
        if self._forget(timer):
            self._env.cancel(timer)

    def crashed(self, rank: int) -> None:
        """Cancel the timers of node `rank`."""
        for timer in list(self._pending.get(rank, ())):
            self.withdraw(timer)

    def fired(self, timer: Timeout) -> None:
        """Let the role that waits for `timer` go on."""
        self._forget(timer)
        if timer.role is not None:
            timer.role.resume(None)

    def _forget(self, timer: Timeout) -> bool:
        """Remove `timer` from those pending; return whether it was pending."""
        mine = self._pending.get(timer.node.rank, {})
        if timer not in mine:
            return False
        del mine[timer]
        self._number -= 1
        return True

    def _useless(self) -> bool:
        """Whether a further timer would have no effect: every worker is gone, or only timers are
        left.
        """
        if self._all_gone():
            return True
        seen = self._counters.started, self._counters.delivered
        # Pending timers are events, too: if there are more events, something else is to come.
        something_happened = seen != self._seen or self._env.pending > self._number
        self._seen = seen
        if something_happened:
            self._idle = 0
        else:
            self._idle += 1
        return self._idle >= MOST_IDLE_TIMERS


def end_timer(timer: Timeout) -> None:
    """Let `timer` fire, which is due now."""
    timer.node._services.timers.fired(timer)


TIMER_ENDS = (end_timer,)
