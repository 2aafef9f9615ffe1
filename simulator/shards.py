"""A parameter server that is cut into shards: which rank holds which slice, and how a worker talks to all of them."""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from simpy.events import Event
from torch import Tensor

from simulator.algorithm import Algorithm, Role
from simulator.bounds import Invalid, bounded
from simulator.cluster import Cluster
from simulator.events import Work
from simulator.gradients import Gradient
from simulator.node import Node
from simulator.promises import Promise
from simulator.task import Layer
from simulator.topology import SERVER
from simulator.weights import joined


@dataclass(frozen=True)
class Sharded(Algorithm):
    """A method whose server may be cut into shards, each with a slice of the model and a card of its own.

    Its `server` runs on every shard, over the shard's slice; its `worker` talks to them through `Shards`.

    Attributes:
        shards: S, servers among which the parameters are dealt evenly; at most as many as there are workers.

    Source: Dean et al. (2012), NIPS, section 4; Li et al. (2014), OSDI.
    """

    shards: int = field(default=1, kw_only=True)

    def __post_init__(self) -> None:
        bounded(self, "shards", least=1, whole=True)

    def check(self, cluster: Cluster) -> None:
        if self.shards > cluster.workers:
            expected = f"at most workers = {cluster.workers}, whose cards bind from there on"
            raise Invalid(type(self).__name__, "shards", expected, self.shards)

    def roles(self, workers: int) -> Mapping[int, Sequence[Callable[[Node], Role]]]:
        roles = dict(super().roles(workers))
        return dict.fromkeys(dealt(0, self.shards), roles[SERVER]) | roles

    def slices(self, workers: int, params: int, layers: Sequence[Layer] = ()) -> Mapping[int, slice]:
        return dealt(params, self.shards) if self.shards > 1 else {}


class Shards:
    """A worker's side of its shards: it reads a slice of the model from each, and pushes to each its part.

    With one shard it reads the server's model as it is, and pushes what it is given as it is.
    """

    def __init__(self, node: Node, shards: int) -> None:
        self._node = node
        parts = list(dealt(node.weights.shape[1], shards).items())
        first = node.rank % shards  # the workers begin with different shards, so that a queue forms at none
        self._parts = dict(parts[first:] + parts[:first])
        self._models: dict[int, Tensor] = {}
        self._news: set[int] = set()

    def announce(self) -> None:
        """Tell every shard that the worker is there, also after a crash."""
        for shard in self._parts:
            self._node.send(shard, None, size=0)

    def push(self, content: Any, size: float = 1.0) -> None:
        """Send every shard its part of `content`: of promises and models, and of lists and tuples of them.

        All of `content` has the size of `size` models.
        """
        if len(self._parts) == 1:
            self._node.send(SERVER, content, size=size)
            return
        for shard in self._parts:
            self._node.send(shard, self._part(content, shard), size=size / len(self._parts))

    def read(self) -> Generator[Event, Any, Tensor]:
        """Wait until every shard has sent its slice since the last read; the model `(ensemble, params)` they make."""
        if len(self._parts) == 1 and not self._news:
            _, model = yield self._node.receive()
            read: Tensor = model
            self._models[SERVER] = read
            return read
        while not self._complete:
            self._take(*(yield self._node.receive()))
        self._news = set()
        return joined([self._models[shard] for shard in sorted(self._models, reverse=True)])

    def overtaken(self, work: Work) -> Generator[Event, Any, bool]:
        """Wait for the end of `work`, or until every shard has sent newer weights; whether they have.

        As long as one shard has not, it still has a use for a gradient at the weights that were read.
        """
        while not (work.fired or self._complete):
            receive = self._node.receive()
            yield work | receive
            if receive.fired and receive.value[1] is not self._models[receive.value[0]]:
                self._take(*receive.value)
        return self._complete

    @property
    def _complete(self) -> bool:
        return len(self._news) == len(self._parts)

    def _take(self, shard: int, model: Tensor) -> None:
        self._models[shard] = model
        self._news.add(shard)

    def _part(self, content: Any, shard: int) -> Any:
        if isinstance(content, Gradient):
            return content.piece(shard)
        if isinstance(content, Promise):
            return content[self._parts[shard]]
        if isinstance(content, Tensor):
            return content[:, self._parts[shard]]
        if isinstance(content, list | tuple):
            return [self._part(one, shard) for one in content]
        return content


def dealt(params: int, shards: int) -> dict[int, slice]:
    """Which slice of `params` parameters each of the shards `SERVER`, `SERVER` - 1, ... holds; equal up to one.

    Example:
        >>> dealt(5, 2)
        {-1: slice(0, 2, None), -2: slice(2, 5, None)}
    """
    bounds = [params * shard // shards for shard in range(shards + 1)]
    return {SERVER - shard: slice(*bounds[shard : shard + 2]) for shard in range(shards)}
