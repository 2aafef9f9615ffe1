"""PipeDream-2BW: a pipeline without a bubble whose updates are late by one on every stage."""

from dataclasses import dataclass
from itertools import count
from typing import ClassVar

from laggard.simulator.algorithms.base import Role
from laggard.simulator.algorithms.staging import Pipeline
from laggard.simulator.engine.cluster import Cluster
from laggard.simulator.engine.node import Node
from laggard.simulator.errors import InvalidSettingError, PositiveInt


@dataclass(frozen=True)
class PipeDream2BW(Pipeline):
    """PipeDream-2BW: two versions of the weights, and M micro-batches per update, whose gradients
    are late by one update on every stage.

        w_{t+1} = w_t - lr (1/M) sum_m g_m(w_{t-1})

    This is `delayed` with delay 1, without a bubble. A micro-batch is a mini-batch of the task.

    Attributes:
        micro_batches: M, at least the number of stages minus one, or a stage would wait for itself;
            the paper asks for as many as stages.

    Source: Narayanan et al. (2021), arXiv 2006.09503, section 3.1.
    """

    SPACE: ClassVar = {"algorithm.micro_batches": {"choice": [4, 16, 64]}}

    micro_batches: PositiveInt = 4

    def check(self, cluster: Cluster) -> None:
        if self.micro_batches < cluster.workers - 1:
            expected = (
                f"at least workers - 1 = {cluster.workers - 1}, or the first stage would wait "
                "for itself"
            )
            raise InvalidSettingError(
                type(self).__name__, "micro_batches", expected, self.micro_batches
            )

    def worker(self, node: Node) -> Role:
        stage = self.stage(node)
        state = self.rule.init(node.weights)
        before, pieces = node.weights, []
        for micro_batch in count():
            # Once all earlier updates are made, this micro-batch reads the version before the last.
            fresh = node.version == micro_batch // self.micro_batches
            weights = before if fresh else node.weights
            yield from stage.forward(weights)
            if micro_batch >= node.workers - 1 - node.rank:
                pieces.append((yield from stage.backward()))
            if len(pieces) == self.micro_batches:
                before = node.weights
                weights, state = self.rule.update(before, pieces, state)
                node.apply(weights, pieces)
                pieces = []
