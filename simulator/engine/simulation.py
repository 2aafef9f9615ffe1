"""The engine: one virtual clock, its nodes, and the outcome."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import repeat
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from torch import Tensor

from laggard.simulator.engine.cluster import Cluster
from laggard.simulator.engine.evaluations import Evaluations
from laggard.simulator.engine.faults import Faults, describe_waits
from laggard.simulator.engine.machine import Machine
from laggard.simulator.engine.membership import MemberNode, Membership
from laggard.simulator.engine.recovery import Recoveries
from laggard.simulator.engine.regrouping import ElasticNode, Regrouping
from laggard.simulator.engine.rounds import Rounds
from laggard.simulator.engine.server import kind_of
from laggard.simulator.engine.services import Leaves
from laggard.simulator.engine.stopping import Evaluate, Stop, StoppingCriteria, check_periods
from laggard.simulator.engine.timers import Timers
from laggard.simulator.errors import Deadlock
from laggard.simulator.learning.empty import EmptyWeights
from laggard.simulator.learning.gradients import GradientPromise
from laggard.simulator.learning.pool import GradientPool
from laggard.simulator.learning.rules import Rule
from laggard.simulator.learning.task import Task, bytes_of, layers_of, samples_of, shapes_of
from laggard.simulator.network.topology import resolve_topology
from laggard.simulator.network.transport import Transport
from laggard.simulator.recording.counters import Counters, RunProgress
from laggard.simulator.recording.messages import MessageLog, Record
from laggard.simulator.recording.metrics import Learning
from laggard.simulator.recording.notes import Notes
from laggard.simulator.recording.outcome import Outcome
from laggard.simulator.recording.requests import Requests
from laggard.simulator.recording.trace import BUSY, DOWN, SENDING, WAITING, Columns, Trace
from laggard.simulator.timing.clock import Clock, collect_garbage, rare_collections
from laggard.simulator.timing.distributions import Distribution, Durations
from laggard.simulator.timing.distributions.distribution import is_law
from laggard.simulator.timing.events import Event, Message
from laggard.simulator.timing.failures import CrashRule
from laggard.simulator.timing.streams import (
    BATCHES,
    CHOICES,
    COMPUTE,
    TIES,
    Seeds,
    StoredStream,
    Streams,
    start_seed,
    stream,
)

if TYPE_CHECKING:
    from laggard.simulator.algorithms.base import Algorithm
    from laggard.simulator.engine.snapshots import Snapshots


class Simulation:
    """A cluster that runs an algorithm on a task: clock, nodes, transport and counters."""

    stalled: str | None = None
    _time_limit: Event | None = None

    def __init__(
        self,
        cluster: Cluster,
        algorithm: "Algorithm",
        task: Task,
        stop: Stop,
        evaluate: Evaluate,
        seeds: Seeds,
        watch: Callable[[RunProgress], None] | None = None,
        memory: float | None = None,
        defer: bool = True,
        record: Record | None = None,
    ) -> None:
        algorithm = with_shapes(algorithm, task)
        algorithm.check_cluster(cluster)
        algorithm.check_end(cluster, stop)
        check_periods(stop, evaluate, cluster)
        self.cluster = cluster = cluster.bound(seeds.cluster)
        self.members: Sequence[int] = range(cluster.workers)
        self._counted: tuple[Sequence[int], int] = ((), 0)
        self.crashes = cluster.has_crashes
        self._crash_rule: CrashRule | None = None
        if self.crashes:
            self._crash_rule = algorithm.crash_rule
        ties = None
        if cluster.ties == "random":
            ties = stream(seeds.cluster, TIES)
        self.env = Clock(ties, cluster.crash_moments)
        self.trace = Trace(self.env)
        self.counters = Counters(task)
        self.log: MessageLog | None = None
        if record is not None and record.messages:
            self.log = MessageLog(self.env)
        self.timers = Timers(self.env, self.counters, self._all_gone)
        self.requests = Requests()
        self.reached: str | None = None
        self.snapshots: Snapshots | None = None
        if stop.gradients is not None:
            self.counters.most_computed = stop.gradients
        self._task = task
        self._stop = stop
        self._watch = watch
        start = task.start([start_seed(seed) for seed in seeds.learning])
        self.model_bytes = bytes_of(task, start.shape[1])
        if cluster.network.message_bytes is not None:
            self.model_bytes = cluster.network.message_bytes
        if start.shape[1] == 0:  # no call of torch in a run of the clock alone
            start = cast(Tensor, EmptyWeights(len(start)))
        self._learning = Learning(task, start, evaluate.nodes, evaluate.keep_models)
        self._notes = Notes(len(start))
        self.pool = GradientPool(task, start, self.trace.record, memory, defer)
        self.layers = layers_of(task)
        self._slices = algorithm.slices(cluster.workers, start.shape[1], self.layers)
        self._connect(algorithm, seeds.cluster)
        self._seed = seeds.cluster
        self._generator = np.random.default_rng(0)
        self.choices: Callable[[int], np.random.Generator] = partial(stream, seeds.cluster, CHOICES)
        self._start_roles(algorithm, start, seeds)
        models = [self.nodes[rank] for rank in self._slices or algorithm.models(cluster.workers)]
        self._evaluations = Evaluations(
            self, self._learning, evaluate, stop.accuracy, models, self._slices
        )
        self._criteria = StoppingCriteria(stop, evaluate, self.counters, len(models))
        self._replicas = len(models)

    @cached_property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """The shapes of the task's parameters, by name."""
        return shapes_of(self._task)

    def _connect(self, algorithm: "Algorithm", seed: int) -> None:
        """Make the network, and rounds in lock step where messages are not needed for the times."""
        cluster, network = self.cluster, self.cluster.network
        self.topology = resolve_topology(network.topology, algorithm.topology)
        self.group_size = network.group_size(cluster.workers) or 1
        self.transport = Transport(
            self.env, network, self.topology, cluster.workers, self.crashes, seed
        )
        self.lock_step: Rounds | None = None
        recorded = self.log is not None
        if algorithm.only_collectives and not recorded and Rounds.apply_to(cluster):
            self.lock_step = Rounds(self.env, cluster, self.model_bytes)

    def _start_roles(self, algorithm: "Algorithm", start: Tensor, seeds: Seeds) -> None:
        """Make the nodes with `start` as their model, and start their roles."""
        workers = self.cluster.workers
        roles = dict(algorithm.roles(workers))
        rule: Rule | None = getattr(algorithm, "rule", None)
        if rule is not None and rule.needs_shapes:
            # a node with a part of the model has a rule with the shapes of that part
            for rank, place in self._slices.items():
                of_part = replace(algorithm, rule=rule.of_part(place))  # type: ignore[type-var]
                roles[rank] = of_part.roles(workers)[rank]
        collect_garbage(workers)
        with rare_collections(workers):
            # All nodes exist before a role starts: its first line may send to any of them.
            self.nodes = {rank: self._node(rank, start, seeds) for rank in roles}
            group = partial(algorithm.restart_group, workers=workers)
            self.faults = Faults(
                self.env, self.cluster.crashes, self.nodes, roles, group, self.transport
            )
        self.membership: Leaves = Membership(self)
        # After the membership, which takes late workers down: they are not in the first group.
        self._regrouping: Regrouping | None = None
        if self._crash_rule is not None:
            self._regrouping = Regrouping(self, self._crash_rule)
        self.recoveries: Recoveries | None = None
        if self.cluster.server_crashes:
            self.recoveries = Recoveries(self)

    def run(self) -> Outcome:
        """Run to the end.

        Raises:
            Deadlock: no event is left; names what each node waits for and since when.
        """
        self._evaluations.evaluate()
        if self._stop.time is not None:
            self._time_limit = self.env.at_moment(self._stop.time, lambda: self.end("time"))
        self._evaluations.evaluate_periodically()
        with rare_collections(self.cluster.workers):
            self.env.run_to_end()
        if self.reached is None:
            if self.faults.waiting:
                self._stall()
            self.end("returned")
        self._evaluations.evaluate()
        return self._outcome()

    @property
    def member_samples(self) -> int:
        """The samples that all members learn from, counted once for all nodes."""
        # Each meeting makes a new list: its identity tells whether the sum is of these members.
        if self._counted[0] is not self.members:
            samples = sum(samples_of(self._task, rank) for rank in self.members)
            self._counted = self.members, samples
        return self._counted[1]

    def progress(self) -> RunProgress:
        """The progress of the simulation on each axis."""
        return self.counters.progress(self.env.now, self._replicas)

    def bytes_sent(self) -> float:
        """The bytes of all messages that were sent up to now."""
        sent = self.counters.models_sent * self.model_bytes
        if self.lock_step is None:
            return sent
        if self.reached is None:
            return sent + self.lock_step.bytes_sent()
        return sent + self.lock_step.tally(self.reached).bytes_sent

    def evaluations(self) -> Columns:
        """The evaluations up to now, as `Outcome.metrics` has them."""
        return self._learning.columns()

    def applies(self, gradients: Sequence[GradientPromise]) -> bool:
        """Count one node's update by `gradients`; False after the end, when nothing counts."""
        if self.reached is not None:
            return False
        counters, criteria = self.counters, self._criteria
        fresh = counters.apply(gradients)
        if self._learning.learns:
            self._learning.applied(fresh, counters.applies / self._replicas, self.env._now)
        if counters.applies >= criteria.applies or counters.applied >= criteria.applied:
            self._check_criteria()
        if self._watch is not None:
            self._watch(self.progress())
        if self.snapshots is not None:
            self.snapshots.applied()
        return True

    def note(self, rank: int, name: str, value: float | Tensor) -> None:
        """Record a number that node `rank` notes."""
        self._notes.add(self.env.now, self.progress().updates, rank, name, value)

    def record_loss(self, message: Message) -> None:
        """Count a lost message, and the gradients that are lost with it.

        These are the sender's, if it crashed or sent them to a server: it has no copy of them.
        """
        if self.log is not None:
            self.log.record_loss(message)
        sender = message.sender
        crashed = sender.incarnation != message.incarnations[0]
        worker = None
        if crashed or message.receiver.rank < 0:
            worker = sender.rank
        self.counters.lose(message.content, worker)

    def _node(self, rank: int, start: Tensor, seeds: Seeds) -> Machine:
        times = StoredStream(self._generator, seeds.cluster, COMPUTE, rank)
        durations = Durations(self.cluster.compute, times, rank)
        if rank in self._slices:
            start = start[:, self._slices[rank]]
        batches: Iterator[Any] = iter(())
        if rank >= 0:
            batches = self._task.batches(rank, Streams(seeds.data(), BATCHES, rank))
        kind = kind_of(self.cluster, rank)
        if self._crash_rule is not None:
            kind = ElasticNode
        elif self.cluster.members.change and rank >= 0:
            kind = MemberNode
        return kind(rank, self, start, durations, self.cluster.slowdowns_of(rank), batches)

    def draws(self, seconds: float | Distribution, purpose: int, rank: int) -> Callable[[], float]:
        """The function that gives node `rank`'s next `seconds`; a law has a stream by `purpose`."""
        if not is_law(seconds):
            return repeat(cast(float, seconds)).__next__
        times = StoredStream(self._generator, self._seed, purpose, rank)
        return Durations(seconds, times, rank).next

    def _all_gone(self) -> bool:
        """Whether every worker is down, and none returns."""
        return self.crashes and self.faults.all_gone

    def _stall(self) -> None:
        """End a run in which no event is left although nodes wait.

        Raises:
            Deadlock: no node crashed, so that the algorithm is the cause.
        """
        waits = describe_waits(self.nodes, self.faults.outside)
        if self.lock_step is not None:
            waits = "; ".join(self.lock_step.waits()) or waits
        if self._regrouping is not None:
            waits = self._regrouping.describe_waits() or waits
        self.stalled = f"{self.env.now:g} s after {self.counters.applies} updates: {waits}"
        if not self.crashes:
            raise Deadlock(f"deadlock at {self.stalled}")
        self.end("stalled")

    def _check_criteria(self) -> None:
        """End at a limit; evaluate, after everything else of the instant, where that is due."""
        limit, evaluation = self._criteria.take(self.progress())
        if limit is not None:
            self.end(limit)
        if evaluation:
            self.env.after_all(0.0, self._evaluations.evaluate)

    def end(self, reached: str) -> None:
        """Stop the clock and the counters: a limit has been `reached`."""
        # The first limit stays: `run` or the last evaluation may name another one afterwards.
        self.reached = self.reached or reached
        self.env.stopped = True

    def stall(self, reason: str) -> None:
        """End the run as stalled, unless a limit of time or gradients ends it."""
        if self._stop.time is not None or self._stop.gradients is not None:
            return
        self.stalled = f"{self.env.now:g} s after {self.counters.applies} updates: {reason}"
        self.end("stalled")

    def _outcome(self) -> Outcome:
        if self.lock_step is not None:
            tally = self.lock_step.tally(cast(str, self.reached))
            self.counters.sent += tally.sent
            self.counters.delivered += tally.delivered
            for rank, seconds in enumerate(tally.sending.tolist()):
                self.nodes[rank].spent[SENDING] += seconds
        for node in self.nodes.values():
            node.close()
        ranks = [rank for rank in self.nodes if rank >= 0]
        spent = np.array([self.nodes[rank].spent for rank in ranks])
        workers = {
            "worker": np.array(ranks),
            "computing": spent[:, BUSY],
            "sending": spent[:, SENDING],
            "waiting": spent[:, WAITING],
            "down": spent[:, DOWN],
        }
        updates = self.trace.columns()
        message_log = None
        if self.log is not None:
            updates = updates.arriving(self.log.arrivals(updates))
            message_log = self.log.columns(updates)
        restores: Columns = {}
        if self.recoveries is not None:
            restores = self.recoveries.columns()
        return Outcome(
            metrics=self._learning.columns(),
            updates=updates,
            workers=workers,
            nodes=self._learning.spread.columns(),
            weights=self._evaluations.model(),
            gradients=self.counters.gradients(self.trace.counts),
            messages=self.counters.messages(),
            unanswered=self.requests.unanswered(),
            evaluated=self.pool.evaluated,
            reached=cast(str, self.reached),
            progress=self.progress(),
            diverged=self._learning.diverged,
            stalled=self.stalled,
            restores=restores,
            notes=self._notes.columns(),
            models=self._learning.models,
            message_log=message_log,
        )


def with_shapes(algorithm: "Algorithm", task: Task) -> "Algorithm":
    """The algorithm, whose rule knows the shapes of the task's parameters where it needs them.

    Raises:
        InvalidSettingError: the task has no shapes, or others than the rule needs.
    """
    rule: Rule | None = getattr(algorithm, "rule", None)
    if rule is None or not rule.needs_shapes:
        return algorithm
    return replace(algorithm, rule=rule.with_shapes(shapes_of(task)))  # type: ignore[type-var]
