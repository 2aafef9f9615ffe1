"""A collective as steps, in which nodes send parts of the sum, by messages or in lock step."""

from collections import deque
from collections.abc import Callable, Generator, Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from laggard.simulator.engine.node import Node
from laggard.simulator.learning.gradients import GradientPromise
from laggard.simulator.learning.promises import (
    Derived,
    Promise,
    concatenate,
    evaluate,
    known,
    total,
)
from laggard.simulator.network.hops import Exchange
from laggard.simulator.timing.events import Event, Verb

if TYPE_CHECKING:
    from torch import Tensor

ALL = slice(None)
"""The columns of a whole model."""
Reduction = Generator[Event, Any, Promise]
"""A generator that yields the events of a node's verbs and returns the promise of a sum."""


def from_the_first(rank: int) -> int:
    """The first part, whatever the rank."""
    return 0


@dataclass(frozen=True)
class PartsExchange(Exchange):
    """A step, and the parts of the value in its messages.

    Attributes:
        cut: the number of parts into which the value is cut.
        first: a function from a rank to the first part that it sends.
        count: the number of parts that it sends.
        adds: whether the receiver adds them to its own; else it replaces its own.
    """

    cut: int = 1
    first: Callable[[int], int] = from_the_first
    count: int = 1
    adds: bool = True


Phase = Sequence[PartsExchange]
"""Steps that begin together.

A node goes on once all messages to it have arrived, and its own have left it, or with
`rendezvous` have arrived too.
"""


class Parts:
    """The values of a node during a collective: parts of the sum, or every node's value.

    Args:
        held: the values at the start.
        params: the number of parameters of the model.
        columns: the parameters that are summed.
    """

    def __init__(self, held: Sequence[Promise | None], params: int, columns: slice) -> None:
        self._held: list[Any] = list(held)
        self._params = params
        self._columns = columns

    def give(self, step: PartsExchange, rank: int) -> list[Any]:
        """The parts that `rank`, the owner of these, sends in a step."""
        if len(self._held) != step.cut:
            self._cut(step.cut)
        first = step.first(rank)
        return self._held[first : first + step.count]

    def take(self, step: PartsExchange, sender: int, received: Sequence[Promise]) -> None:
        """Receive the parts that `sender` sends in a step."""
        if len(self._held) != step.cut:
            self._cut(step.cut)
        for place, part in enumerate(received, step.first(sender)):
            if step.adds:
                part = part + self._held[place]  # in this order: it fixes the last bits
            self._held[place] = part

    def value(self, summed: bool) -> Promise:
        """The sum: all parts side by side if they are `summed`, else all values in rank order."""
        parts: Sequence[Any] = self._held
        if summed:
            return concatenate(parts)
        return total(parts)

    def _cut(self, count: int) -> None:
        """Cut the values where the whole model is cut into `count` equal parts.

        So every parameter is added up in the same order, with buckets or without; some parts of a
        bucket may be empty.
        """
        whole = self.value(summed=True)
        start, stop, _ = self._columns.indices(self._params)
        ends = []
        for part in range(count + 1):
            end = self._params * part // count
            ends.append(min(max(end, start), stop) - start)
        self._held = [whole[first:end] for first, end in pairwise(ends)]


