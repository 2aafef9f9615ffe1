"""What a topology is: the pairs of nodes that exchange messages, step by step."""

from typing import Protocol

SERVER = -1
"""The rank of the parameter server; it has a node and a network card of its own. Further shards are -2, -3, ..."""

Ranks = tuple[int, ...]


class Topology(Protocol):
    """The pairs of nodes that exchange messages, and each node's peers at every step."""

    def joins(self, sender: int, receiver: int, workers: int) -> bool:
        """Whether `sender` may send to `receiver` at some step."""
        ...

    def out_peers(self, rank: int, step: int, workers: int) -> Ranks:
        """The workers to which `rank` sends at `step`, in rotating order: the next rank after its own first."""
        ...

    def in_peers(self, rank: int, step: int, workers: int) -> Ranks:
        """The workers that send to `rank` at `step`."""
        ...

    def period(self, workers: int) -> int:
        """The steps after which the graph repeats; 1 where it never changes."""
        ...

    def share(self, sender: int, receiver: int, workers: int) -> float:
        """The weight that the graph itself gives to an edge."""
        ...

    def check(self, workers: int) -> None:
        """Raise `Invalid` where the graph does not fit so many workers."""
        ...

    def __hash__(self) -> int:
        """Topologies are values: what is worked out for one is kept."""
        ...
