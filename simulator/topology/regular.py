"""Graphs on which every worker sees the same: ring, torus, complete, exponential."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from simulator.bounds import Invalid, bounded
from simulator.topology.peers import Peers
from simulator.topology.protocol import Ranks


@dataclass(frozen=True)
class Ring(Peers):
    """Every worker talks to the next and to the one before; two workers have one neighbour each."""

    def hops(self, step: int, workers: int) -> Sequence[int]:
        return 1, -1


@dataclass(frozen=True)
class Torus(Peers):
    """A grid with its edges glued together: every worker talks to its four neighbours, rank = row columns + column.

    With one row it is the ring. A side of two gives one neighbour along it, a side of one none.

    Attributes:
        rows: of the grid; by default the most square one, for a prime number of workers a single row.
    """

    rows: int | None = None

    def __post_init__(self) -> None:
        if self.rows is not None:
            bounded(self, "rows", least=1, whole=True)

    def ranks(self, rank: int, step: int, workers: int) -> Sequence[int]:
        rows = self.rows or next(side for side in range(math.isqrt(workers), 0, -1) if workers % side == 0)
        columns = workers // rows
        row, column = divmod(rank, columns)
        beside = [row * columns + (column + way) % columns for way in (1, -1)]
        return beside + [(row + way) % rows * columns + column for way in (1, -1)]

    def check(self, workers: int) -> None:
        if self.rows is not None and workers % self.rows:
            raise Invalid("Torus", "rows", f"a divisor of workers = {workers}", self.rows)


@dataclass(frozen=True)
class Complete(Peers):
    """Everybody talks to everybody: the mesh."""

    def joins(self, sender: int, receiver: int, workers: int) -> bool:
        return sender != receiver and 0 <= sender < workers and 0 <= receiver < workers

    def out_peers(self, rank: int, step: int, workers: int) -> Ranks:  # no table: it would hold workers^2 ranks
        return (*range(rank + 1, workers), *range(rank))

    def in_peers(self, rank: int, step: int, workers: int) -> Ranks:
        return self.out_peers(rank, step, workers)


@dataclass(frozen=True)
class Exponential(Peers):
    """Directed, and another at every step: rank i sends to i + 2^k mod P, k going round below log2 P.

    k runs from 0 to ceil(log2 P) - 1: at step t it is t modulo their number, and a second peer's k is the next. The
    authors' public code pairs hops otherwise: 2^k and -2^k in one of its graphs, 3^k and 2 3^k in another. With one
    peer and uniform weights P = 2^n workers average exactly in n steps.

    Source: Assran et al. (2019), arXiv 1811.10792, appendix A.

    Attributes:
        peers: to how many every rank sends in one step, 1 or 2.
        static: whether it sends to all of its peers, at every hop, in every step; then `peers` says nothing.
    """

    peers: int = 1
    static: bool = False

    def __post_init__(self) -> None:
        bounded(self, "peers", least=1, most=2, whole=True)

    def hops(self, step: int, workers: int) -> Sequence[int]:
        cycle = [2**k for k in range((workers - 1).bit_length())]
        return cycle if self.static else [cycle[(step + beside) % len(cycle)] for beside in range(self.peers) if cycle]

    def period(self, workers: int) -> int:
        return 1 if self.static else max((workers - 1).bit_length(), 1)
