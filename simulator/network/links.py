"""Links, messages that cross them, and timers that can be moved or cancelled."""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from simpy.events import Event

from laggard.simulator.errors import check_duration
from laggard.simulator.timing.clock import Clock
from laggard.simulator.timing.steps import StepFunction

if TYPE_CHECKING:
    from laggard.simulator.network.fair import MaxMin
    from laggard.simulator.network.star import ProcessorSharingStar

Ends = tuple[str | int, int]
"""The key of a link: the two machines that it joins, or the direction and the machine of a card."""
Passed = Callable[[float], None]
"""Called, once it is known, with the seconds from now until the last byte has left."""


class Rated:
    """A message under max-min fair sharing, which has a rate.

    Attributes:
        size: its bytes.
        route: the links that it crosses.
        passed: called at its end.
        number: orders messages that end together: the message sent first ends first.
        left: bytes still to transfer, as of the moment `since` (s) of its last update.
        group: the group that determines its rate.
        end: the moment (s), or the virtual service (bytes), at which it ends.
        rate, share, bottleneck: in a `MaxMin`, its bytes per second, the new value of that, and the
            full link that limits it.
        cap, bound: in a `ProcessorSharingStar`, the bandwidth of the narrowest link that it alone
            uses, and whether that limits it.
    """

    __slots__ = (
        "bottleneck",
        "bound",
        "cap",
        "end",
        "group",
        "left",
        "number",
        "passed",
        "rate",
        "route",
        "share",
        "since",
        "size",
    )

    def __init__(self, number: int, size: float, route: tuple["Link", ...], passed: Passed) -> None:
        self.size = size
        self.route = route
        self.passed = passed
        self.number = number
        self.left = size
        self.since = 0.0
        self.end = math.nan  # differs from every entry of a heap
        self.rate, self.share = 0.0, 0.0
        self.cap, self.bound = math.inf, False
        self.bottleneck: Link | None = None
        self.group: MaxMin | ProcessorSharingStar

    @property
    def narrowest(self) -> "Link":
        """The link of its route with the least bandwidth."""
        return min(self.route, key=lambda link: link.bandwidth)

    def enter(self) -> None:
        """Add it to its links."""
        for link in self.route:
            link.flows[self] = None

    def leave(self) -> None:
        """Remove it from its links."""
        for link in self.route:
            del link.flows[self]


class Link:
    """One direction of a card or a wire.

    Attributes:
        bandwidth: bytes per second, finite; where it changes, that of the moment.
        steps: the bandwidth over time, where it changes.
        free: under `fifo`, the moment (s) at which its queue is empty.
        flows: under `fair`, the messages that cross it now.
        unallocated, waiting: while rates are solved for, the remaining bandwidth and the messages
            without a rate.
        level: the rate (bytes per second) at which it was full, if it was.
    """

    __slots__ = ("bandwidth", "flows", "free", "level", "steps", "unallocated", "waiting")

    def __init__(self, bandwidth: float, steps: StepFunction | None = None) -> None:
        self.bandwidth = self.unallocated = bandwidth
        self.steps = steps
        self.free = 0.0
        self.level = math.inf
        self.waiting = 0
        self.flows: dict[Rated, None] = {}


def slack(size: float, rate: float, now: float) -> float:
    """The rounding error (bytes) of a message of `size` bytes at `rate` and the moment `now`.

    Messages whose ends differ by less end together. Sums of bytes are off by a share of the size;
    the clock is off by a few units in the last place of `now`, in which `rate` bytes a second pass.
    """
    return 1e-12 * size + 4 * math.ulp(now) * rate


class Timer:
    """Calls a function at the moment (s) scheduled last.

    At most one event is scheduled. Where the timer is postponed the event stays, and is scheduled
    again when it fires: a message that joins others postpones the first end, and often another one
    joins before that.
    """

    __slots__ = ("_armed", "_at", "_callback", "_env", "_event")

    def __init__(self, env: Clock, callback: Callable[[], None]) -> None:
        self._env = env
        self._callback = callback
        self._event: Event | None = None
        self._at = self._armed = 0.0

    def schedule(self, at: float) -> None:
        """Fire at `at`, or now if that has passed, instead of at the last scheduled moment.

        Raises:
            InvalidSettingError: `at` is infinite or not a number.
        """
        self._at = at
        if self._event is not None:
            if self._armed <= at:
                return
            self._env.cancel(self._event)
        self._arm()

    def cancel(self) -> None:
        """Do not fire."""
        if self._event is not None:
            self._env.cancel(self._event)
            self._event = None

    def _arm(self) -> None:
        self._armed = self._at
        delay = max(self._at - self._env.now, 0.0)
        check_duration(delay, "Network", "bytes over bandwidth")
        self._event = self._env.call_in(delay, self._fire)

    def _fire(self) -> None:
        self._event = None
        if self._armed < self._at:
            self._arm()
        else:
            self._callback()
