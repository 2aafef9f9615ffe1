"""Rounds of a collective in lock step: a recurrence of times instead of messages."""

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np
from simpy.events import PENDING

from laggard.simulator.engine.cluster import Cluster
from laggard.simulator.learning.promises import Promise
from laggard.simulator.network.hops import Exchange, Hops
from laggard.simulator.network.lockstep import (
    NEVER,
    Finish,
    Instants,
    Tally,
    finishes,
    follow,
    rotate,
    sort,
)
from laggard.simulator.timing.clock import Clock
from laggard.simulator.timing.distributions.distribution import Seconds, is_law
from laggard.simulator.timing.events import Verb

MAX_NODES_SHOWN = 8
"""The largest number of missing nodes that the message of a deadlock names."""


class LockStepSchedule(Protocol):
    """A collective, as the engine sees it: its steps for P nodes, in phases, and their result.

    Attributes:
        rotates: whether every step goes from each node to the next, in messages of one size.
    """

    @property
    def rotates(self) -> bool: ...
    def phases(self, workers: int, /) -> Sequence[Sequence[Exchange]]: ...
    def total(self, values: Sequence[Promise], params: int) -> Promise: ...


class Participant(Verb):
    """Fires with the result of the round, when a node has gone through all steps."""

    __slots__ = ("_value", "callbacks", "env", "role")

    _ok = True

    def __init__(self, env: Clock) -> None:
        self.env, self._value = env, PENDING
        self.callbacks, self.role = [], None

    def fire(self, result: Promise) -> None:
        """Fire now, inside the event that lets the node go on."""
        self._value = result
        callbacks, self.callbacks = self.callbacks, None
        for callback in callbacks:
            callback(self)


class Round:
    """One round: the nodes that have joined it, and the moments at which they did.

    Attributes:
        start: when each node begins the first step.
        joined: the number of nodes that have joined.
        last: the rank that joined last.
        phases: the steps.
        busy: the moments up to which nodes still compute, where any does.
    """

    def __init__(self, env: Clock, schedule: LockStepSchedule, workers: int) -> None:
        self._schedule, self.phases = schedule, schedule.phases(workers)
        self.joined, self.last = 0, -1
        self.busy: Seconds | None = None
        never, zeros = np.full(workers, NEVER), np.zeros(workers, dtype=np.int64)
        self.start = Instants(never.copy(), never.copy(), zeros, zeros.copy())
        self._values: list[Any] = [None] * workers
        self.nodes = [Participant(env) for _ in range(workers)]

    def join(self, rank: int, value: Promise, time: float, since: float, due: float) -> Participant:
        """Let node `rank` join with `value` at `time`, scheduled at `since`; busy to `due`."""
        if due > time:
            if self.busy is None:
                self.busy = np.zeros(len(self.nodes))
            self.busy[rank] = due
        self.start.time[rank], self.start.since[rank] = time, since
        self.start.order[rank] = self.joined
        self._values[rank] = value
        self.joined, self.last = self.joined + 1, rank
        return self.nodes[rank]

    def total(self, params: int) -> Promise:
        """The result of the steps for all values."""
        return self._schedule.total(self._values, params)

    def finishes(self, hops: Hops) -> tuple[list[Finish], Tally]:
        """The nodes in the order in which they go on, and the messages of the round."""
        if self._schedule.rotates and hops.even and self.busy is None:
            start = float(self.start.time[self.last])
            return rotate(start, self.last, self.phases, hops, len(self.nodes))
        instants, tally = follow(self.start, self.phases, hops, None, self.busy)
        return finishes(instants), tally

    def latest(self, hops: Hops) -> Instants:
        """The latest event of the round so far: a node began its first step, or ended its last."""
        latest = self._at(self.start, self.last)
        finished = {rank for rank, node in enumerate(self.nodes) if node.fired}
        if not finished:
            return latest
        instants, _ = follow(self.start, self.phases, hops)
        *_, last = (rank for rank in sort(instants).tolist() if rank in finished)
        return max(latest, self._at(instants, last))

    def _at(self, instants: Instants, rank: int) -> Instants:
        time, since, hops, order = (column[rank].item() for column in instants)
        # Orders 2 k and 2 k + 1 are the receiver and the sender of one message: both have gone on.
        return Instants(time, since, hops, order | 1)