@dataclass(frozen=True)
class Collective:
    """An algorithm by which P nodes sum their values.

    Attributes:
        phases: a function from P to the steps, in phases.
        partners: `partners(rank, workers)`, the ranks to which a node sends.
        gathers: whether every node collects all values and sums them itself, in rank order.
        rotates: whether every step goes from each node to the next, in messages of one size.
        columns: the parameters that are summed.
        slices: the number of phases under way at once: a node continues with a slice once the same
            slice of the step before has come. Without slices, 1.
    """

    phases: Callable[[int], Sequence[Phase]]
    partners: Callable[[int, int], Sequence[int]]
    gathers: bool = False
    rotates: bool = False
    columns: slice = field(default_factory=lambda: ALL)
    slices: int = 1

    def of_bucket(self, columns: slice, size: float) -> "Collective":
        """The same steps for some columns of the values, with messages of `size` models."""
        return replace(self, phases=partial(scale_phases, self.phases, size), columns=columns)

    def reduce(
        self,
        node: Node,
        value: Promise,
        params: int,
        tag: Hashable,
        gradient: GradientPromise | None = None,
        ranks: Sequence[int] = (),
    ) -> Reduction:
        """The promise of the sum of all nodes' values, by messages or in lock step.

        Lock step is used where it gives the same times. All nodes call this.

        Args:
            node: the calling node.
            value: its value `(ensemble, params)`.
            params: the number of parameters.
            tag: the round; it differs between rounds.
            gradient: the gradient of which `value` is a part, if the rest may still be in
                computation.
            ranks: the ranks of the nodes that take part, if not all do.
        """
        rounds = node.lock_step
        if rounds is not None and self.slices == 1 and not ranks and rounds.suits(self):
            result: Promise = yield rounds.join(node.rank, self, value, params, tag, gradient)
            return result
        return (yield from self.by_messages(node, value, params, tag, ranks))

    def by_messages(
        self, node: Node, value: Promise, params: int, tag: Hashable, ranks: Sequence[int] = ()
    ) -> Reduction:
        """`reduce` by messages, which may meet others, be lost, or be recorded."""
        ranks = ranks or node.members
        rank = ranks.index(node.rank)
        workers = len(ranks)
        parts = self.begin(rank, workers, value, params)
        under_way = deque[tuple[int, Phase, list[Verb]]]()
        # The empty phases at the end complete those that are still under way.
        for number, phase in enumerate([*self.phases(workers), *[()] * self.slices]):
            if len(under_way) == self.slices:
                before, awaited, sent = under_way.popleft()
                for place, step in enumerate(awaited):
                    source = step.source(rank)
                    if source >= 0:
                        _, received = yield node.receive((tag, before, place))
                        parts.take(step, int(source), received)
                while sent:
                    yield sent.pop()
            sent = list[Verb]()
            for place, step in enumerate(phase):
                to = step.to(rank)
                if to >= 0:
                    content = parts.give(step, rank)
                    message = node.send(ranks[to], content, (tag, number, place), step.size)
                    if node.rendezvous:
                        sent.append(message)
                    else:
                        sent.append(message.departed)
            under_way.append((number, phase, sent))
        return parts.value(summed=not self.gathers)

    def total(self, values: Sequence[Promise], params: int) -> Promise:
        """The promise of the result of `reduce` for all nodes' `values` in rank order."""
        return Derived(tuple(values), lambda *tensors: self.sum(tensors, params))

    def sum(self, values: "Sequence[Tensor]", params: int) -> "Tensor":
        """The sum of all nodes' `values`, added up in the order in which the steps add."""
        workers = len(values)
        nodes = []
        for rank, value in enumerate(values):
            nodes.append(self.begin(rank, workers, known(value), params))
        for phase in self.phases(workers):
            messages = []  # all are sent before any is received
            for step in phase:
                for rank in range(workers):
                    if step.to(rank) >= 0:
                        messages.append((step, rank, nodes[rank].give(step, rank)))
            for step, rank, parts in messages:
                nodes[step.to(rank)].take(step, rank, parts)
        return evaluate([nodes[0].value(summed=not self.gathers)])[0]

    def begin(self, rank: int, workers: int, value: Promise, params: int) -> Parts:
        """The values of node `rank` at the start."""
        if not self.gathers:
            return Parts([value], params, self.columns)
        values: list[Promise | None] = [None] * workers
        values[rank] = value
        return Parts(values, params, self.columns)


@lru_cache(maxsize=256)
def scale_phases(
    phases: Callable[[int], Sequence[Phase]], size: float, workers: int
) -> Sequence[Phase]:
    """The steps of `phases` with messages of `size` times their size; made once for all nodes."""
    return [[replace(step, size=size * step.size) for step in phase] for phase in phases(workers)]
