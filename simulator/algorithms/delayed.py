"""One process whose gradients wait in a queue: staleness without a cluster."""

from collections import deque
from dataclasses import dataclass

from simulator.algorithm import Algorithm, Role
from simulator.bounds import Invalid, bounded
from simulator.cluster import Cluster
from simulator.gradients import Gradient
from simulator.node import Node
from simulator.rules import Rule


@dataclass(frozen=True)
class Delayed(Algorithm):
    """SGD with a constant delay: the gradient at w_t is applied `delay` updates later.

    w_{t+1} = w_t - lr g(w_{t-delay}). The first `delay` steps fill the queue and make no update; what is
    queued at the end stays in flight. With delay 0 it is plain SGD; delay D stands for D + 1 equal
    asynchronous workers.

    Attributes:
        delay: D, in updates.

    Source: Srinivasan, Jain, Barekatain (2018), ICLR workshop.
    """

    rule: Rule
    delay: int = 0

    def __post_init__(self) -> None:
        bounded(self, "delay", least=0, whole=True)

    def check(self, cluster: Cluster) -> None:
        workers = cluster.workers
        if workers != 1:
            expected = f"1, since one process makes its own delay; delay = {workers - 1} stands for {workers} workers"
            raise Invalid("Cluster", "workers", expected, workers)

    def worker(self, node: Node) -> Role:
        state = self.rule.init(node.weights)
        queue: deque[Gradient] = deque()
        while True:
            queue.append((yield node.compute(node.weights)))
            if len(queue) > self.delay:
                gradient = queue.popleft()
                weights, state = self.rule.update(node.weights, [gradient], state)
                node.apply(weights, [gradient])
