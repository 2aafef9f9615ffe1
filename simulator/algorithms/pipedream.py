"""Pipelines that are never flushed: stages update as they go, at weights of which they keep several versions."""

from dataclasses import dataclass
from itertools import count

from simulator.algorithm import Role
from simulator.bounds import Invalid, bounded
from simulator.cluster import Cluster
from simulator.node import Node
from simulator.stages import Pipeline


@dataclass(frozen=True)
class PipeDream(Pipeline):
    """PipeDream: as many mini-batches in flight as stages, and a stage updates after each, at weights that it stashed.

    Stage s of n, s = 1 .. n, applies w_s <- w_s - lr g_s(w_1(t - n + 1), ..., w_s(t - n + s), ..., w_n(t)): the
    backward pass of a mini-batch uses the weights of its forward pass, and is n - s updates late. With one stage it is
    plain SGD.

    Source: Narayanan et al. (2019), arXiv 1806.03377, sections 3.2 and 3.3.
    """

    def worker(self, node: Node) -> Role:
        stage, state = self.stage(node), self.rule.init(node.weights)
        for _ in range(node.workers - node.rank):
            yield from stage.forward(node.weights)
        while True:
            piece = yield from stage.backward()
            weights, state = self.rule.update(node.weights, [piece], state)
            node.apply(weights, [piece])
            yield from stage.forward(node.weights)


@dataclass(frozen=True)
class PipeDream2BW(Pipeline):
    """PipeDream-2BW: two versions of the weights, and M micro-batches an update, which is late by one on every stage.

    w_{t+1} = w_t - lr (1/M) sum_m g_m(w_{t-1}): `delayed` with delay 1, without a bubble. A micro-batch is a
    mini-batch of the task.

    Attributes:
        micro_batches: M, at least the number of stages less one, or a stage would wait for itself.

    Source: Narayanan et al. (2021), arXiv 2006.09503, section 3.1.
    """

    micro_batches: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        bounded(self, "micro_batches", least=1, whole=True)

    def check(self, cluster: Cluster) -> None:
        if self.micro_batches < cluster.workers - 1:
            expected = f"at least workers - 1 = {cluster.workers - 1}, or the first stage would wait for itself"
            raise Invalid(type(self).__name__, "micro_batches", expected, self.micro_batches)

    def worker(self, node: Node) -> Role:
        stage, state = self.stage(node), self.rule.init(node.weights)
        before, pieces = node.weights, []
        for micro_batch in count():
            fresh = node.version == micro_batch // self.micro_batches  # then its mini-batch reads the version before
            yield from stage.forward(before if fresh else node.weights)
            if micro_batch >= node.workers - 1 - node.rank:
                pieces.append((yield from stage.backward()))
            if len(pieces) == self.micro_batches:
                before = node.weights
                weights, state = self.rule.update(before, pieces, state)
                node.apply(weights, pieces)
                pieces = []
