"""Requests: messages of servers to workers that await an answer."""

from laggard.simulator.timing.events import Message


class Requests:
    """The last message of each server to each worker, until the worker sends that server one.

    Only a crash of the worker can lose a request or the work on it.
    """

    def __init__(self) -> None:
        self._open: dict[tuple[int, int], Message] = {}  # by (server, worker)

    def sent(self, message: Message) -> None:
        """Note `message`, which is about to be sent."""
        sender, receiver = message.sender.rank, message.receiver.rank
        if sender < 0 <= receiver:
            self._open[sender, receiver] = message
        elif receiver < 0 <= sender:
            self._open.pop((receiver, sender), None)

    def unanswered(self) -> int:
        """The number of requests whose worker has crashed since they were sent."""
        return sum(
            message.incarnations[1] != message.receiver.incarnation
            for message in self._open.values()
        )
