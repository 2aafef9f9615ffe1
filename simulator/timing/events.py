"""The events that a node's verbs return: `yield` waits for one, `|` for the first, `&` for all.

They are cheap SimPy events: a computation and a message are one entry each in the event queue, a
message is delivered inside its own event, and none of them needs a process, a store, or a list of
callbacks of its own.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from simpy.core import Environment
from simpy.events import PENDING as PENDING  # as `Event`, for modules that may not import simpy
from simpy.events import Condition
from simpy.events import Event as Event

if TYPE_CHECKING:
    from simpy.events import Event as Slotted

    from laggard.simulator.learning.gradients import Gradient
    from laggard.simulator.timing.roles import RoleProcess
else:

    class Slotted:
        """The properties of SimPy's `Event`, for events without a dictionary.

        Slots take less memory: with many workers, a cycle takes as long as its events need to come
        into the cache. SimPy needs only `env`, `callbacks`, `_ok` and `_value` of an event.
        """

        __slots__ = ()

        ok = Event.ok
        triggered = Event.triggered
        processed = Event.processed
        value = Event.value


Callbacks = tuple[Callable[[Any], None]]
Owner = Any
"""The node that an event belongs to: a `Machine` of the engine, which this folder does not import.

Events call its methods `interrupt(work)` and `record_loss(message)`, and its mailbox.
"""


class Verb(Slotted):
    """An event that a verb of a node returns.

    Attributes:
        callbacks: as in SimPy, but a tuple that all events share until there is a listener besides
            the engine and `role`; None once the event has fired.
        role: the role that waits for it, if it is the only listener.
    """

    __slots__ = ()

    callbacks: Any
    role: "RoleProcess | None"

    def __iter__(self) -> Iterator[Any]:
        raise TypeError(
            "expected `yield` before a node's verb, as in `sender, content = yield node.receive()`, "
            f"got its event, {type(self).__name__}"
        )

    def __or__(self, other: Event) -> "Choice":
        return Choice(self.env, Condition.any_events, [with_list(self), with_list(other)])

    def __and__(self, other: Event) -> "Choice":
        return Choice(self.env, Condition.all_events, [with_list(self), with_list(other)])

    @property
    def value(self) -> Any:
        """The event's value, once it has fired."""
        return super().value

    @property
    def fired(self) -> bool:
        """Whether the event has fired."""
        return self.callbacks is None


def with_list(event: Event) -> Event:
    """`event`, with its callbacks as a list if it has not fired, for SimPy's conditions."""
    if isinstance(event, Verb) and isinstance(event.callbacks, tuple):
        callbacks = list(event.callbacks)
        if event.role is not None:
            callbacks.append(event.role._resume)
        event.callbacks = callbacks
        event.role = None
    return event


class Choice(Verb, Condition):
    """The first, or all, of several events.

    Once the first has fired, the other receives and timers are withdrawn: these receives take no
    message later, and a message that one of them has taken is put back.
    """

    role = None

    def _check(self, event: Event) -> None:
        decided = self._value is not PENDING
        super()._check(event)
        if not decided and self._value is not PENDING and self._evaluate is Condition.any_events:
            # If several have fired, the first of them in the order of the expression wins.
            won = next(leaf for leaf in leaves(self._events) if leaf.callbacks is None)
            for leaf in leaves(self._events):
                if isinstance(leaf, Receive | Timeout) and leaf is not won:
                    leaf.withdraw()


def leaves(events: Iterable[Event]) -> Iterable[Event]:
    """The events in `events`, with those inside choices instead of the choices."""
    for event in events:
        if isinstance(event, Choice):
            yield from leaves(event._events)
        else:
            yield event


class Work(Verb):
    """The work of a node, which is busy until this fires; its value is the gradient, if any.

    Attributes:
        buckets: the events of the buckets of the gradient, if any; the last is the work itself.
    """

    __slots__ = ("_value", "buckets", "callbacks", "node", "role")

    _ok = True
    _value: "Gradient | None"
    buckets: "tuple[Work | BucketReady, ...]"
    node: Owner

    @property
    def gradient(self) -> "Gradient | None":
        """The promise of the gradient, also before it is computed."""
        return self._value

    @property
    def env(self) -> Environment:  # type: ignore[override]
        env: Environment = self.node._env
        return env

    def cancel(self) -> None:
        """Free the node now and withdraw the gradient's promise; the event never fires.

        Work that ended in this instant is withdrawn too; a final status stays.
        """
        self.node.interrupt(self)
        if self._value is not None:
            self._value.cancel()
        early, self.buckets = self.buckets[:-1], ()
        for bucket in early:
            if not bucket.fired:
                self.env.cancel(bucket)  # type: ignore[attr-defined]


def new_work(node: Owner, gradient: "Gradient | None", callbacks: Callbacks | None) -> Work:
    """A new `Work`. Not `__init__`: Python 3.11 calls a function 25 ns faster, in every cycle."""
    work = Work()  # type: ignore[call-arg]
    work.node = node
    work._value = gradient
    work.callbacks = callbacks
    work.role, work.buckets = None, ()
    return work


