"""The parameter server that makes an update of some gradients of any age: K-async and soft synchronisation."""

from dataclasses import dataclass

from simulator.algorithm import Algorithm, Role
from simulator.bounds import Invalid, bounded
from simulator.cluster import Cluster
from simulator.node import Node
from simulator.rules import Rule
from simulator.topology import SERVER


@dataclass(frozen=True)
class ReadComputePush(Algorithm):
    """The family's worker: it reads, computes, pushes, and reads again when the server answers."""

    rule: Rule

    def worker(self, node: Node) -> Role:
        node.send(SERVER, None, size=0)  # here I am
        while True:
            _, weights = yield node.receive()
            gradient = yield node.compute(weights)
            node.send(SERVER, gradient)


@dataclass(frozen=True)
class KAsync(ReadComputePush):
    """K-async SGD: the first K distinct workers' gradients make an update; contributors wait for it, others go on.

    w <- w - lr (1/K) sum_k g(w_read_k) over K different workers. With K = 1 it is `async_ps`, with K = P `sync_ps`.
    Mean staleness P / K - 1.

    Attributes:
        wait_for: K, workers per update.

    Source: Dutta et al. (2018), arXiv 1803.01113.
    """

    wait_for: int = 1

    def __post_init__(self) -> None:
        bounded(self, "wait_for", least=1, whole=True)

    def check(self, cluster: Cluster) -> None:
        workers = cluster.workers
        if self.wait_for > workers:
            expected = f"at most workers = {workers}, or the server would wait for ever"
            raise Invalid(type(self).__name__, "wait_for", expected, self.wait_for)

    def server(self, node: Node) -> Role:
        state = self.rule.init(node.weights)
        gathered = []
        while True:
            worker, gradient = yield node.receive()
            if gradient is not None:
                gathered.append(gradient)  # its worker waits, so that no two are one worker's
            elif all(worker != contribution.worker for contribution in gathered):  # else it was down, and waits on
                node.send(worker, node.weights)
            if len(gathered) == self.wait_for:
                yield node.work(node.apply_seconds)
                in_order = sorted(gathered, key=lambda gradient: gradient.worker)  # sums do not depend on who was first
                weights, state = self.rule.update(node.weights, in_order, state)
                node.apply(weights, in_order)
                for contribution in gathered:
                    node.send(contribution.worker, node.weights)
                gathered = []


@dataclass(frozen=True)
class SoftSync(ReadComputePush):
    """K-batch-async SGD: any K gradients make an update, however old; a contributor re-reads at once.

    w <- w - lr (1/K) sum_k g(w_read_k) over the next K gradients to arrive, two of one worker if it is quick; the
    K-th contributor re-reads after the update. With K = 1 it is `async_ps`; with K = P / n it is n-softsync, and
    without local steps FedBuff. Mean staleness (P - 1) / K; K E[X] / P seconds an update, for any law.

    Attributes:
        gradients: K, gradients per update.

    Source: Zhang et al. (2016), arXiv 1511.05950 (n-softsync); Dutta et al. (2018), arXiv 1803.01113 (K-batch-async).
    """

    gradients: int = 1

    def __post_init__(self) -> None:
        bounded(self, "gradients", least=1, whole=True)

    def server(self, node: Node) -> Role:
        state = self.rule.init(node.weights)
        gathered = []
        while True:
            worker, gradient = yield node.receive()
            if gradient is not None:
                gathered.append(gradient)
            if len(gathered) == self.gradients:
                yield node.work(node.apply_seconds)
                weights, state = self.rule.update(node.weights, gathered, state)
                node.apply(weights, gathered)
                gathered = []
            node.send(worker, node.weights)
