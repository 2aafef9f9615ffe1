"""K-batch-sync SGD (Rennala) and Malenia: a worker may contribute several mini-batches to an update
of the weights at which they were computed.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from laggard.simulator.algorithms.base import Role
from laggard.simulator.algorithms.compressing import CompressingServer, code_or_receive
from laggard.simulator.algorithms.outgoing import Outgoing
from laggard.simulator.engine.cluster import Cluster
from laggard.simulator.engine.node import Node
from laggard.simulator.errors import InvalidSettingError, PositiveInt
from laggard.simulator.learning.gradients import Gradient, GradientPromise, mean_gradient
from laggard.simulator.learning.rules import Rule
from laggard.simulator.network.topology import SERVER
from laggard.simulator.timing.distributions.distribution import mean_of

HARMONIC_ROUNDING = 1e-12


@dataclass(frozen=True)
class PresentWeights(CompressingServer):
    """A method whose workers compute at the server's present weights until newer ones arrive.

    Their computation is then cancelled, and late gradients are dropped. Staleness 0.

    Attributes:
        outstanding: gradients of a worker whose bytes may still have to leave it; before it sends
            the next it waits.
    """

    rule: Rule
    outstanding: PositiveInt = field(default=1, kw_only=True)

    def check(self, cluster: Cluster) -> None:
        """Refuse a server that takes in gradients more slowly than workers make them.

        Workers never wait: gradients would reach it later and later, and all would be dropped.
        """
        super().check(cluster)
        factors = [min(1.0, getattr(one, "factor", 1.0)) for one in cluster.slowdowns]
        seconds = cluster.compute.mean * math.prod(factors) / cluster.workers
        if cluster.receive_seconds != 0 and mean_of(cluster.receive_seconds) >= seconds:
            expected = (
                f"a mean below {seconds:g} s, in which the workers of {type(self).__name__} "
                "make a gradient"
            )
            raise InvalidSettingError(
                "Cluster", "receive_seconds", expected, cluster.receive_seconds
            )

    def worker(self, node: Node) -> Role:
        sent = Outgoing(self.outstanding)
        encoder = self.encoder(node)
        node.send(SERVER, None, size=0)  # announces the worker
        _, weights = yield node.receive()
        while True:
            work = node.compute(weights)
            newer = node.receive()
            yield work | newer
            if encoder.seconds and not newer.fired:
                newer = yield from code_or_receive(node, encoder)
            newer = yield from sent.wait_or_receive(node, newer)
            if newer.fired:
                work.cancel()
                _, weights = newer.value
            else:
                gradient = encoder.encode_gradient(work.value)
                sent.add([node.send(SERVER, gradient, size=encoder.size)])

    def server(self, node: Node) -> Role:
        state = self.rule.init(node.weights)
        workers: dict[int, None] = {}
        gathered: list[Gradient] = []
        # by worker; kept, since a slow one may be waited for while others send thousands
        counts: dict[int, int] = {}
        answers = self.answers(node)
        send = answers.send
        while True:
            worker, gradient = yield node.receive()
            workers[worker] = None
            if gradient is None:
                answers.forget(worker)
                send(worker, node.weights)
            elif gradient.staleness > 0:  # newer weights are on their way to the worker
                gradient.drop()
            else:
                gathered.append(gradient)
                counts[worker] = counts.get(worker, 0) + 1
            if self.is_enough(counts, node.workers):
                yield node.work(node.apply_seconds)
                contributions = self.contributions(gathered)
                weights, state = self.rule.update(node.weights, contributions, state)
                node.apply(weights, gathered)
                for reader in workers:
                    send(reader, node.weights)
                gathered, counts = [], {}

    def is_enough(self, counts: Mapping[int, int], workers: int) -> bool:
        """Whether the gathered gradients, counted by worker, make an update."""
        raise NotImplementedError

    def contributions(self, gathered: Sequence[Gradient]) -> Sequence[GradientPromise]:
        """The gradients whose mean makes the update."""
        return gathered


@dataclass(frozen=True)
class KBatchSync(PresentWeights):
    """K-batch-sync SGD (Rennala): the first K mini-batches at the present weights make an update;
    the other mini-batches are cancelled.

        w <- w - lr (1/K) sum_k g_k(w)

    A worker continues at its weights until newer ones arrive, so that a fast one may contribute
    several mini-batches; its computation is then cancelled, and late gradients are dropped.
    Staleness 0. It sends a gradient once the bytes of the previous gradient have left, so that a
    server's card with beta seconds a byte takes in min(P / t_c, 1 / (N beta)) gradients of N bytes
    a second, from workers that need t_c seconds each. Exponential times with mean 1 / mu on a free
    network: K / (P mu) seconds an update.

    Attributes:
        gradients: K, gradients per update.

    Source: Dutta et al. (2018), arXiv 1803.01113; Tyurin & Richtarik (2023), arXiv 2305.12387
    (Rennala SGD).
    """

    SPACE: ClassVar = {"algorithm.gradients": {"choice": [4, 8, 16]}}

    gradients: PositiveInt = 1

    def is_enough(self, counts: Mapping[int, int], workers: int) -> bool:
        return sum(counts.values()) >= self.gradients


@dataclass(frozen=True)
class Malenia(PresentWeights):
    """Malenia SGD: an update is the mean over workers of each worker's mean gradient.

        w <- w - lr (1/P) sum_i G_i / b_i

    where G_i is the sum of the b_i gradients of worker i at w. The server makes the update once
    each worker has a gradient and the harmonic mean of the b_i is at least S / P. All else is as in
    `k_batch_sync`. So where workers' losses differ, w tends to the minimum of their mean, as with
    `sync_ps`, and fast workers lower the variance while slow ones compute. With S = P and equal
    times it is `sync_ps`.

    Attributes:
        gradients: S, gradients that an update is worth: P / sum_i (1 / b_i) >= S / P; P by default.

    Source: Tyurin & Richtarik (2023), arXiv 2305.12387, Malenia SGD.
    """

    SPACE: ClassVar = {}

    gradients: PositiveInt | None = None

    def needed(self, workers: int) -> int:
        return workers

    def is_enough(self, counts: Mapping[int, int], workers: int) -> bool:
        if len(counts) < workers:
            return False
        harmonic_mean = workers / sum(1 / count for count in counts.values())
        needed = (self.gradients or workers) / workers
        return harmonic_mean >= needed * (1 - HARMONIC_ROUNDING)

    def contributions(self, gathered: Sequence[Gradient]) -> Sequence[GradientPromise]:
        rows: dict[int, list[Gradient]] = {}
        for gradient in gathered:
            rows.setdefault(gradient.worker, []).append(gradient)
        return [mean_gradient(rows[rank]) for rank in sorted(rows)]
