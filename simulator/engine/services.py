"""The services of a simulation that its nodes use."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from numpy.random import Generator

from laggard.simulator.engine.cluster import Cluster
from laggard.simulator.engine.rounds import Rounds
from laggard.simulator.learning.gradients import GradientPromise
from laggard.simulator.learning.pool import GradientPool
from laggard.simulator.learning.task import Layer
from laggard.simulator.network.topology import Topology
from laggard.simulator.network.transport import Transport
from laggard.simulator.recording.counters import Counters
from laggard.simulator.recording.messages import MessageLog
from laggard.simulator.recording.requests import Requests
from laggard.simulator.timing.clock import Clock
from laggard.simulator.timing.distributions import Distribution
from laggard.simulator.timing.events import Message

if TYPE_CHECKING:
    from torch import Tensor

    from laggard.simulator.engine.faults import Faults
    from laggard.simulator.engine.machine import Machine
    from laggard.simulator.engine.recovery import Recoveries
    from laggard.simulator.engine.timers import Timers


class Leaves(Protocol):
    """The part of `Membership` that nodes and groups use.

    Attributes:
        leaving: the workers whose uptime is over, and that have not left.
    """

    leaving: set[int]

    def leave(self, rank: int) -> None:
        """Take down worker `rank`, whose uptime is over and which has nothing to lose."""
        ...


class Services(Protocol):
    """The part of a `Simulation` that nodes, crashes and recoveries use.

    Attributes:
        env: the clock.
        nodes: all nodes, by rank.
        members: the workers that take part in the method's collectives, by rank.
        timers: the timers of all nodes.
        requests: the record of servers' requests, which counts those that a crash left unanswered.
        log: the record of messages, a row each; None if they are not recorded.
        lock_step: computes whole rounds of a collective; None where messages decide their times.
        recoveries: the recoveries of servers; None if no server crashes.
        membership: the leaves and returns of workers at drawn times.
        choices: the random stream of a rank, for choices that an algorithm makes.
        crashes: whether nodes crash.
        model_bytes: the size of a message of one model, in bytes.
        group_size: workers on a host or else in a group; 1 without either.
        reached: the limit that has ended the run; None while it goes on.
        stalled: the reason why no node can go on; None while one can.
    """

    env: Clock
    cluster: Cluster
    counters: Counters
    pool: GradientPool
    transport: Transport
    topology: Topology
    layers: Sequence[Layer]
    nodes: "dict[int, Machine]"
    members: Sequence[int]
    faults: "Faults"
    timers: "Timers"
    requests: Requests
    log: MessageLog | None
    lock_step: Rounds | None
    recoveries: "Recoveries | None"
    membership: Leaves
    choices: Callable[[int], Generator]
    crashes: bool
    model_bytes: float
    group_size: int
    reached: str | None
    stalled: str | None

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The shapes of the model's parameters, by name."""
        ...

    @property
    def member_samples(self) -> int:
        """The samples that all members learn from."""
        ...

    def applies(self, gradients: Sequence[GradientPromise]) -> bool:
        """Count one node's update by `gradients`; False once the end is reached."""
        ...

    def record_loss(self, message: Message) -> None:
        """Count a lost message, and the gradients that are lost with it."""
        ...

    def note(self, rank: int, name: str, value: "float | Tensor") -> None:
        """Record a number that node `rank` notes."""
        ...

    def end(self, reached: str) -> None:
        """End the run: a limit has been `reached`."""
        ...

    def stall(self, reason: str) -> None:
        """End the run as stalled, unless a limit of time or gradients ends it."""
        ...

    def draws(self, seconds: float | Distribution, purpose: int, rank: int) -> Callable[[], float]:
        """The function that gives the next of node `rank`'s `seconds`."""
        ...
