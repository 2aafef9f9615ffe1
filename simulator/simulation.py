"""The engine: one virtual clock, its nodes, and what it leaves behind."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from simulator.accounts import Accounts
from simulator.algorithm import Algorithm
from simulator.bounds import Invalid
from simulator.clock import Clock
from simulator.cluster import Cluster
from simulator.collector import clear, seldom
from simulator.crashes import Roles
from simulator.deadlock import Deadlock, who_waits
from simulator.events import Message
from simulator.gradients import Gradient, Settled
from simulator.laws import Durations
from simulator.learning import Learning
from simulator.messages import MessageLog, Record
from simulator.milestones import Evaluate, Mileage, Milestones, Stop
from simulator.node import Node
from simulator.nothing import Nothing
from simulator.outcome import Outcome
from simulator.pool import GradientPool
from simulator.streams import BATCHES, CHOICES, COMPUTE, Streams, start_seed, stream
from simulator.task import Task, Timing, layers_of
from simulator.topology import resolved
from simulator.trace import BUSY, DOWN, SENDING, WAITING, Columns, Trace
from simulator.weights import mean
from simulator.wires import Wires


class Seeds(NamedTuple):
    """The seed of the compute times, and the seed of what each member of the ensemble learns."""

    cluster: int
    learning: Sequence[int]

    def data(self) -> Sequence[int]:
        """The seeds of the mini-batches: one where all members share theirs, else one a member."""
        return self.learning[:1] if len(set(self.learning)) == 1 else self.learning


class Simulation:
    """A cluster that runs an algorithm on a task: clock, nodes, wires and accounts."""

    def __init__(
        self,
        cluster: Cluster,
        algorithm: Algorithm,
        task: Task,
        stop: Stop,
        evaluate: Evaluate,
        seeds: Seeds,
        watch: Callable[[Mileage], None] | None = None,
        memory: float = 4 * 2**30,
        defer: bool = True,
        record: Record | None = None,
    ) -> None:
        algorithm.check(cluster)
        cluster = cluster.bound(seeds.cluster)
        self.cluster, self.env, self.trace, self.books = cluster, Clock(), Trace(), Accounts(task)
        self.log = MessageLog(self.env) if record is not None and record.messages else None
        self.reached: str | None = None
        self.most_computed = math.inf if stop.gradients is None else stop.gradients
        self._task, self._stop, self._evaluate, self._watch = task, stop, evaluate, watch
        start = task.start([start_seed(seed) for seed in seeds.learning])
        if start.shape[1] == 0:
            start = cast(Tensor, Nothing(len(start)))
        message_bytes = cluster.network.message_bytes
        self.model_bytes = 4.0 * start.shape[1] if message_bytes is None else message_bytes
        self._learning = Learning(task, start, evaluate.nodes, evaluate.keep_models)
        self.pool = GradientPool(task, start, self._settled, memory, defer)
        self.layers = layers_of(task)
        self._slices = algorithm.slices(cluster.workers, start.shape[1], self.layers)
        self.topology = resolved(cluster.network.topology, algorithm.topology)
        self.wires = Wires(self.env, cluster.network, self.topology, cluster.workers, bool(cluster.crashes))
        roles = algorithm.roles(cluster.workers)
        clear(cluster.workers)
        with seldom(cluster.workers):
            self.nodes = {rank: self._node(rank, start, seeds) for rank in roles}
            self._roles = {rank: Roles(self.env, self.nodes[rank], on) for rank, on in roles.items()}
        self._models = [self.nodes[rank] for rank in self._slices or algorithm.models(cluster.workers)]
        self._milestones = Milestones(stop, evaluate, self.books, len(self._models))
        self._looks = 0
        self.stalled: str | None = None
        self._readmits = algorithm.readmits or cluster.workers == 1
        self._outside: list[int] = []  # workers that came back and were not let in
        for crash in cluster.crashes:
            for rank in crash.ranks:
                self.env.void_in(crash.at, partial(self._crash, rank))
                if crash.back is not None:
                    self.env.call_in(crash.back, partial(self._return, rank))

    def run(self) -> Outcome:
        """Run to the end.

        Raises:
            Deadlock: nothing can happen any more; says who waits for what since when.
        """
        self._look()
        if self._stop.time is not None:
            self.env.last_in(self._stop.time, lambda: self.end("time"))
        if self._evaluate.every_seconds is not None:
            self._look_again()
        with seldom(self.cluster.workers):
            self.env.run_out()
        if self.reached is None:
            # a server has no end: it serves as long as there is anybody to serve
            waited_for = [rank for rank, node in self.nodes.items() if node.life % 2] + self._outside
            if waited_for or any(roles.alive for rank, roles in self._roles.items() if rank >= 0):
                self._stall()
            self.end("returned")
        self._look()
        return self._outcome()

    def mileage(self) -> Mileage:
        """How far the simulation has come."""
        return self.books.mileage(self.env.now, len(self._models))

    def evaluations(self) -> Columns:
        """The evaluations up to now, as `Outcome.metrics` has them."""
        return self._learning.columns()

    def applies(self, gradients: Sequence[Settled]) -> bool:
        """Book one node's update by `gradients`; False once the end is reached, after which nothing counts."""
        if self.reached is not None:
            return False
        fresh = self.books.apply(gradients)
        books = self.books
        if self._learning.learns:
            self._learning.applied(fresh, books.applies / len(self._models), self.env._now)
        if self._milestones.passed():
            self._milestone()
        if self._watch is not None:
            self._watch(self.mileage())
        return True

    def lost(self, message: Message) -> None:
        """Book a message that will never arrive."""
        if self.log is not None:
            self.log.lost(message)
        sender = self.nodes[message.sender.rank]
        self.books.lose(message.content, sender.rank if sender.life != message.lives[0] else None)

    def enough(self) -> None:
        """As many gradients have been computed as the simulation is to have."""
        self.end("gradients")

    def _node(self, rank: int, start: Tensor, seeds: Seeds) -> Node:
        durations = Durations(self.cluster.compute, stream(seeds.cluster, COMPUTE, rank), f"worker {rank}")
        own = start[:, self._slices[rank]] if rank in self._slices else start
        choices = partial(stream, seeds.cluster, CHOICES, rank)
        batches = self._task.batches(rank, Streams(seeds.data(), BATCHES, rank)) if rank >= 0 else iter(())
        return Node(rank, self, own, durations, self.cluster.slowdowns_of(rank), batches, choices)

    def _crash(self, rank: int) -> None:
        """Node `rank` goes down, and with it what it does and what is under way to or from it."""
        self._roles[rank].stop()
        self.nodes[rank].crash()
        for message in self.wires.cut(rank):
            cast(Message, message).lose()

    def _return(self, rank: int) -> None:
        """Node `rank` is back, with the model that it had, and its roles begin again if the algorithm lets them."""
        self.nodes[rank].revive()
        if self._readmits:
            self._roles[rank].start()
        else:
            self._outside.append(rank)

    def _stall(self) -> None:
        """Nothing can happen any more though somebody waits.

        Raises:
            Deadlock: nobody crashed, so that the algorithm is to blame.
        """
        self.stalled = f"{self.env.now:g} s after {self.books.applies} updates: {who_waits(self.nodes, self._outside)}"
        if not self.cluster.crashes:
            raise Deadlock(f"deadlock at {self.stalled}")
        self.end("stalled")

    def _milestone(self) -> None:
        """End at a limit; evaluate, after everything else of the instant, where that is due."""
        limit, evaluation = self._milestones.take(self.mileage())
        if limit is not None:
            self.end(limit)
        if evaluation:
            self.env.last_in(0.0, self._look)

    def _settled(self, gradient: Settled, whole: Gradient, counts: bool) -> None:
        self.trace.settled(self.env._now, gradient, whole, counts)

    def end(self, reached: str) -> None:
        """Let nothing happen, or count, any more: a limit has been `reached`."""
        self.reached = self.reached or reached
        self.env.stopped = True

    def _model(self) -> Tensor:
        """The model that the algorithm stands for: the mean of its live nodes', or what their slices make together."""
        if not self._learning.learns:
            return torch.empty(self._models[0].weights.shape)
        if self._slices:
            return torch.cat([node.weights for node in self._models], dim=1)
        return mean([node.weights for node in self._live()])

    def _live(self) -> list[Node]:
        """The nodes whose models it stands for and that are up; if none is, all."""
        return [node for node in self._models if node.life % 2 == 0] or self._models

    def _look(self) -> None:
        """Evaluate the model that the algorithm stands for, as it is now."""
        nodes = self._live() if len(self._models) > 1 and not self._slices else ()
        self._learning.evaluate(self._model(), self.mileage(), nodes)
        if self._learning.hopeless:
            self.end("diverged")
        elif self._stop.accuracy is not None and self._learning.accuracy >= self._stop.accuracy:
            self.end("accuracy")

    def _look_again(self) -> None:
        """Look, and again at the next multiple of the period."""
        self._look()
        self._looks += 1
        self.env.last_in(self._looks * cast(float, self._evaluate.every_seconds) - self.env.now, self._look_again)

    def _outcome(self) -> Outcome:
        for node in self.nodes.values():
            node.close()
        workers = [node for rank, node in self.nodes.items() if rank >= 0]
        spent = np.array([node.spent for node in workers])
        updates = self.trace.columns()
        if self.log is not None:
            updates = updates.arriving(self.log.arrivals(updates))
        return Outcome(
            metrics=self._learning.columns(),
            updates=updates,
            workers={
                "worker": np.array([node.rank for node in workers]),
                "computing": spent[:, BUSY],
                "sending": spent[:, SENDING],
                "waiting": spent[:, WAITING],
                "down": spent[:, DOWN],
            },
            nodes=self._learning.spread.columns(),
            weights=self._model(),
            gradients=self.books.gradients(self.trace.counts),
            messages=self.books.messages(),
            evaluated=self.pool.evaluated,
            reached=self.reached or "returned",
            mileage=self.mileage(),
            diverged=self._learning.diverged,
            stalled=self.stalled,
            models=self._learning.models,
            message_log=None if self.log is None else self.log.columns(updates),
        )


