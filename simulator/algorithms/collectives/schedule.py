"""A collective as its steps: who sends which parts of the sum to whom; and the two ways to go
through them.
"""

from collections import deque
from collections.abc import Callable, Generator, Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from laggard.simulator.engine.node import Node
from laggard.simulator.learning.gradients import GradientPromise
from laggard.simulator.learning.promises import Derived, Promise, concatenate, evaluate, total
from laggard.simulator.network.hops import Exchange
from laggard.simulator.timing.events import Event, Message

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
    """A step, and what its messages carry.

    Attributes:
        cut: how many parts the value is cut into.
        first: from a rank to the first part that it sends.
        count: how many parts it sends.
        adds: whether the receiver adds them to its own; else it puts them in their place.
    """

    cut: int = 1
    first: Callable[[int], int] = from_the_first
    count: int = 1
    adds: bool = True


Phase = Sequence[PartsExchange]
"""Steps that begin together; a node goes on once all its messages in them have arrived."""


class Parts:
    """What a node holds during a collective: parts of the sum, or every node's value, for it to sum
    itself.

    Args:
        held: what it holds at the start.
        params: the number of parameters of the model.
        columns: those that are summed.
    """

    def __init__(self, held: Sequence[Promise | None], params: int, columns: slice) -> None:
        self._held: list[Any] = list(held)
        self._params, self._columns = params, columns

    def give(self, step: PartsExchange, rank: int) -> list[Any]:
        """What `rank`, whose parts these are, sends in a step."""
        if len(self._held) != step.cut:
            self._cut(step.cut)
        first = step.first(rank)
        return self._held[first : first + step.count]

    def take(self, step: PartsExchange, sender: int, received: Sequence[Promise]) -> None:
        """Receive what `sender` sends in a step."""
        if len(self._held) != step.cut:
            self._cut(step.cut)
        held, first, adds = self._held, step.first(sender), step.adds
        for place, theirs in enumerate(received, first):
            held[place] = theirs + held[place] if adds else theirs

    def value(self, summed: bool) -> Promise:
        """The sum: all parts side by side or, unless they are `summed`, every node's value added in
        rank order.
        """
        parts: Sequence[Any] = self._held
        if summed:
            return concatenate(parts)
        return total(parts)

    def _cut(self, count: int) -> None:
        """Cut what is held where the whole model is cut into `count` parts of equal size, to one
        parameter.

        So every parameter is added up in the same order, whatever it is sent with; some parts of a
        bucket are empty.
        """
        whole, (start, stop, _) = self.value(summed=True), self._columns.indices(self._params)
        ends = [
            min(max(self._params * part // count, start), stop) - start for part in range(count + 1)
        ]
        self._held = [whole[start:end] for start, end in pairwise(ends)]


@dataclass(frozen=True)
class Collective:
    """An algorithm by which P nodes sum the values that each of them has.

    Attributes:
        phases: from P to the steps, in phases.
        partners: the ranks to which node `rank` of so many workers sends.
        gathers: whether every node collects all values and sums them itself, in rank order.
        rotates: whether every step goes from each node to the next, in messages of one size.
        columns: the parameters that are summed.
        slices: phases that are under way at once: a node goes on with a slice once the same one of
            the step before has come. Without slices, 1.
    """

    phases: Callable[[int], Sequence[Phase]]
    partners: Callable[[int, int], Sequence[int]]
    gathers: bool = False
    rotates: bool = False
    columns: slice = field(default_factory=lambda: ALL)
    slices: int = 1

    def of_bucket(self, columns: slice, size: float) -> "Collective":
        """The same steps for some columns of the values, whose message has the size of `size`
        models.
        """
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
        """The promise of the sum of all nodes' values, by messages, or in lock step where that
        takes the same time.

        Args:
            node: one of the nodes, all of which do this.
            value: its own value `(ensemble, params)`.
            params: the number of parameters.
            tag: the round; it differs between rounds.
            gradient: the one of which `value` is a part, where the rest may still be computed.
            ranks: of the nodes that take part, where not all do.
        """
        rounds = node.lock_step
        if rounds is not None and self.slices == 1 and not ranks and rounds.suits(self):
            result: Promise = yield rounds.join(node.rank, self, value, params, tag, gradient)
            return result
        return (yield from self.by_messages(node, value, params, tag, ranks))

    def by_messages(
        self, node: Node, value: Promise, params: int, tag: Hashable, ranks: Sequence[int] = ()
    ) -> Reduction:
        """What `reduce` does where messages meet others, may be lost, or are recorded."""
        ranks = ranks or range(node.workers)
        rank, workers = ranks.index(node.rank), len(ranks)
        parts = self.begin(rank, workers, value, params)
        under_way = deque[tuple[int, Phase, list[Message]]]()
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
            sent = []
            for place, step in enumerate(phase):
                to = step.to(rank)
                if to >= 0:
                    sent.append(
                        node.send(
                            ranks[to], parts.give(step, rank), (tag, number, place), step.size
                        )
                    )
            under_way.append((number, phase, sent))
        return parts.value(summed=not self.gathers)

    def total(self, values: Sequence[Promise], params: int) -> Promise:
        """The promise of what `reduce` gives, of all nodes' `values` in rank order."""
        return Derived(tuple(values), lambda *tensors: self.sum(tensors, params))

    def sum(self, values: "Sequence[Tensor]", params: int) -> "Tensor":
        """The sum of all nodes' `values`, added up in the order in which the steps add."""
        workers = len(values)
        nodes = [
            self.begin(rank, workers, known(value), params) for rank, value in enumerate(values)
        ]
        for phase in self.phases(workers):
            given = [
                (step, rank, nodes[rank].give(step, rank))
                for step in phase
                for rank in range(workers)
                if step.to(rank) >= 0
            ]
            for step, rank, parts in given:
                nodes[step.to(rank)].take(step, rank, parts)
        return evaluate([nodes[0].value(summed=not self.gathers)])[0]

    def begin(self, rank: int, workers: int, value: Promise, params: int) -> Parts:
        """What node `rank` holds at the start."""
        if self.gathers:
            return Parts(
                [value if other == rank else None for other in range(workers)], params, self.columns
            )
        return Parts([value], params, self.columns)


@lru_cache(maxsize=256)
def scale_phases(
    phases: Callable[[int], Sequence[Phase]], size: float, workers: int
) -> Sequence[Phase]:
    """The steps of `phases` with messages of `size` times their size; made once for all nodes."""
    return [[replace(step, size=size * step.size) for step in phase] for phase in phases(workers)]


def known(value: "Tensor") -> Promise:
    """A promise whose value is there."""
    promise = Promise()
    promise._value = value
    return promise
