"""Servers that crash and return: checkpoints, lost updates, and the workers that announce
themselves.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from laggard.simulator.engine.machine import Machine
from laggard.simulator.engine.services import Services
from laggard.simulator.learning.gradients import DROPPED, IN_FLIGHT, GradientPromise
from laggard.simulator.network.topology import SERVER
from laggard.simulator.recording.counters import gradients_in
from laggard.simulator.recording.outcome import RESTORE_COLUMNS
from laggard.simulator.recording.trace import Columns
from laggard.simulator.timing.clock import MOMENT_TOLERANCE
from laggard.simulator.timing.events import Message
from laggard.simulator.timing.failures import Checkpoint
from laggard.simulator.timing.streams import CRASHES

MAX_CRASHES = 1000
"""Crashes in a row without an update, after which a run ends as stalled."""


class Recovery:
    """The last checkpoint of one server, the gradients it holds, and the workers that wait for it.

    Attributes:
        owed: the workers that have sent it a message since its last answer to them.
    """

    def __init__(self, node: Machine, checkpoint: Checkpoint) -> None:
        self._node = node
        self._checkpoint = checkpoint
        self.owed: dict[int, None] = {}
        self._held: list[GradientPromise] = []
        self._pruned = 0
        self.restart(0.0)

    def restart(self, now: float) -> None:
        """Count periods from `now` (s), when the model is that of the checkpoint."""
        self._since = now
        self._periods = 0.0  # of this incarnation: its first checkpoint is due after one period
        self._save()

    def save_if_due(self, now: float) -> None:
        """Take the checkpoint that has become due since the last update or before, if any."""
        period = self._checkpoint.every_seconds
        if period is not None:
            periods = (now - self._since) * (1 + MOMENT_TOLERANCE) // period
            if periods > self._periods:
                self._periods = periods
                self._save()
        # Equal is enough, since this is called before each update and no count is passed over.
        elif self._checkpoint.every_updates == self._node.version - self._version:
            self._save()

    def hold(self, content: Any) -> None:
        """Record the gradients in a message that the server has received: a crash loses them."""
        self._held += gradients_in(content)
        # Remove gradients with a final status now and then: amortised, one step per gradient.
        if len(self._held) > 2 * self._pruned + 16:
            self._held = [gradient for gradient in self._held if gradient.status == IN_FLIGHT]
            self._pruned = len(self._held)

    def lose(self, now: float) -> int:
        """Drop the gradients that the server holds, and return to the checkpoint.

        The version is not reset: it counts the updates that the server has made. Where updates are
        lost, the model is set without an update. So `mixings` identifies gradients of weights from
        before the crash.

        Returns:
            The number of lost updates.
        """
        for gradient in self._held:
            if gradient.status == IN_FLIGHT:
                gradient.resolve(DROPPED)
        self._held, self._pruned = [], 0
        # The model is that of the last update, so a checkpoint that was due since is taken only
        # now.
        self.save_if_due(now)
        lost = self._node.version - self._version
        if lost:
            self._node.weights = self._weights
            self._node.state = self._state
        return lost

    def _save(self) -> None:
        node = self._node
        self._weights = node.weights
        self._state = node.state
        self._version = node.version


class Recoveries:
    """The crashes of all servers, and their returns."""

    def __init__(self, services: Services) -> None:
        self._services, cluster = services, services.cluster
        self._by_rank: dict[int, Recovery] = {}
        for rank, node in services.nodes.items():
            if rank < 0:
                self._by_rank[rank] = Recovery(node, cluster.checkpoint)
        self._rows: list[list[float]] = []  # as `columns` has them
        self._applies = 0  # updates at the last crash
        self._in_vain = 0  # crashes in a row without an update
        for crash in cluster.server_downs:
            rank = SERVER - crash.shard
            restore_seconds = crash.restore_seconds
            if crash.uptime is None:
                services.env.daemon(crash.at or 0.0, partial(self._crash, rank, restore_seconds))
            else:
                draw = services.draws(crash.uptime, CRASHES, rank)
                self._await(rank, restore_seconds, draw)

    def applies(self, node: Machine) -> None:
        """Take the checkpoint of a server that is due before its next update."""
        self._by_rank[node.rank].save_if_due(node.now)

    def sent(self, message: Message) -> None:
        """Record that a worker waits for an answer, if `message` goes to a server."""
        if message.receiver.rank < 0:
            self._by_rank[message.receiver.rank].owed[message.sender.rank] = None

    def delivered(self, message: Message) -> None:
        """Record a message that a server has received, or its answer to a worker."""
        sender, receiver = message.sender.rank, message.receiver.rank
        if receiver < 0:
            self._by_rank[receiver].hold(message.content)
        elif sender < 0:
            self._by_rank[sender].owed.pop(receiver, None)

    def columns(self) -> Columns:
        """A row per crash, as `Outcome.restores` has them."""
        rows = np.array(self._rows, dtype=float).reshape(-1, len(RESTORE_COLUMNS))
        columns = {}
        for place, (name, kind) in enumerate(RESTORE_COLUMNS.items()):
            columns[name] = rows[:, place].astype(kind)
        return columns

    def _await(self, rank: int, restore_seconds: float, draw: Callable[[], float]) -> None:
        """Let server `rank` crash after a drawn time, and again after each return."""
        again = partial(self._await, rank, restore_seconds, draw)
        self._services.env.daemon(draw(), partial(self._crash, rank, restore_seconds, again))

    def _crash(
        self, rank: int, restore_seconds: float, again: Callable[[], None] | None = None
    ) -> None:
        services, now = self._services, self._services.env.now
        services.faults.crash(rank)
        node = services.nodes[rank]
        row = [now, math.nan, rank, node.version, self._by_rank[rank].lose(now)]
        self._rows.append(row)
        services.env.call_in(restore_seconds, partial(self._restore, rank, row, again))
        if self._applies == services.counters.applies:
            self._in_vain += 1
        else:
            self._in_vain = 0
        self._applies = services.counters.applies
        if self._in_vain >= MAX_CRASHES:  # the run would practically never end
            crashes = f"servers crashed {MAX_CRASHES} times without one"
            services.stalled = f"{now:g} s after {self._applies} updates: {crashes}"
            services.end("stalled")

    def _restore(self, rank: int, row: list[float], again: Callable[[], None] | None) -> None:
        """Bring server `rank` back; the workers that wait for its answer announce themselves."""
        services, now = self._services, self._services.env.now
        row[1] = now
        self._by_rank[rank].restart(now)
        services.faults.restart(rank)
        for worker in sorted(self._by_rank[rank].owed):
            if services.nodes[worker].incarnation % 2 == 0:
                services.nodes[worker].send(rank, None, size=0)
        if again is not None:
            again()