def simulate(
    cluster: Cluster,
    algorithm: Algorithm,
    task: Task | None = None,
    *,
    stop: Stop,
    evaluate: Evaluate | None = None,
    seed: int = 0,
    learning_seeds: Sequence[int] | None = None,
    ensemble: int | None = None,
    watch: Callable[[Mileage], None] | None = None,
    memory: float = 4 * 2**30,
    defer: bool = True,
    record: Record | None = None,
    observe: Callable[[Simulation], None] | None = None,
) -> Outcome:
    """Run `algorithm` on `cluster`, learning `task`, in virtual time.

    Args:
        task: what is learnt; without one the clock runs alone.
        stop: the limits; the first reached wins.
        evaluate: how often the model is evaluated; once an epoch by default.
        seed: of everything random; `cluster.seed` and `learning_seeds` override it.
        learning_seeds: a seed a member, for its initial weights and its mini-batches.
        ensemble: how many members, where they share one learning seed; 1 by default.
        watch: called after every update with the mileage.
        memory: bytes of promised weights and gradients above which promises are evaluated early.
        defer: False evaluates every gradient when it is started; the result is the same, only slower.
        record: what is written down besides; every message, if it says so.
        observe: shown the simulation before it runs, for `watch` to look at.

    Raises:
        Deadlock: nothing can happen any more.
        Invalid: the algorithm and the cluster are at odds, or a law draws no duration.
        RuntimeError: weights were changed in place while a gradient of theirs was promised.

    Example:
        >>> from simulator import AsyncPS, Rule
        >>> outcome = simulate(Cluster(workers=4), AsyncPS(Rule()), stop=Stop(updates=100))
        >>> outcome.updates["staleness"][-10:].mean()
        np.float64(3.0)
    """
    members = [seed] * (1 if ensemble is None else ensemble) if learning_seeds is None else list(learning_seeds)
    if not members or ensemble not in (None, len(members)):
        raise Invalid("simulate", "ensemble", "one member or more, as many as learning_seeds", ensemble)
    seeds = Seeds(seed if cluster.seed is None else cluster.seed, members)
    task, evaluate = task or Timing(), evaluate or Evaluate()
    simulation = Simulation(cluster, algorithm, task, stop, evaluate, seeds, watch, memory, defer, record)
    if observe is not None:
        observe(simulation)
    return simulation.run()
