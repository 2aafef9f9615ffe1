"""A node: what an algorithm sees of the cluster. Four verbs and the model that the node stands for.

    gradient = yield node.compute(weights)               # a promise; .value evaluates it
    yield node.send(receiver, content, tag=t, size=1.0)  # fires when it has arrived; size in models
    sender, content = yield node.receive(tag=t)          # the next message with that tag
    node.apply(weights, [gradients])                     # one update of the node's model

The first three start at once and return an event; `yield` is the only way to wait.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from numpy.random import Generator

from laggard.simulator.engine.rounds import Rounds
from laggard.simulator.learning.gradients import Gradient, GradientPromise
from laggard.simulator.learning.task import Layer
from laggard.simulator.network.mixing import Mixing
from laggard.simulator.network.topology import Ranks, Topology
from laggard.simulator.timing.events import Event, Message, Receive, Timeout, Work

if TYPE_CHECKING:
    from torch import Tensor


class Node(Protocol):
    """One machine of the cluster, a worker or the parameter server, as an algorithm sees it.

    Attributes:
        rank: 0, 1, ... for workers, `SERVER` for the server.
        workers: the number of workers in the cluster.
        version: updates that the node's model has seen.
        mixings: the number of averaging steps, which set the model without an update.
        weight: push-sum's weight, by which the node's sum is divided; 1 unless the algorithm sets
            it.
        model_bytes: the size of a message of one model, in bytes.
        group_size: the number of consecutive workers on a host or else in a group; 1 without
            either.
        lock_step: computes whole rounds of a collective; None where its messages are sent one by
            one.
        state: the state that the last update handed to `apply`; None before the first. After a
            crash it is that of the server's checkpoint, and so are the weights.
    """

    rank: int
    workers: int
    version: int
    mixings: int
    weight: float
    model_bytes: float
    group_size: int
    lock_step: Rounds | None
    state: Any

    @property
    def weights(self) -> "Tensor":
        """The model `(ensemble, params)` that the node stands for, stamped with (node, version)."""
        ...

    @weights.setter
    def weights(self, weights: "Tensor") -> None: ...

    def compute(
        self, weights: "Tensor", read: "Tensor | None" = None, buckets: Sequence[float] = ()
    ) -> Work:
        """Start a mini-batch's gradient at `weights` `(ensemble, params)`; fires with a `Gradient`.

        Its staleness counts the updates of the owner of `weights` since they were read.

        Args:
            read: the model that was read, where local steps have changed it since.
            buckets: shares of the mini-batch's work, rising to 1, after each of which a part of the
                gradient is computed. The events in `buckets` of the returned event fire then, with
                the gradient; nothing else changes.

        Raises:
            RuntimeError: the node is computing already, or is a server.
            InvalidSettingError: the compute-time distribution drew an invalid duration, or the
                shares do not rise to 1.
        """
        ...

    @property
    def rng(self) -> Generator:
        """The node's own random stream, for choices that the algorithm makes."""
        ...

    @property
    def samples(self) -> int:
        """The number of samples that the worker learns from; 1 if the task has no `samples`."""
        ...

    @property
    def sample_share(self) -> float:
        """The worker's share of the samples of all `members`."""
        ...

    @property
    def members(self) -> Sequence[int]:
        """The ranks of the workers that take part: all, unless the others go on after a crash.

        They change only when all roles start again.
        """
        ...

    @property
    def layers(self) -> Sequence[Layer]:
        """The model's layers, between which a pipeline can cut it."""
        ...

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The shapes of the model's parameters by name, in order; empty if the task has none."""
        ...

    @property
    def apply_seconds(self) -> float:
        """Seconds of one update at the server, for `yield node.work(node.apply_seconds)`.

        Each access draws new seconds where they are a distribution.
        """
        ...

    @property
    def now(self) -> float:
        """The time in virtual seconds."""
        ...

    def batch(self) -> Any:
        """The node's next mini-batch, for `promise`."""
        ...

    def promise(self, weights: "Tensor", batch: Any, started: float) -> Gradient:
        """Promise the gradient of `batch` at `weights`, after `work` has taken its time since
        `started` (s).
        """
        ...

    def duration(self) -> float:
        """Draw the seconds of the next mini-batch at full speed, for `work` in several parts."""
        ...

    def work(self, seconds: float = 0.0, *, share: float = 0.0, of: float | None = None) -> Work:
        """Keep the node busy for `seconds` without a gradient; 0 does not wait.

        With `share`, keep it busy for that share of a mini-batch's compute time instead, under the
        node's slowdowns. The seconds of the mini-batch at full speed are `of`, or drawn from the
        node's distribution.

        Raises:
            RuntimeError: the node is computing already.
            InvalidSettingError: a negative or infinite duration.
        """
        ...

    def after(self, seconds: float) -> Timeout:
        """A timer that fires in `seconds`; the node may compute meanwhile, and a crash cancels it.

        As in `yield node.receive() | node.after(5.0)`: a message of the same instant comes first,
        and a timer that loses is cancelled.

        Raises:
            InvalidSettingError: a negative or infinite duration.
        """
        ...

    def send(self, receiver: int, content: Any, tag: Hashable = None, size: float = 1.0) -> Message:
        """Send `content` to node `receiver`; fires on arrival, and its `departed` before that.

        `size` is in models: 1 for weights or a gradient, 0 for a token. Weights are read when they
        are sent: from then on their owner's updates make them stale. A server's answer to a worker
        that has crashed since its request is lost, even if the worker has returned. Where sending
        takes a server time, the message departs when the server is free.

        Raises:
            InvalidSettingError: there is no such node, or the topology does not join the two.
        """
        ...

    def put(self, content: Any, tag: Hashable = None) -> None:
        """Put `content` into the node's mailbox for another role: at once, without a message."""
        ...

    def receive(self, tag: Hashable = None) -> Receive:
        """The next message with that tag; fires with `(sender, content)`, at once if one is there.

        Where receiving a message takes a server time, it fires after that.
        """
        ...

    def arrived(self, tag: Hashable = None) -> bool:
        """Whether a message with that tag is in the mailbox, without waiting."""
        ...

    @property
    def rendezvous(self) -> bool:
        """Whether a send inside a collective is complete only when it has arrived."""
        ...

    @property
    def topology(self) -> Topology:
        """Which nodes may send to which; the method's own topology unless the config names one."""
        ...

    def out_peers(self, step: int = 0) -> Ranks:
        """The nodes that this node may send to at its `step`, the next in rank first."""
        ...

    def in_peers(self, step: int = 0) -> Ranks:
        """The nodes that may send to this node at its `step`."""
        ...

    def mixing(self, name: str, step: int = 0) -> Mixing:
        """The node's row and column of the mixing matrix `name` at its `step`.

        Raises:
            InvalidSettingError: the topology has no such mixing.
        """
        ...

    def down(self, peer: int) -> Event:
        """An event that fires when node `peer` crashes, at once if it is down.

        As in `yield node.receive() | node.down(peer)`.
        """
        ...

    def apply(
        self, weights: "Tensor", gradients: Sequence[GradientPromise], state: Any = None
    ) -> None:
        """One update: the model becomes `weights`, its version grows by 1, `gradients` are applied.

        `state` is stored in checkpoints beside the weights: the optimiser's state.

        Raises:
            TypeError: the weights have another shape or precision than the node's model.
        """
        ...

    def note(self, name: str, value: "float | Tensor") -> None:
        """Record a number of the method, such as an adaptive threshold, in `Outcome.notes`.

        Args:
            name: the name of the number.
            value: a number, or a tensor `(ensemble,)`. A number that comes from weights or
                gradients must stay a tensor: a run that continues from a snapshot repeats its
                events without them, and `float(tensor)` would be another number then.

        Raises:
            ValueError: the tensor has another shape.
        """
        ...

    def stall(self, reason: str) -> None:
        """End the run as `stalled`: it would go on for ever without another update.

        No effect where `stop.time` or `stop.gradients` will end the run.
        """
        ...
