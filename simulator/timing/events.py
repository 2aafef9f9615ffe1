"""The events that a node's verbs return; `yield` waits for one, `|` for the first of several, `&` for all.

They are cheap SimPy events: a computation and a message are one entry each in the event queue, a message is
delivered inside its own event, and none of them needs a process or a store.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from simpy.core import Environment
from simpy.events import PENDING, Condition
from simpy.events import Event as Event  # for modules that may not import simpy

if TYPE_CHECKING:
    from laggard.simulator.engine.machine import Machine
    from laggard.simulator.learning.gradients import Gradient


class Verb(Event):
    """An event that a verb of a node returns."""

    def __or__(self, other: Event) -> "Choice":
        return Choice(self.env, Condition.any_events, [self, other])

    def __and__(self, other: Event) -> "Choice":
        return Choice(self.env, Condition.all_events, [self, other])

    @property
    def value(self) -> Any:
        """The event's value, once it has fired."""
        return super().value

    @property
    def fired(self) -> bool:
        """Whether the event has fired."""
        return self.callbacks is None


class Choice(Verb, Condition):
    """The first, or all, of several events.

    Once one has fired, the other receives are withdrawn: they take no message later, and a message that one of them
    has taken from the mailbox is put back.
    """

    def _check(self, event: Event) -> None:
        decided = self._value is not PENDING
        super()._check(event)
        if not decided and self._value is not PENDING and self._evaluate is Condition.any_events:
            won = next(leaf for leaf in leaves(self._events) if leaf.callbacks is None)
            for leaf in leaves(self._events):
                if isinstance(leaf, Receive) and leaf is not won:
                    leaf.withdraw()


def leaves(events: Iterable[Event]) -> Iterable[Event]:
    """The events in `events`, with those inside choices instead of the choices."""
    for event in events:
        if isinstance(event, Choice):
            yield from leaves(event._events)
        else:
            yield event


class Work(Verb):
    """A node is busy until this fires; its value is the gradient that it computes, if any."""

    _ok = True

    def __init__(self, env: Environment, node: "Machine", gradient: "Gradient | None") -> None:
        self.env, self.callbacks = env, [node.done]
        self._value = gradient
        self.node, self.gradient = node, gradient

    def cancel(self) -> None:
        """Free the node now and withdraw the gradient's promise; the event never fires.

        Work that ended in this very instant is withdrawn too; a final status is kept.
        """
        self.node.cancelled(self)
        if self.gradient is not None:
            self.gradient.cancel()


class Message(Verb):
    """A message under way; fires, with its content as value, when it has arrived and been delivered.

    It is lost, and never fires, where its sender crashes before it arrives, or its receiver does or is down already.

    Attributes:
        content: what it carries.
        lives: the sender's `life` when it was sent, and the receiver's `life` for which it is meant.
    """

    _ok = True

    def __init__(
        self, env: Environment, sender: "Machine", receiver: "Machine", life: int, content: Any, tag: Any
    ) -> None:
        self.env, self.callbacks = env, [self._arrive]
        self._value = self.content = content
        self.sender, self.receiver, self.tag = sender, receiver, tag
        self.lives = (sender.life, life)
        self._waiting: Any = self.callbacks

    def lose(self) -> None:
        """Lose the message: it never fires."""
        self._value = PENDING
        self.sender.lost(self)

    def _arrive(self, _: Event) -> None:
        sender, receiver = self.sender, self.receiver
        waiting, self._waiting = self._waiting, None  # it refers to this method, which would be a reference cycle
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

    def __init__(self, env: Environment, node: "Machine", tag: Any) -> None:
        self.env, self.callbacks = env, []
        self.node, self.tag, self.since = node, tag, env._now

    def withdraw(self) -> None:
        """Stop waiting: the message, present or future, is for the next receive."""
        if not self.withdrawn and (not self.fired or self.since == self.env.now):
            self.node.mailbox.forget(self)
            self.withdrawn, self.callbacks, self._value = True, [], PENDING

    def fire(self, message: Message) -> None:
        """Fire now, inside the event that delivers the message."""
        self.message = message
        self._value = (message.sender.rank, message.content)
        callbacks, self.callbacks = self.callbacks, None  # type: ignore[assignment]
        for callback in callbacks:
            callback(self)
