"""The engine's side of a node: the verbs of `Node`, states, and ends of events."""

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from operator import attrgetter
from typing import Any

from numpy.random import Generator
from torch import Tensor

from laggard.simulator.engine.mailbox import Mailbox
from laggard.simulator.engine.node import Node
from laggard.simulator.engine.services import Services
from laggard.simulator.errors import InvalidSettingError, check_duration
from laggard.simulator.learning.gradients import Gradient, GradientPromise
from laggard.simulator.learning.task import Layer, samples_of
from laggard.simulator.learning.weights import form_error, has_form_of, stamp
from laggard.simulator.network.mixing import Mixing, NodePeers
from laggard.simulator.network.topology import SERVER, Ranks, Topology
from laggard.simulator.recording.trace import BUSY, DOWN, SENDING, WAITING
from laggard.simulator.timing.distributions import Durations
from laggard.simulator.timing.events import (
    BucketReady,
    Event,
    Message,
    Receive,
    Timeout,
    Verb,
    Work,
    new_message,
    new_receive,
    new_work,
)
from laggard.simulator.timing.slowdowns import Slowdown, apply_slowdowns
from laggard.simulator.timing.steps import StepFunction

MAX_CACHED_RECEIVERS = 1024
INFINITE = math.inf  # a global is read faster than an attribute of `math`, in every cycle


