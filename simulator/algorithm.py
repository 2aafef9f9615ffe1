"""What a distributed algorithm is to the engine: generators, and the ranks on which they run."""

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

from simpy.events import Event

from simulator.node import Node
from simulator.topology import SERVER

Role = Generator[Event, Any, None]
"""A generator that yields the events of a node's verbs."""


class Algorithm:
    """A distributed algorithm: its methods are roles, each a generator over a `Node`.

    A subclass is a frozen dataclass whose fields are its config keys. It writes `worker(self, node)`, and
    `server(self, node)` where there is one; more than that needs a `roles` of its own.
    """

    def roles(self, workers: int) -> Mapping[int, Sequence[Callable[[Node], Role]]]:
        """The generators of each rank: `server` on the server, where there is one, and `worker` on every worker."""
        server: Callable[[Node], Role] | None = getattr(self, "server", None)
        worker: Callable[[Node], Role] = self.worker  # type: ignore[attr-defined]
        ranks: dict[int, list[Callable[[Node], Role]]] = {SERVER: [server]} if server else {}
        return ranks | {rank: [worker] for rank in range(workers)}

    def models(self, workers: int) -> Sequence[int]:
        """The ranks whose models it stands for: the server's or, without one, every worker's."""
        return [SERVER] if SERVER in self.roles(workers) else range(workers)

    def check(self, workers: int) -> None:
        """Raise `Invalid` where the algorithm and the cluster are at odds."""
