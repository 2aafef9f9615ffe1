"""The parameter server's star, and the topology that is left to the method."""

from dataclasses import dataclass

from simulator.bounds import Invalid
from simulator.topology.protocol import Ranks, Topology


@dataclass(frozen=True)
class Auto:
    """What the method asks for: a star where it has a server, the graph of its paper where it gossips."""


def resolved(topology: Topology | Auto, asked: Topology) -> Topology:
    """`topology`, or what the method asks for where that is left to it."""
    return asked if isinstance(topology, Auto) else topology


@dataclass(frozen=True)
class Star:
    """Every worker talks to the parameter servers, and to nobody else.

    Source: Li et al. (2014), parameter server.
    """

    def joins(self, sender: int, receiver: int, workers: int) -> bool:
        return (sender < 0) != (receiver < 0)

    def out_peers(self, rank: int, step: int, workers: int) -> Ranks:
        return ()

    def in_peers(self, rank: int, step: int, workers: int) -> Ranks:
        return ()

    def period(self, workers: int) -> int:
        return 1

    def share(self, sender: int, receiver: int, workers: int) -> float:
        raise Invalid("Star", "mixing", "a graph of workers: at a star nobody mixes", (sender, receiver))

    def check(self, workers: int) -> None:
        """Any number of workers will do."""
