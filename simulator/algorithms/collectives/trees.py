"""Collectives on a tree and on a hypercube."""

from collections.abc import Hashable, Sequence

from laggard.simulator.algorithms.collectives.rings import Reduction, exchange
from laggard.simulator.engine.node import Node
from laggard.simulator.learning.promises import Promise, concatenate


def tree(node: Node, value: Promise, params: int, tag: Hashable) -> Reduction:
    """Reduce, then broadcast, over a binomial tree.

    2 ceil(log2 P)(alpha + N beta) seconds, for every P: node 0 and the node in the middle of the ranks are parent and
    child, and either is the root of its half. That is the binomial tree where P is a power of two.

    Source: Thakur, Rabenseifner, Gropp (2005), Optimization of collective communication operations in MPICH.
    """
    parent, children = relatives(node.rank, node.workers)
    for child in reversed(children):  # the smallest half first: it is ready first
        _, part = yield node.receive((tag, child))
        value = value + part
    if parent is not None:
        yield node.send(parent, value, (tag, node.rank))
        _, value = yield node.receive((tag, "sum"))
    for child in children:  # the largest half first: it has the most levels
        yield node.send(child, value, (tag, "sum"))
    return value


def relatives(rank: int, workers: int) -> tuple[int | None, Sequence[int]]:
    """A node's parent, if it has one, and its children, the root of the largest part of the tree first."""
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
    return children if parent is None else [parent, *children]


def recursive_doubling(node: Node, value: Promise, params: int, tag: Hashable) -> Reduction:
    """Recursive doubling: sums over 1, 2, 4, ... nodes are exchanged and added, whole.

    log2 P (alpha + N beta) seconds; d + 2 such steps where P is no power of two.

    Source: Thakur, Rabenseifner, Gropp (2005), Optimization of collective communication operations in MPICH.
    """
    value, place = (yield from folded(node, value, tag)), place_of(node.rank, node.workers)
    if place is not None:
        for distance in distances(node.workers):
            partner = rank_at(place ^ distance, node.workers)
            theirs = yield from exchange(node, partner, value, (tag, distance))
            value = value + theirs  # the same at the partner: a + b = b + a, bit for bit
    return (yield from unfolded(node, value, tag))


def halving_doubling(node: Node, value: Promise, params: int, tag: Hashable) -> Reduction:
    """Recursive halving, after which each node has one chunk of the sum, then recursive doubling of the chunks.

    2 log2 P alpha + 2 ((P - 1) / P) N beta seconds: as few bytes as the ring, in fewer steps.
    Where P is no power of two: as of 2^d nodes, and 2 (alpha + N beta).

    Source: Rabenseifner's algorithm in Thakur, Rabenseifner, Gropp (2005), Optimization of collective communication
    operations in MPICH.
    """
    value, place = (yield from folded(node, value, tag)), place_of(node.rank, node.workers)
    if place is not None:
        cube = [(rank_at(place ^ distance, node.workers), distance) for distance in distances(node.workers)]
        for partner, distance in reversed(cube):
            halves = value[: params // 2], value[params // 2 : params]
            upper = bool(place & distance)
            theirs = yield from exchange(
                node, partner, halves[not upper], (tag, "halve", distance), distance / 2 ** len(cube)
            )
            value, params = halves[upper] + theirs, params - params // 2 if upper else params // 2
        chunks = [value]
        for partner, distance in cube:
            theirs = yield from exchange(node, partner, chunks, (tag, "double", distance), distance / 2 ** len(cube))
            chunks = theirs + chunks if place & distance else chunks + theirs
        value = concatenate(chunks)
    return (yield from unfolded(node, value, tag))


def partners(rank: int, workers: int) -> Sequence[int]:
    """The ranks to which a node sends: its neighbours on the cube, and the other one of its pair."""
    place = place_of(rank, workers)
    if place is None:
        return [rank + 1]
    pair = [rank - 1] if rank < 2 * extras(workers) else []
    return [rank_at(place ^ distance, workers) for distance in distances(workers)] + pair


def distances(workers: int) -> Sequence[int]:
    """1, 2, 4, ...: how far away a node's neighbours on the cube are."""
    return [1 << bit for bit in range(workers.bit_length() - 1)]


def extras(workers: int) -> int:
    """r, the number of nodes without a place on the cube."""
    return workers - (1 << workers.bit_length() - 1)


def place_of(rank: int, workers: int) -> int | None:
    """The place of a node on the cube; None if the other node of its pair represents it."""
    extra = extras(workers)
    if rank >= 2 * extra:
        return rank - extra
    return rank // 2 if rank % 2 else None


def rank_at(place: int, workers: int) -> int:
    """The rank of the node at a place of the cube."""
    extra = extras(workers)
    return 2 * place + 1 if place < extra else place + extra


def folded(node: Node, value: Promise, tag: Hashable) -> Reduction:
    """The value with which a node begins on the cube: its own, or its pair's sum."""
    if place_of(node.rank, node.workers) is None:
        yield node.send(node.rank + 1, value, (tag, "fold"))
    elif node.rank < 2 * extras(node.workers):
        _, other = yield node.receive((tag, "fold"))
        value = other + value
    return value


def unfolded(node: Node, value: Promise, tag: Hashable) -> Reduction:
    """The sum, which a node without a place on the cube receives from the other one of its pair."""
    if place_of(node.rank, node.workers) is None:
        _, value = yield node.receive((tag, "unfold"))
    elif node.rank < 2 * extras(node.workers):
        yield node.send(node.rank - 1, value, (tag, "unfold"))
    return value