class Rounds:
    """The rounds of a run, computed at once because their messages are alone on their links.

    The result is that of messages, to rounding: the same rows in the same order, and the same
    counts.
    """

    def __init__(self, env: Clock, cluster: Cluster, model_bytes: float) -> None:
        self._env, self._workers = env, cluster.workers
        self._hops = Hops(cluster.network, cluster.workers, model_bytes)
        self._open: dict[Hashable, Round] = {}
        self._sending, self._sent = np.zeros(cluster.workers), 0

    @staticmethod
    def apply_to(cluster: Cluster) -> bool:
        """Whether collectives can be computed in lock step on a cluster.

        No crash, no random ties, no latencies that are drawn, no network that changes.
        """
        if cluster.workers == 1 or cluster.ties != "rank" or cluster.crashes:
            return False
        return not is_law(cluster.network.latency) and cluster.network.changes is None

    def suits(self, schedule: LockStepSchedule) -> bool:
        """Whether no two messages of a collective ever share a link."""
        return self._hops.private or (schedule.rotates and self._hops.even)

    def join(
        self,
        rank: int,
        schedule: LockStepSchedule,
        value: Promise,
        params: int,
        tag: Hashable,
        gradient: Any = None,
    ) -> Participant:
        """Let node `rank` join round `tag` with `value`; fires with the result.

        `gradient` is the one of which `value` is a part, where it is not all of it.
        """
        if tag not in self._open:
            self._open[tag] = Round(self._env, schedule, self._workers)
        entered, now = self._open[tag], self._env._now
        source = value if gradient is None else gradient
        started, due = getattr(source, "started", now), getattr(source, "due", now)
        event = entered.join(rank, value, now, started, due)
        if entered.joined == self._workers:
            self._schedule(tag, entered, entered.total(params))
        return event

    def _schedule(self, tag: Hashable, entered: Round, result: Promise) -> None:
        """Schedule the moments at which the nodes of a round go on."""
        ends, tally = entered.finishes(self._hops)
        calls: list[tuple[float, int, int, Callable[[], object]]] = []
        for finish in ends:
            nodes = [entered.nodes[rank] for rank in finish.ranks]
            end = None
            if finish is ends[-1]:
                end = partial(self._end, tag, tally)
            go_on = partial(self._go_on, nodes, result, end)
            if ends[0].time <= finish.since and ends[0].time < finish.time:
                # Other nodes have begun to compute before the last message is sent: its arrival
                # must be scheduled then, to come after their work that ends with it.
                send = partial(self._env.call_at, finish.time, go_on)
                calls.append((finish.since, finish.hops - 1, finish.order // 2, send))
            else:
                calls.append((finish.time, finish.hops, finish.order, go_on))
        for time, _, _, call in sorted(calls, key=lambda call: call[:3]):
            self._env.call_at(time, call)

    def _go_on(
        self, nodes: Sequence[Participant], result: Promise, end: Callable[[], None] | None
    ) -> None:
        """Let nodes go on; `end` is for the last ones of the round."""
        for node in nodes:
            node.fire(result)
        if end is not None:
            end()

    def _end(self, tag: Hashable, tally: Tally) -> None:
        """Count a round, all of whose messages have arrived."""
        del self._open[tag]
        self._sent += tally.sent
        self._sending += tally.sending

    def waits(self) -> list[str]:
        """The rounds that wait for nodes to join, and these nodes, as text."""
        waits = []
        for tag, entered in self._open.items():
            if entered.joined < self._workers:
                missing = np.flatnonzero(entered.start.time == NEVER).tolist()
                nodes = missing[:MAX_NODES_SHOWN]
                waits.append(f"round {tag!r} of a collective waits for nodes {nodes}")
        return waits

    def tally(self, reached: str | None) -> Tally:
        """The messages of all rounds; of rounds under way, those before the run's last event.

        Args:
            reached: the limit that has ended the run.
        """
        sent = delivered = self._sent
        sending = self._sending
        until = Instants(self._env.now, np.inf, 0, 0)
        rounds = list(self._open.values())
        # Limits on counts end the run within an instant; all others see the whole instant.
        if rounds and reached in ("updates", "epochs", "gradients"):
            latest = [entered.latest(self._hops) for entered in rounds]
            until = max(until._replace(since=-np.inf), *latest)
        for entered in rounds:
            _, tally = follow(entered.start, entered.phases, self._hops, until, entered.busy)
            sent += tally.sent
            delivered += tally.delivered
            sending = sending + tally.sending
        return Tally(sending, sent, delivered)
