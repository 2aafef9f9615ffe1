"""TensorFlow's synchronous replicas: a queue of tokens decides which worker continues, and for
which step.
"""

from collections import deque
from dataclasses import dataclass
from typing import Annotated

from laggard.simulator.algorithms.base import Role
from laggard.simulator.algorithms.compressing import Compressing
from laggard.simulator.engine.cluster import Cluster
from laggard.simulator.engine.node import Node
from laggard.simulator.errors import MOST_COUNT, InvalidSettingError, PositiveInt, Range
from laggard.simulator.learning.gradients import GradientPromise
from laggard.simulator.learning.rules import Rule
from laggard.simulator.network.topology import SERVER


@dataclass(frozen=True)
class SyncReplicas(Compressing):
    """SyncReplicasOptimizer: the first R gradients of workers that hold a token of the present step
    make an update.

        w <- w - lr (1/R) sum_k g_k(w)

    Then max(R, P) tokens with the new step join a queue, from which a worker takes one after each
    push. A gradient whose worker's token is older than the present step is dropped, whatever its
    weights. So an update costs max(R, P) pushes, of which P - R are dropped where R < P; a worker
    may contribute twice. With R > P workers make several mini-batches each. With R = P and
    num_tokens 0 it is `sync_ps`.

    Attributes:
        replicas_to_aggregate: R, gradients per update; one for each worker by default.
        num_tokens: tokens in the queue at the start; -1, the default, puts R there: an early worker
            may then contribute twice, and equal workers waste a gradient each; 0 is lock-step.

    A worker that starts, or returns from a crash, gets the present step without a token of the
    queue.

    Source: tensorflow/python/training/sync_replicas_optimizer.py; Chen et al. (2016), arXiv
    1604.00981.
    """

    rule: Rule
    replicas_to_aggregate: PositiveInt | None = None
    num_tokens: Annotated[int, Range(least=-1, most=MOST_COUNT, whole=True)] = -1

    def check(self, cluster: Cluster) -> None:
        super().check(cluster)
        needed = (self.replicas_to_aggregate or cluster.workers) - cluster.workers
        if -1 < self.num_tokens < needed:
            expected = (
                f"-1, or at least replicas_to_aggregate - workers = {needed}, or the first "
                "step would wait for ever"
            )
            raise InvalidSettingError(type(self).__name__, "num_tokens", expected, self.num_tokens)

    def worker(self, node: Node) -> Role:
        encoder = self.encoder(node)
        node.send(SERVER, None, size=0)  # announces the worker
        while True:
            _, (token, weights) = yield node.receive()
            gradient = yield node.compute(weights)
            if encoder.seconds:
                yield node.work(encoder.seconds)
            coded = encoder.encode_gradient(gradient)
            node.send(SERVER, (token, coded), size=encoder.size)

    def server(self, node: Node) -> Role:
        replicas = self.replicas_to_aggregate or node.workers
        state = self.rule.init(node.weights)
        initial_tokens = replicas if self.num_tokens == -1 else self.num_tokens
        tokens = deque([node.version] * initial_tokens)
        waiting: dict[int, None] = {}
        gathered: list[GradientPromise] = []
        while True:
            worker, pushed = yield node.receive()
            if pushed is None:
                # the worker has crashed: the token that it waited for stays in the queue
                waiting.pop(worker, None)
                node.send(worker, (node.version, node.weights))
            else:
                waiting[worker] = None
                token, gradient = pushed
                if token < node.version:
                    gradient.drop()
                else:
                    gathered.append(gradient)
            if len(gathered) == replicas:
                yield node.work(node.apply_seconds)
                gathered.sort(key=lambda gradient: gradient.worker)
                weights, state = self.rule.update(node.weights, gathered, state)
                node.apply(weights, gathered)
                tokens.extend([node.version] * max(replicas, node.workers))
                gathered = []
            while tokens and waiting:
                worker = next(iter(waiting))
                del waiting[worker]
                node.send(worker, (tokens.popleft(), node.weights))
