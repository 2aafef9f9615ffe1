"""What collectives are made of: what one is, and one step of it."""

from collections.abc import Callable, Generator, Hashable, Sequence
from typing import Any, NamedTuple

from simpy.events import Event

from simulator.node import Node
from simulator.promises import Promise

Reduction = Generator[Event, Any, Promise]
"""A generator that yields the events of a node's verbs and returns the promise of a sum."""


class Collective(NamedTuple):
    """A way in which P nodes add up what each of them has.

    Attributes:
        reduce: the generator of one node, over `(node, value, params, tag)`; it returns the promise of everybody's sum.
            `value` is the promise of a tensor `(ensemble, params)`; rounds that follow one another differ in `tag`.
        partners: the ranks to which node `rank` of so many workers sends.
    """

    reduce: Callable[[Node, Promise, int, Hashable], Reduction]
    partners: Callable[[int, int], Sequence[int]]


def exchange(node: Node, to: int, content: Any, tag: Hashable, size: float = 1.0) -> Generator[Event, Any, Any]:
    """Send `content` to node `to` and receive a message with the same tag; over when both have arrived."""
    sent = node.send(to, content, tag, size)
    _, received = yield node.receive(tag)
    yield sent
    return received
