"""Collectives on a hypercube: in every step, nodes whose places differ in one bit exchange something.

The cube has 2^d places, d = floor(log2 P). Where P is no power of two, nodes 0, 1, ... 2 r - 1 pair up, r = P - 2^d: at
first the even node of a pair hands its value to the odd one, and at last it is handed the sum. That is two steps more,
of N bytes each. It costs some bandwidth besides, since nodes that are no pair do not wait for those that are: their
messages come a step early and share the card of a node that is still busy with the step before. The latency is as
said; the bytes count at most twice.
"""

from collections.abc import Hashable, Sequence

from simulator.collectives.steps import Reduction, exchange
from simulator.node import Node
from simulator.promises import Promise, concatenated


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
            value = value + theirs  # as it is at the partner's: a + b = b + a, to the bit
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
        value = concatenated(chunks)
    return (yield from unfolded(node, value, tag))


def partners(rank: int, workers: int) -> Sequence[int]:
    """Those to whom a node sends: its neighbours on the cube, and the other one of its pair."""
    place = place_of(rank, workers)
    if place is None:
        return [rank + 1]
    pair = [rank - 1] if rank < 2 * extras(workers) else []
    return [rank_at(place ^ distance, workers) for distance in distances(workers)] + pair


def distances(workers: int) -> Sequence[int]:
    """1, 2, 4, ...: how far away a node's neighbours on the cube are."""
    return [1 << bit for bit in range(workers.bit_length() - 1)]


def extras(workers: int) -> int:
    """r, the number of nodes for whom the cube has no place."""
    return workers - (1 << workers.bit_length() - 1)


def place_of(rank: int, workers: int) -> int | None:
    """The place of a node on the cube; none if another node stands for it."""
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
    """Everybody's sum, which a node without a place on the cube is handed by the other one of its pair."""
    if place_of(node.rank, node.workers) is None:
        _, value = yield node.receive((tag, "unfold"))
    elif node.rank < 2 * extras(node.workers):
        yield node.send(node.rank - 1, value, (tag, "unfold"))
    return value