class Machine(Node):
    """A node, as the engine drives it.

    Attributes:
        incarnation: the number of its crashes and returns; odd while it is down.
        mailbox: messages not received yet, and receives that wait for a message.
        spent: seconds in each state of `recording.trace`; waiting is the remainder at the end.
    """

    state: Any = None

    def __init__(
        self,
        rank: int,
        services: Services,
        start: Tensor,
        durations: Durations,
        slowdowns: Sequence[Slowdown | StepFunction],
        batches: Iterator[Any],
    ) -> None:
        # At most thirty attributes: up to there Python shares the keys of their dictionaries among
        # all nodes. What is read in every cycle is stored here, one lookup away.
        self._services = services
        self._env = services.env
        self._pool = services.pool
        self._counters = services.counters
        self._transport = services.transport
        self._log = services.log
        self._post = None  # fast path of `send`, which does not record messages in the log
        if services.log is None:
            self._post = services.transport.post
        self.rank = rank
        self.workers = services.cluster.workers
        self.group_size = services.group_size
        self.model_bytes = services.model_bytes
        self.lock_step = services.lock_step
        self.version, self.weight, self.incarnation = 0, 1.0, 0
        self.mixings = -1  # setting the initial weights makes it 0
        self.mailbox = Mailbox(services.crashes)
        # The setter compares new weights with the present ones, so these are set first.
        self._weights = start
        self.weights = start
        self.spent = [0.0, 0.0, 0.0, 0.0]
        self._peers: NodePeers | None = None  # made when it is needed
        self._joined: dict[int, Machine] = {}  # cached receivers that it may send to
        self._durations = durations
        self._slowdowns = slowdowns
        self._batches = batches
        self._work: Work | None = None
        self._finished_work: Work | None = None  # the answer to every `work(0)`
        self._outgoing, self._since = 0, 0.0  # messages under way; start (s) of the present state

    def _set_weights(self, weights: Tensor) -> None:
        if self._services.reached is None:  # after the end nothing counts
            if not has_form_of(weights, self._weights):
                raise form_error(f"the model of node {self.rank}", weights, self._weights)
            self.mixings += 1
            self._weights = stamp(weights, self)

    # `attrgetter`, since it reads the attribute without a call of a Python function
    weights = property(attrgetter("_weights"), _set_weights)

    def compute(
        self, weights: Tensor, read: Tensor | None = None, buckets: Sequence[float] = ()
    ) -> Work:
        if self.rank < 0:
            problem = f"node {self.rank} is a server: it has no mini-batches"
            raise RuntimeError(f"{problem}; compute on a worker's node")
        now = self._env._now
        seconds = full_speed_seconds = self._durations.next()
        if self._slowdowns:
            seconds = apply_slowdowns(full_speed_seconds, now, self._slowdowns)
        # A local, since Python 3.11 does not specialise calls of functions that are attributes.
        promise = self._pool.promise
        gradient = promise(self.rank, self, weights, next(self._batches), read)
        gradient.started = now
        gradient.due = now + seconds
        self._counters.started += 1
        work = self._begin(gradient, seconds)
        if buckets:
            return start_buckets(work, full_speed_seconds, buckets)
        return work

    @cached_property
    def rng(self) -> Generator:
        return self._services.choices(self.rank)

    @property
    def samples(self) -> int:
        return samples_of(self._services.pool.task, self.rank)

    @property
    def sample_share(self) -> float:
        return self.samples / self._services.member_samples

    @property
    def members(self) -> Sequence[int]:
        return self._services.members

    @property
    def layers(self) -> Sequence[Layer]:
        return self._services.layers

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        return self._services.shapes

    # `attrgetter`, as for the weights; a `Client` draws the seconds if they are a law
    apply_seconds = property(attrgetter("_services.cluster.apply_seconds"))

    @property
    def now(self) -> float:
        return self._env.now

    def batch(self) -> Any:
        return next(self._batches)

    def promise(self, weights: Tensor, batch: Any, started: float) -> Gradient:
        gradient = self._pool.promise(self.rank, self, weights, batch)
        gradient.started = started
        gradient.due = self._env.now
        gradient.computed = self._env.now
        counters = self._counters
        counters.started += 1
        counters.computed += 1
        if counters.computed >= counters.most_computed:
            self._services.end("gradients")
        return gradient

    def duration(self) -> float:
        return self._durations.next()

    def work(self, seconds: float = 0.0, *, share: float = 0.0, of: float | None = None) -> Work:
        if share:
            full_speed_seconds = self._durations.next() if of is None else of
            seconds = apply_slowdowns(share * full_speed_seconds, self._env.now, self._slowdowns)
        if seconds:
            return self._begin(None, seconds)
        if self._finished_work is None:  # work(0) does not wait: one finished event serves all
            self._finished_work = new_work(self, None, None)
        return self._finished_work

    def after(self, seconds: float) -> Timeout:
        return self._services.timers.start(self, seconds)

    def send(self, receiver: int, content: Any, tag: Hashable = None, size: float = 1.0) -> Message:
        target = self._joined.get(receiver) or self._join(receiver)
        if not 0.0 <= size < INFINITE:
            raise InvalidSettingError("send", "size", "a finite number of models >= 0", size)
        # Waiting ends and sending begins. Waiting is not added up: `close` takes the remainder.
        if not self._outgoing and self._work is None:
            self._since = self._env._now
        self._outgoing += 1
        counters = self._counters
        counters.sent += 1
        counters.models_sent += size
        message = new_message(self, target, content, tag, MESSAGE_ARRIVES)
        post = self._post
        if post is not None:  # all messages take the same latency, and none can be lost
            post(message)
        else:
            self._address(message)
            self._hand_over(message, size * self.model_bytes)
        return message

    def departure(self, message: Message) -> Verb:
        """The event of the moment at which the last byte of `message` has left this node."""
        return self._transport.departure(message)

    @property
    def rendezvous(self) -> bool:
        return self._services.cluster.network.rendezvous

    def put(self, content: Any, tag: Hashable = None) -> None:
        message = new_message(self, self, content, tag, MESSAGE_ARRIVES)
        # Where nodes crash, the receive of a message reads its sender's incarnation.
        message.incarnations = self.incarnation, self.incarnation
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
        return self._services.topology

    def out_peers(self, step: int = 0) -> Ranks:
        return (self._peers or self._make_peers()).at(step)[0]

    def in_peers(self, step: int = 0) -> Ranks:
        return (self._peers or self._make_peers()).at(step)[1]

    def mixing(self, name: str, step: int = 0) -> Mixing:
        return (self._peers or self._make_peers()).mixing(name, step)

    def down(self, peer: int) -> Event:
        return self._services.faults.down(self.rank, peer)

    def note(self, name: str, value: float | Tensor) -> None:
        self._services.note(self.rank, name, value)

    def stall(self, reason: str) -> None:
        self._services.stall(reason)

    def apply(
        self, weights: Tensor, gradients: Sequence[GradientPromise], state: Any = None
    ) -> None:
        services = self._services
        if services.applies(gradients):
            if services.recoveries is not None:
                services.recoveries.applies(self)
            if not has_form_of(weights, self._weights):
                raise form_error(f"the model of node {self.rank}", weights, self._weights)
            self.version += 1
            self._weights = stamp(weights, self)
            if state is not None:
                self.state = state

    def _begin(self, gradient: Gradient | None, seconds: float) -> Work:
        if self._work is not None:
            at = f"node {self.rank} starts to compute at {self._env.now:g} s"
            remedy = "yield the first computation, or cancel it, before the second"
            raise RuntimeError(f"{at} while it is computing already; {remedy}")
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
        """Record the receiver's incarnation, where nodes crash.

        A worker's message is for the present incarnation of its receiver. A server answers the
        incarnation that asked, even if the worker has returned since.
        """
        last_incarnation = self.mailbox.last_incarnation
        target = message.receiver
        if last_incarnation is None:
            return
        incarnation = target.incarnation
        if self.rank < 0:
            incarnation = last_incarnation.get(target.rank, target.incarnation)
        message.waiting = message.callbacks = [deliver_or_lose]
        message.incarnations = (self.incarnation, incarnation)
        self._services.requests.sent(message)
        if self._services.recoveries is not None:
            self._services.recoveries.sent(message)

    def _hand_over(self, message: Message, size: float) -> None:
        """Hand a message of `size` bytes to the network."""
        if self._log is not None:
            self._log.sent(message, size)
        self._transport.carry(self.rank, message.receiver.rank, size, message)

    def _make_peers(self) -> NodePeers:
        self._peers = NodePeers(self.topology, self.rank, self.workers)
        return self._peers

    def admit(self, receiver: "Machine") -> None:
        """Allow messages to `receiver`, a newcomer that reads a model, whatever the topology."""
        self._joined[receiver.rank] = receiver

    def _join(self, receiver: int) -> "Machine":
        """The node `receiver`, once the topology allows messages to it; cached by `send`."""
        target = self._services.nodes.get(receiver)
        if target is None:
            expected = f"a rank of {sorted(self._services.nodes)}"
            if receiver == SERVER:
                expected += " (the method has no `server`)"
            raise InvalidSettingError("send", "receiver", expected, receiver)
        self._transport.check(self.rank, receiver)
        if len(self._joined) >= MAX_CACHED_RECEIVERS:  # a mesh of 65,536 nodes has 4 billion pairs
            self._joined.clear()
        self._joined[receiver] = target
        return target

    def interrupt(self, work: Work) -> None:
        """Interrupt `work`: the node is free, and the event of its end is cancelled."""
        if self._work is work:
            self._spend(BUSY)
            self._work = None
            self._env.cancel(work)

    def record_loss(self, message: Message) -> None:
        """Record that one of the node's messages is lost, and gradients with it."""
        # A crash of this node since then has set `_outgoing` to 0 already.
        if message.incarnations[0] == self.incarnation:
            self._outgoing -= 1
            if not self._outgoing and self._work is None:
                self._spend(SENDING)
        self._services.record_loss(message)

    @property
    def idle(self) -> bool:
        """Whether the node is up and computes nothing."""
        return self._work is None and self.incarnation % 2 == 0

    def crash(self) -> None:
        """Go down: its work is cancelled, its mailbox and its receives are cleared."""
        if self._work is not None:
            self._work.cancel()
        # After cancelled work this adds 0 s: `interrupt` has counted the time up to now.
        if self._outgoing:
            self._spend(SENDING)
        self._outgoing = 0
        self._since = self._env.now
        self.mailbox.clear()
        self._services.timers.crashed(self.rank)
        self.incarnation += 1

    def revive(self) -> None:
        """Come back with its model."""
        self._spend(DOWN)
        self.incarnation += 1

    def close(self) -> None:
        """Add the time up to now to `spent`, in each of the node's states."""
        if self.incarnation % 2:
            self._spend(DOWN)
        elif self._work is not None:
            self._spend(BUSY)
        elif self._outgoing:
            self._spend(SENDING)
        rest = self._env.now - self.spent[BUSY] - self.spent[SENDING] - self.spent[DOWN]
        self.spent[WAITING] = max(0.0, rest)

    def _spend(self, state: int) -> None:
        """Add the time since the node entered `state`, one of busy, sending and down."""
        now = self._env._now
        self.spent[state] += now - self._since
        self._since = now


