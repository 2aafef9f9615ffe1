"""The simulation as its nodes see it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from simulator.accounts import Accounts
from simulator.clock import Clock
from simulator.cluster import Cluster
from simulator.events import Message
from simulator.gradients import Settled
from simulator.messages import MessageLog
from simulator.pool import GradientPool
from simulator.task import Layer
from simulator.topology import Topology
from simulator.wires import Wires

if TYPE_CHECKING:
    from simulator.node import Node


class World(Protocol):
    """The clock, the other nodes, and where things are booked.

    Attributes:
        reached: the limit that has been reached; None while updates count.
        most_computed: gradients after which the simulation has enough.
    """

    cluster: Cluster
    reached: str | None
    env: Clock
    pool: GradientPool
    topology: Topology
    layers: Sequence[Layer]
    nodes: dict[int, "Node"]
    books: Accounts
    wires: Wires
    log: MessageLog | None
    model_bytes: float
    most_computed: float

    def enough(self) -> None:
        """As many gradients have been computed as the simulation is to have."""
        ...

    def lost(self, message: Message) -> None:
        """Book a message that will never arrive."""
        ...

    def applies(self, gradients: Sequence[Settled]) -> bool:
        """Book one node's update by `gradients`; False once the end is reached, after which nothing counts."""
        ...
