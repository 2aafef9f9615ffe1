"""Rounds of a collective in lock step: no messages, but a recurrence of times that is computed once
a round.
"""

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

NODES_SHOWN = 8
"""Nodes that a round waits for and that are named, at most."""


class LockStepSchedule(Protocol):
    """A collective, as the engine sees it: its steps for P nodes, in phases, and what they give of
    all values.

    Attributes:
        rotates: whether every step goes from each node to the next, in messages of one size.
    """

    @property
    def rotates(self) -> bool: ...
    def phases(self, workers: int, /) -> Sequence[Sequence[Exchange]]: ...
    def total(self, values: Sequence[Promise], params: int) -> Promise: ...


class Participant(Verb):
    """Fires when a node has gone through all steps of its round, with what they give."""

    __slots__ = ("_value", "callbacks", "env", "role")

    _ok = True

    def __init__(self, env: Clock) -> None:
        self.env, self._value, self.callbacks, self.role = env, PENDING, [], None

    def fire(self, result: Promise) -> None:
        """Fire now, inside the event that lets the node go on."""
        self._value = result
        callbacks, self.callbacks = self.callbacks, None
        for callback in callbacks:
            callback(self)


class Round:
    """One round: who takes part in it since when, and who has gone through it.

    Attributes:
        start: when each node begins the first step.
        joined: how many nodes take part up to now.
        last: the rank of the latest of them.
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
        """Node `rank` takes part with `value` from `time` on, as was scheduled at `since`; it
        computes until `due`.
        """
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
        """What the steps give of all values."""
        return self._schedule.total(self._values, params)

    def finishes(self, hops: Hops) -> tuple[list[Finish], Tally]:
        """Who goes on when; and what happens in the round."""
        if self._schedule.rotates and hops.even and self.busy is None:
            start = float(self.start.time[self.last])
            return rotate(start, self.last, self.phases, hops, len(self.nodes))
        instants, tally = follow(self.start, self.phases, hops, None, self.busy)
        return finishes(instants), tally

    def latest(self, hops: Hops) -> Instants:
        """The latest event of the round that has taken place: a node began its first step, or ended
        its last.
        """
        events = [self._at(self.start, self.last)]
        gone = {rank for rank, node in enumerate(self.nodes) if node.fired}
        if gone:
            instants, _ = follow(self.start, self.phases, hops)
            events += [
                self._at(instants, rank) for rank in sort(instants).tolist() if rank in gone
            ][-1:]
        return max(events)

    def _at(self, instants: Instants, rank: int) -> Instants:
        time, since, hops, order = (column[rank].item() for column in instants)
        # what receives the message, and what sends it
        return Instants(time, since, hops, order | 1)


class Rounds:
    """The rounds of a run whose messages are computed together, since nothing else is on their
    links.

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
        """Node `rank` takes part in round `tag` with `value`; fires with what all get, `(ensemble,
        params)`.

        `gradient` is the one of which `value` is a part, where it is not all of it.
        """
        if tag not in self._open:
            self._open[tag] = Round(self._env, schedule, self._workers)
        entered, now, of = self._open[tag], self._env._now, value if gradient is None else gradient
        event = entered.join(rank, value, now, getattr(of, "started", now), getattr(of, "due", now))
        if entered.joined == self._workers:
            self._schedule(tag, entered, entered.total(params))
        return event

    def _schedule(self, tag: Hashable, entered: Round, result: Promise) -> None:
        """Schedule that the nodes of a round go on, each at its moment."""
        ends, tally = entered.finishes(self._hops)
        calls: list[tuple[float, int, int, Callable[[], object]]] = []
        for finish in ends:
            nodes = [entered.nodes[rank] for rank in finish.ranks]
            go_on = partial(
                self._go_on,
                nodes,
                result,
                partial(self._end, tag, tally) if finish is ends[-1] else None,
            )
            if ends[0].time <= finish.since and ends[0].time < finish.time:
                # others have begun to compute before the last message is sent: it comes after work
                # that ends with it
                send = partial(self._env.call_at, finish.time, go_on)
                calls.append((finish.since, finish.hops - 1, finish.order // 2, send))
            else:
                calls.append((finish.time, finish.hops, finish.order, go_on))
        for time, _, _, call in sorted(calls, key=lambda call: call[:3]):
            self._env.call_at(time, call)

    def _go_on(
        self, nodes: Sequence[Participant], result: Promise, end: Callable[[], None] | None
    ) -> None:
        """Let nodes go on; then end the round, if they are the last."""
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
        """Whom the rounds wait for that not all nodes have joined."""
        missing = {
            tag: np.flatnonzero(each.start.time == NEVER).tolist()
            for tag, each in self._open.items()
            if each.joined < self._workers
        }
        return [
            f"round {tag!r} of a collective waits for nodes {ranks[:NODES_SHOWN]}"
            for tag, ranks in missing.items()
        ]

    def tally(self, reached: str | None) -> Tally:
        """The messages of all rounds, of those that have not ended up to the run's last event.

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
