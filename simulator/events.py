"""The events that a node's verbs return; `yield` waits for one, `|` for the first of several, `&` for all.

They are SimPy events that a clock can afford: a computation and a message are one entry each in the event
queue, a message is delivered inside its own event, and no process or store is made for any of them.
"""

from collections.abc import Iterable
from typing import Any, Protocol

from simpy.core import Environment
from simpy.events import PENDING, Condition, Event

from simulator.gradients import IN_FLIGHT, Gradient


class Mail(Protocol):
    """A node's mailbox, as messages and receives see it."""

    def deliver(self, message: "Message") -> None:
        """A message has arrived at the node."""
        ...

    def forget(self, receive: "Receive") -> None:
        """`receive` waits no longer; what it has taken already is the next message again."""
        ...


class Host(Protocol):
    """A node, as its own events see it.

    Attributes:
        life: how often it has crashed and returned; odd while it is down.
    """

    rank: int
    life: int

    @property
    def mailbox(self) -> Mail: ...

    def done(self, work: Any) -> None:
        """A work has come to its end."""
        ...

    def cancelled(self, work: "Work") -> None:
        """`work` is interrupted."""
        ...

    def sent(self, message: "Message") -> None:
        """One of the node's messages has arrived."""
        ...

    def lost(self, message: "Message") -> None:
        """One of the node's messages will never arrive."""
        ...


class Verb(Event):
    """An event that a verb of a node returns."""

    def __or__(self, other: Event) -> "Choice":
        return Choice(self.env, Condition.any_events, [self, other])

    def __and__(self, other: Event) -> "Choice":
        return Choice(self.env, Condition.all_events, [self, other])

    @property
    def value(self) -> Any:
        """What the event brought, once it has happened."""
        return super().value

    @property
    def fired(self) -> bool:
        """Whether the event has happened, and `value` is its value."""
        return self.callbacks is None


class Choice(Condition):
    """The first, or all, of several events.

    Once it is decided, the receives that were not it are withdrawn: they take no message later, and a message that one
    of them found in the mailbox when it was made lies there again.
    """

    def _check(self, event: Event) -> None:
        decided = self._value is not PENDING
        super()._check(event)
        if not decided and self._value is not PENDING and self._evaluate is Condition.any_events:
            won = next(leaf for leaf in leaves(self._events) if leaf.callbacks is None)
            for leaf in leaves(self._events):
                if isinstance(leaf, Receive) and leaf is not won:
                    leaf.withdraw()

    def __or__(self, other: Event) -> "Choice":
        return Choice(self.env, Condition.any_events, [self, other])

    def __and__(self, other: Event) -> "Choice":
        return Choice(self.env, Condition.all_events, [self, other])


def leaves(events: Iterable[Event]) -> Iterable[Event]:
    """The events that `events` are made of, choices taken apart."""
    for event in events:
        if isinstance(event, Choice):
            yield from leaves(event._events)
        else:
            yield event


class Work(Verb):
    """A node is busy until this fires; its value is the gradient that it computes, if any."""

    _ok = True

    def __init__(self, env: Environment, node: Host, gradient: Gradient | None) -> None:
        self.env, self.callbacks = env, [node.done]
        self._value = gradient
        self.node, self.gradient = node, gradient

    def cancel(self) -> None:
        """Free the node now and withdraw the gradient's promise; the event never fires.

        Work that ended in this very instant is withdrawn too; a gradient with a fate keeps it.
        """
        self.node.cancelled(self)
        if self.gradient is not None and self.gradient.status == IN_FLIGHT:
            self.gradient.cancel()


class Message(Verb):
    """A message under way; fires, with its content as value, when it has arrived and been delivered.

    It is lost, and never fires, where its sender crashes before it arrives, or its receiver does or is down already.

    Attributes:
        content: what it says.
        lives: its sender's when it was sent, and that of its receiver for which it is meant.
    """

    _ok = True

    def __init__(self, env: Environment, sender: Host, receiver: Host, life: int, content: Any, tag: Any) -> None:
        self.env, self.callbacks = env, [self._arrive]
        self._value = self.content = content
        self.sender, self.receiver, self.tag = sender, receiver, tag
        self.lives = (sender.life, life)
        self._waiting: Any = self.callbacks

    def lose(self) -> None:
        """It will never arrive: whoever waits for that waits for ever."""
        self._value = PENDING
        self.sender.lost(self)

    def _arrive(self, _: Event) -> None:
        sender, receiver = self.sender, self.receiver
        waiting, self._waiting = self._waiting, None  # it holds this very method: a circle that only a collector undoes
        if self.lives != (sender.life, receiver.life) or receiver.life % 2:
            waiting.clear()
            self.callbacks = []
            self.lose()
        else:
            sender.sent(self)
            receiver.mailbox.deliver(self)


class Receive(Verb):
    """The next message with a tag; fires with `(sender's rank, content)`.

    Attributes:
        since: the moment (s) from which the node waits.
        message: what it has taken, if anything.
    """

    _ok = True
    message: Message | None = None
    withdrawn = False

    def __init__(self, env: Environment, node: Host, tag: Any) -> None:
        self.env, self.callbacks = env, []
        self.node, self.tag, self.since = node, tag, env._now

    def withdraw(self) -> None:
        """Wait no longer: the message, when it comes or if it lay there, is for the next receive."""
        if not self.withdrawn and (not self.fired or self.since == self.env.now):
            self.node.mailbox.forget(self)
            self.withdrawn, self.callbacks, self._value = True, [], PENDING

    def fire(self, message: Message) -> None:
        """Happen now, inside the event that delivers the message."""
        self.message = message
        self._value = (message.sender.rank, message.content)
        callbacks, self.callbacks = self.callbacks, None  # type: ignore[assignment]
        for callback in callbacks:
            callback(self)
