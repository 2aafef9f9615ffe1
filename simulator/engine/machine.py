"""A node as the engine drives it: the verbs of `Node`."""

import math
from collections.abc import Hashable, Iterator, Sequence
from functools import cached_property
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from numpy.random import Generator
from torch import Tensor

from laggard.simulator.engine.endings import (
    MESSAGE_ARRIVES,
    WORK_ENDS,
    deliver_or_lose,
    start_buckets,
)
from laggard.simulator.engine.mailbox import Mailbox, new_receive
from laggard.simulator.engine.states import NodeState
from laggard.simulator.errors import InvalidSettingError, check_duration
from laggard.simulator.learning.gradients import Gradient, GradientPromise
from laggard.simulator.learning.task import Layer
from laggard.simulator.learning.weights import stamp
from laggard.simulator.network.mixing import Mixing, NodePeers
from laggard.simulator.network.topology import SERVER, Ranks, Topology
from laggard.simulator.recording.trace import SENDING
from laggard.simulator.timing.distributions import Durations
from laggard.simulator.timing.events import Event, Message, Receive, Work, new_message, new_work
from laggard.simulator.timing.slowdowns import Slowdown, apply_slowdowns

if TYPE_CHECKING:
    from laggard.simulator.engine.simulation import Simulation

REMEMBERED = 1024  # receivers that a node caches as reachable
INFINITE = math.inf  # read in every cycle


