"""Servers to which messages cost time: one thread receives, works and sends, one after another."""

from collections.abc import Hashable
from functools import partial
from typing import Any

from laggard.simulator.engine.cluster import Cluster
from laggard.simulator.engine.machine import INFINITE, MESSAGE_ARRIVES, WORK_ENDS, Machine
from laggard.simulator.engine.services import Services
from laggard.simulator.errors import InvalidSettingError, check_duration
from laggard.simulator.learning.gradients import Gradient
from laggard.simulator.recording.trace import BUSY, SENDING, WAITING
from laggard.simulator.timing.distributions.distribution import is_law
from laggard.simulator.timing.events import (
    Message,
    Receive,
    Work,
    new_message,
    new_receive,
    new_work,
)
from laggard.simulator.timing.streams import APPLY, RECEIVE, REPLY


def kind_of(cluster: Cluster, rank: int) -> type[Machine]:
    """The class of node `rank`: `Machine` unless messages take time, or updates a drawn time.

    Without servers, clients behave like machines.
    """
    if cluster.receive_seconds == 0 and cluster.reply_seconds == 0:
        if is_law(cluster.apply_seconds):
            return Client
        return Machine
    if rank < 0:
        return Server
    return Client


class Client(Machine):
    """A node whose messages have a size, and whose updates may take a drawn time."""

    def __init__(self, rank: int, services: Services, *rest: Any) -> None:
        super().__init__(rank, services, *rest)
        self._apply_seconds = services.draws(services.cluster.apply_seconds, APPLY, rank)

    @property
    def apply_seconds(self) -> float:
        seconds: float = self._apply_seconds()
        return seconds

    def send(self, receiver: int, content: Any, tag: Hashable = None, size: float = 1.0) -> Message:
        message = super().send(receiver, content, tag, size)
        message.size = size  # the message arrives in a later event
        return message


class Server(Client):
    """A server with one thread: each task begins when all earlier ones have ended.

    Receiving a message of m models takes m receive_seconds, from the moment at which a role has
    asked for it, it has arrived, and the server is free. Sending one takes m reply_seconds; it
    departs at the start. All of this time, and that of work, is busy.
    """

    def __init__(self, rank: int, services: Services, *rest: Any) -> None:
        super().__init__(rank, services, *rest)
        self.mailbox.fast_path = False  # a message that has arrived takes time to receive
        self._receive_seconds = services.draws(services.cluster.receive_seconds, RECEIVE, rank)
        self._reply_seconds = services.draws(services.cluster.reply_seconds, REPLY, rank)
        self._free = 0.0  # the moment (s) at which all tasks so far will have ended
        self._begun = self._work_ends = 0.0  # of the present work

    def send(self, receiver: int, content: Any, tag: Hashable = None, size: float = 1.0) -> Message:
        target = self._joined.get(receiver) or self._join(receiver)
        if not 0 <= size < INFINITE:
            raise InvalidSettingError("send", "size", "a finite number of models >= 0", size)
        seconds = 0.0
        if size:  # a token draws nothing
            seconds = size * self._reply_seconds()
        begin = self._reserve(seconds)
        self._outgoing += 1
        message = new_message(self, target, content, tag, MESSAGE_ARRIVES)
        message.size = size
        self._address(message)
        if begin == self._env._now:
            self._depart(message)
        else:
            self._env.call_at(begin, partial(self._depart, message))
        return message

    def receive(self, tag: Hashable = None) -> Receive:
        return self.mailbox.ask(new_receive(self, tag, Intake))

    def work(self, seconds: float = 0.0, *, share: float = 0.0, of: float | None = None) -> Work:
        if seconds or share or self._free <= self._env._now:
            return super().work(seconds, share=share, of=of)
        return self._begin(None, 0.0)  # after what it sends

    def take_in(self, message: Message) -> float:
        """Begin to receive `message` as soon as possible; return the end (s)."""
        seconds = 0.0
        if message.size:
            seconds = message.size * self._receive_seconds()
        self._reserve(seconds)
        # If its receive is withdrawn, the next one gets it without receiving it again.
        message.size = 0.0
        return self._free

    def interrupt(self, work: Work) -> None:
        if self._work is work:
            self._settle()
            # Else later tasks have been planned behind the work, and their moments stay.
            if self._work_ends == self._free:
                self._free = max(self._begun, self._env._now)
        super().interrupt(work)

    def crash(self) -> None:
        self._settle()
        super().crash()
        self._free = self._env.now

    def close(self) -> None:
        self._settle()
        super().close()

    def _begin(self, gradient: Gradient | None, seconds: float) -> Work:
        if self._work is not None:
            at = f"node {self.rank} starts to work at {self._env.now:g} s"
            remedy = "yield the first work, or cancel it, before the second"
            raise RuntimeError(f"{at} while it is working already; {remedy}")
        check_duration(seconds, f"node {self.rank}", "work")
        self._begun = self._reserve(seconds)
        delay = self._free - self._env._now
        # Rounded as by the clock, so that the end of the work is the moment of its event.
        self._free = self._work_ends = self._env._now + delay
        self._work = work = new_work(self, gradient, WORK_ENDS)
        self._env.after_work(delay, work)
        return work

    def _depart(self, message: Message) -> None:
        """Hand `message` to the network, unless the server has crashed since."""
        if self.mailbox.last_incarnation is None or message.incarnations[0] == self.incarnation:
            self._counters.sent += 1
            self._counters.models_sent += message.size
            self._hand_over(message, message.size * self.model_bytes)

    def _reserve(self, seconds: float) -> float:
        """Reserve the server for `seconds` from when it is free; return the start (s)."""
        self._settle()
        begin = max(self._env._now, self._free)
        self._free = begin + seconds
        return begin

    def _settle(self) -> None:
        """Count the time up to now."""
        self._spend(SENDING if self._outgoing else WAITING)

    def _spend(self, state: int) -> None:
        """Add the time since the last call: busy while a task ran, the rest in `state`."""
        now = self._env._now
        busy = max(0.0, min(now, self._free) - self._since)
        self.spent[BUSY] += busy
        self.spent[state] += now - self._since - busy
        self._since = now


class Intake(Receive):
    """A receive of a server, which fires after the time that its message takes."""

    __slots__ = ()

    node: Server

    def fire(self, message: Message) -> None:
        """Begin to receive the message."""
        # Now, before the time has passed: a receive that is withdrawn meanwhile passes it on.
        self.message = message
        done = self.node.take_in(message)
        if done == self.env.now:
            super().fire(message)
        else:
            self.node._env.call_at(done, partial(self._end, message, self.node.incarnation))

    def _end(self, message: Message, incarnation: int) -> None:
        if not self.withdrawn and incarnation == self.node.incarnation:
            super().fire(message)
