"""The protocol of a topology, the star, the method's own topology, and the graphs of gossip."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

from laggard.simulator.errors import InvalidSettingError

SERVER = -1
"""The rank of the parameter server, a node with a network card; further shards are -2, -3, ..."""

Ranks = tuple[int, ...]

MOST_LINKS = 2**22
"""The limit on pairs that send to each other in one period: more messages would take minutes."""


class Topology(Protocol):
    """The pairs of nodes that exchange messages, and each node's peers at every step."""

    def joins(self, sender: int, receiver: int, workers: int) -> bool:
        """Whether `sender` may send to `receiver` at some step."""
        ...

    def out_peers(self, rank: int, step: int, workers: int) -> Ranks:
        """The workers to which `rank` sends at `step`, in rotating order from `rank` + 1 on."""
        ...

    def in_peers(self, rank: int, step: int, workers: int) -> Ranks:
        """The workers that send to `rank` at `step`."""
        ...

    def period(self, workers: int) -> int:
        """The steps after which the graph repeats; 1 where it never changes."""
        ...

    def share(self, sender: int, receiver: int, workers: int) -> float:
        """The weight of an edge in the graph."""
        ...

    def check(self, workers: int) -> None:
        """Raise `InvalidSettingError` where the graph does not fit this number of workers."""
        ...

    def __hash__(self) -> int:
        """Topologies are values, so that results can be cached by them."""
        ...


@dataclass(frozen=True)
class Auto:
    """The method's own topology: a star with a server, the graph of its paper for gossip."""


def resolve_topology(topology: Topology | Auto, asked: Topology) -> Topology:
    """`topology`, or the method's own for `Auto`."""
    if isinstance(topology, Auto):
        return asked
    return topology


@dataclass(frozen=True)
class Star:
    """Every worker is joined to the parameter servers only.

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
        expected = "a graph of workers: a star has no mixing"
        raise InvalidSettingError("Star", "mixing", expected, (sender, receiver))

    def check(self, workers: int) -> None:
        """Accept any number of workers."""


@dataclass(frozen=True)
class Among:
    """The part of a topology that joins workers of the given ranks.

    Attributes:
        topology: the topology of all workers.
        ranks: the ranks that take part.
    """

    topology: Topology
    ranks: frozenset[int]

    def joins(self, sender: int, receiver: int, workers: int) -> bool:
        both = sender in self.ranks and receiver in self.ranks
        return both and self.topology.joins(sender, receiver, workers)

    def out_peers(self, rank: int, step: int, workers: int) -> Ranks:
        return self._among(rank, self.topology.out_peers(rank, step, workers))

    def in_peers(self, rank: int, step: int, workers: int) -> Ranks:
        return self._among(rank, self.topology.in_peers(rank, step, workers))

    def period(self, workers: int) -> int:
        return self.topology.period(workers)

    def share(self, sender: int, receiver: int, workers: int) -> float:
        return self.topology.share(sender, receiver, workers)

    def check(self, workers: int) -> None:
        """Check nothing: the whole topology has been checked."""

    def _among(self, rank: int, peers: Ranks) -> Ranks:
        if rank not in self.ranks:
            return ()
        return tuple(peer for peer in peers if peer in self.ranks)


def graph_of_workers(topology: Topology | Auto, asked: Topology, workers: int) -> Topology:
    """`topology`, or the method's own for `Auto`.

    Raises:
        InvalidSettingError: it does not fit the number of workers, has too many edges, or joins
            workers only to a server.
    """
    graph = resolve_topology(topology, asked)
    graph.check(workers)
    if workers * graph.period(workers) * len(graph.out_peers(0, 0, workers)) > MOST_LINKS:
        expected = f"so few that the graph has at most {MOST_LINKS} edges in all of its steps"
        raise InvalidSettingError("Cluster", "workers", expected, workers)
    if workers > 1 and not any(graph.joins(0, peer, workers) for peer in range(1, workers)):
        expected = f"a graph on which workers talk to workers, as {type(asked).__name__.lower()}"
        raise InvalidSettingError("Network", "topology", expected, type(graph).__name__.lower())
    return graph


@lru_cache(maxsize=64)
def asked_by(graph: Topology, workers: int) -> tuple[Ranks, ...]:
    """The ranks that each rank may ask: the neighbours of the active half; none for the passive.

    The halves are the two colours of a bipartite graph, rank 0 active. On any other, such as an odd
    ring or the complete graph, even ranks are active and ask odd ones, and the edges within a half
    are not used.

    Raises:
        InvalidSettingError: the remaining graph is disconnected, or answers cannot go back along
            directed edges.
    """
    out: list[set[int]] = [set() for _ in range(workers)]
    for step in range(graph.period(workers)):
        for rank in range(workers):
            out[rank].update(graph.out_peers(rank, step, workers))
    both_ways = []
    for rank, peers in enumerate(out):
        both_ways.append(sorted(peer for peer in peers if rank in out[peer]))
    active = _colours(both_ways) or {rank: rank % 2 == 0 for rank in range(workers)}
    across = []
    for rank, neighbours in enumerate(both_ways):
        across.append([peer for peer in neighbours if active.get(peer) != active.get(rank)])
    if len(_ranks_reached(across)) < workers:
        bipartite = "an undirected graph that is bipartite"
        expected = f"{bipartite}, or stays connected where even ranks ask odd ones alone"
        raise InvalidSettingError("Network", "topology", expected, graph)
    return tuple(
        tuple(neighbours) if active[rank] else () for rank, neighbours in enumerate(across)
    )


def _ranks_reached(neighbours: Sequence[Sequence[int]]) -> Mapping[int, bool]:
    """For each rank that rank 0 reaches, whether it lies an even number of edges away."""
    even, fresh = {0: True}, [0]
    for rank in fresh:
        for peer in neighbours[rank]:
            if peer not in even:
                even[peer] = not even[rank]
                fresh.append(peer)
    return even


def _colours(neighbours: Sequence[Sequence[int]]) -> Mapping[int, bool] | None:
    """One of two colours for each rank, different for neighbours; None where that is impossible."""
    colour = _ranks_reached(neighbours)
    clash = any(colour[rank] == colour[peer] for rank in colour for peer in neighbours[rank])
    if clash:
        return None
    return colour
