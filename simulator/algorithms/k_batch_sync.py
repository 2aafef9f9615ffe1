"""The parameter server that takes a number of mini-batches at its present weights, whoever brings them."""

from dataclasses import dataclass

from simulator.algorithm import Algorithm, Role
from simulator.bounds import bounded
from simulator.gradients import Gradient
from simulator.node import Node
from simulator.rules import Rule
from simulator.topology import SERVER


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
        state = self.rule.init(node.weights)
        workers: dict[int, None] = {}
        gathered: list[Gradient] = []
        while True:
            worker, gradient = yield node.receive()
            workers[worker] = None
            if gradient is None:
                node.send(worker, node.weights)
            elif gradient.staleness > 0:  # newer weights are on their way to the worker
                gradient.drop()
            else:
                gathered.append(gradient)
            if len(gathered) == self.gradients:
                yield node.work(node.apply_seconds)
                weights, state = self.rule.update(node.weights, gathered, state)
                node.apply(weights, gathered)
                for reader in workers:
                    node.send(reader, node.weights)
                gathered = []
