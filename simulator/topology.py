"""Who may talk to whom. Workers are ranks 0, 1, ..., the parameter server is `SERVER`."""

from dataclasses import dataclass
from typing import Protocol

SERVER = -1
"""The rank of the parameter server; it has a node and a network card of its own."""


class Topology(Protocol):
    """The pairs of nodes that exchange messages."""

    def joins(self, sender: int, receiver: int) -> bool:
        """Whether `sender` may send to `receiver`."""
        ...


@dataclass(frozen=True)
class Star:
    """Every worker talks to the parameter server, and to nobody else.

    Source: Li et al. (2014), parameter server.
    """

    def joins(self, sender: int, receiver: int) -> bool:
        return (sender == SERVER) != (receiver == SERVER)


TOPOLOGIES: dict[str, type] = {"star": Star}
