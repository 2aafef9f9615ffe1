"""Crashes and returns of nodes, and deadlocks."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol, cast

from simpy.events import Event

from laggard.simulator.engine.machine import Machine
from laggard.simulator.network.transport import Transport
from laggard.simulator.timing.clock import Clock
from laggard.simulator.timing.events import Message
from laggard.simulator.timing.roles import Role, RoleProcess
from laggard.simulator.timing.slowdowns import Crash


class Roles:
    """The roles of one node as processes; a crash ends them, a return restarts them."""

    __slots__ = ("_env", "_node", "_processes", "_roles")

    def __init__(
        self, env: Clock, node: Machine, roles: Sequence[Callable[[Machine], Role]]
    ) -> None:
        self._env = env
        self._node = node
        self._roles = roles
        self._processes: list[RoleProcess] = []
        self.start()

    def start(self) -> None:
        """Start every role from its first line."""
        self._processes = []
        for role in self._roles:
            self._run(role(self._node))

    def start_after(self, first: Role) -> None:
        """Start every role once the role `first` has returned."""

        def then() -> Role:
            yield from first
            # `start` forgets the process that runs this line, which then ends by itself.
            self.start()

        self._processes = []
        self._run(then())

    def _run(self, role: Role) -> None:
        process = RoleProcess(self._env, role)
        cast(list[Callable[[Event], None]], process.callbacks).append(self._reraise)
        self._processes.append(process)

    def stop(self) -> None:
        """Close the generator of every role; it does not resume."""
        for process in self._processes:
            process.abandon()
        self._processes = []

    @property
    def alive(self) -> bool:
        """Whether a role has not returned."""
        return any(process.is_alive for process in self._processes)

    def _reraise(self, role: Event) -> None:
        """Raise the error of a role itself, with a note that names the node and the virtual time.

        SimPy would raise a copy, made from the error's arguments.
        """
        if role._ok:
            return
        error = cast(BaseException, role.value)
        name = cast(RoleProcess, role).name
        error.add_note(f"{name} of node {self._node.rank} at {self._env.now:g} s")
        raise error


class CrashWatcher(Protocol):
    """The part of a method's group that reacts to crashes, returns and leaves of its nodes."""

    def before_crash(self, rank: int) -> None:
        """Prepare for the crash of node `rank`."""
        ...

    def after_return(self, rank: int) -> None:
        """Respond to the return of node `rank`."""
        ...

    def request_leave(self, rank: int) -> None:
        """Let node `rank`, whose uptime is over, leave as soon as it loses nothing by leaving."""
        ...