class BucketReady(Verb):
    """An event that fires with the gradient when a bucket is ready, while `work` goes on."""

    __slots__ = ("_value", "callbacks", "role", "work")

    _ok = True

    def __init__(self, work: Work) -> None:
        self.work = work
        self._value = work.gradient
        self.callbacks = ROLE_GOES_ON
        self.role = None

    @property
    def env(self) -> Environment:  # type: ignore[override]
        return self.work.env


class Timeout(Verb):
    """An event that fires after some seconds; its node may compute, and `|` cancels a loser."""

    __slots__ = ("_value", "callbacks", "node", "role")

    _ok = True

    def __init__(self, node: Owner, callbacks: Callbacks) -> None:
        self.node = node
        self.callbacks = callbacks
        self._value = None
        self.role = None

    @property
    def env(self) -> Environment:  # type: ignore[override]
        env: Environment = self.node._env
        return env

    def withdraw(self) -> None:
        """Cancel the timer: it never fires."""
        self.node._services.timers.withdraw(self)


class Departure(Verb):
    """An event that fires when the last byte of a message has left its sender."""

    __slots__ = ("_value", "callbacks", "env", "role")

    _ok = True

    def __init__(self, env: Environment) -> None:
        self.env = env
        self._value = None
        self.callbacks = ROLE_GOES_ON
        self.role = None


def go_on(event: "BucketReady | Departure") -> None:
    """Let the role that waits for `event` go on."""
    if event.role is not None:
        event.role.resume(event._value)


ROLE_GOES_ON = (go_on,)


class Message(Verb):
    """A message under way; fires with its content when it has been delivered.

    It is lost, and never fires, if its sender crashes before it arrives, or its receiver crashes or
    is down.

    Attributes:
        content: its content.
        left: the moment (s) at which its last byte leaves its sender, once that is known; not set
            on a network without bandwidths.
        size: the part that a server has still to receive, in models; 0 after `put`, and where
            receiving takes servers no time.
        incarnations: the sender's when it was sent, and the receiver's for which it is meant.
        waiting: its callbacks, where a crash can lose it.
    """

    __slots__ = (
        "_value",
        "callbacks",
        "content",
        "incarnations",
        "left",
        "receiver",
        "role",
        "sender",
        "size",
        "tag",
        "waiting",
    )

    _ok = True
    content: Any
    incarnations: tuple[int, int]
    left: float
    receiver: Owner
    sender: Owner
    size: float
    tag: Any
    waiting: list[Callable[[Any], None]]

    @property
    def env(self) -> Environment:  # type: ignore[override]
        env: Environment = self.sender._env
        return env

    @property
    def departed(self) -> Verb:
        """Fires when its last byte has left its sender: it has crossed the links, or is lost.

        The latency follows. Where there is none, this is the arrival.
        """
        departed: Verb = self.sender.departure(self)
        return departed

    def lose(self) -> None:
        """Lose the message: it never fires."""
        self._value = PENDING
        self.sender.record_loss(self)


def new_message(
    sender: Owner, receiver: Owner, content: Any, tag: Any, callbacks: Callbacks
) -> Message:
    """A message that its sender is about to send."""
    message = Message()  # type: ignore[call-arg]
    message.sender = sender
    message.receiver = receiver
    message.tag = tag
    message.callbacks = callbacks
    message._value = message.content = content
    message.role, message.size = None, 0.0
    return message


class Receive(Verb):
    """The next message with a tag; fires with `(sender's rank, content)`.

    Attributes:
        since: the moment (s) from which the node waits.
        message: the message that it has taken, if any.
        withdrawn: whether it no longer waits.
    """

    __slots__ = ("_value", "callbacks", "message", "node", "role", "since", "tag", "withdrawn")

    _ok = True
    message: Message | None
    node: Owner
    since: float
    tag: Any
    withdrawn: bool

    @property
    def env(self) -> Environment:  # type: ignore[override]
        env: Environment = self.node._env
        return env

    def withdraw(self) -> None:
        """Stop waiting: the message, present or future, is for the next receive.

        A receive that fired in an earlier instant keeps its message.
        """
        if not self.withdrawn and (not self.fired or self.since == self.env.now):
            self.node.mailbox.forget(self)
            self.withdrawn = True
            self.callbacks = []
            self._value = PENDING

    def fire(self, message: Message) -> None:
        """Fire now, inside the event that delivers the message."""
        self.message = message
        self._value = value = (message.sender.rank, message.content)
        last_incarnation = self.node.mailbox.last_incarnation
        if last_incarnation is not None:
            last_incarnation[message.sender.rank] = message.incarnations[0]
        callbacks, self.callbacks = self.callbacks, None
        if self.role is not None:
            self.role.resume(value)
        for callback in callbacks:
            callback(self)


def new_receive(node: Owner, tag: Any, kind: type[Receive] = Receive) -> Receive:
    """A receive that waits from now on."""
    receive = kind()  # type: ignore[call-arg]
    receive.node = node
    receive.tag = tag
    receive.since = node._env._now
    receive._value = PENDING
    receive.callbacks = ()
    receive.role = None
    receive.message, receive.withdrawn = None, False
    return receive
