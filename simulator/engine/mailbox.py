"""A node's mailbox: messages not received yet, and receives that wait for a message."""

from collections import deque
from collections.abc import Hashable

from laggard.simulator.timing.events import Message, Receive

Mail = deque[Message] | list[Message]
"""Many untagged messages may wait, hence a deque. A tag has few, and a deque takes 600 bytes."""
NO_MAIL: dict[Hashable, Mail] = {}
NO_RECEIVES: dict[Hashable, list[Receive]] = {}
"""The dictionaries of a mailbox that has needed none yet; shared, and never filled."""


class Mailbox:
    """Messages by tag in order of arrival, or receives by tag in order of request.

    A tag never has both. Most nodes have one receive without a tag at a time and nothing else: it
    has its own attribute, and the dictionaries are made when they are needed.

    Attributes:
        first: the oldest receive that waits for a message without a tag.
        mail: messages by tag.
        fast_path: whether a message without a tag can go to `first` without `deliver`: no node
            crashes, no receive without a tag has waited behind another one, and what arrives is
            received at once.
        last_incarnation: the incarnation of each sender at the last message received from it; None
            if no node crashes.
    """

    __slots__ = ("_receives", "fast_path", "first", "last_incarnation", "mail")

    def __init__(self, crashes: bool) -> None:
        self.first: Receive | None = None
        self.mail: dict[Hashable, Mail] = NO_MAIL
        self._receives: dict[Hashable, list[Receive]] = NO_RECEIVES
        self.last_incarnation: dict[int, int] | None = {} if crashes else None
        self.fast_path = not crashes

    def ask(self, receive: Receive) -> Receive:
        """Give `receive` the oldest message with its tag, or let it wait for the next."""
        tag = receive.tag
        mail = self.mail.get(tag)
        if mail:
            if tag is None:
                message = mail.popleft()  # type: ignore[union-attr]
            else:
                message = mail.pop(0)  # type: ignore[call-arg]
            if not mail and tag is not None:
                del self.mail[tag]  # else the dictionary grows where every step has another tag
            receive.fire(message)
        elif tag is None and self.first is None:
            self.first = receive
        else:
            # A second untagged receive waits behind `first`: `deliver` has to move it up.
            self.fast_path = self.fast_path and tag is not None
            if self._receives is NO_RECEIVES:
                self._receives = {}
            self._receives.setdefault(tag, []).append(receive)
        return receive

    def deliver(self, message: Message) -> None:
        """Hand `message` to the first receive that waits for its tag, or store it."""
        tag, receive = message.tag, None
        if tag is None:
            receive = self.first
            self.first = self._next(None) if self._receives else None
        elif self._receives:
            receive = self._next(tag)
        if receive is not None:
            receive.fire(message)
        else:
            self._keep(tag).append(message)

    def forget(self, receive: Receive) -> None:
        """Withdraw `receive`; a message that it has taken goes to the next receive.

        The next receive may wait already or come later. A crash may have cleared the receives.
        """
        message, tag = receive.message, receive.tag
        another_waits = self.first is not None
        if tag is not None:
            another_waits = tag in self._receives
        if message is not None and another_waits:
            self.deliver(message)
        elif message is not None:
            # To the front: it arrived before all messages that are stored.
            self._keep(tag).insert(0, message)
        elif receive is self.first:
            self.first = self._next(None)
        elif receive in self._receives.get(tag, []):
            self._receives[tag].remove(receive)
            if not self._receives[tag]:
                del self._receives[tag]

    def holds(self, tag: Hashable) -> bool:
        """Whether a message with that tag is stored."""
        return bool(self.mail.get(tag))

    def waiting(self) -> list[Receive]:
        """The receives that wait for a message, oldest first."""
        waiting = [] if self.first is None else [self.first]
        waiting += [receive for receives in self._receives.values() for receive in receives]
        return sorted(waiting, key=lambda receive: receive.since)

    def clear(self) -> None:
        """Discard all messages and receives."""
        self.first = None
        self.mail = NO_MAIL
        self._receives = NO_RECEIVES

    def _keep(self, tag: Hashable) -> Mail:
        """The stored messages with that tag, in a new container if there are none."""
        if self.mail is NO_MAIL:
            self.mail = {}
        mail = self.mail.get(tag)
        if mail is None:
            mail = self.mail[tag] = deque() if tag is None else []
        return mail

    def _next(self, tag: Hashable) -> Receive | None:
        """Remove and return the oldest receive with that tag that waits behind `first`."""
        receives = self._receives.get(tag)
        if not receives:
            return None
        oldest = receives.pop(0)
        if not receives:
            del self._receives[tag]
        return oldest
