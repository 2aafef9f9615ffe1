"""Synchronous parameter server, with backup workers."""

from dataclasses import dataclass

from simulator.algorithm import Algorithm, Role
from simulator.bounds import Invalid, bounded
from simulator.node import Node
from simulator.rules import Rule
from simulator.topology import SERVER


@dataclass(frozen=True)
class SyncPS(Algorithm):
    """Synchronous SGD: an update is the mean of gradients at the same weights, then every contributor re-reads.

    w <- w - lr (1/N) sum of the first N gradients at the present version. Waiting for all P workers
    (`wait_for` unset) it is one worker with the P mini-batches together; with `wait_for` N < P the slowest
    P - N are backup workers, and their late gradients are dropped.

    Attributes:
        wait_for: N, gradients per update; all workers by default.
        cancel: True interrupts the workers that are late with the new weights; False lets them finish first.

    Source: Chen et al. (2016), arXiv 1604.00981, algorithms 3 and 4; Dutta et al. (2018), arXiv 1803.01113 (K-sync).
    """

    rule: Rule
    wait_for: int | None = None
    cancel: bool = False

    def __post_init__(self) -> None:
        if self.wait_for is not None:
            bounded(self, "wait_for", least=1)

    def check(self, workers: int) -> None:
        if self.wait_for is not None and self.wait_for > workers:
            expected = f"at most workers = {workers}, or the server would wait for ever"
            raise Invalid(type(self).__name__, "wait_for", expected, self.wait_for)

    def worker(self, node: Node) -> Role:
        node.send(SERVER, None, size=0)  # here I am
        _, weights = yield node.receive()
        while True:
            work, newer = node.compute(weights), node.receive()
            yield work | newer
            if newer.fired:  # the others were quicker: their update is the news
                work.cancel()
            else:
                node.send(SERVER, work.gradient)
                yield (newer := node.receive())
            _, weights = newer.value

    def server(self, node: Node) -> Role:
        state = self.rule.init(node.weights)
        workers: dict[int, None] = {}
        gathered = []
        while True:
            worker, gradient = yield node.receive()
            workers[worker] = None
            if gradient is None:
                node.send(worker, node.weights)
            elif gradient.staleness > 0:
                gradient.drop()
                if not self.cancel:  # else the update's news is on its way to the worker
                    node.send(worker, node.weights)
            else:
                gathered.append(gradient)
            if len(gathered) == (self.wait_for or node.workers):
                yield node.work(node.apply_seconds)
                weights, state = self.rule.update(node.weights, gathered, state)
                node.apply(weights, gathered)
                for reader in workers if self.cancel else [gradient.worker for gradient in gathered]:
                    node.send(reader, node.weights)
                gathered = []
