"""Methods without a server that go on after a crash: their nodes stop, meet, and begin again."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from laggard.simulator.engine.machine import Machine
from laggard.simulator.engine.membership import count_states, endless_work, offer_model
from laggard.simulator.engine.services import Services
from laggard.simulator.learning.gradients import DROPPED, IN_FLIGHT, Gradient, GradientPromise
from laggard.simulator.network.mixing import NodePeers
from laggard.simulator.network.topology import Among
from laggard.simulator.timing.events import Work
from laggard.simulator.timing.failures import CrashRule
from laggard.simulator.timing.roles import Role

if TYPE_CHECKING:
    from simpy.events import Event
    from torch import Tensor


class Regrouping:
    """The nodes that take part in a method without a server, and their meetings.

    A crash stops them all: the step under way is lost, its gradients are dropped. They meet, and
    start their roles again from their last updates. A node that returns to a group that has shrunk
    joins it between two steps, with the model of the lowest rank. A node whose uptime is over goes
    between two steps, so that no step is lost.
    """

    def __init__(self, services: Services, rule: CrashRule) -> None:
        self._services = services
        self._rule = rule
        self._running = True
        self._newcomers: set[int] = set()  # crashed since the meetings that they were part of
        self._meeting: Event | None = None
        # While a node waits to join: the number of steps after which members hold, and the members
        # that hold already. Not versions, which may differ in gossip between nodes that begin
        # together.
        self._boundary: int | None = None
        self._holding: set[int] = set()
        services.faults.watcher = self
        for node in self._members():
            node.regrouping = self
        if self._down():  # before their first `start`
            self._wait_for_first()

    def before_crash(self, rank: int) -> None:
        """Stop all nodes, since node `rank` is about to crash."""
        self._newcomers.add(rank)
        if self._running and rank not in self._services.members:
            return
        self._stop()
        self._cancel_meeting()
        if self._rule.shrinks:
            self._meet_later()

    def after_return(self, rank: int) -> None:
        """Let node `rank`, which is up again, join: between two steps if the others go on."""
        if self._running:
            if self._boundary is None:
                # The furthest member is within its next step: all members make that step before
                # they hold.
                self._boundary = 1 + max(node.steps for node in self._members())
        elif self._meeting is None and (self._rule.shrinks or not self._down()):
            self._meet_later()

    def request_leave(self, rank: int) -> None:
        """Let node `rank`, whose uptime is over, leave; between two steps if it is a member."""
        if self._running and self._meeting is None and rank in self._services.members:
            if self._boundary is None:
                self._boundary = 1 + max(node.steps for node in self._members())
        else:
            self._services.membership.leave(rank)

    def hold(self, node: "ElasticNode") -> bool:
        """Let `node`, which is about to begin a step, wait if another is to join or leave first.

        The last of the members that wait starts the meeting. Returns whether it waits.
        """
        if self._boundary is None or node.steps < self._boundary:
            return False
        self._holding.add(node.rank)
        if len(self._holding) == len(self._services.members) and self._meeting is None:
            if self._leavers():
                # Not now: a leave closes the roles, and the one that asks for the work is running.
                self._meeting = self._services.env.call_in(0.0, self._let_leave)
            else:
                self._meet_later()
        return True

    def absent(self, rank: int) -> int:
        """The number of absent nodes that an update of `rank` counts for; only the first member has
        any.

        So when all members have updated, however few they are, this counts as one update of all P
        nodes.
        """
        members = self._services.members
        if rank != members[0]:
            return 0
        return self._services.cluster.workers - len(members)

    def describe_waits(self) -> str:
        """The nodes that are down and waited for, as text; empty where none is."""
        if self._running:
            return ""
        return f"all wait for nodes {self._down()}, which are down"

    def _wait_for_first(self) -> None:
        """Start with the nodes that are up or, unless the rule shrinks, once all are."""
        self._running = False
        self._newcomers.update(self._down())
        for rank in self._services.members:
            self._services.faults.roles[rank].stop()
        if self._rule.shrinks:
            self._meet()

    def _leavers(self) -> list[int]:
        """The members whose uptime is over."""
        return sorted(self._services.membership.leaving.intersection(self._services.members))

    def _let_leave(self) -> None:
        """Let the members whose uptime is over leave, while all members wait between two steps."""
        self._meeting = None
        for rank in self._leavers():
            self._services.membership.leave(rank)

    def _stop(self) -> None:
        """Stop all members at their last update."""
        if not self._running:
            return
        self._running = False
        self._boundary = None
        self._holding = set()
        services, members = self._services, self._members()
        for node in members:
            services.faults.roles[node.rank].stop()
        # Before the nodes go down: `_finish_update` applies gradients that would be dropped below.
        if self._rule.one_model:
            _finish_update(members)
        for node in members:
            # Down and up in one instant: its work, mailbox and timers are gone, its model stays.
            node.crash()
            node.revive()
            for gradient in node.pending():
                gradient.resolve(DROPPED)
        for node in members:
            services.faults.lose_messages(node.rank)

    def _meet_later(self) -> None:
        self._meeting = self._services.env.call_in(self._rule.seconds, self._meet)

    def _cancel_meeting(self) -> None:
        if self._meeting is not None:
            self._services.env.cancel(self._meeting)
            self._meeting = None

    def _meet(self) -> None:
        """Start the roles of all nodes that are up, after newcomers have read the model."""
        self._stop()  # where a node joins between two steps, the others still wait for it
        self._meeting = None
        services, down = self._services, self._down()
        members = [rank for rank in range(services.cluster.workers) if rank not in down]
        if not members:
            return
        source = None
        if self._rule.one_model or self._rule.shrinks:
            source = self._share_model(members)
        self._running = True
        services.members = members
        for node in self._members():
            node.regroup()
        for rank in members:
            roles = services.faults.roles[rank]
            reads = services.cluster.members.change and rank in self._newcomers
            if reads and source is not None and source.rank != rank:
                roles.start_after(self._read(services.nodes[rank], source))
            else:
                self._newcomers.discard(rank)
                roles.start()

    def _read(self, newcomer: Machine, source: Machine) -> Role:
        """The read of the model and the optimiser's state, which take the network time."""
        yield offer_model(source, newcomer, None, count_states(source.state, source.weights))
        self._newcomers.discard(newcomer.rank)

    def _share_model(self, members: Sequence[int]) -> Machine:
        """Give newcomers among the `members` the model and the optimiser's state of another."""
        nodes = self._services.nodes
        veterans = [rank for rank in members if rank not in self._newcomers]
        if veterans:
            source = nodes[veterans[0]]
        else:  # all have crashed: the one with most updates
            source = nodes[max(members, key=lambda rank: nodes[rank].version)]
        for rank in self._newcomers.intersection(members):
            node = nodes[rank]
            if node is not source:
                node.version = source.version
                node.weights = source.weights
                node.state = source.state
        return source

    def _members(self) -> "list[ElasticNode]":
        nodes = self._services.nodes
        return [cast(ElasticNode, nodes[rank]) for rank in self._services.members]

    def _down(self) -> list[int]:
        """The workers that are down."""
        nodes = self._services.nodes
        return [rank for rank in range(len(nodes)) if nodes[rank].incarnation % 2]


