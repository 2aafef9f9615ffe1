"""The virtual clock: SimPy's, which also knows when there is no life left in its queue."""

from collections.abc import Callable
from typing import cast

from simpy.core import Environment
from simpy.events import Event, EventPriority

LAST = EventPriority(2)  # after everything else of an instant


class Clock(Environment):
    """SimPy's environment, in whose queue some events are void: the ends of cancelled work, limits, evaluations."""

    def __init__(self) -> None:
        super().__init__()
        self._void = 0

    @property
    def lifeless(self) -> bool:
        """Whether nothing can happen any more: all that is queued is void."""
        return len(self._queue) == self._void

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
