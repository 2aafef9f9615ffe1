"""Asynchronous parameter servers that average some of the gradients: K-async and n-softsync."""

from dataclasses import dataclass
from typing import ClassVar

from laggard.simulator.algorithms.base import Role, count_awaited
from laggard.simulator.algorithms.compressing import ReadComputePush
from laggard.simulator.engine.cluster import Cluster
from laggard.simulator.engine.node import Node
from laggard.simulator.errors import PositiveInt


@dataclass(frozen=True)
class KAsync(ReadComputePush):
    """K-async SGD: the first K distinct workers' gradients make an update; contributors wait for
    it, others go on.

        w <- w - lr (1/K) sum_k g(w_read_k)

    over K different workers. With K = 1 it is `async_ps`, with K = P `sync_ps`. Mean staleness P /
    K - 1.

    Attributes:
        wait_for: K, workers per update.

    Source: Dutta et al. (2018), arXiv 1803.01113.
    """

    SPACE: ClassVar = {"algorithm.wait_for": {"choice": [2, 4]}}

    wait_for: PositiveInt = 1

    def check(self, cluster: Cluster) -> None:
        super().check(cluster)
        count_awaited(self, self.wait_for, cluster.workers)

    def server(self, node: Node) -> Role:
        state = self.rule.init(node.weights)
        gathered = []
        answers = self.answers(node)
        send = answers.send
        while True:
            worker, gradient = yield node.receive()
            if gradient is not None:
                gathered.append(gradient)  # its worker waits, so all workers are distinct
            else:
                answers.forget(worker)
                contributors = {one.worker for one in gathered}
                if worker not in contributors:  # else the worker crashed and waits
                    send(worker, node.weights)
            if len(gathered) == self.wait_for:
                yield node.work(node.apply_seconds)
                # sums do not depend on the order of arrival
                in_order = sorted(gathered, key=lambda gradient: gradient.worker)
                weights, state = self.rule.update(node.weights, in_order, state)
                node.apply(weights, in_order)
                for contribution in gathered:
                    send(contribution.worker, node.weights)
                gathered = []


@dataclass(frozen=True)
class SoftSync(ReadComputePush):
    """K-batch-async SGD: any K gradients make an update, however old; a contributor re-reads at
    once.

        w <- w - lr (1/K) sum_k g(w_read_k)

    over the next K gradients to arrive, possibly two of one worker; the K-th contributor re-reads
    after the update. With K = 1 it is `async_ps`; with K = P / n it is n-softsync, and without
    local steps FedBuff. Mean staleness (P - 1) / K. On a free network an update takes K E[X] / P
    seconds, for any distribution of the compute times X.

    Attributes:
        gradients: K, gradients per update.

    Source: Zhang et al. (2016), arXiv 1511.05950 (n-softsync); Dutta et al. (2018), arXiv
    1803.01113 (K-batch-async).
    """

    SPACE: ClassVar = {"algorithm.gradients": {"choice": [2, 4, 8]}}

    gradients: PositiveInt = 1

    def server(self, node: Node) -> Role:
        state = self.rule.init(node.weights)
        gathered = []
        answers = self.answers(node)
        send = answers.send
        while True:
            worker, gradient = yield node.receive()
            if gradient is not None:
                gathered.append(gradient)
            else:
                answers.forget(worker)
            if len(gathered) == self.gradients:
                yield node.work(node.apply_seconds)
                weights, state = self.rule.update(node.weights, gathered, state)
                node.apply(weights, gathered)
                gathered = []
            send(worker, node.weights)
