"""A node: what an algorithm sees of the cluster. Four verbs and the model that the node stands for.

    gradient = yield node.compute(weights)               # a promise; .value asks for its arithmetic
    yield node.send(receiver, content, tag=t, size=1.0)  # fires when it has arrived; size in models
    sender, content = yield node.receive(tag=t)          # the next message with that tag
    node.apply(weights, [gradients])                     # one update of the node's model

The first three start at once and return an event; `yield` is the only way to wait.
"""

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import cached_property
from typing import Any

from numpy.random import Generator
from simpy.events import Event
from torch import Tensor

from simulator.bounds import Invalid, duration
from simulator.events import Message, Receive, Work
from simulator.gradients import Gradient, Settled
from simulator.laws import Durations
from simulator.mailbox import Mailbox
from simulator.mixing import Mixing
from simulator.peers import Peers
from simulator.slowdowns import Slowdown, stretched
from simulator.task import Layer
from simulator.topology import Ranks, Topology
from simulator.trace import BUSY, DOWN, SENDING, WAITING
from simulator.weights import stamped
from simulator.world import World

KNOWN = 1024  # receivers that a node remembers having been allowed to send to


class Node:
    """One machine of the cluster: a worker, or the parameter server.

    Attributes:
        rank: 0, 1, ... for workers, `SERVER` for the server.
        workers: how many workers the cluster has.
        version: updates that the node's model has seen.
        mixings: how often its model was set without an update: averaged with others', or replaced by one that was read.
        weight: push-sum's, by which the node's sum is divided; 1 unless the algorithm says otherwise.
        life: how often it has crashed and returned; odd while it is down.
        mailbox: the messages that nobody has asked for yet, and the receives that wait for one.
    """

    def __init__(
        self,
        rank: int,
        world: World,
        start: Tensor,
        durations: Durations,
        slowdowns: Sequence[Slowdown],
        batches: Iterator[Any],
        choices: Callable[[], Generator],
    ) -> None:
        self._world, self._env = world, world.env  # thirty attributes at most: see ARCHITECTURE
        self.rank, self.version, self.mixings = rank, 0, -1  # the start is no mixing
        self.weight, self._choices = 1.0, choices
        self.life = 0
        self.workers = world.cluster.workers
        self.weights = start
        self.spent = [0.0, 0.0, 0.0, 0.0]  # seconds busy, sending, waiting, down; waiting is what is left at the end
        self._pool, self._books, self._wires = world.pool, world.books, world.wires
        self._model_bytes, self._log = world.model_bytes, world.log
        self._peers = Peers(world.topology, rank, self.workers)
        self._joined: dict[int, Node] = {}  # receivers that it may send to, as far as it was asked
        self._durations, self._slowdowns, self._batches = durations, slowdowns, batches
        self._work: Work | None = None
        self._at_once = Work(self._env, self, None)  # what it is to work for no time
        self._at_once.callbacks = None  # type: ignore[assignment]
        self._outgoing, self._since = 0, 0.0  # messages under way; since when it works, or sends, or is down
        self._ends: dict[int, Event] = {}  # of peers' lives, for whom somebody asked
        self.mailbox = Mailbox()

    @property
    def weights(self) -> Tensor:
        """The model `(ensemble, params)` that the node stands for, stamped with (node, version)."""
        return self._weights

    @weights.setter
    def weights(self, weights: Tensor) -> None:
        if self._world.reached is None:  # once the end is reached nothing counts
            self.mixings += 1
            self._weights = stamped(weights, self)

    def compute(self, weights: Tensor, read: Tensor | None = None) -> Work:
        """Start a mini-batch's gradient at `weights` `(ensemble, params)`; fires with the `Gradient` when it is done.

        Its staleness counts the updates that the owner of `weights` makes from their read on. Where local steps have
        moved them away from what was read, `read` says what that was.

        Raises:
            RuntimeError: the node computes already, or is a server.
            Invalid: the compute law drew no duration.
        """
        if self.rank < 0:
            raise RuntimeError(f"node {self.rank} is a server: it has no mini-batches; compute on a worker's node")
        seconds, now = self._durations.next(), self._env._now
        if self._slowdowns:
            seconds = stretched(seconds, now, self._slowdowns)
        gradient = self._pool.promise(self.rank, self, weights, next(self._batches), read)
        gradient.started, gradient.due = now, now + seconds
        self._books.started += 1
        return self._begin(gradient, seconds)

    @cached_property
    def rng(self) -> Generator:
        """The node's own random stream, for choices that the algorithm makes."""
        return self._choices()

    @property
    def layers(self) -> Sequence[Layer]:
        """Of the model that is learnt, where a pipeline can cut it."""
        return self._world.layers

    @property
    def apply_seconds(self) -> float:
        """What one update costs the server, for `yield node.work(node.apply_seconds)`."""
        return self._world.cluster.apply_seconds

    @property
    def now(self) -> float:
        """The time in virtual seconds."""
        return self._env.now

    def batch(self) -> Any:
        """The node's next mini-batch, for `promise`."""
        return next(self._batches)

    def promise(self, weights: Tensor, batch: Any, started: float) -> Gradient:
        """The gradient of `batch` at `weights`, whose time has been spent by `work` since `started` (s)."""
        gradient = self._pool.promise(self.rank, self, weights, batch)
        gradient.started, gradient.due, gradient.computed = started, self._env.now, self._env.now
        self._books.started += 1
        self._computed()
        return gradient

    def work(self, seconds: float = 0.0, *, share: float = 0.0) -> Work:
        """Keep the node busy for `seconds` without a gradient; 0 is no wait at all.

        With a `share`, for that part of a mini-batch's compute time, by the node's law and slowdowns, instead.

        Raises:
            RuntimeError: the node computes already.
            Invalid: a negative or infinite duration.
        """
        if share:
            seconds = stretched(share * self._durations.next(), self._env.now, self._slowdowns)
        return self._begin(None, seconds) if seconds else self._at_once

    def send(self, receiver: int, content: Any, tag: Hashable = None, size: float = 1.0) -> Message:
        """Send `content` to node `receiver`; fires when it has arrived.

        `size` is in models: 1 for weights or a gradient, 0 for a token. Weights are read when they are sent:
        from here on their owner's updates make them stale. What a server sends is for the worker as it last heard
        of it: one that has crashed and returned since gets no answer to what it asked before.

        Raises:
            Invalid: there is no such node, or the topology does not join the two.
        """
        target = self._joined.get(receiver) or self._join(receiver)
        if not 0 <= size < math.inf:
            raise Invalid("send", "size", "a finite number of models >= 0", size)
        if not self._outgoing and self._work is None:
            self._since = self._env._now
        self._outgoing += 1
        life = self.mailbox.heard.get(receiver, target.life) if self.rank < 0 else target.life
        message = Message(self._env, self, target, life, content, tag)
        self._books.sent += 1
        if self._log is not None:
            self._log.sent(message, size * self._model_bytes)
        self._wires.carry(self.rank, receiver, size * self._model_bytes, message)
        return message

    def receive(self, tag: Hashable = None) -> Receive:
        """The next message with that tag; fires with `(sender, content)`, at once if one has come already."""
        return self.mailbox.ask(Receive(self._env, self, tag))

    def arrived(self, tag: Hashable = None) -> bool:
        """Whether a message with that tag lies in the mailbox, without waiting."""
        return self.mailbox.holds(tag)

    @property
    def topology(self) -> Topology:
        """Who may talk to whom; what the method asks for, where the config leaves that to it."""
        return self._world.topology

    def out_peers(self, step: int = 0) -> Ranks:
        """Whom the topology lets it send to at its own `step`, the next in rank first."""
        return self._peers.at(step)[0]

    def in_peers(self, step: int = 0) -> Ranks:
        """Who sends to it at that step."""
        return self._peers.at(step)[1]

    def mixing(self, name: str, step: int = 0) -> Mixing:
        """Its row and column of the mixing matrix called `name` at that step.

        Raises:
            Invalid: the topology has no such mixing.
        """
        return self._peers.mixing(name, step)

    def down(self, peer: int) -> Event:
        """Fires when node `peer` crashes, at once if it is down: `yield node.receive() | node.down(peer)`."""
        other = self._world.nodes[peer]
        event = other._ends.get(self.rank)
        if event is None or event.callbacks is None:
            event = other._ends[self.rank] = Event(self._env)
            if other.life % 2:
                event.succeed()
        return event

    def apply(self, weights: Tensor, gradients: Sequence[Settled]) -> None:
        """One update: the node's model becomes `weights`, its version grows by 1, `gradients` were applied."""
        if self._world.applies(gradients):
            self.version += 1
            self._weights = stamped(weights, self)

    def done(self, work: Work) -> None:
        """`work` has come to its end."""
        now = self._env._now
        if self._work is work:
            self.spent[BUSY] += now - self._since
            self._since, self._work = now, None
        if work.gradient is not None:
            work.gradient.computed = now
            self._computed()

    def cancelled(self, work: Work) -> None:
        """`work` is interrupted: the node is free, and nothing comes of the event that was to be its end."""
        if self.free(work):
            self._env.void(work)

    def free(self, work: Work) -> bool:
        """End `work`, if it is what the node does; whether it was."""
        if self._work is not work:
            return False
        self._spend(BUSY)
        self._work = None
        return True

    def sent(self, message: Message) -> None:
        """One of the node's messages has arrived."""
        self._outgoing -= 1
        if not self._outgoing and self._work is None:
            now = self._env._now
            self.spent[SENDING] += now - self._since
            self._since = now
        self._books.delivered += 1

    def lost(self, message: Message) -> None:
        """One of the node's messages will never arrive; a gradient of a crashed worker's goes with it."""
        if message.lives[0] == self.life:
            self._outgoing -= 1
            if not self._outgoing and self._work is None:
                self._spend(SENDING)
        self._world.lost(message)

    @property
    def idle(self) -> bool:
        """Whether it is up and computes nothing."""
        return self._work is None and self.life % 2 == 0

    def waiting(self) -> list[Receive]:
        """The receives that wait for a message, oldest first."""
        return self.mailbox.waiting()

    def crash(self) -> None:
        """Go down: what it computes is cancelled, its mailbox is empty, and its receives wait no longer."""
        if self._work is not None:
            self._work.cancel()
        if self._outgoing:
            self._spend(SENDING)
        self._outgoing, self._since = 0, self._env.now
        self.mailbox.clear()
        self.life += 1
        for event in self._ends.values():
            if not event.triggered:
                event.succeed()

    def revive(self) -> None:
        """Come back, with the model that it had."""
        self._spend(DOWN)
        self.life += 1
        self._ends.clear()

    def close(self) -> None:
        """Count the time up to now."""
        if self.life % 2:
            self._spend(DOWN)
        elif self._work is not None:
            self._spend(BUSY)
        elif self._outgoing:
            self._spend(SENDING)
        self.spent[WAITING] = max(0.0, self._env.now - self.spent[BUSY] - self.spent[SENDING] - self.spent[DOWN])

    def _begin(self, gradient: Gradient | None, seconds: float) -> Work:
        if self._work is not None:
            raise RuntimeError(
                f"node {self.rank} is to compute at {self._env.now:g} s while it computes already; "
                "yield the first computation, or cancel it, before the second"
            )
        if not 0 <= seconds < math.inf:
            duration(seconds, f"node {self.rank}", "work")
        if self._outgoing:
            self._spend(SENDING)
        self._since = self._env._now
        self._work = work = Work(self._env, self, gradient)
        self._env.after(seconds, work)
        return work

    def _computed(self) -> None:
        """Book a gradient that was computed to the end."""
        self._books.computed += 1
        if self._books.computed >= self._world.most_computed:
            self._world.enough()

    def _spend(self, state: int) -> None:
        """Book the time since the node began to be busy, sending or down."""
        now = self._env._now
        self.spent[state] += now - self._since
        self._since = now

    def _join(self, receiver: int) -> "Node":
        """The node that messages to `receiver` are for; asked once, for it is asked with every message."""
        target = self._world.nodes.get(receiver)
        if target is None:
            raise Invalid("send", "receiver", f"a rank of {sorted(self._world.nodes)}", receiver)
        self._wires.check(self.rank, receiver)
        if len(self._joined) >= KNOWN:
            self._joined.clear()
        self._joined[receiver] = target
        return target
