"""Asynchronous parameter servers that bound the staleness: stale synchronous parallel, and
Ringmaster.
"""

from dataclasses import dataclass

from laggard.simulator.algorithms.base import Algorithm, ReadComputePush, Role
from laggard.simulator.engine.node import Node
from laggard.simulator.errors import NonNegativeInt, PositiveInt
from laggard.simulator.learning.rules import Rule
from laggard.simulator.network.topology import SERVER


@dataclass(frozen=True)
class SSP(ReadComputePush):
    """Stale synchronous parallel SGD: asynchronous, but no worker is more than `bound` iterations
    ahead of the slowest.

    w <- w - lr g(w_read), each gradient on arrival. A worker that has made c iterations reads the
    weights for its next one as soon as c <= min over workers + s; it waits until then, and gets the
    newest weights. Without a bound it is `async_ps`. With s = 0 it is lock-step in iterations: P
    updates a round, staleness 0 to P - 1, which is not `sync_ps`. A crash does not change a
    worker's clock, so that the others wait at the bound until it returns.

    Attributes:
        bound: s, in iterations; none if null.

    Source: Ho et al. (2013), NIPS, with the clocks at the server and a read at every iteration.
    """

    bound: NonNegativeInt | None = 3

    def server(self, node: Node) -> Role:
        state = self.rule.init(node.weights)
        clocks = dict.fromkeys(range(node.workers), 0)
        held: dict[int, None] = {}
        while True:
            worker, gradient = yield node.receive()
            if gradient is not None:
                yield node.work(node.apply_seconds)
                weights, state = self.rule.update(node.weights, [gradient], state)
                node.apply(weights, [gradient])
                clocks[worker] += 1
            held[worker] = None
            slowest = min(clocks.values())
            for reader in list(held):
                if self.bound is None or clocks[reader] <= slowest + self.bound:
                    del held[reader]
                    node.send(reader, node.weights)


@dataclass(frozen=True)
class Ringmaster(Algorithm):
    """Ringmaster ASGD: asynchronous SGD that discards every gradient of staleness R or more.

    w <- w - lr g(w_read) if tau < R, else w stays; either way the worker re-reads. With R above
    every staleness it is `async_ps`; with R = 1 only fresh gradients count.

    Attributes:
        threshold: R, in updates.
        cancel: True stops a computation as soon as its gradient would be discarded: the server
            sends the worker the newest weights R updates after its read, and it starts again.

    Source: Maranjyan, Tyurin, Richtarik (2025), arXiv 2501.16168, Ringmaster ASGD without and with
    calculation stops.
    """

    rule: Rule
    threshold: PositiveInt = 8
    cancel: bool = False

    def worker(self, node: Node) -> Role:
        node.send(SERVER, None, size=0)  # announces the worker
        _, weights = yield node.receive()
        while True:
            work, newer = node.compute(weights), node.receive()
            yield work | newer
            if newer.fired:  # its gradient is too stale now
                work.cancel()
            else:
                node.send(SERVER, work.gradient)
                yield (newer := node.receive())
            _, weights = newer.value

    def server(self, node: Node) -> Role:
        state = self.rule.init(node.weights)
        read: dict[int, int] = {}  # the version that a worker was sent last
        while True:
            worker, gradient = yield node.receive()
            readers = [worker]
            if gradient is not None and gradient.staleness >= self.threshold:
                gradient.drop()
                readers = [] if self.cancel else [worker]  # it was sent newer weights already
            elif gradient is not None:
                yield node.work(node.apply_seconds)
                weights, state = self.rule.update(node.weights, [gradient], state)
                node.apply(weights, [gradient])
                if self.cancel:
                    late = (
                        other
                        for other, version in read.items()
                        if node.version - version >= self.threshold
                    )
                    readers += [other for other in late if other != worker]
            for reader in readers:
                read[reader] = node.version
                node.send(reader, node.weights)
