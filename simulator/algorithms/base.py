"""The base class of algorithms: generators, and the ranks on which they run."""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from laggard.simulator.engine.cluster import Cluster
from laggard.simulator.engine.node import Node
from laggard.simulator.errors import InvalidSettingError, Settings
from laggard.simulator.learning.rules import Rule
from laggard.simulator.learning.task import Layer
from laggard.simulator.network.topology import SERVER, Star, Topology
from laggard.simulator.timing.events import Event

Role = Generator[Event, Any, None]
"""A generator that yields the events of a node's verbs."""


class Algorithm(Settings):
    """A distributed algorithm: its methods are roles, each a generator over a `Node`.

    A subclass is a frozen dataclass whose fields are its config keys. It defines `worker(self, node)`, and
    `server(self, node)` where there is one; other roles need a `roles` of its own.

    Attributes:
        topology: the topology where the config names none.
        readmits: whether a worker that returns from a crash starts its roles again. Not so for lock-step methods
            without a server: the others depend on the state that it has lost, and wait forever.
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
        """The ranks whose mean model is evaluated: the server or, without one, every worker."""
        return [SERVER] if SERVER in self.roles(workers) else range(workers)

    def slices(self, workers: int, params: int, layers: Sequence[Layer] = ()) -> Mapping[int, slice]:
        """The slice of the parameters that each node holds, where no node holds all: shards, stages of a pipeline.

        The slices side by side are then the model that is evaluated. `layers` are the model's, where the task has some.
        """
        return {}

    def check(self, cluster: Cluster) -> None:
        """Raise `InvalidSettingError` where the algorithm does not fit the cluster."""


@dataclass(frozen=True)
class ReadComputePush(Algorithm):
    """A method whose worker reads, computes, pushes, and reads again when the server answers."""

    rule: Rule

    def worker(self, node: Node) -> Role:
        node.send(SERVER, None, size=0)  # announces the worker
        while True:
            _, weights = yield node.receive()
            gradient = yield node.compute(weights)
            node.send(SERVER, gradient)


def check_wait_for(algorithm: Algorithm, wait_for: int | None, cluster: Cluster) -> None:
    """Raise `InvalidSettingError` where the server would wait for more workers an update than there are."""
    if wait_for is not None and wait_for > cluster.workers:
        expected = f"at most workers = {cluster.workers}, or the server would wait for ever"
        raise InvalidSettingError(type(algorithm).__name__, "wait_for", expected, wait_for)