def _finish_update(members: "Sequence[ElasticNode]") -> None:
    """Have nodes repeat an update that another node has made, with the same sum of gradients.

    The nodes reach the end of a collective at different moments. If one node has the sum, the
    others copy its model, so that the sum is not lost.
    """
    newest = max(members, key=lambda node: node.version)
    for node in members:
        if node.version < newest.version:
            node.apply(newest.weights, node.pending(), newest.state)


class ElasticNode(Machine):
    """A node that may have to stop at a crash of another, or wait for one that joins.

    Attributes:
        first_version: its version at the last meeting.
        regrouping: the regrouping of its method; None while the first roles are started.
    """

    first_version = 0
    regrouping: Regrouping | None = None

    def __init__(self, *arguments: Any) -> None:
        self._begun: list[Gradient] = []  # gradients since its last update
        super().__init__(*arguments)

    def compute(
        self, weights: "Tensor", read: "Tensor | None" = None, buckets: Sequence[float] = ()
    ) -> Work:
        if self._wait_for_others():
            return endless_work(self, len(buckets))
        work = super().compute(weights, read, buckets)
        assert work.gradient is not None
        self._begun.append(work.gradient)
        return work

    def work(self, seconds: float = 0.0, *, share: float = 0.0, of: float | None = None) -> Work:
        if self._wait_for_others():
            return endless_work(self)
        return super().work(seconds, share=share, of=of)

    def promise(self, weights: "Tensor", batch: Any, started: float) -> Gradient:
        gradient = super().promise(weights, batch, started)
        self._begun.append(gradient)
        return gradient

    def apply(
        self, weights: "Tensor", gradients: Sequence[GradientPromise], state: Any = None
    ) -> None:
        if self._services.reached is None and self.regrouping is not None:
            self._services.counters.applies += self.regrouping.absent(self.rank)
        super().apply(weights, gradients, state)
        self._begun = self.pending()

    def pending(self) -> list[Gradient]:
        """The gradients that the node has begun since its last update, without lost ones."""
        return [gradient for gradient in self._begun if gradient.status == IN_FLIGHT]

    def regroup(self) -> None:
        """Restart among the present members, who are the new peers."""
        self._peers = None
        self.first_version = self.version

    @property
    def steps(self) -> int:
        """Updates since the last meeting."""
        return self.version - self.first_version

    def _wait_for_others(self) -> bool:
        return self.regrouping is not None and self.regrouping.hold(self)

    def _make_peers(self) -> NodePeers:
        topology, members = self.topology, self._services.members
        if len(members) < self.workers:
            topology = Among(topology, frozenset(members))
        self._peers = NodePeers(topology, self.rank, self.workers)
        return self._peers
