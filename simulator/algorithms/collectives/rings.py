"""Collectives in which all nodes do the same: two rings, and rings inside and across hosts."""

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

from laggard.simulator.algorithms.collectives.schedule import PartsExchange, Phase


def next_in_rank(rank: int, workers: int) -> Sequence[int]:
    """The neighbour on the ring to which a node sends, if there is one."""
    if workers > 1:
        return [(rank + 1) % workers]
    return []


def shift(by: int, workers: int, rank: Any) -> Any:
    """The rank, or ranks, `by` places further on."""
    return (rank + by) % workers


def slice_of(by: int, workers: int, slices: int, piece: int, rank: int) -> int:
    """The number of slice `piece` of the chunk `by` places on."""
    return (rank + by) % workers * slices + piece


@lru_cache(maxsize=4)
def ring_in_slices(slices: int, workers: int) -> Sequence[Phase]:
    """The ring with messages in slices: a node passes on a slice while the next one comes.

    With k slices of tau = N beta / (P k) seconds each, in a queue (`fifo`), it takes

        2 ((P - 1) / P) N beta + alpha          if (k - 1) tau >= alpha
        2 (P - 1)(alpha + tau) + (k - 1) tau    otherwise

    seconds. Under fair sharing slices that leave together arrive together, so that it takes as long
    as the ring. The sum is the ring's, bit for bit.

    Source: the ring's; the recursion e(j, i) = max(e(j, i-1), e(j-1, i) + alpha) + tau of slice i
    in step j.
    """
    ahead = partial(shift, 1, workers)
    behind = partial(shift, -1, workers)
    size = 1 / (workers * slices)

    def steps(by: int, adds: bool) -> Sequence[Phase]:
        return [
            [
                PartsExchange(
                    ahead, behind, size, workers * slices, partial(slice_of, *place), adds=adds
                )
            ]
            for step in range(workers - 1)
            for piece in range(slices)
            for place in [(by - step, workers, slices, piece)]
        ]

    return [*steps(0, True), *steps(1, False)]


@lru_cache(maxsize=4)
def ring(workers: int) -> Sequence[Phase]:
    """Ring all-reduce: reduce-scatter, after which each node has one chunk of the sum; all-gather.

    2 (P - 1) steps of N / P bytes: 2 (P - 1) alpha + 2 ((P - 1) / P) N beta seconds. Chunk k is
    summed once, in the order k, k + 1, ... round the ring. Where P does not divide the parameters,
    chunks differ by one; messages do not.

    Source: Patarasuk & Yuan (2009), Bandwidth optimal all-reduce algorithms for clusters of
    workstations.
    """
    return ring_in_slices(1, workers)


def around(by: int, size: int, stride: int, rank: Any) -> Any:
    """The rank, or ranks, `by` places on in a ring of `size` ranks that are `stride` apart."""
    place = rank // stride % size
    return rank + ((place + by) % size - place) * stride


def part_inside(by: int, size: int, hosts: int, rank: int) -> int:
    """The first of the `hosts` parts that belong to the worker `by` places on in the same host."""
    return (rank + by) % size * hosts


def part_across(by: int, size: int, hosts: int, rank: int) -> int:
    """Among the parts that a worker has summed, the part of the host `by` places further on."""
    return part_inside(1, size, hosts, rank) + (rank // size + by) % hosts


@lru_cache(maxsize=4)
def hierarchical(size: int, workers: int) -> Sequence[Phase]:
    """All-reduce over hosts: reduce-scatter inside each, a ring across for each part, all-gather.

    With m hosts of g = `size` workers and `sharing: fair` it takes
    2 (g - 1) (alpha' + N beta' / g) + 2 (m - 1) (alpha + N beta / m) seconds. A worker's inner card
    has alpha' and beta'; a host's card, which its g workers share, has alpha and beta. With one
    worker per host, or one host, it is the ring.

    Source: Jia et al. (2018), arXiv 1807.11205, section 4.3.
    """
    hosts = workers // size

    def steps(
        ring: int, stride: int, part: Callable[..., int], count: int, adds: bool
    ) -> Sequence[Phase]:
        ahead = partial(around, 1, ring, stride)
        behind = partial(around, -1, ring, stride)
        start = 0 if adds else 1
        firsts = [partial(part, start - turn, size, hosts) for turn in range(ring - 1)]
        return [
            [PartsExchange(ahead, behind, count / workers, workers, first, count, adds)]
            for first in firsts
        ]

    return [
        *steps(size, 1, part_inside, hosts, True),
        *steps(hosts, size, part_across, 1, True),
        *steps(hosts, size, part_across, 1, False),
        *steps(size, 1, part_inside, hosts, False),
    ]


@lru_cache(maxsize=4)
def naive_ring(workers: int) -> Sequence[Phase]:
    """The ring of whole values: each is forwarded P - 1 times, and every node sums all of them.

    (P - 1)(alpha + N beta) seconds: the ring of chunks is faster iff N beta (1 - 2 / P) > alpha.
    """
    ahead = partial(shift, 1, workers)
    behind = partial(shift, -1, workers)
    return [
        [
            PartsExchange(
                ahead, behind, cut=workers, first=partial(shift, -step, workers), adds=False
            )
        ]
        for step in range(workers - 1)
    ]
