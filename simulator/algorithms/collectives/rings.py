"""Collectives in which all nodes do the same: two rings and the mesh."""

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any

from laggard.simulator.algorithms.collectives.schedule import PartsExchange, Phase


def next_in_rank(rank: int, workers: int) -> Sequence[int]:
    """The neighbour on the ring to which a node sends, if there is one."""
    return [(rank + 1) % workers] if workers > 1 else []


def all_others(rank: int, workers: int) -> Sequence[int]:
    """All other ranks, the next first, so that not all nodes send to the same one first."""
    return [*range(rank + 1, workers), *range(rank)]


def shift(by: int, workers: int, rank: Any) -> Any:
    """The rank, or ranks, `by` places on."""
    return (rank + by) % workers


@lru_cache(maxsize=4)
def ring(workers: int) -> Sequence[Phase]:
    """Ring all-reduce: reduce-scatter, after which each node has one chunk of the sum, then all-gather.

    2 (P - 1) steps of N / P bytes: 2 (P - 1) alpha + 2 ((P - 1) / P) N beta seconds. Chunk k is summed once, in the
    order k, k + 1, ... round the ring. Where P does not divide the parameters, chunks differ by one; messages do not.

    Source: Patarasuk & Yuan (2009), Bandwidth optimal all-reduce algorithms for clusters of workstations.
    """
    ahead, behind = partial(shift, 1, workers), partial(shift, -1, workers)
    scatter = [
        PartsExchange(ahead, behind, 1 / workers, cut=workers, first=partial(shift, -step, workers))
        for step in range(workers - 1)
    ]
    gather = [
        PartsExchange(ahead, behind, 1 / workers, cut=workers, first=partial(shift, 1 - step, workers), adds=False)
        for step in range(workers - 1)
    ]
    return [[step] for step in (*scatter, *gather)]


@lru_cache(maxsize=4)
def naive_ring(workers: int) -> Sequence[Phase]:
    """The ring of whole values: each is forwarded P - 1 times, and every node sums them itself, in rank order.

    (P - 1)(alpha + N beta) seconds: the ring of chunks is faster iff N beta (1 - 2 / P) > alpha.
    """
    ahead, behind = partial(shift, 1, workers), partial(shift, -1, workers)
    return [
        [PartsExchange(ahead, behind, cut=workers, first=partial(shift, -step, workers), adds=False)]
        for step in range(workers - 1)
    ]


@lru_cache(maxsize=4)
def mesh(workers: int) -> Sequence[Phase]:
    """The parallel all-reduce: every node sends its value to every other, and sums all itself, in rank order.

    alpha + (P - 1) N beta seconds where a node has one card, alpha + N beta where every pair has a link.
    """
    own = partial(shift, 0, workers)
    return [
        [
            PartsExchange(partial(shift, by, workers), partial(shift, -by, workers), cut=workers, first=own, adds=False)
            for by in range(1, workers)
        ]
    ]
