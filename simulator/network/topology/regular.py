"""Graphs that look the same from every worker: ring, torus, complete, exponential."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated

from laggard.simulator.errors import InvalidSettingError, PositiveInt, Range, Settings
from laggard.simulator.network.topology.topology import Ranks


class Peers(Settings):
    """A graph of workers without a server.

    A subclass defines `ranks`, or `hops` if these are the same for all ranks.
    """

    def hops(self, step: int, workers: int) -> Sequence[int]:
        """The distances in rank to the peers of every rank at `step`, `0 <= step < period`."""
        raise NotImplementedError

    def ranks(self, rank: int, step: int, workers: int) -> Sequence[int]:
        """The workers to which `rank` sends at `step`; itself and repeats drop out."""
        return [rank + hop for hop in self.hops(step, workers)]

    def joins(self, sender: int, receiver: int, workers: int) -> bool:
        return 0 <= sender < workers and receiver in _reachable(self, workers)[sender]

    def out_peers(self, rank: int, step: int, workers: int) -> Ranks:
        return _tables(self, step % self.period(workers), workers)[0][rank]

    def in_peers(self, rank: int, step: int, workers: int) -> Ranks:
        return _tables(self, step % self.period(workers), workers)[1][rank]

    def period(self, workers: int) -> int:
        return 1

    def share(self, sender: int, receiver: int, workers: int) -> float:
        expected = "uniform or metropolis: only `graph` and `time_varying` have weights of edges"
        raise InvalidSettingError(type(self).__name__, "mixing", expected, "weights")

    def check(self, workers: int) -> None:
        """Accept any number of workers; subclasses may be stricter."""


@lru_cache(maxsize=64)
def _tables(graph: Peers, step: int, workers: int) -> tuple[Sequence[Ranks], Sequence[Ranks]]:
    """Every rank's out-peers and in-peers at one step of the period."""
    out = [_rotate(rank, graph.ranks(rank, step, workers), workers) for rank in range(workers)]
    senders: list[list[int]] = [[] for _ in range(workers)]
    for rank, peers in enumerate(out):
        for peer in peers:
            senders[peer].append(rank)
    return out, [_rotate(rank, peers, workers) for rank, peers in enumerate(senders)]


def _rotate(rank: int, peers: Sequence[int], workers: int) -> Ranks:
    """`peers` once each and without `rank`, in rotating order from the next rank on."""
    ahead = {(peer - rank) % workers for peer in peers} - {0}
    return tuple((rank + hop) % workers for hop in sorted(ahead))


@lru_cache(maxsize=64)
def _reachable(graph: Peers, workers: int) -> list[frozenset[int]]:
    """The ranks to which each rank sends at some step."""
    steps = range(graph.period(workers))
    return [
        frozenset(peer for step in steps for peer in graph.out_peers(rank, step, workers))
        for rank in range(workers)
    ]


@dataclass(frozen=True)
class Ring(Peers):
    """Every worker is joined to the next and the previous one; two workers have one neighbour
    each.
    """

    def hops(self, step: int, workers: int) -> Sequence[int]:
        return 1, -1


@dataclass(frozen=True)
class Torus(Peers):
    """A grid that wraps around: every worker is joined to its four neighbours, rank = row columns +
    column.

    With one row it is the ring. A side of two gives one neighbour along it, a side of one none.

    Attributes:
        rows: the number of rows of the grid; by default of the most square grid, which is a single
            row for a prime number of workers.
    """

    rows: PositiveInt | None = None

    def ranks(self, rank: int, step: int, workers: int) -> Sequence[int]:
        rows = self.rows or next(
            side for side in range(math.isqrt(workers), 0, -1) if workers % side == 0
        )
        columns = workers // rows
        row, column = divmod(rank, columns)
        beside = [row * columns + (column + way) % columns for way in (1, -1)]
        return beside + [(row + way) % rows * columns + column for way in (1, -1)]

    def check(self, workers: int) -> None:
        if self.rows is not None and workers % self.rows:
            raise InvalidSettingError(
                "Torus", "rows", f"a divisor of workers = {workers}", self.rows
            )


@dataclass(frozen=True)
class Complete(Peers):
    """Every worker is joined to every other: the mesh."""

    def joins(self, sender: int, receiver: int, workers: int) -> bool:
        return sender != receiver and 0 <= sender < workers and 0 <= receiver < workers

    # no table: it would hold workers^2 ranks
    def out_peers(self, rank: int, step: int, workers: int) -> Ranks:
        return (*range(rank + 1, workers), *range(rank))

    def in_peers(self, rank: int, step: int, workers: int) -> Ranks:
        return self.out_peers(rank, step, workers)


@dataclass(frozen=True)
class CompleteWithServers(Complete):
    """Every worker is joined to every other, and to the parameter servers."""

    def joins(self, sender: int, receiver: int, workers: int) -> bool:
        return (sender < 0) != (receiver < 0) or super().joins(sender, receiver, workers)


@dataclass(frozen=True)
class Exponential(Peers):
    """Directed and changing with the step: rank i sends to i + 2^k mod P, k cycling below log2 P.

    k runs from 0 to ceil(log2 P) - 1: at step t it is t modulo their number, and a second peer's k
    is the next. The authors' public code pairs hops differently: 2^k and -2^k in one of its graphs,
    3^k and 2 3^k in another. With one peer and uniform weights P = 2^n workers average exactly in n
    steps.

    Source: Assran et al. (2019), arXiv 1811.10792, appendix A.

    Attributes:
        peers: the number of peers to which a rank sends in one step, 1 or 2.
        static: whether it sends to the peers at all hops in every step; `peers` is then ignored.
    """

    peers: Annotated[int, Range(least=1, most=2, whole=True)] = 1
    static: bool = False

    def hops(self, step: int, workers: int) -> Sequence[int]:
        # Empty for a single worker, where a remainder below would divide by 0.
        cycle = [2**k for k in range((workers - 1).bit_length())]
        if self.static:
            return cycle
        return [cycle[(step + beside) % len(cycle)] for beside in range(self.peers) if cycle]

    def period(self, workers: int) -> int:
        if self.static:
            return 1
        return max((workers - 1).bit_length(), 1)
