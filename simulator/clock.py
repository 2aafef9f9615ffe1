"""The virtual clock: SimPy's, which also knows when there is no life left in its queue."""

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from typing import cast

from simpy.core import EmptySchedule, Environment
from simpy.events import NORMAL, Event, EventPriority

LAST = EventPriority(2)  # after everything else of an instant


class Clock(Environment):
    """SimPy's environment, in whose queue some events are void: the ends of cancelled work, limits, evaluations.

    Events of the present instant wait in a queue of their own, in the order in which they were scheduled; whatever was
    scheduled for it before it came is earlier. On a free network that is every message, and a heap of 65,536 entries
    has its price.

    Attributes:
        stopped: set by whoever has seen enough; nothing happens after the present event.
    """

    def __init__(self) -> None:
        super().__init__()
        self._instant: deque[Event] = deque()
        self._void = 0
        self.stopped = False

    def after(self, delay: float, event: Event) -> None:
        """Let `event` happen in `delay` seconds."""
        at = self._now + delay
        if at == self._now:
            self._instant.append(event)
        else:
            heappush(self._queue, (at, NORMAL, next(self._eid), event))

    def schedule(self, event: Event, priority: EventPriority = NORMAL, delay: float = 0) -> None:
        """Let `event` happen in `delay` seconds, before or after others of its instant as its `priority` says."""
        if priority == NORMAL:
            self.after(delay, event)
        else:
            super().schedule(event, priority, delay)

    @property
    def lifeless(self) -> bool:
        """Whether nothing can happen any more: all that is queued is void."""
        return len(self._queue) + len(self._instant) == self._void

    def peek(self) -> float:
        """The moment (s) of the next event; infinite if there is none."""
        return self._now if self._instant else super().peek()

    def step(self) -> None:
        """Let the next event happen.

        Raises:
            EmptySchedule: there is none.
        """
        if self._instant and not self._earlier():
            event = self._instant.popleft()
        elif self._queue:
            self._now, _, _, event = heappop(self._queue)
        else:
            raise EmptySchedule
        callbacks, event.callbacks = event.callbacks, None  # type: ignore[assignment]
        for callback in callbacks:
            callback(event)
        if not event._ok and not hasattr(event, "_defused"):
            raise cast(BaseException, event._value)

    def run_out(self) -> None:
        """Let one event after the other happen, until the clock is stopped or nothing can happen any more.

        `step` for as long as it takes, written out: a call for each event is felt.
        """
        queue, instant = self._queue, self._instant
        while not self.stopped and (len(queue) > self._void or len(queue) + len(instant) > self._void):
            if instant and not (queue and queue[0][0] == self._now and queue[0][1] <= NORMAL):
                event = instant.popleft()
            else:
                self._now, _, _, event = heappop(queue)
            callbacks, event.callbacks = event.callbacks, None  # type: ignore[assignment]
            for callback in callbacks:
                callback(event)
            if not event._ok and not hasattr(event, "_defused"):
                raise cast(BaseException, event._value)

    def _earlier(self) -> bool:
        """Whether something was scheduled for this instant before it came, or is to come first in it."""
        return bool(self._queue) and self._queue[0][0] == self._now and self._queue[0][1] <= NORMAL

    def void(self, event: Event, call: Callable[[], None] | None = None) -> None:
        """Nothing is to come of `event`, though its time is set, or `call()` alone."""
        callbacks = cast("list[Callable[[Event], None]]", event.callbacks)

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
        cast("list[Callable[[Event], None]]", self.timeout(delay).callbacks).append(lambda _: call())

    def last_in(self, delay: float, call: Callable[[], None]) -> None:
        """Call `call()` in `delay` seconds, after everything else of that instant; no life is in waiting for it."""
        event = Event(self)
        event._ok, event._value = True, None
        self.void(event, call)
        self.schedule(event, priority=LAST, delay=delay)