class Faults:
    """The roles of all nodes, their crashes and returns.

    Args:
        group: the workers that restart together with a worker that has returned.

    Attributes:
        roles: the roles of each node.
        outside: workers that returned and were not readmitted.
        watcher: notified of crashes and returns, where a method without a server goes on after a
            crash.
    """

    def __init__(
        self,
        env: Clock,
        crashes: Sequence[Crash],
        machines: Mapping[int, Machine],
        roles: Mapping[int, Sequence[Callable[[Machine], Role]]],
        group: Callable[[int], Sequence[int]],
        transport: Transport,
    ) -> None:
        self._machines = machines
        self._group = group
        self._transport = transport
        self.roles = {rank: Roles(env, machines[rank], on) for rank, on in roles.items()}
        self.outside: list[int] = []
        self.watcher: CrashWatcher | None = None
        self._env = env
        # by (rank that waits, peer): fires at the next crash of the peer
        self._crashes: dict[tuple[int, int], Event] = {}
        self._returns = 0  # number of returns still to come
        for crash in crashes:
            for rank in crash.ranks:
                # A crash does not keep a run going. A return does, since others may wait for it.
                env.daemon(crash.at, partial(self.crash, rank))
                if crash.back is not None:
                    self.return_in(crash.back, partial(self.restart, rank))

    def return_in(self, seconds: float, call: Callable[[], None]) -> None:
        """Let a worker return in `seconds` by `call()`; the run goes on until then."""
        self._returns += 1
        self._env.call_in(seconds, call)

    def crash(self, rank: int) -> None:
        """Take node `rank` down: its computation and the messages from and to it are lost."""
        if self.watcher is not None:
            self.watcher.before_crash(rank)
        self.roles[rank].stop()
        self._machines[rank].crash()
        for (_, peer), event in self._crashes.items():
            if peer == rank and not event.triggered:
                event.succeed()
        # After the crash of the machine: by its new incarnation `record_loss` knows who has
        # crashed.
        self.lose_messages(rank)

    def lose_messages(self, rank: int) -> None:
        """Lose the messages under way from and to node `rank`."""
        for message in self._transport.cut(rank):
            cast(Message, message).lose()

    def restart(self, rank: int, reads: Callable[[Machine], Role] | None = None) -> None:
        """Bring node `rank` back with its model, and restart its roles if the method readmits it.

        Args:
            reads: the role that gives the node another model before its own roles start.
        """
        self._machines[rank].revive()
        if rank >= 0:
            self._returns -= 1
        # A role that calls `down` from now on waits for the next crash, not for the last one.
        waits = self._crashes.items()
        self._crashes = {pair: event for pair, event in waits if pair[1] != rank}
        if self.watcher is not None:
            self.watcher.after_return(rank)
        elif rank < 0:
            self.roles[rank].start()
        elif not self._group(rank):
            self.outside.append(rank)
        elif reads is not None:
            self.roles[rank].start_after(reads(self._machines[rank]))
        else:
            self._restart_group(rank)

    def _restart_group(self, returned: int) -> None:
        """Start the roles of all workers in the group of worker `returned`, if they are up.

        Each loses its work and its messages. Otherwise the group would wait for a mini-batch of
        which a part is lost.
        """
        ranks = self._group(returned)
        if any(self._machines[rank].incarnation % 2 for rank in ranks):
            return  # the last to return starts all
        for rank in ranks:
            if rank != returned:
                self.roles[rank].stop()
                self._machines[rank].crash()
                self._machines[rank].revive()
                self.lose_messages(rank)
        for rank in ranks:
            self.roles[rank].start()

    def down(self, rank: int, peer: int) -> Event:
        """An event of `rank` that fires when node `peer` crashes, at once if `peer` is down."""
        event = self._crashes.get((rank, peer))
        if event is None or event.callbacks is None:
            event = self._crashes[rank, peer] = Event(self._env)
            if self._machines[peer].incarnation % 2:
                event.succeed()
        return event

    @property
    def all_gone(self) -> bool:
        """Whether every worker is down, and none returns."""
        if self._returns:
            return False
        return all(node.incarnation % 2 for rank, node in self._machines.items() if rank >= 0)

    @property
    def waiting(self) -> bool:
        """Whether a node is down or not readmitted, or a worker's role has not returned."""
        if self.outside or any(machine.incarnation % 2 for machine in self._machines.values()):
            return True
        # the roles of servers never return
        return any(role.alive for rank, role in self.roles.items() if rank >= 0)


MAX_WAITS_SHOWN = 8


def describe_waits(nodes: Mapping[int, Machine], outside: Sequence[int]) -> str:
    """Describe the receives that wait at `nodes`, workers' first, and the workers in `outside`."""
    waits = []
    for rank, node in sorted(nodes.items(), key=lambda item: item[0] < 0):
        for receive in node.mailbox.waiting():
            wait = f"node {rank} waits since {receive.since:g} s for a message"
            if receive.tag is not None:
                wait += f" with tag {receive.tag!r}"
            waits.append(wait)
    waits += [f"node {rank} is back and not readmitted" for rank in outside]
    if not waits:
        return "workers wait for cancelled work"
    if len(waits) > MAX_WAITS_SHOWN:
        more = len(waits) - MAX_WAITS_SHOWN
        waits = [*waits[:MAX_WAITS_SHOWN], f"and {more} more"]
    return "; ".join(waits)
