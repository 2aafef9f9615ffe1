"""Workers that join, leave and come back at drawn times, and read the model of another node."""

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from laggard.simulator.engine.machine import WORK_ENDS, Machine
from laggard.simulator.engine.server import Client
from laggard.simulator.engine.services import Services
from laggard.simulator.learning.gradients import IN_FLIGHT, Gradient
from laggard.simulator.recording.counters import gradients_in
from laggard.simulator.timing.events import Message, Work, new_work
from laggard.simulator.timing.roles import Role
from laggard.simulator.timing.streams import DOWNTIME, START, UPTIME

if TYPE_CHECKING:
    from torch import Tensor

MAX_LEAVES = 1000
"""Leaves in a row without a mini-batch, plus ten per worker, after which a run is stalled."""
MODEL = "the model, for a newcomer"
"""The tag of the message with which a newcomer gets the model of another worker."""


class Membership:
    """The leaves and returns of workers, at the times of `cluster.members`.

    Attributes:
        leaving: the workers whose uptime is over, and that have not left.
    """

    def __init__(self, services: Services) -> None:
        self._services, members = services, services.cluster.members
        self.leaving: set[int] = set()
        self._has_server = min(services.nodes) < 0
        self._reading: set[int] = set()
        self._computed, self._in_vain = 0, 0  # mini-batches at the last leave; leaves since then
        self._uptimes: dict[int, Callable[[], float]] = {}
        self._downtimes: dict[int, Callable[[], float]] = {}
        if not members.change:
            return
        laws = [*members.laws.values(), services.cluster.compute]
        # With constant times, ends of work may fall on a leave or a return, but for rounding.
        self._constant = all(law.std == 0 for law in laws)
        for rank in range(services.cluster.workers):
            if members.uptime is not None:
                self._uptimes[rank] = services.draws(members.uptime, UPTIME, rank)
            if members.downtime is not None:
                self._downtimes[rank] = services.draws(members.downtime, DOWNTIME, rank)
            start = services.draws(members.start, START, rank)()
            if start > 0:
                services.faults.crash(rank)
                self._join_in(rank, start)
            else:
                self._stay(rank)

    def leave(self, rank: int) -> None:
        """Take down worker `rank`, whose uptime is over and which has nothing to lose."""
        services = self._services
        self.leaving.discard(rank)
        self._reading.discard(rank)
        if rank in self._downtimes:
            self._join_in(rank, self._downtimes[rank]())
        services.faults.crash(rank)
        self._check_progress()

    def _join_in(self, rank: int, seconds: float) -> None:
        self._note(seconds)
        self._services.faults.return_in(seconds, partial(self._join, rank))

    def _join(self, rank: int) -> None:
        reads = None
        if not self._has_server:
            reads = self._read
        self._services.faults.restart(rank, reads)
        self._stay(rank)

    def _stay(self, rank: int) -> None:
        """Let worker `rank`, which is up, leave once its uptime is over."""
        if rank not in self._uptimes:
            return
        seconds = self._uptimes[rank]()
        self._note(seconds)
        env = self._services.env
        # All others may wait for a worker that will return, so its leave keeps the clock running.
        schedule = env.call_in if rank in self._downtimes else env.daemon
        schedule(seconds, partial(self._ask, rank))

    def _ask(self, rank: int) -> None:
        self.leaving.add(rank)
        watcher = self._services.faults.watcher
        if watcher is not None:
            watcher.request_leave(rank)
        else:
            node = self._services.nodes[rank]
            assert isinstance(node, MemberNode)
            node.leave_if_done()

    def _read(self, node: Machine) -> Role:
        """Have `node` read another worker's model; it keeps its own if no other worker is up.

        The other worker does not leave before its message has arrived.
        """
        source = self._lowest_live(node.rank)
        if source is None:
            return
        self._reading.add(node.rank)
        _, node.weights = yield offer_model(source, node, source.weights)
        self._reading.discard(node.rank)

    def _lowest_live(self, newcomer: int) -> Machine | None:
        """The worker of lowest rank, other than `newcomer`, that is up and has a model."""
        for rank in range(self._services.cluster.workers):
            node = self._services.nodes[rank]
            if rank != newcomer and rank not in self._reading and node.incarnation % 2 == 0:
                return node
        return None

    def _note(self, seconds: float) -> None:
        """Record that a worker leaves or returns in `seconds`."""
        if self._constant:
            self._services.env.note_moment(self._services.env.now + seconds)

    def _check_progress(self) -> None:
        """End the run as stalled if workers leave and return without a mini-batch in between."""
        services = self._services
        computed = self._services.counters.computed
        if computed != self._computed:
            self._computed = computed
            self._in_vain = 0
        self._in_vain += 1
        if self._in_vain > MAX_LEAVES + 10 * services.cluster.workers:
            updates = services.counters.applies
            problem = f"workers left {self._in_vain} times without a mini-batch"
            services.stalled = f"{services.env.now:g} s after {updates} updates: {problem}"
            services.end("stalled")


