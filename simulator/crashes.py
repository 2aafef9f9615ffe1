"""Workers that go down and come back: what they did is lost, and their roles begin again."""

from collections.abc import Callable, Sequence
from typing import Any, cast

from simpy.events import Event, Process

from simulator.algorithm import Role
from simulator.clock import Clock
from simulator.node import Node


class Roles:
    """The roles of one node, which run as processes of the clock, end with a crash and start again with a return."""

    def __init__(self, env: Clock, node: Node, roles: Sequence[Callable[[Node], Role]]) -> None:
        self._env, self._node, self._roles = env, node, roles
        self._processes: list[Process] = []
        self.start()

    def start(self) -> None:
        """Start every role from its first line."""
        self._processes = [self._env.process(role(self._node)) for role in self._roles]
        for process in self._processes:
            cast(list[Callable[[Event], None]], process.callbacks).append(reraise)

    def stop(self) -> None:
        """Close every role where it stands: it is told nothing, and resumes no more."""
        for process in self._processes:
            if process.is_alive:
                waiting = process.target.callbacks or ()
                if process._resume in waiting:  # it is not where it waits for a message that is lost
                    cast(list[Any], waiting).remove(process._resume)
                process._generator.close()
        self._processes = []

    @property
    def alive(self) -> bool:
        """Whether any of them has not returned."""
        return any(process.is_alive for process in self._processes)


def reraise(role: Event) -> None:
    """Raise what a role raised, as it was: SimPy would make a copy of it, from its arguments alone."""
    if not role._ok:
        raise cast(BaseException, role.value)
