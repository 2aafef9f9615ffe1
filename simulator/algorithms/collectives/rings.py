"""Collectives in which all nodes do the same: two rings and the mesh; and the exchange that all collectives use."""

from collections.abc import Callable, Generator, Hashable, Sequence
from typing import Any, NamedTuple

from laggard.simulator.engine.node import Node
from laggard.simulator.learning.promises import Promise, concatenate, total
from laggard.simulator.timing.events import Event

Reduction = Generator[Event, Any, Promise]
"""A generator that yields the events of a node's verbs and returns the promise of a sum."""


class Collective(NamedTuple):
    """An algorithm by which P nodes sum the values that each of them has.

    Attributes:
        reduce: the generator of one node, over `(node, value, params, tag)`; it returns the promise of the sum.
            `value` is the promise of a tensor `(ensemble, params)`; successive rounds have different tags.
        partners: the ranks to which node `rank` of so many workers sends.
    """

    reduce: Callable[[Node, Promise, int, Hashable], Reduction]
    partners: Callable[[int, int], Sequence[int]]


def exchange(node: Node, to: int, content: Any, tag: Hashable, size: float = 1.0) -> Generator[Event, Any, Any]:
    """Send `content` to node `to` and receive a message with the same tag; ends when both have arrived."""
    sent = node.send(to, content, tag, size)
    _, received = yield node.receive(tag)
    yield sent
    return received


def next_in_rank(rank: int, workers: int) -> Sequence[int]:
    """The neighbour on the ring to which a node sends, if there is one."""
    return [(rank + 1) % workers] if workers > 1 else []


def all_others(rank: int, workers: int) -> Sequence[int]:
    """All other ranks, the next first, so that not all nodes send to the same one first."""
    return [*range(rank + 1, workers), *range(rank)]


def ring(node: Node, value: Promise, params: int, tag: Hashable) -> Reduction:
    """Ring all-reduce: reduce-scatter, after which each node has one chunk of the sum, then all-gather.

    2 (P - 1) steps of N / P bytes: 2 (P - 1) alpha + 2 ((P - 1) / P) N beta seconds. Chunk k is summed once, in the
    order k, k + 1, ... round the ring. Where P does not divide the parameters, chunks differ by one; messages do not.

    Source: Patarasuk & Yuan (2009), Bandwidth optimal all-reduce algorithms for clusters of workstations.
    """
    workers, ahead = node.workers, (node.rank + 1) % node.workers
    chunks = [value[params * k // workers : params * (k + 1) // workers] for k in range(workers)]
    for step in range(workers - 1):
        mine, theirs = (node.rank - step) % workers, (node.rank - step - 1) % workers
        partial = yield from exchange(node, ahead, chunks[mine], (tag, "scatter", step), 1 / workers)
        chunks[theirs] = partial + chunks[theirs]
    for step in range(workers - 1):
        mine, theirs = (node.rank - step + 1) % workers, (node.rank - step) % workers
        chunks[theirs] = yield from exchange(node, ahead, chunks[mine], (tag, "gather", step), 1 / workers)
    return concatenate(chunks)


def naive_ring(node: Node, value: Promise, params: int, tag: Hashable) -> Reduction:
    """The ring of whole values: each is forwarded P - 1 times, and every node sums them itself, in rank order.

    (P - 1)(alpha + N beta) seconds: the ring of chunks is faster iff N beta (1 - 2 / P) > alpha.
    """
    values = {node.rank: value}
    for step in range(node.workers - 1):
        value = yield from exchange(node, (node.rank + 1) % node.workers, value, (tag, step))
        values[(node.rank - step - 1) % node.workers] = value
    return total([values[rank] for rank in range(node.workers)])


def mesh(node: Node, value: Promise, params: int, tag: Hashable) -> Reduction:
    """The parallel all-reduce: every node sends its value to every other, and sums all itself, in rank order.

    alpha + (P - 1) N beta seconds where a node has one card, alpha + N beta where every pair has a link.
    """
    values = {node.rank: value}
    sent = [node.send(peer, value, tag) for peer in all_others(node.rank, node.workers)]
    while len(values) < node.workers:
        sender, received = yield node.receive(tag)
        values[sender] = received
    while sent:
        yield sent.pop()
    return total([values[rank] for rank in range(node.workers)])
