"""Stale synchronous parallel: asynchronous, but nobody runs away from the slowest."""

from dataclasses import dataclass

from simulator.algorithm import Algorithm, Role
from simulator.bounds import bounded
from simulator.node import Node
from simulator.rules import Rule
from simulator.topology import SERVER


@dataclass(frozen=True)
class SSP(Algorithm):
    """Stale synchronous parallel SGD: asynchronous, but no worker is more than `bound` iterations ahead of the slowest.

    w <- w - lr g(w_read), each gradient on arrival. A worker that has made c iterations reads the weights for its next
    one as soon as c <= min over workers + s; it is held until then, and then sent what is newest. Without a bound it
    is `async_ps`. With s = 0 it is lock-step in iterations: P updates a round, staleness 0 to P - 1, which is not
    `sync_ps`. A worker that crashes keeps its clock, so that the others are held at the bound until it is back.

    Attributes:
        bound: s, in iterations; none if null.

    Source: Ho et al. (2013), NIPS, with the clocks at the server and a read at every iteration.
    """

    rule: Rule
    bound: int | None = 3

    def __post_init__(self) -> None:
        if self.bound is not None:
            bounded(self, "bound", least=0, whole=True)

    def worker(self, node: Node) -> Role:
        node.send(SERVER, None, size=0)  # here I am
        while True:
            _, weights = yield node.receive()
            gradient = yield node.compute(weights)
            node.send(SERVER, gradient)

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
