"""Stale synchronous parallel: an asynchronous server that bounds how far workers run ahead."""

from dataclasses import dataclass
from typing import ClassVar

from laggard.simulator.algorithms.base import Role
from laggard.simulator.algorithms.compressing import ReadComputePush
from laggard.simulator.engine.node import Node
from laggard.simulator.errors import NonNegativeInt


@dataclass(frozen=True)
class SSP(ReadComputePush):
    """Stale synchronous parallel SGD: asynchronous, but no worker is more than `bound` iterations
    ahead of the slowest.

        w <- w - lr g(w_read)

    with each gradient on arrival. A worker that has made c iterations waits until c is at most
    `bound` s above the count of the slowest worker; then it reads the newest weights. Without a
    bound it is `async_ps`. With s = 0 it is lock-step in iterations: P updates a round, staleness 0
    to P - 1, which is not `sync_ps`. A crash does not change a worker's count, so that the others
    wait at the bound until it returns.

    Attributes:
        bound: s, in iterations; null sets no bound.

    Source: Ho et al. (2013), NIPS, with the clocks at the server and a read at every iteration.
    """

    SPACE: ClassVar = {"algorithm.bound": {"choice": [1, 4, 16]}}

    bound: NonNegativeInt | None = 3

    def server(self, node: Node) -> Role:
        state = self.rule.init(node.weights)
        clocks = dict.fromkeys(range(node.workers), 0)
        held: dict[int, None] = {}
        answers = self.answers(node)
        send = answers.send
        while True:
            worker, gradient = yield node.receive()
            if gradient is not None:
                yield node.work(node.apply_seconds)
                weights, state = self.rule.update(node.weights, [gradient], state)
                node.apply(weights, [gradient])
                clocks[worker] += 1
            else:
                answers.forget(worker)
            held[worker] = None
            slowest = min(clocks.values())
            for reader in list(held):
                if self.bound is None or clocks[reader] <= slowest + self.bound:
                    del held[reader]
                    send(reader, node.weights)
