"""The parameter server that takes gradients of its present weights alone: synchronous, K-sync, K-batch-sync."""

from dataclasses import dataclass

from simulator.algorithm import Algorithm, Role
from simulator.bounds import Invalid, bounded
from simulator.cluster import Cluster
from simulator.gradients import Gradient
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
            bounded(self, "wait_for", least=1, whole=True)

    def check(self, cluster: Cluster) -> None:
        workers = cluster.workers
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
        return gather(node, self.rule, self.wait_for or node.workers, tell_all=self.cancel)


@dataclass(frozen=True)
class KBatchSync(Algorithm):
    """K-batch-sync SGD (Rennala): the first K mini-batches at the present weights make an update; others are cancelled.

    w <- w - lr (1/K) sum_k g(w). A worker goes on at the weights that it has until newer ones come, so that a quick
    one contributes several mini-batches; what then runs is cancelled, and what arrives late is dropped. Staleness 0.
    Exponential times with mean 1 / mu on a free network: K / (P mu) seconds an update.

    Attributes:
        gradients: K, gradients per update.

    Source: Dutta et al. (2018), arXiv 1803.01113; Tyurin & Richtarik (2023), arXiv 2305.12387 (Rennala SGD).
    """

    rule: Rule
    gradients: int = 1

    def __post_init__(self) -> None:
        bounded(self, "gradients", least=1, whole=True)

    def worker(self, node: Node) -> Role:
        node.send(SERVER, None, size=0)  # here I am
        _, weights = yield node.receive()
        while True:
            work, newer = node.compute(weights), node.receive()
            yield work | newer
            if newer.fired:
                work.cancel()
                _, weights = newer.value
            else:
                node.send(SERVER, work.gradient)

    def server(self, node: Node) -> Role:
        return gather(node, self.rule, self.gradients, tell_all=True)


def gather(node: Node, rule: Rule, count: int, tell_all: bool) -> Role:
    """The family's server: an update of the first `count` gradients at its present weights; later ones are dropped.

    With `tell_all` every worker is sent the new weights at once; without, the contributors are, and one that was
    late when its gradient arrives.
    """
    state = rule.init(node.weights)
    workers: dict[int, None] = {}
    gathered: list[Gradient] = []
    while True:
        worker, gradient = yield node.receive()
        workers[worker] = None
        if gradient is not None and gradient.staleness == 0:
            gathered.append(gradient)
        else:
            if gradient is not None:
                gradient.drop()
            if gradient is None or not tell_all:  # else the update's news is on its way to the worker
                node.send(worker, node.weights)
        if len(gathered) == count:
            yield node.work(node.apply_seconds)
            weights, state = rule.update(node.weights, gathered, state)
            node.apply(weights, gathered)
            for reader in workers if tell_all else [gradient.worker for gradient in gathered]:
                node.send(reader, node.weights)
            gathered = []
