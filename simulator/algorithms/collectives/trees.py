"""Collectives on a tree and on a hypercube."""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from laggard.simulator.algorithms.collectives.schedule import PartsExchange, Phase


def other_of_each(workers: int, pairs: Mapping[int, int]) -> NDArray[np.int64]:
    """The other rank of each rank in `pairs`, -1 for all others."""
    ranks = np.full(workers, -1)
    ranks[list(pairs)] = list(pairs.values())
    return ranks


def phase_of(workers: int, pairs: Mapping[int, int], make: Callable[..., PartsExchange]) -> Phase:
    """A phase of one step, in which the keys of `pairs` send to their values."""
    back = {receiver: sender for sender, receiver in pairs.items()}
    return [
        make(other_of_each(workers, pairs).__getitem__, other_of_each(workers, back).__getitem__)
    ]


@lru_cache(maxsize=16)
def tree(workers: int) -> Sequence[Phase]:
    """Reduce, then broadcast, over a binomial tree.

    2 ceil(log2 P)(alpha + N beta) seconds, for every P: node 0 and the node in the middle of the
    ranks are parent and child, and either is the root of its half. That is the binomial tree where
    P is a power of two.

    Source: Thakur, Rabenseifner, Gropp (2005), Optimization of collective communication operations
    in MPICH.
    """
    levels = [{child: parent for parent, child in level} for level in halvings(workers)]
    down = [{parent: child for child, parent in level.items()} for level in levels]
    reduce = [phase_of(workers, level, PartsExchange) for level in reversed(levels)]
    return [
        *reduce,
        *(phase_of(workers, level, partial(PartsExchange, adds=False)) for level in down),
    ]


def halvings(workers: int) -> Sequence[Sequence[tuple[int, int]]]:
    """The pairs (parent, child) of each level of the tree, the root's first."""
    levels, ranges = [], [(0, workers)]
    while ranges := [each for each in ranges if each[1] - each[0] > 1]:
        levels.append([(low, (low + high) // 2) for low, high in ranges])
        ranges = [
            half
            for low, high in ranges
            for half in ((low, (low + high) // 2), ((low + high) // 2, high))
        ]
    return levels


def relatives(rank: int, workers: int) -> tuple[int | None, Sequence[int]]:
    """A node's parent, if any, and its children, the root of the largest part first."""
    parent, children = None, []
    low, high = 0, workers
    while high - low > 1:
        middle = (low + high) // 2
        if rank == low:
            children.append(middle)
        elif rank == middle:
            parent = low
        low, high = (low, middle) if rank < middle else (middle, high)
    return parent, children


def neighbours(rank: int, workers: int) -> Sequence[int]:
    """The ranks to which a node sends: its parent and its children."""
    parent, children = relatives(rank, workers)
    if parent is None:
        return children
    return [parent, *children]


@lru_cache(maxsize=16)
def recursive_doubling(workers: int) -> Sequence[Phase]:
    """Recursive doubling: sums over 1, 2, 4, ... nodes are exchanged and added, whole.

    log2 P (alpha + N beta) seconds; at most d + 2 such steps for 2^d < P < 2^(d + 1).

    Source: Thakur, Rabenseifner, Gropp (2005), Optimization of collective communication operations
    in MPICH.
    """
    return fold(
        workers, [across(workers, distance, PartsExchange) for distance in distances(workers)]
    )


@lru_cache(maxsize=16)
def halving_doubling(workers: int) -> Sequence[Phase]:
    """Recursive halving, after which each node has a chunk of the sum, then recursive doubling.

    2 log2 P alpha + 2 ((P - 1) / P) N beta seconds: as few bytes as the ring, in fewer steps.
    Where P is not a power of two: as for 2^d nodes, plus at most 2 (alpha + N beta).

    Source: Rabenseifner's algorithm in Thakur, Rabenseifner, Gropp (2005), Optimization of
    collective communication operations in MPICH.
    """
    chunks = 1 << len(distances(workers))

    def step(distance: int, halve: bool) -> Phase:
        """Exchange `distance` chunks: send those of the partner's half to be added, or the node's
        own, which are summed.
        """

        def first(rank: int) -> int:
            place = place_of(rank, workers)
            assert place is not None, "only nodes with a place on the cube exchange chunks"
            owner = place ^ distance if halve else place
            # Chunks come in blocks of `distance`, a power of two: the first one of the block with
            # `owner`.
            return owner & -distance

        carried = partial(
            PartsExchange,
            size=distance / chunks,
            cut=chunks,
            first=first,
            count=distance,
            adds=halve,
        )
        return across(workers, distance, carried)

    halving = [step(distance, True) for distance in reversed(distances(workers))]
    return fold(workers, [*halving, *(step(distance, False) for distance in distances(workers))])


def across(workers: int, distance: int, make: Callable[..., PartsExchange]) -> Phase:
    """A phase in which the nodes at places that differ by `distance` exchange messages."""
    places = range(1 << len(distances(workers)))
    return phase_of(
        workers,
        {rank_at(place, workers): rank_at(place ^ distance, workers) for place in places},
        make,
    )


def fold(workers: int, phases: Sequence[Phase]) -> Sequence[Phase]:
    """`phases` on the cube, with a phase before them that sums each pair, and a phase after that
    sends the whole sum to the other node of the pair.
    """
    pairs = {2 * pair: 2 * pair + 1 for pair in range(extras(workers))}
    if not pairs:
        return phases
    back = {odd: even for even, odd in pairs.items()}
    return [
        phase_of(workers, pairs, PartsExchange),
        *phases,
        phase_of(workers, back, partial(PartsExchange, adds=False)),
    ]


def partners(rank: int, workers: int) -> Sequence[int]:
    """The ranks to which a node sends: its neighbours on the cube, and its partner in a pair."""
    place = place_of(rank, workers)
    if place is None:
        return [rank + 1]
    pair = [rank - 1] if rank < 2 * extras(workers) else []
    return [rank_at(place ^ distance, workers) for distance in distances(workers)] + pair


def distances(workers: int) -> Sequence[int]:
    """The distances 1, 2, 4, ... from a node to its neighbours on the cube."""
    return [1 << bit for bit in range(workers.bit_length() - 1)]


def extras(workers: int) -> int:
    """r, the number of nodes without a place on the cube."""
    return workers - (1 << workers.bit_length() - 1)


def place_of(rank: int, workers: int) -> int | None:
    """The place of a node on the cube; None if the other node of its pair represents it."""
    extra = extras(workers)
    if rank >= 2 * extra:
        return rank - extra
    if rank % 2:
        return rank // 2
    return None


def rank_at(place: int, workers: int) -> int:
    """The rank of the node at a place of the cube."""
    extra = extras(workers)
    if place < extra:
        return 2 * place + 1
    return place + extra
