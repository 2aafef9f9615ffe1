"""A role of a node as a process of the clock."""

from collections.abc import Generator
from typing import Any, cast

from simpy.core import Environment
from simpy.events import Event, Process

from laggard.errors import InvalidSettingError
from laggard.simulator.timing.events import with_list

Role = Generator[Event, Any, None]
"""A generator that yields the events of a node's verbs."""


class RoleProcess(Process):
    """A running role: a SimPy process that an event of a verb resumes without a callback."""

    def __init__(self, env: Environment, role: Role) -> None:
        if not isinstance(role, Generator):
            expected = "a generator, of a function with a `yield` in it"
            raise InvalidSettingError("algorithm", "role", expected, role)
        self._send = role.send
        super().__init__(env, role)

    def resume(self, value: Any) -> None:
        """Continue the role with `value` until it yields an event that has not fired."""
        send = self._send
        try:
            event: Any = send(value)
            # An event that has fired takes no turn of the clock: the role goes on at once.
            while (callbacks := event.callbacks) is None:
                event = send(event._value)
        # Not BaseException: Ctrl-C may come at any line, and does not end the role.
        except Exception as error:
            self._end(error)
        else:
            self._target = event
            if callbacks.__class__ is tuple and event.role is None:
                event.role = self
            else:
                with_list(event).callbacks.append(self._resume)

    def abandon(self) -> None:
        """Close the role; it does not resume."""
        if self.is_alive:
            event: Any = self.target
            if getattr(event, "role", None) is self:
                event.role = None
            # a lost message has no callbacks
            elif self._resume in (event.callbacks or ()):
                event.callbacks.remove(self._resume)
            self._generator.close()

    def _resume(self, event: Event) -> None:
        self.resume(event._value)

    def _end(self, error: Exception) -> None:
        """End like the role: it returned, raised `error`, or yielded no event."""
        self._ok = isinstance(error, StopIteration)
        self._value = error
        # An AttributeError while the generator has a frame is not its own: `callbacks` is missing.
        if isinstance(error, AttributeError) and cast(Any, self._generator).gi_frame is not None:
            got = error.obj
            expected = "to yield events of the node's verbs, as in `yield node.receive()`"
            self._value = InvalidSettingError("algorithm", self.name, expected, got)
        self.env.schedule(self)
