"""The virtual clock, and the order of events in one instant.

Events of one instant run in this order. No other module may assume more.

1. Events scheduled for it earlier, then events scheduled in it, both in order of scheduling.
2. With `ties: random`, ends of work, in random order.
3. Timers (`TIMERS`), so that a message of the same instant comes before a time-out.
4. The time limit and evaluations (`LAST`): they see the whole instant.
5. Snapshots and the like (`at_end_of_instant`).

A user writes a moment as a decimal, and the clock reaches it by adding decimals, which is off by
rounding: 0.1 + 0.1 + 0.1 is 0.30000000000000004. Within a relative `MOMENT_TOLERANCE` both are one
instant. Limits and periods (`at_moment`) wait for the events that end so late; an end of work that
falls on a crash or a return is moved to that moment (`moments`).

So with `ties: rank`, workers whose work ends in one instant come in the order in which their work
began, which at the start is that of their ranks. Limits on updates, epochs and gradients end a run
within an instant. `engine.rounds` computes the times of whole collectives, and
`network.lockstep` keeps this order there.
"""

import gc
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from heapq import heapify, heappop, heappush
from math import inf
from typing import Any, cast

import numpy as np
from simpy.core import Environment
from simpy.events import NORMAL, Event, EventPriority

LAST = EventPriority(2)
"""The priority of what comes after everything else of an instant.

Ends of work have a priority from `NORMAL` (1) to `TIMERS` where ties are random.
"""
TIMERS = cast(EventPriority, np.nextafter(LAST, NORMAL))
"""The priority of timers, just before `LAST`."""


MOMENT_TOLERANCE = 1e-10
"""The largest relative difference of a sum of decimals from the decimal that a user writes.

A sum of 10^6 terms of 0.1 is off by 1.3e-11.
"""


MAX_CANCELLED = 10_000
"""Cancelled events in the queue, besides as many as there are others, above which they leave it."""


class CancelledCallbacks(list[Callable[[Event], None]]):
    """The callbacks of a cancelled event, by which it is found in the queue."""


