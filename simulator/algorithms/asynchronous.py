"""The asynchronous parameter server, and Downpour, which sends fewer messages."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import count
from typing import ClassVar, Literal

from laggard.simulator.algorithms.base import Role
from laggard.simulator.algorithms.compressing import (
    Compressing,
    CompressingServer,
    push_compressed,
    read_compute_push,
)
from laggard.simulator.algorithms.sharding import Sharded, Shards
from laggard.simulator.engine.cluster import Cluster
from laggard.simulator.engine.node import Node
from laggard.simulator.errors import InvalidSettingError, NonNegativeInt, PositiveInt
from laggard.simulator.learning.gradients import GradientPromise
from laggard.simulator.learning.rules import SGD, Rule, Uncompensated
from laggard.simulator.learning.weights import total


@dataclass(frozen=True)
class AsyncPS(CompressingServer, Sharded):
    """Asynchronous SGD: the server applies each gradient on arrival and returns the new weights.

        w <- w - lr g(w_read)

    With plain sgd as `rule` this is ASGD, with a DC-ASGD compensation DC-ASGD. With one worker it
    is plain SGD; with P equal workers on a free network, `delayed` with delay P - 1. Mean staleness
    (P - 1) / accumulate, in updates. Each shard applies gradients in its own order of arrival;
    where that is the same on all, they learn what one server would.

    Attributes:
        accumulate: G, gradients that the server sums before one step of its optimiser; workers do
            not wait for it.

    Source: Recht et al. (2011), arXiv 1106.5730; Zheng et al. (2017), arXiv 1609.08326, algorithms
    1 and 2; Aji & Heafield (2019) (accumulate).
    """

    recovers = True
    rule: Rule
    accumulate: PositiveInt = 1

    def worker(self, node: Node) -> Role:
        if self.compress is not None:
            return push_compressed(node, self.encoder(node))
        if self.shards == 1:
            return read_compute_push(node)
        return self.with_shards(node)

    def with_shards(self, node: Node) -> Role:
        servers = Shards(node, self.shards)
        servers.announce()
        while True:
            weights = yield from servers.read()
            gradient = yield node.compute(weights)
            servers.push(gradient)
            del gradient  # as in `read_compute_push`

    def server(self, node: Node) -> Role:
        state = node.state or self.rule.init(node.weights)
        gathered = list[GradientPromise]()
        answers = self.answers(node)
        send = answers.send
        while True:
            worker, gradient = yield node.receive()
            if gradient is not None:
                gathered.append(gradient)
            else:
                answers.forget(worker)
            if len(gathered) == self.accumulate:
                yield node.work(node.apply_seconds)
                weights, state = self.rule.update(node.weights, gathered, state, combine=total)
                node.apply(weights, gathered, state)
                gathered = []
            send(worker, node.weights, size=1 / self.shards)


@dataclass(frozen=True)
class Downpour(Compressing, Sharded):
    """Downpour SGD: a replica makes local steps, and pushes and fetches periodically.

        w' <- w' - lr g(w') at the replica;    w <- w - lr sum g(w') at the server

    An update of the server is the sum of a replica's gradients since its last push. Fetched weights
    replace w', and a fetch that is due with a push is part of it. With n_push = n_fetch = 1 it is
    `async_ps`. A worker that crashes loses the gradients not pushed, and delays a barrier. With
    `compress` the sum is coded. Mean staleness, in pushes:

        P - 1                               where n_push = n_fetch
        P (n_fetch / n_push + 1) / 2 - 1    where n_push divides n_fetch

    Attributes:
        n_push, n_fetch: mini-batches from one push to the next, and from one fetch to the next.
        local_rule: the replica's own steps, with the rule's schedule, clipping and weight decay:
            plain `sgd` at the rule's learning rate, the `same` optimiser as the server's with a
            state of its own, or `none`. They have no effect where every mini-batch fetches.
        warm_start: updates that worker 0 makes alone before the others begin.
        sync_every: mini-batches after which a worker waits until all have made as many, counted
            from the warm start.
        outstanding: pushes of a worker whose bytes may still have to leave it; before the next push
            it waits.

    Source: Dean et al. (2012), NIPS, algorithm 7.1.
    """

    SPACE: ClassVar = {
        "algorithm.n_push": {"choice": [1, 4]},
        "algorithm.n_fetch": {"choice": [1, 4]},
    }

    rule: Rule
    n_push: PositiveInt = 1
    n_fetch: PositiveInt = 1
    local_rule: Literal["sgd", "same", "none"] = "sgd"
    warm_start: NonNegativeInt = 0
    sync_every: PositiveInt | None = None
    outstanding: PositiveInt = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sync_every is not None and (
            self.sync_every % self.n_push or self.sync_every % self.n_fetch
        ):
            expected = f"a multiple of n_push = {self.n_push} and n_fetch = {self.n_fetch}"
            raise InvalidSettingError(type(self).__name__, "sync_every", expected, self.sync_every)

    def check(self, cluster: Cluster) -> None:
        super().check(cluster)
        compensation = self.rule.compensation
        if self.compress is None or self.n_push == 1 or compensation == Uncompensated():
            return
        expected = "none with compress and n_push > 1: a sum has no staleness of its own"
        raise InvalidSettingError("Rule", "compensation", expected, compensation)

    def worker(self, node: Node) -> Role:
        servers = Shards(node, self.shards, self.outstanding)
        encoder = self.encoder(node)
        accrued = list[GradientPromise]()
        local = self.local()
        state = local.init(node.weights, replicas=node.workers)
        servers.push(([], [], True), size=0)  # announces the worker
        for step in count(1):
            if (step - 1) % self.n_fetch == 0:
                weights = read = yield from servers.read()
            gradient = yield node.compute(weights, read)
            accrued.append(gradient)
            if self.n_fetch > 1 and self.local_rule != "none":  # else they have no effect
                weights, state = local.update(weights, [gradient], state)
            push = step % self.n_push == 0
            fetch = step % self.n_fetch == 0
            if push:
                yield node.work(encoder.seconds)
                content = accrued, encoder.encode_sum(accrued), fetch
                yield from servers.push_in_turn(content, size=encoder.size)
                accrued = []
            elif fetch:
                servers.push(([], [], True), size=0)

    def local(self) -> Rule:
        """The rule of a replica's own steps."""
        if self.local_rule == "same":
            optimizer = self.rule.optimizer
        else:
            optimizer = SGD()
        return replace(self.rule, optimizer=optimizer, compensation=Uncompensated())

    def server(self, node: Node) -> Role:
        state = self.rule.init(node.weights)
        taken = dict.fromkeys(range(node.workers), 0)  # mini-batches, by worker
        held = dict[int, None]()
        while True:
            worker, (gradients, terms, fetch) = yield node.receive()
            if gradients:
                taken[worker] += len(gradients) if node.version >= self.warm_start else 0
                yield node.work(node.apply_seconds)
                weights, state = self.rule.update(node.weights, terms, state, combine=total)
                node.apply(weights, gradients)
            if fetch:
                held[worker] = None
            for reader in self.admitted(held, taken, node.version):
                del held[reader]
                node.send(reader, node.weights, size=1 / self.shards)

    def admitted(self, held: Iterable[int], taken: Mapping[int, int], version: int) -> list[int]:
        """The workers in `held` that need not wait for the others any more."""
        if version < self.warm_start:
            return [worker for worker in held if worker == 0]
        if self.sync_every is None:
            return list(held)
        rounds = min(taken.values()) // self.sync_every
        return [worker for worker in held if taken[worker] // self.sync_every <= rounds]
