"""Graphs of workers that talk to one another."""

from collections.abc import Sequence
from functools import lru_cache

from simulator.bounds import Invalid
from simulator.topology.protocol import Ranks


class Peers:
    """A graph of workers without a server. A subclass says `ranks`, or `hops` where every rank sees the same graph."""

    def hops(self, step: int, workers: int) -> Sequence[int]:
        """How far away the peers are to which every rank sends at `step`, `0 <= step < period`."""
        raise NotImplementedError

    def ranks(self, rank: int, step: int, workers: int) -> Sequence[int]:
        """The workers to which `rank` sends at `step`, in any order, perhaps itself or one of them twice."""
        return [rank + hop for hop in self.hops(step, workers)]

    def joins(self, sender: int, receiver: int, workers: int) -> bool:
        return 0 <= sender < workers and receiver in _reached(self, workers)[sender]

    def out_peers(self, rank: int, step: int, workers: int) -> Ranks:
        return _tables(self, step % self.period(workers), workers)[0][rank]

    def in_peers(self, rank: int, step: int, workers: int) -> Ranks:
        return _tables(self, step % self.period(workers), workers)[1][rank]

    def period(self, workers: int) -> int:
        return 1

    def share(self, sender: int, receiver: int, workers: int) -> float:
        expected = "uniform or metropolis: only a graph of one's own has weights on its edges"
        raise Invalid(type(self).__name__, "mixing", expected, "weights")

    def check(self, workers: int) -> None:
        """Any number of workers will do, unless a subclass says otherwise."""


@lru_cache(maxsize=64)
def _tables(graph: Peers, step: int, workers: int) -> tuple[Sequence[Ranks], Sequence[Ranks]]:
    """Everybody's out-peers and in-peers at one step of the period."""
    out = [_rotated(rank, graph.ranks(rank, step, workers), workers) for rank in range(workers)]
    senders: list[list[int]] = [[] for _ in range(workers)]
    for rank, peers in enumerate(out):
        for peer in peers:
            senders[peer].append(rank)
    return out, [_rotated(rank, peers, workers) for rank, peers in enumerate(senders)]


def _rotated(rank: int, peers: Sequence[int], workers: int) -> Ranks:
    """`peers` once each and without `rank`, from the next rank on round the circle: nobody is everybody's first."""
    ahead = {(peer - rank) % workers for peer in peers} - {0}
    return tuple((rank + hop) % workers for hop in sorted(ahead))


@lru_cache(maxsize=64)
def _reached(graph: Peers, workers: int) -> list[frozenset[int]]:
    """Those to whom each rank sends at some step."""
    steps = range(graph.period(workers))
    return [
        frozenset(peer for step in steps for peer in graph.out_peers(rank, step, workers)) for rank in range(workers)
    ]