def end_work(work: Work) -> None:
    """End `work`: free its node, and resume the role that waits for it."""
    node, gradient = work.node, work._value
    now = node._env._now
    if node._work is work:
        node.spent[BUSY] += now - node._since
        node._since, node._work = now, None
    if gradient is not None:
        gradient.computed = now
        counters = node._counters
        counters.computed += 1
        if counters.computed >= counters.most_computed:
            node._services.end("gradients")
    if work.role is not None:
        work.role.resume(gradient)


def start_buckets(work: Work, seconds: float, ready: Sequence[float]) -> Work:
    """Schedule the events of the buckets of `work`, which has just begun; return `work`.

    Args:
        seconds: the duration of the work at full speed.
        ready: the share of the work after which each bucket is ready; the last is 1, the end of the
            work itself.

    Raises:
        InvalidSettingError: the shares do not rise to 1.
    """
    rising = all(share <= following for share, following in pairwise(ready))
    if not (ready[0] > 0 and ready[-1] == 1 and rising):
        expected = "shares > 0 of the mini-batch's work that do not fall, the last of them 1"
        raise InvalidSettingError("compute", "buckets", expected, list(ready))
    node, buckets = work.node, []
    for share in ready[:-1]:
        bucket = BucketReady(work)
        delay = apply_slowdowns(share * seconds, node._env._now, node._slowdowns)
        node._env.after_work(delay, bucket)
        buckets.append(bucket)
    work.buckets = (*buckets, work)
    return work


