"""The collective on a tree: sums go up to node 0, and everybody's sum comes down again."""

from collections.abc import Hashable, Sequence

from simulator.collectives.steps import Reduction
from simulator.node import Node
from simulator.promises import Promise


def tree(node: Node, value: Promise, params: int, tag: Hashable) -> Reduction:
    """Reduce, then broadcast, over a binomial tree.

    2 ceil(log2 P)(alpha + N beta) seconds, for every P: node 0 and the node in the middle of the ranks are parent and
    child, and either is the root of its half. That is the binomial tree where P is a power of two.

    Source: Thakur, Rabenseifner, Gropp (2005), Optimization of collective communication operations in MPICH.
    """
    parent, children = relatives(node.rank, node.workers)
    for child in reversed(children):  # the smallest half first: the others are still adding up
        _, part = yield node.receive((tag, child))
        value = value + part
    if parent is not None:
        yield node.send(parent, value, (tag, node.rank))
        _, value = yield node.receive((tag, "sum"))
    for child in children:  # the largest half first, alone: it has the longest way to go
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


def partners(rank: int, workers: int) -> Sequence[int]:
    """Those to whom a node sends: its parent and its children."""
    parent, children = relatives(rank, workers)
    return children if parent is None else [parent, *children]
