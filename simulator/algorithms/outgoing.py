"""The unfinished sends of a worker that awaits no answers."""

from collections import deque
from collections.abc import Generator, Sequence
from typing import Any

from laggard.simulator.engine.node import Node
from laggard.simulator.timing.events import Event, Message, Receive, Verb


class Outgoing:
    """The messages from a worker to servers whose last bytes have not left.

    Where its card, or the server's, is slower than the worker, they would pile up, and none would
    ever arrive. So the worker waits before it sends the next, as a socket blocks.

    Args:
        limit: the number of sends that may be outstanding; one to several shards counts once.
    """

    def __init__(self, limit: int = 1) -> None:
        self._limit = limit
        self._sends = deque[list[Verb]]()

    def add(self, messages: Sequence[Message]) -> None:
        """Add the messages of a send."""
        self._sends.append([message.departed for message in messages])

    def wait(self) -> Generator[Event, Any, None]:
        """Wait until another send is possible."""
        while (departure := self._departure()) is not None:
            yield departure

    def wait_or_receive(self, node: Node, receive: Receive) -> Generator[Event, Any, Receive]:
        """Wait until another send is possible, or a message has come; return its receive.

        Args:
            receive: a receive that has fired or was withdrawn; returned if another send is
                possible.
        """
        while not receive.fired and (departure := self._departure()) is not None:
            # A new one each time, since `|` has withdrawn the last.
            receive = node.receive()
            yield departure | receive
        return receive

    def _departure(self) -> Verb | None:
        """The next departure to wait for before another send; None if none has to be awaited."""
        while len(self._sends) >= self._limit:
            departures = [departure for departure in self._sends[0] if not departure.fired]
            if departures:
                return departures[0]
            self._sends.popleft()
        return None