def deliver(message: Message) -> None:
    """Deliver `message`, which arrives now, and resume a role that waits for it."""
    sender, mailbox = message.sender, message.receiver.mailbox
    sender._outgoing -= 1
    # Without the last condition each message on a free network would add 0 s.
    if not sender._outgoing and sender._work is None and sender._since != sender._env._now:
        sender._spend(SENDING)
    sender._counters.delivered += 1
    if sender._log is not None:
        sender._log.delivered(message)
    receive = mailbox.first
    if (
        receive is not None
        and receive.role is not None
        and message.tag is None
        and mailbox.fast_path
    ):
        # Fast path: the same as `mailbox.deliver(message)`. `fast_path` is False where nodes crash,
        # a second untagged receive has waited, or a server takes time to receive.
        mailbox.first = None
        receive.message = message
        receive.callbacks = None
        receive._value = value = (sender.rank, message.content)
        receive.role.resume(value)
    else:
        mailbox.deliver(message)
    if message.role is not None:
        message.role.resume(message._value)


def deliver_or_lose(message: Message) -> None:
    """Deliver `message`, unless its sender or receiver has crashed since it was sent."""
    waiting, message.waiting = message.waiting, []
    incarnations = message.sender.incarnation, message.receiver.incarnation
    if message.incarnations == incarnations and message.receiver.incarnation % 2 == 0:
        recoveries = message.sender._services.recoveries
        if recoveries is not None:
            recoveries.delivered(message)
        deliver(message)
    else:
        # The clock is going through `waiting`: cleared, it calls no role that waits for the
        # arrival. It has set `callbacks` to None, which would mean that the message has fired.
        waiting.clear()
        message.callbacks = []
        message.lose()


WORK_ENDS, MESSAGE_ARRIVES = (end_work,), (deliver,)
