"""MindFlayer: mini-batches that take too long are given up, and new ones are begun."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, TypeVar

import numpy as np

from laggard.simulator.algorithms.base import Role
from laggard.simulator.algorithms.compressing import Compressing
from laggard.simulator.engine.cluster import Cluster
from laggard.simulator.engine.node import Node
from laggard.simulator.errors import InvalidSettingError, Positive, PositiveInt, Range
from laggard.simulator.learning.gradients import GradientPromise
from laggard.simulator.learning.rules import Rule
from laggard.simulator.learning.weights import total
from laggard.simulator.network.topology import SERVER
from laggard.simulator.timing.distributions.distribution import is_same_for_all

DURATIONS_DRAWN = 100_000
FURTHEST = 0.01
"""Durations that are drawn to check a success rate, and how far it may be off."""
SuccessRate = Annotated[float, Range(above=0, most=1)]
OwnSetting = TypeVar("OwnSetting")


def own_setting(worker: int, setting: OwnSetting | Sequence[OwnSetting]) -> OwnSetting:
    """A worker's own setting, where it may be one for all."""
    if isinstance(setting, Sequence):
        return setting[worker]
    return setting


@dataclass(frozen=True)
class MindFlayer(Compressing):
    """MindFlayer SGD: worker i makes B_i mini-batches an update, each given up after a time t_i.

        w <- w - lr (1 / B) sum_k g_k(w),    B = sum_i B_i F_i(t_i)

    over the gradients that were ready in time, where F_i(t) is the probability that a mini-batch of
    worker i takes at most t. The divisor is the expected number of these gradients, not their
    number, so that the step is unbiased where workers' data are alike. An update without a gradient
    changes nothing. Staleness 0.

    A mini-batch that needs X seconds takes min(X, t), so that a gradient takes
    E min(X, t) / F(t) seconds: for Pareto times (1.5, least 0.5 s) 1.143 s at t = 2 s, and 1.5 s
    without a limit. Without a limit and with B_i = 1 it is `sync_ps`.

    Source: Maranjyan, Shaikh Omar, Richtarik (2025), arXiv 2410.04285.

    Attributes:
        trials: B_i, mini-batches that a worker begins in an update; a list has one for each worker.
        patience: t_i (s), after which a mini-batch is given up, or a list of them; null waits for
            each.
        success_rate: F_i(t_i), the share of mini-batches that take at most that time, or a list.
    """

    rule: Rule
    trials: PositiveInt | Sequence[PositiveInt] = 1
    patience: Positive | Sequence[Positive] | None = None
    success_rate: SuccessRate | Sequence[SuccessRate] = 1.0

    def check(self, cluster: Cluster) -> None:
        """Refuse lists without one number per worker, and success rates unlike the cluster's."""
        super().check(cluster)
        workers = cluster.workers
        for key in ("trials", "patience", "success_rate"):
            setting = getattr(self, key)
            if isinstance(setting, Sequence) and len(setting) != workers:
                expected = f"one number, or {workers}, one for each worker"
                raise InvalidSettingError("MindFlayer", key, expected, list(setting))
        law = cluster.compute
        if cluster.slowdowns or not is_same_for_all(law):
            return  # the share depends on the worker, or on time
        durations = law.draw(np.random.default_rng(0), DURATIONS_DRAWN)
        pairs = [
            (own_setting(worker, self.patience), own_setting(worker, self.success_rate))
            for worker in range(workers)
        ]
        for limit, rate in dict.fromkeys(pairs):
            expected_rate, words = 1.0, "any time"
            if limit is not None:
                expected_rate = float(np.mean(durations <= limit))
                words = f"{limit:g} s"
            if expected_rate == 0:
                expected = f"at least the shortest time of a mini-batch, {durations.min():.3g} s"
                raise InvalidSettingError("MindFlayer", "patience", expected, limit)
            if abs(rate - expected_rate) > FURTHEST:
                share = "the share of this cluster's mini-batches that take at most"
                expected = f"{expected_rate:.3g}, {share} {words}"
                raise InvalidSettingError("MindFlayer", "success_rate", expected, rate)

    def worker(self, node: Node) -> Role:
        trials = own_setting(node.rank, self.trials)
        patience = own_setting(node.rank, self.patience)
        encoder = self.encoder(node)
        node.send(SERVER, None, size=0)  # announces the worker
        while True:
            _, weights = yield node.receive()
            gradients = list[GradientPromise]()
            for _ in range(trials):
                work = node.compute(weights)
                if patience is None:
                    yield work
                else:
                    yield work | node.after(patience)
                if work.fired:
                    gradients.append(work.value)
                else:
                    work.cancel()
            if not gradients:
                node.send(SERVER, ([], []), size=0)
                continue
            if encoder.seconds:
                yield node.work(encoder.seconds)
            node.send(SERVER, (gradients, encoder.encode_sum(gradients)), size=encoder.size)

    def server(self, node: Node) -> Role:
        state = self.rule.init(node.weights)
        expected = math.fsum(
            own_setting(worker, self.trials) * own_setting(worker, self.success_rate)
            for worker in range(node.workers)
        )
        gathered = dict[int, tuple[list[GradientPromise], Sequence[GradientPromise]]]()
        while True:
            worker, content = yield node.receive()
            if content is not None:
                gathered[worker] = content
            elif worker not in gathered:
                node.send(worker, node.weights)  # else the next update answers its announcement
            if len(gathered) < node.workers:
                continue
            yield node.work(node.apply_seconds)
            ready = list[GradientPromise]()
            terms = list[GradientPromise]()
            # by rank: the bits of the sum must not depend on the order of arrival
            for rank in sorted(gathered):
                gradients, summands = gathered[rank]
                ready.extend(gradients)
                terms.extend(summands)
            weights = node.weights
            if ready:
                weights, state = self.rule.update(
                    weights, terms, state, combine=lambda values: total(values) / expected
                )
            node.apply(weights, ready)
            for reader in gathered:
                node.send(reader, node.weights)
            gathered = {}