class Clock(Environment):
    """SimPy's environment, with a queue for the present instant and with void events.

    Events of the present instant wait in a queue of their own. On a free network these are all
    messages, and a heap of 65,536 entries would be slow. SimPy's own `run` and `step` do not see
    that queue: `run_to_end` runs the clock.

    Void events do not keep the clock running: cancelled events, limits and evaluations. A cancelled
    event stays in the queue, since a heap can remove only its first entry. If such events were
    never removed, time-outs longer than the run would fill the memory.

    Attributes:
        stopped: set this to end the run after the present event.
        after_work: schedules the end of a node's work after a delay (s), as `after` does unless
            ties are random.
    """

    def __init__(
        self, ties: np.random.Generator | None = None, moments: Sequence[float] = ()
    ) -> None:
        """Start the clock at 0 s.

        Args:
            ties: draws the order of work that ends in one instant.
            moments: the moments of crashes and returns (s); an end of work that falls on one comes
                after it.
        """
        super().__init__()
        self._ties = ties
        self._moments = sorted(moments)
        if ties is None and not self._moments:
            self.after_work = self.after
        else:
            self.after_work = self._after_work
        self._instant: deque[Event] = deque()
        self._void = 0
        self._cancelled = 0  # of the void events
        self._most_cancelled = MAX_CANCELLED
        self.stopped = False

    def after(self, delay: float, event: Event) -> None:
        """Schedule `event` in `delay` seconds."""
        # A delay may be lost in rounding: its event belongs to this instant, behind those before
        # it.
        at = self._now + delay
        if at == self._now:
            self._instant.append(event)
        else:
            heappush(self._queue, (at, NORMAL, next(self._eid), event))

    def at(self, time: float, event: Event) -> None:
        """Schedule `event` at `time` (s), now or later; `time - now` seconds would be rounded."""
        if time == self._now:
            self._instant.append(event)
        else:
            heappush(self._queue, (time, NORMAL, next(self._eid), event))

    def after_messages(self, delay: float, event: Event) -> None:
        """Schedule `event` in `delay` seconds, after messages and ends of work of that instant."""
        heappush(self._queue, (self._now + delay, TIMERS, next(self._eid), event))

    def after_seconds(self, delay: float) -> Callable[[Event], None]:
        """The function that schedules an event in `delay` seconds, whenever it is called."""
        if delay:
            return partial(self.after, delay)
        return self._instant.append

    def note_moment(self, time: float) -> None:
        """Add `time` (s) to the moments of crashes and returns."""
        place = bisect_left(self._moments, time)
        if place == len(self._moments) or self._moments[place] != time:
            self._moments.insert(place, time)
        # Where there were no moments before, ends of work are compared with them from now on.
        self.after_work = self._after_work

    def _after_work(self, delay: float, event: Event) -> None:
        """Schedule the end of a node's work in `delay` seconds, or at the moment on which it falls.

        Where ties are random, its place in the instant is random between `NORMAL` and `LAST`.
        """
        end = self._now + delay
        # Several moments may be one instant, since they may be sums as well. The last is taken, so
        # that the end of work comes after every crash there.
        place = bisect_right(self._moments, end * (1 + MOMENT_TOLERANCE)) - 1
        if place >= 0 and self._moments[place] >= end * (1 - MOMENT_TOLERANCE):
            end = max(self._moments[place], self._now)
        if self._ties is None:
            self.at(end, event)
            return
        priority = cast(EventPriority, NORMAL + self._ties.random())
        heappush(self._queue, (end, priority, next(self._eid), event))

    def schedule(self, event: Event, priority: EventPriority = NORMAL, delay: float = 0) -> None:
        """Schedule `event` in `delay` seconds, among the events of its instant by `priority`."""
        if priority == NORMAL:
            self.after(delay, event)
        else:
            super().schedule(event, priority, delay)

    def run_to_end(self) -> None:
        """Process events until the clock is stopped or only void events are left."""
        queue, instant = self._queue, self._instant
        while not self.stopped and (
            len(queue) > self._void or len(queue) + len(instant) > self._void
        ):
            # What was scheduled for this instant earlier lies in the heap and comes first. Random
            # ends of work and `LAST` lie there too, with a higher priority, and come later.
            if instant and not (queue and queue[0][0] == self._now and queue[0][1] <= NORMAL):
                event = instant.popleft()
            else:
                self._now, _, _, event = heappop(queue)
            callbacks: Any = event.callbacks
            event.callbacks = None  # type: ignore[assignment]
            # Fast path: the event of a verb has one callback, the engine's, and cannot fail.
            if callbacks.__class__ is tuple:
                callbacks[0](event)
                continue
            for callback in callbacks:
                callback(event)
            if not event._ok and not hasattr(event, "_defused"):
                raise cast(BaseException, event._value)

    @property
    def pending(self) -> int:
        """The number of events to come, without void ones."""
        return len(self._queue) + len(self._instant) - self._void

    @property
    def instant_goes_on(self) -> bool:
        """Whether events of urgent or normal priority wait in the present instant."""
        if self._instant:
            return True
        if not self._queue:
            return False
        time, priority, *_ = self._queue[0]
        return time == self._now and priority <= NORMAL

    def cancel(self, event: Event, call: Callable[[], None] | None = None) -> None:
        """Make the scheduled `event` void: its callbacks are not called, only `call()` if given."""
        if call is None:
            self._withdraw(event)
            return
        callbacks: list[Callable[[Event], None]] = []

        def pass_by(_: Event) -> None:
            self._void -= 1
            callbacks.clear()  # processes that still wait for it never resume
            call()

        self._void += 1
        callbacks.append(pass_by)
        event.callbacks = callbacks

    def _withdraw(self, event: Event) -> None:
        """Make the scheduled `event` void, and remove such events once they are many."""
        callbacks = CancelledCallbacks()

        def pass_by(_: Event) -> None:
            self._void -= 1
            self._cancelled -= 1
            callbacks.clear()  # processes that still wait for it never resume

        self._void += 1
        self._cancelled += 1
        callbacks.append(pass_by)
        event.callbacks = callbacks
        if self._cancelled > self._most_cancelled:
            self._remove_cancelled()

    def _remove_cancelled(self) -> None:
        """Remove cancelled events from the heap, which leaves the order of all others.

        The next removal is due once about as many events are cancelled as others are in the queue:
        amortised, one step per event. Limits and evaluations are not counted, so that a run that
        continues with another limit has the same queue.
        """
        queue = self._queue
        left = [entry for entry in queue if not isinstance(entry[-1].callbacks, CancelledCallbacks)]
        removed = len(queue) - len(left)
        self._void -= removed
        self._cancelled -= removed
        queue[:] = left  # the same list, which `run_to_end` reads
        heapify(queue)
        others = len(queue) - (self._void - self._cancelled)
        self._most_cancelled = self._cancelled + MAX_CANCELLED + others

    def call_in(self, delay: float, call: Callable[[], None]) -> Event:
        """Call `call()` in `delay` seconds; the event keeps the clock running until then."""
        event = self.timeout(delay)
        cast("list[Callable[[Event], None]]", event.callbacks).append(lambda _: call())
        return event

    def call_at(self, time: float, call: Callable[[], object]) -> None:
        """Call `call()` at `time` (s), as in `at`."""
        event = Event(self)
        event._ok, event._value, event.callbacks = True, None, [lambda _: call()]  # type: ignore[list-item]
        self.at(time, event)

    def daemon(
        self, delay: float, call: Callable[[], None], priority: EventPriority = NORMAL
    ) -> Event:
        """Call `call()` in `delay` seconds, if the clock still runs then."""
        event = self._void_event(call)
        self.schedule(event, priority, delay)
        return event

    def after_all(self, delay: float, call: Callable[[], None]) -> Event:
        """Call `call()` in `delay` seconds at the end of that instant, if the clock still runs."""
        return self.daemon(delay, call, LAST)

    def at_moment(self, time: float, call: Callable[[], None]) -> Event:
        """Call `call()` at the end of the instant `time` (s) that a user wrote, if the clock still
        runs.

        Events that are later by rounding alone still come before.
        """
        return self._call_last(time, partial(self._settle, time * (1 + MOMENT_TOLERANCE), call))

    def _settle(self, latest: float, call: Callable[[], None]) -> None:
        """Call `call()`, after the events up to `latest` (s)."""
        later = self._next_time()
        if later <= latest:
            self._call_last(later, partial(self._settle, latest, call))
        else:
            call()

    def _next_time(self) -> float:
        """The time (s) of the first event after this instant; inf where there is none."""
        if self._queue and self._queue[0][0] > self._now:
            return float(self._queue[0][0])
        # The first entry is of this instant. The others of a heap are in no order.
        return float(min((entry[0] for entry in self._queue if entry[0] > self._now), default=inf))

    def _call_last(self, time: float, call: Callable[[], None]) -> Event:
        event = self._void_event(call)
        heappush(self._queue, (max(time, self._now), LAST, next(self._eid), event))
        return event

    def at_end_of_instant(self, call: Callable[[], None]) -> None:
        """Call `call()` after all else of this instant.

        Its sequence number is infinite. It uses up no number, so a snapshot changes no order of
        events.
        """
        heappush(self._queue, (self._now, LAST, cast(int, inf), self._void_event(call)))

    def _void_event(self, call: Callable[[], None]) -> Event:
        event = Event(self)
        event._ok, event._value = True, None
        # As a cancelled event, but with a call: so it does not keep the clock running.
        self.cancel(event, call)
        return event


NEW_OBJECTS_PER_WORKER = 64
"""New objects at which the garbage collector starts within a run."""
MANY_WORKERS = 1024
"""Workers from which on the memory of an earlier run is freed before a run."""


def collect_garbage(workers: int) -> None:
    """Run the garbage collector before a run of many workers: an earlier one leaves cycles."""
    if workers >= MANY_WORKERS:
        gc.collect()


@contextmanager
def rare_collections(workers: int) -> Iterator[None]:
    """Run the garbage collector rarely within the context.

    The engine leaves no reference cycles in a run, but an algorithm may: it runs now and then.
    """
    before = gc.get_threshold()
    # 0: the program has switched the collector off, and it stays off.
    if before[0]:
        threshold = max(before[0], NEW_OBJECTS_PER_WORKER * workers)
        gc.set_threshold(threshold, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
