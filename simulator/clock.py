"""The virtual clock: SimPy's, which also knows when there is no life left in its queue."""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import cast

from simpy.core import Environment
from simpy.events import NORMAL, Event, EventPriority

LAST = EventPriority(2)  # after everything else of an instant


class Clock(Environment):
    """SimPy's environment, in whose queue some events are void: the ends of cancelled work, limits, evaluations.

    Attributes:
        stopped: set by whoever has seen enough; nothing happens after the present event.
    """

    def __init__(self) -> None:
        super().__init__()
        self._void = 0
        self.stopped = False

    def after(self, delay: float, event: Event) -> None:
        """Let `event` happen in `delay` seconds: `schedule`, for events of which there are many."""
        heappush(self._queue, (self._now + delay, NORMAL, next(self._eid), event))

    @property
    def lifeless(self) -> bool:
        """Whether nothing can happen any more: all that is queued is void."""
        return len(self._queue) == self._void

    def run_out(self) -> None:
        """Let one event after the other happen, until the clock is stopped or nothing can happen any more.

        `step` for as long as it takes, without its calls: half of what an event costs.
        """
        queue = self._queue
        while not self.stopped and len(queue) > self._void:
            self._now, _, _, event = heappop(queue)
            callbacks, event.callbacks = event.callbacks, None  # type: ignore[assignment]
            for callback in callbacks:
                callback(event)
            if not event._ok and not hasattr(event, "_defused"):
                raise cast(BaseException, event._value)

    def void(self, event: Event, call: Callable[[], None] | None = None) -> None:
        """Nothing is to come of `event`, though its time is set, or `call()` alone."""
        callbacks = cast(list[Callable[[Event], None]], event.callbacks)

        def pass_by(_: Event) -> None:
            self._void -= 1
            callbacks.clear()  # whoever waits for it regardless waits for ever
            if call is not None:
                call()

        self._void += 1
        callbacks[:] = [pass_by]

    def void_in(self, delay: float, call: Callable[[], None]) -> None:
        """Call `call()` in `delay` seconds, if the clock still runs then; no life is in waiting for it."""
        event = Event(self)
        event._ok, event._value = True, None
        self.void(event, call)
        self.schedule(event, delay=delay)

    def call_in(self, delay: float, call: Callable[[], None]) -> None:
        """Call `call()` in `delay` seconds; there is life as long as it has not happened."""
        cast(list[Callable[[Event], None]], self.timeout(delay).callbacks).append(lambda _: call())

    def last_in(self, delay: float, call: Callable[[], None]) -> None:
        """Call `call()` in `delay` seconds, after everything else of that instant; no life is in waiting for it."""
        event = Event(self)
        event._ok, event._value = True, None
        self.void(event, call)
        self.schedule(event, priority=LAST, delay=delay)
