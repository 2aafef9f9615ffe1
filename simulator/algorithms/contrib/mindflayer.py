"""MindFlayer: mini-batches that take too long are given up, and begun anew."""

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from laggard.simulator.algorithms.base import Algorithm, Role
from laggard.simulator.engine.cluster import Cluster
from laggard.simulator.engine.node import Node
from laggard.simulator.errors import InvalidSettingError, Positive, PositiveInt, Range
from laggard.simulator.learning.gradients import GradientPromise
from laggard.simulator.learning.rules import Rule
from laggard.simulator.learning.weights import total
from laggard.simulator.network.topology import SERVER
from laggard.simulator.timing.distributions.distribution import of_worker, on_a_machine

DURATIONS_DRAWN = 100_000
FURTHEST = 0.01
"""Durations that are drawn to check the success rate, and how far it may be off."""


@dataclass(frozen=True)
class MindFlayer(Algorithm):
    """MindFlayer SGD: every worker makes B mini-batches an update, each given up after a time t.

        w <- w - lr (1 / (P B F(t))) sum_k g_k(w)

    over the gradients that were ready in time, where F(t) is the probability that a mini-batch is.
    So the step is unbiased, and the divisor is not the number of gradients that came. An update
    without any changes nothing. Staleness 0.

    A mini-batch that needs X seconds takes min(X, t), so that a gradient takes
    E min(X, t) / F(t) seconds: for Pareto times (1.5, least 0.5 s) 1.143 s at t = 2 s, and 1.5 s
    without a limit. Without a limit and with B = 1 it is `sync_ps`.

    Source: Maranjyan, Shaikh Omar, Richtarik (2025), arXiv 2410.04285.

    Attributes:
        trials: B, mini-batches that a worker begins in an update.
        patience: t, seconds after which a mini-batch is given up; null waits for each.
        success_rate: F(t), the share of mini-batches that take at most t seconds.
    """

    rule: Rule
    trials: PositiveInt = 1
    patience: Positive | None = None
    success_rate: Annotated[float, Range(above=0, most=1)] = 1.0

    def check(self, cluster: Cluster) -> None:
        """Refuse a success rate that is not that of the cluster's mini-batches."""
        random, law = np.random.default_rng(0), cluster.compute
        same_for_all = of_worker(on_a_machine(law, random), 0) == law
        if cluster.slowdowns or not same_for_all:  # the share depends on the worker, or on time
            return
        expected = 1.0
        if self.patience is not None:
            expected = float(np.mean(law.draw(random, DURATIONS_DRAWN) <= self.patience))
        if abs(self.success_rate - expected) > FURTHEST:
            limit = f"{self.patience:g} s" if self.patience is not None else "any time"
            raise InvalidSettingError(
                "MindFlayer",
                "success_rate",
                f"{expected:.3g}, the share of this cluster's mini-batches that take at most {limit}",
                self.success_rate,
            )

    def worker(self, node: Node) -> Role:
        node.send(SERVER, None, size=0)  # announces the worker
        while True:
            _, weights = yield node.receive()
            gradients = list[GradientPromise]()
            for _ in range(self.trials):
                work = node.compute(weights)
                if self.patience is None:
                    yield work
                else:
                    yield work | node.after(self.patience)
                if work.fired:
                    gradients.append(work.value)
                else:
                    work.cancel()
            node.send(SERVER, gradients, size=min(len(gradients), 1))  # their sum

    def server(self, node: Node) -> Role:
        state = self.rule.init(node.weights)
        expected = self.success_rate * self.trials * node.workers
        gathered = dict[int, list[GradientPromise]]()
        while True:
            worker, gradients = yield node.receive()
            if gradients is None and worker not in gathered:
                node.send(worker, node.weights)
            elif gradients is not None:
                gathered[worker] = gradients
            if len(gathered) < node.workers:
                continue
            yield node.work(node.apply_seconds)
            ready = [gradient for rank in sorted(gathered) for gradient in gathered[rank]]
            weights = node.weights
            if ready:
                weights, state = self.rule.update(
                    weights, ready, state, combine=lambda values: total(values) / expected
                )
            node.apply(weights, ready)
            for reader in gathered:
                node.send(reader, node.weights)
            gathered = {}
