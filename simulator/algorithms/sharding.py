"""A parameter server divided into shards, and a worker's communication with all of them."""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from laggard.simulator.algorithms.base import Algorithm, Role
from laggard.simulator.algorithms.outgoing import Outgoing
from laggard.simulator.engine.cluster import Cluster
from laggard.simulator.engine.node import Node
from laggard.simulator.errors import InvalidSettingError, PositiveInt
from laggard.simulator.learning.gradients import GradientPromise
from laggard.simulator.learning.promises import Promise
from laggard.simulator.learning.task import Layer
from laggard.simulator.learning.weights import join_slices
from laggard.simulator.network.topology import SERVER
from laggard.simulator.timing.events import Event, Message, Work

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Sharded(Algorithm):
    """A method whose server may be divided into shards, each with a slice of the model and a card.

    Its `server` runs on every shard, over the shard's slice; its `worker` communicates with them
    through `Shards`.

    Attributes:
        shards: S, servers that share the parameters evenly; at most as many as there are workers.

    Source: Dean et al. (2012), NIPS, section 4; Li et al. (2014), OSDI.
    """

    shards: PositiveInt = field(default=1, kw_only=True)

    def check(self, cluster: Cluster) -> None:
        if self.shards > cluster.workers:
            limit = f"at most workers = {cluster.workers}"
            expected = f"{limit}, whose cards are the bottleneck from then on"
            raise InvalidSettingError(type(self).__name__, "shards", expected, self.shards)

    def roles(self, workers: int) -> Mapping[int, Sequence[Callable[[Node], Role]]]:
        roles = dict(super().roles(workers))
        return dict.fromkeys(split_parameters(0, self.shards), roles[SERVER]) | roles

    def slices(
        self, workers: int, params: int, layers: Sequence[Layer] = ()
    ) -> Mapping[int, slice]:
        if self.shards > 1:
            return split_parameters(params, self.shards)
        return {}

    def updates_in_parts(self, workers: int) -> bool:
        return self.shards > 1


class Shards:
    """A worker's side of the shards: it reads a slice from each, and pushes a part to each.

    With one shard it reads the whole model, and pushes its contents unchanged.
    """

    def __init__(self, node: Node, shards: int, outstanding: int = 1) -> None:
        """`outstanding`: the number of pushes in turn whose bytes may still have to leave."""
        self._node = node
        self._outgoing = Outgoing(outstanding)
        parts = list(split_parameters(node.weights.shape[1], shards).items())
        first = node.rank % shards  # workers start with different shards, which avoids queues
        self._parts = dict(parts[first:] + parts[:first])
        self._models: dict[int, Tensor] = {}
        self._fresh: set[int] = set()

    def announce(self) -> None:
        """Announce the worker to every shard, also after a crash."""
        for shard in self._parts:
            self._node.send(shard, None, size=0)

    def push(self, content: Any, size: float = 1.0) -> list[Message]:
        """Send every shard its part of the promises and models in `content`; return the messages.

        All of `content` has the size of `size` models; it may be nested in lists and tuples.
        """
        if len(self._parts) == 1:
            return [self._node.send(SERVER, content, size=size)]
        messages = []
        for shard in self._parts:
            part = self._part(content, shard)
            messages.append(self._node.send(shard, part, size=size / len(self._parts)))
        return messages

    def push_in_turn(self, content: Any, size: float = 1.0) -> Generator[Event, Any, None]:
        """`push`, once the bytes of earlier pushes have left the worker."""
        yield from self._outgoing.wait()
        self._outgoing.add(self.push(content, size))

    def read(self) -> "Generator[Event, Any, Tensor]":
        """Wait for an answer of every shard, and return the model `(ensemble, params)`.

        An answer is a new slice, or None where the worker goes on with the slice that it holds.
        """
        # Not after `wait_until_overtaken`, which has taken the answer of the one shard.
        if len(self._parts) == 1 and not self._fresh:
            _, model = yield self._node.receive()
            if model is not None:
                self._models[SERVER] = model
            return self._models[SERVER]
        while not self._complete:
            self._take(*(yield self._node.receive()))
        self._fresh = set()
        return self.model()

    def await_slices(self, layer: int, slices: int) -> Generator[Event, Any, None]:
        """Wait for `slices` messages with tag `layer` of every shard; some have the model."""
        for _ in range(slices * len(self._parts)):
            shard, model = yield self._node.receive(layer)
            if model is not None:
                self._models[shard] = model

    def model(self) -> "Tensor":
        """The model `(ensemble, params)` as it was read last."""
        return join_slices([self._models[shard] for shard in sorted(self._models, reverse=True)])

    def wait_until_overtaken(self, work: Work) -> Generator[Event, Any, bool]:
        """Wait for the end of `work`, or until every shard has sent newer weights.

        A shard that has not can still use a gradient at the weights that were read.

        Returns:
            Whether every shard has sent newer weights.
        """
        while not (work.fired or self._complete):
            receive = self._node.receive()
            yield work | receive
            # A shard may send the same weights twice, which are no newer ones.
            if receive.fired and receive.value[1] is not self._models[receive.value[0]]:
                self._take(*receive.value)
        return self._complete

    @property
    def _complete(self) -> bool:
        return len(self._fresh) == len(self._parts)

    def _take(self, shard: int, model: "Tensor | None") -> None:
        if model is not None:
            self._models[shard] = model
        self._fresh.add(shard)

    def _part(self, content: Any, shard: int) -> Any:
        from torch import Tensor

        if isinstance(content, GradientPromise):
            return content.piece(shard)
        if isinstance(content, Promise):
            return content[self._parts[shard]]
        if isinstance(content, Tensor):
            return content[:, self._parts[shard]]
        if isinstance(content, list | tuple):
            return [self._part(item, shard) for item in content]
        return content


def split_parameters(params: int, shards: int) -> dict[int, slice]:
    """The slice of `params` parameters of each shard; sizes differ by at most one.

    Example:
        >>> split_parameters(5, 2)
        {-1: slice(0, 2, None), -2: slice(2, 5, None)}
    """
    bounds = [params * shard // shards for shard in range(shards + 1)]
    return {SERVER - shard: slice(*bounds[shard : shard + 2]) for shard in range(shards)}
