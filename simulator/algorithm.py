"""What a distributed algorithm is to the engine: generators, and the ranks on which they run."""

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, ClassVar

from simpy.events import Event

from simulator.cluster import Cluster
from simulator.node import Node
from simulator.task import Layer
from simulator.topology import SERVER, Star, Topology

Role = Generator[Event, Any, None]
"""A generator that yields the events of a node's verbs."""


class Algorithm:
    """A distributed algorithm: its methods are roles, each a generator over a `Node`.

    A subclass is a frozen dataclass whose fields are its config keys. It writes `worker(self, node)`, and
    `server(self, node)` where there is one; more than that needs a `roles` of its own.

    Attributes:
        topology: what it runs on where a config leaves that to the method.
        readmits: whether a worker that returns from a crash begins its part again. Where all keep in step without a
            server, the others hold parts of what it has forgotten: it is not let in, and they wait for ever.
    """

    topology: ClassVar[Topology] = Star()
    readmits: ClassVar[bool] = True

    def roles(self, workers: int) -> Mapping[int, Sequence[Callable[[Node], Role]]]:
        """The generators of each rank: `server` on the server, where there is one, and `worker` on every worker."""
        server: Callable[[Node], Role] | None = getattr(self, "server", None)
        worker: Callable[[Node], Role] = self.worker  # type: ignore[attr-defined]
        ranks: dict[int, list[Callable[[Node], Role]]] = {SERVER: [server]} if server else {}
        return ranks | {rank: [worker] for rank in range(workers)}

    def models(self, workers: int) -> Sequence[int]:
        """The ranks whose models it stands for, by their mean: the server's or, without one, every worker's."""
        return [SERVER] if SERVER in self.roles(workers) else range(workers)

    def slices(self, workers: int, params: int, layers: Sequence[Layer] = ()) -> Mapping[int, slice]:
        """The slice of the parameters that each node holds, where no node holds all: shards, stages of a pipeline.

        Then the model it stands for is what those nodes' slices make together. `layers` are the model's, where the task
        has some.
        """
        return {}

    def check(self, cluster: Cluster) -> None:
        """Raise `Invalid` where the algorithm and the cluster are at odds."""