def offer_model(source: Machine, newcomer: Machine, content: Any, states: int = 0) -> Any:
    """Send the model of `source` to `newcomer`, whatever the topology; return its receive.

    Args:
        states: the number of tensors, each as large as the model, that are sent with it.
    """
    source.admit(newcomer)
    source.send(newcomer.rank, content, tag=MODEL, size=1.0 + states)
    return newcomer.receive(MODEL)


def count_states(state: Any, weights: "Tensor") -> int:
    """The number of tensors as large as `weights` in the state of a rule."""
    if isinstance(state, dict):
        state = list(state.values())
    if isinstance(state, list | tuple):
        return sum(count_states(part, weights) for part in state)
    return int(getattr(state, "shape", None) == weights.shape)


def endless_work(node: Machine, buckets: int = 0) -> Work:
    """An event in place of work that never begins: it never fires, and `node` stays idle."""
    work = new_work(node, None, WORK_ENDS)
    work.buckets = (work,) * buckets
    return work


class MemberNode(Client):
    """A worker that leaves once its uptime is over and it has no unfinished work."""

    def __init__(self, *arguments: Any) -> None:
        self._unsent: list[Gradient] = []
        super().__init__(*arguments)

    def compute(
        self, weights: "Tensor", read: "Tensor | None" = None, buckets: Sequence[float] = ()
    ) -> Work:
        if self._is_leaving and not self._holds_results:
            # not now: the role that asks for the work is running
            self._env.call_in(0.0, self.leave_if_done)
            return endless_work(self, len(buckets))
        work = super().compute(weights, read, buckets)
        assert work.gradient is not None
        self._unsent.append(work.gradient)
        return work

    def send(self, receiver: int, content: Any, tag: Hashable = None, size: float = 1.0) -> Message:
        message = super().send(receiver, content, tag, size)
        sent = [gradient.whole for gradient in gradients_in(content)]
        self._unsent = [gradient for gradient in self._unsent if gradient not in sent]
        # A list, not the tuple that events share: where workers leave, a message may be lost.
        message.callbacks.append(lambda _: self.leave_if_done())
        return message

    def crash(self) -> None:
        super().crash()
        self._unsent = []

    def leave_if_done(self) -> None:
        """Leave if the uptime is over, the node computes nothing, and its messages have arrived."""
        if self._is_leaving and self.idle and not self._outgoing and not self._holds_results:
            self._services.membership.leave(self.rank)

    @property
    def _is_leaving(self) -> bool:
        return self.rank in self._services.membership.leaving

    @property
    def _holds_results(self) -> bool:
        """Whether the node has computed gradients that are neither sent nor applied."""
        self._unsent = [gradient for gradient in self._unsent if gradient.status == IN_FLIGHT]
        return bool(self._unsent)
