"""Malenia: synchronous updates that count all workers equally, and wait for no slow one long."""

from dataclasses import dataclass

from laggard.simulator.algorithms.base import Algorithm, Role
from laggard.simulator.algorithms.outgoing import Outgoing
from laggard.simulator.engine.node import Node
from laggard.simulator.errors import PositiveInt
from laggard.simulator.learning.gradients import Gradient, mean_gradient
from laggard.simulator.learning.rules import Rule
from laggard.simulator.network.topology import SERVER


@dataclass(frozen=True)
class Malenia(Algorithm):
    """Malenia SGD: an update by the mean over workers of the mean of each one's gradients.

    w <- w - lr (1/P) sum_i G_i / b_i, with the sum G_i of the b_i gradients of worker i at w. A
    worker continues at its weights until newer ones arrive; the update is made once each has a
    gradient and the harmonic mean of the b_i is at least S / P. Computations are then cancelled,
    and late gradients are dropped. Staleness 0. So where workers' losses differ, it tends to the
    minimum of their mean, as `sync_ps`, and fast workers lower the variance while slow ones
    compute. With S = P and equal times it is `sync_ps`.

    Attributes:
        gradients: S, gradients that an update is worth: P / sum_i (1 / b_i) >= S / P; P by default.
        outstanding: gradients of a worker whose bytes may still have to leave it; before it sends
            the next it waits.

    Source: Tyurin & Richtarik (2023), arXiv 2305.12387, Malenia SGD.
    """

    rule: Rule
    gradients: PositiveInt | None = None
    outstanding: PositiveInt = 1

    def worker(self, node: Node) -> Role:
        sent = Outgoing(self.outstanding)
        node.send(SERVER, None, size=0)  # announces the worker
        _, weights = yield node.receive()
        while True:
            work, newer = node.compute(weights), node.receive()
            yield work | newer
            newer = yield from sent.wait_or_receive(node, newer)
            if newer.fired:
                work.cancel()
                _, weights = newer.value
            else:
                sent.add([node.send(SERVER, work.gradient)])

    def server(self, node: Node) -> Role:
        state = self.rule.init(node.weights)
        workers: dict[int, None] = {}
        rows: dict[int, list[Gradient]] = {}
        while True:
            worker, gradient = yield node.receive()
            workers[worker] = None
            if gradient is None:
                node.send(worker, node.weights)
            elif gradient.staleness > 0:  # newer weights are on their way to the worker
                gradient.drop()
            else:
                rows.setdefault(worker, []).append(gradient)
            if self.is_complete(rows, node.workers):
                yield node.work(node.apply_seconds)
                means = [mean_gradient(rows[rank]) for rank in sorted(rows)]
                weights, state = self.rule.update(node.weights, means, state)
                node.apply(weights, [gradient for row in rows.values() for gradient in row])
                for reader in workers:
                    node.send(reader, node.weights)
                rows = {}

    def is_complete(self, rows: dict[int, list[Gradient]], workers: int) -> bool:
        """Whether the gradients of all workers are worth an update."""
        if len(rows) < workers:
            return False
        needed = self.gradients or workers
        inverse = sum(1 / len(row) for row in rows.values())
        # rounding: of ten rows of three, ten thirds
        return workers**2 / inverse >= needed * (1 - 1e-12)
