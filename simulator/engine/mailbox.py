"""A node's mailbox: messages not received yet, and receives that wait for a message."""

from collections import deque
from collections.abc import Hashable

from laggard.simulator.timing.events import Message, Receive


class Mailbox:
    """Messages by tag in order of arrival, or receives by tag in order of request; never both of one tag.

    Attributes:
        heard: each sender's `life` at the last message received from it.
    """

    def __init__(self) -> None:
        self._mail: dict[Hashable, deque[Message]] = {}
        self._receives: dict[Hashable, list[Receive]] = {}  # a few of each tag at most: a deque takes 600 bytes
        self.heard: dict[int, int] = {}

    def ask(self, receive: Receive) -> Receive:
        """Give `receive` the oldest message with its tag, or let it wait for the next."""
        tag = receive.tag
        mail = self._mail.get(tag)
        if mail:
            message = mail.popleft()
            if not mail and tag is not None:
                del self._mail[tag]  # else the dict grows where every step has a tag of its own
            self.heard[message.sender.rank] = message.lives[0]
            receive.fire(message)
        else:
            self._receives.setdefault(tag, []).append(receive)
        return receive

    def deliver(self, message: Message) -> None:
        """Hand `message` to the first receive that waits for its tag, or keep it."""
        tag = message.tag
        receives = self._receives.get(tag)
        if receives:
            receive = receives.pop(0)
            if not receives and tag is not None:
                del self._receives[tag]
            self.heard[message.sender.rank] = message.lives[0]
            receive.fire(message)
        elif tag in self._mail:
            self._mail[tag].append(message)
        else:
            self._mail[tag] = deque((message,))

    def forget(self, receive: Receive) -> None:
        """Withdraw `receive`; a message that it has taken already is put back as the next one.

        A crash may have cleared the receives before.
        """
        message = receive.message
        if message is None:
            receives = self._receives.get(receive.tag, [])
            if receive in receives:
                receives.remove(receive)
                if not receives:
                    del self._receives[receive.tag]
        else:
            self._mail.setdefault(receive.tag, deque()).appendleft(message)

    def holds(self, tag: Hashable) -> bool:
        """Whether there is a message with that tag."""
        return bool(self._mail.get(tag))

    def waiting(self) -> list[Receive]:
        """The receives that wait for a message, oldest first."""
        return [receive for receives in self._receives.values() for receive in receives]

    def clear(self) -> None:
        """Discard all messages and receives."""
        self._mail.clear()
        self._receives.clear()
