"""Calls at a moment to come, of which some are put off or called off."""

from collections.abc import Callable
from typing import cast

from simpy.events import Event

from simulator.bounds import duration
from simulator.clock import Clock


def call_in(env: Clock, delay: float, call: Callable[[], None]) -> Event:
    """Call `call()` after `delay` seconds; void the event, and it is not called."""
    return event_in(env, delay, lambda _: call())


def event_in(env: Clock, delay: float, call: Callable[[Event], None]) -> Event:
    """Call `call(event)` after `delay` seconds."""
    event = env.timeout(duration(delay, "Network", "bytes over bandwidth"))
    cast("list[Callable[[Event], None]]", event.callbacks).append(call)
    return event


class Alarm:
    """Rings at the moment (s) last asked for.

    One event is armed at most. Put off, it stays armed and is armed again when it comes: a message that joins others
    puts off the end of the first of them, and mostly another one joins before that.
    """

    __slots__ = ("_armed", "_at", "_env", "_event", "_ring")

    def __init__(self, env: Clock, ring: Callable[[], None]) -> None:
        self._env, self._ring = env, ring
        self._event: Event | None = None
        self._at = self._armed = 0.0

    def ask(self, at: float) -> None:
        """Ring at `at`, or now where that has gone by, and not at the moment asked for before.

        Raises:
            Invalid: it would never ring.
        """
        self._at = at
        if self._event is not None:
            if self._armed <= at:
                return
            self._env.void(self._event)
        self._arm()

    def off(self) -> None:
        """Ring no more."""
        if self._event is not None:
            self._env.void(self._event)
            self._event = None

    def _arm(self) -> None:
        self._armed = self._at
        self._event = event_in(self._env, max(self._at - self._env.now, 0.0), self._come)

    def _come(self, _: Event) -> None:
        self._event = None
        if self._armed < self._at:
            self._arm()
        else:
            self._ring()