class Machine(NodeState):
    """A node, as the engine drives it."""

    state: Any = None

    def __init__(
        self,
        rank: int,
        world: "Simulation",
        start: Tensor,
        durations: Durations,
        slowdowns: Sequence[Slowdown],
        batches: Iterator[Any],
    ) -> None:
        self._world, self._env = world, world.env  # thirty attributes at most: see ARCHITECTURE
        self.rank, self.workers, self.group_size = rank, world.cluster.workers, world.group_size
        self.version, self.mixings, self.weight, self.life = 0, -1, 1.0, 0  # -1: the start
        self.mailbox, self.weights = Mailbox(world.crashes), start
        # seconds busy, sending, waiting, down; waiting is what is left at the end
        self.spent = [0.0, 0.0, 0.0, 0.0]
        self._pool, self._counters, self._transport = world.pool, world.counters, world.transport
        if world.log is not None:
            self._post = None
        else:
            self._post = world.transport.post
        self.model_bytes, self._log, self.lock_step = world.model_bytes, world.log, world.lock_step
        self._peers: NodePeers | None = None  # made when they are needed, as what follows
        self._joined: dict[int, Machine] = {}  # cached receivers that it may send to
        self._durations, self._slowdowns, self._batches = durations, slowdowns, batches
        self._work: Work | None = None
        self._at_once: Work | None = None  # the answer to `work(0)`
        self._outgoing, self._since = 0, 0.0  # messages under way; start (s) of the present state

    def _set_weights(self, weights: Tensor) -> None:
        if self._world.reached is None:  # once the end is reached nothing counts
            self.mixings += 1
            self._weights = stamp(weights, self)

    # read without a call of a Python function
    weights = property(attrgetter("_weights"), _set_weights)

    def compute(
        self, weights: Tensor, read: Tensor | None = None, buckets: Sequence[float] = ()
    ) -> Work:
        if self.rank < 0:
            raise RuntimeError(
                f"node {self.rank} is a server: it has no mini-batches; compute on a worker's node"
            )
        alone, now = self._durations.next(), self._env._now
        if self._slowdowns:
            seconds = apply_slowdowns(alone, now, self._slowdowns)
        else:
            seconds = alone
        promise = self._pool.promise
        gradient = promise(self.rank, self, weights, next(self._batches), read)
        gradient.started, gradient.due = now, now + seconds
        self._counters.started += 1
        work = self._begin(gradient, seconds)
        if buckets:
            return start_buckets(work, alone, buckets)
        return work

    @cached_property
    def rng(self) -> Generator:
        return self._world.choices(self.rank)

    @property
    def layers(self) -> Sequence[Layer]:
        return self._world.layers

    # likewise; of a `Client` where it is a law
    apply_seconds = property(attrgetter("_world.cluster.apply_seconds"))

    @property
    def now(self) -> float:
        return self._env.now

    def batch(self) -> Any:
        return next(self._batches)

    def promise(self, weights: Tensor, batch: Any, started: float) -> Gradient:
        gradient = self._pool.promise(self.rank, self, weights, batch)
        gradient.started, gradient.due, gradient.computed = started, self._env.now, self._env.now
        counters = self._counters
        counters.started, counters.computed = counters.started + 1, counters.computed + 1
        if counters.computed >= counters.most_computed:
            self._world.end("gradients")
        return gradient

    def duration(self) -> float:
        return self._durations.next()

    def work(self, seconds: float = 0.0, *, share: float = 0.0, of: float | None = None) -> Work:
        if share:
            alone = self._durations.next() if of is None else of
            seconds = apply_slowdowns(share * alone, self._env.now, self._slowdowns)
        if seconds:
            return self._begin(None, seconds)
        return self._at_once or self._make_at_once()

    def send(self, receiver: int, content: Any, tag: Hashable = None, size: float = 1.0) -> Message:
        target = self._joined.get(receiver) or self._join(receiver)
        if not 0.0 <= size < INFINITE:
            raise InvalidSettingError("send", "size", "a finite number of models >= 0", size)
        if not self._outgoing and self._work is None:
            self._since = self._env._now
        self._outgoing += 1
        self._counters.sent += 1
        message = new_message(self, target, content, tag, MESSAGE_ARRIVES)
        post = self._post
        if post is not None:
            post(message)
        else:
            self._address(message)
            self._hand_over(message, size * self.model_bytes)
        return message

    def put(self, content: Any, tag: Hashable = None) -> None:
        message = new_message(self, self, content, tag, MESSAGE_ARRIVES)
        message.lives = self.life, self.life
        self.mailbox.deliver(message)

    def receive(self, tag: Hashable = None) -> Receive:
        receive, mailbox = new_receive(self, tag), self.mailbox
        if tag is None and mailbox.first is None and not mailbox.mail:  # as in most cycles
            mailbox.first = receive
            return receive
        return mailbox.ask(receive)

    def arrived(self, tag: Hashable = None) -> bool:
        return self.mailbox.holds(tag)

    @property
    def topology(self) -> Topology:
        return self._world.topology

    def out_peers(self, step: int = 0) -> Ranks:
        return (self._peers or self._make_peers()).at(step)[0]

    def in_peers(self, step: int = 0) -> Ranks:
        return (self._peers or self._make_peers()).at(step)[1]

    def mixing(self, name: str, step: int = 0) -> Mixing:
        return (self._peers or self._make_peers()).mixing(name, step)

    def down(self, peer: int) -> Event:
        return self._world.faults.down(self.rank, peer)

    def apply(
        self, weights: Tensor, gradients: Sequence[GradientPromise], state: Any = None
    ) -> None:
        world = self._world
        if world.applies(gradients):
            if world.recoveries is not None:
                world.recoveries.applies(self)
            self.version += 1
            self._weights = stamp(weights, self)
            if state is not None:
                self.state = state

    def _begin(self, gradient: Gradient | None, seconds: float) -> Work:
        if self._work is not None:
            at = f"node {self.rank} starts to compute at {self._env.now:g} s while it is computing already"
            raise RuntimeError(
                f"{at}; yield the first computation, or cancel it, before the second"
            )
        if not 0.0 <= seconds < INFINITE:
            check_duration(seconds, f"node {self.rank}", "work")
        now = self._env._now
        if self._outgoing:
            self.spent[SENDING] += now - self._since
        self._since = now
        self._work = work = new_work(self, gradient, WORK_ENDS)
        after_work = self._env.after_work
        after_work(seconds, work)
        return work

    def _address(self, message: Message) -> None:
        """Say, where nodes crash, for which life of its receiver a message is meant."""
        heard, target = self.mailbox.heard, message.receiver
        if heard is not None:
            message.waiting = message.callbacks = [deliver_or_lose]
            message.lives = (
                self.life,
                heard.get(target.rank, target.life) if self.rank < 0 else target.life,
            )
            if self._world.recoveries is not None:
                self._world.recoveries.sent(message)

    def _hand_over(self, message: Message, size: float) -> None:
        """Hand a message of `size` bytes to the network."""
        if self._log is not None:
            self._log.sent(message, size)
        self._transport.carry(self.rank, message.receiver.rank, size, message)

    def _make_peers(self) -> NodePeers:
        self._peers = NodePeers(self.topology, self.rank, self.workers)
        return self._peers

    def _make_at_once(self) -> Work:
        self._at_once = new_work(self, None, None)
        return self._at_once

    def _join(self, receiver: int) -> "Machine":
        """The node `receiver`, once the topology allows messages to it; cached by `send`."""
        target = self._world.nodes.get(receiver)
        if target is None:
            expected = (
                f"a rank of {sorted(self._world.nodes)}"
                + " (the method has no `server`)" * (receiver == SERVER)
            )
            raise InvalidSettingError("send", "receiver", expected, receiver)
        self._transport.check(self.rank, receiver)
        if len(self._joined) >= REMEMBERED:
            self._joined.clear()
        self._joined[receiver] = target
        return target
