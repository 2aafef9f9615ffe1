"""Rounds of a collective in lock step: times computed at once, instead of messages sent."""

import math
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, Protocol

import numpy as np
from simpy.events import PENDING

from laggard.simulator.engine.cluster import Cluster
from laggard.simulator.learning.promises import Promise
from laggard.simulator.network.hops import Exchange, Hops
from laggard.simulator.network.lockstep import (
    Finish,
    LockStep,
    Tally,
    bytes_of_rotation,
    finishes,
    go_round,
    rotate,
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
    """An event that fires with the round's result when a node has gone through all steps."""

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
        joins: the nodes that have begun the first step, in order.
        nodes: all nodes, by rank.
    """

    def __init__(
        self, env: Clock, schedule: LockStepSchedule, workers: int, under_way: Seconds
    ) -> None:
        """`under_way`: when the last message of each node in the rounds before arrives (s)."""
        self._schedule = schedule
        self._phases = schedule.phases(workers)
        self._under_way = under_way
        self._busy = np.zeros(workers)
        self.joins: list[tuple[int, float, float]] = []
        self._values: list[Any] = [None] * workers
        self.nodes = [Participant(env) for _ in range(workers)]

    def join(self, rank: int, value: Promise, time: float, since: float, due: float) -> Participant:
        """Let node `rank` join with `value`.

        Args:
            time: the moment at which it joins (s).
            since: the moment at which its join was scheduled (s).
            due: the moment up to which it computes (s); before `time` if it is free.
        """
        if due > time:
            self._busy[rank] = due
        if self.joins and self.joins[-1][1] == time:
            since = max(since, self.joins[-1][2])  # joins of one instant stay in order
        self.joins.append((rank, time, since))
        self._values[rank] = value
        return self.nodes[rank]

    def total(self, params: int) -> Promise:
        """The result of the steps for all values."""
        return self._schedule.total(self._values, params)

    def finishes(self, hops: Hops) -> tuple[list[Finish], Tally]:
        """The nodes in the order in which they go on, and the messages of the round."""
        # `rotate` and `go_round` count a node as sending from its join on, though it may still
        # compute.
        if self._schedule.rotates and hops.rotates and not self._busy.any():
            last, start, _ = self.joins[-1]
            return rotate(start, last, self._phases, hops, len(self.nodes))
        if self._schedule.rotates and hops.even and not self._busy.any():
            done = go_round(self.joins, self._phases, hops, self._under_way)
            if done is not None:
                return done
        steps = self._steps(hops)
        steps.run()
        return finishes(steps.ends), steps.tally()

    def tally(self, hops: Hops, now: float, whole: bool) -> Tally:
        """The messages up to `now` (s): to the end of this instant if `whole`, else to the last
        event so far in which a node began its first step or ended its last.
        """
        steps = self._steps(hops)
        if whole:
            steps.run(now)
        else:
            steps.run(math.nextafter(now, -math.inf))
            steps.run_until(len(self.joins), sum(node.fired for node in self.nodes))
        return steps.tally(now)

    def bytes_sent(self, hops: Hops, now: float) -> float:
        """The bytes that nodes have sent up to the end of the instant `now` (s)."""
        if self._schedule.rotates and hops.even:
            workers = len(self.nodes)
            return bytes_of_rotation(self.joins, self._phases, hops, workers, now)
        return self.tally(hops, now, whole=True).bytes_sent

    def _steps(self, hops: Hops) -> LockStep:
        return LockStep(self.joins, self._phases, hops, self._under_way, self._busy)


class Rounds:
    """The rounds of a run, computed at once because their messages are alone on their links.

    The result is that of messages, to rounding: the same rows in the same order, and the same
    counts.
    """

    def __init__(self, env: Clock, cluster: Cluster, model_bytes: float) -> None:
        self._env = env
        self._workers = cluster.workers
        self._hops = Hops(cluster.network, cluster.workers, model_bytes)
        self._open: dict[Hashable, Round] = {}
        self._sending = np.zeros(cluster.workers)
        self._sent = 0
        self._bytes_sent = 0.0
        self._under_way = np.zeros(cluster.workers)

    @staticmethod
    def apply_to(cluster: Cluster) -> bool:
        """Whether collectives can be computed in lock step on a cluster.

        That needs two workers or more, none of which is ever down, ties by rank, latencies that are
        not drawn, and a network that does not change.
        """
        if cluster.workers == 1 or cluster.ties != "rank":
            return False
        if cluster.crashes or cluster.members.change:
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

        `gradient` is the gradient of which `value` is only a part.
        """
        if tag not in self._open:
            # A node joins it after the round before, which is scheduled.
            self._open[tag] = Round(self._env, schedule, self._workers, self._under_way)
        entered, now = self._open[tag], self._env._now
        source = value if gradient is None else gradient
        started = getattr(source, "started", now)
        due = getattr(source, "due", now)
        event = entered.join(rank, value, now, started, due)
        if len(entered.joins) == self._workers:
            self._schedule(tag, entered, entered.total(params))
        return event

    def _schedule(self, tag: Hashable, entered: Round, result: Promise) -> None:
        """Schedule the moments at which the nodes of a round go on."""
        ends, tally = entered.finishes(self._hops)
        self._under_way = tally.under_way
        calls: list[tuple[float, Callable[[], object]]] = []
        for finish in ends:
            nodes = [entered.nodes[rank] for rank in finish.ranks]
            end = None
            if finish is ends[-1]:
                end = partial(self._end, tag, tally)
            go_on = partial(self._go_on, nodes, result, end)
            if finish.at_once:
                go_on()
            elif ends[0].time <= finish.since and ends[0].time < finish.time:
                # Other nodes have begun to compute before the last message is sent: its arrival
                # must be scheduled then, to come after their work that ends with it.
                send = partial(self._env.call_at, finish.time, go_on)
                calls.append((finish.since, send))
            else:
                calls.append((finish.time, go_on))
        # By time alone: the sort is stable, so calls of one moment stay in the order of `ends`.
        for time, call in sorted(calls, key=itemgetter(0)):
            self._env.call_at(time, call)

    def _go_on(
        self, nodes: Sequence[Participant], result: Promise, end: Callable[[], None] | None
    ) -> None:
        """Resume nodes; then call `end`, which is given for the last nodes of the round."""
        for node in nodes:
            node.fire(result)
        if end is not None:
            end()

    def _end(self, tag: Hashable, tally: Tally) -> None:
        """Count the messages of a round that has ended."""
        del self._open[tag]
        self._sent += tally.sent
        self._bytes_sent += tally.bytes_sent
        self._sending += tally.sending

    def waits(self) -> list[str]:
        """The rounds that wait for nodes to join, and these nodes, as text."""
        waits = []
        for tag, entered in self._open.items():
            if len(entered.joins) < self._workers:
                missing = set(range(self._workers)).difference(rank for rank, *_ in entered.joins)
                nodes = sorted(missing)[:MAX_NODES_SHOWN]
                waits.append(f"round {tag!r} of a collective waits for nodes {nodes}")
        return waits

    def bytes_sent(self) -> float:
        """The bytes of all rounds up to the end of this instant."""
        now = self._env.now
        return self._bytes_sent + sum(
            entered.bytes_sent(self._hops, now) for entered in self._open.values()
        )

    def tally(self, reached: str) -> Tally:
        """The messages of all rounds; of rounds under way, those before the run's last event.

        Args:
            reached: the limit that has ended the run.
        """
        sent = delivered = self._sent
        sending = self._sending
        bytes_sent = self._bytes_sent
        # Limits on counts end the run within an instant; all others see the whole instant.
        whole = reached not in ("updates", "epochs", "gradients")
        for entered in self._open.values():
            tally = entered.tally(self._hops, self._env.now, whole)
            sent += tally.sent
            delivered += tally.delivered
            bytes_sent += tally.bytes_sent
            sending = sending + tally.sending
        return Tally(sending, self._under_way, sent, delivered, bytes_sent)
