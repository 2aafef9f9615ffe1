"""A model cut into stages, one a node: a mini-batch passes forward through them and its gradient back."""

from dataclasses import dataclass

from simulator.algorithm import Role
from simulator.bounds import bounded
from simulator.node import Node
from simulator.stages import Pipeline


@dataclass(frozen=True)
class Naive(Pipeline):
    """Model parallel without a pipeline: one mini-batch passes through all stages and back before the next begins.

    w <- w - lr g(w): plain SGD, and at any moment one node works.

    Source: Huang et al. (2019), arXiv 1811.06965, figure 2b, which pipelines improve on.
    """

    def worker(self, node: Node) -> Role:
        stage, state = self.stage(node), self.rule.init(node.weights)
        while True:
            yield from stage.forward(node.weights)
            piece = yield from stage.backward()
            weights, state = self.rule.update(node.weights, [piece], state)
            node.apply(weights, [piece])


@dataclass(frozen=True)
class GPipe(Pipeline):
    """GPipe: M micro-batches follow each other through the stages, and back, before all stages update together.

    w <- w - lr (1/M) sum_m g_m(w), the gradient of all M together; a micro-batch is a mini-batch of the task. With
    equal stages on a free network an update takes (M + S - 1)(f + b) seconds, of which (S - 1) / (M + S - 1) is the
    bubble.

    Attributes:
        micro_batches: M.

    Source: Huang et al. (2019), arXiv 1811.06965, section 2.3.
    """

    micro_batches: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        bounded(self, "micro_batches", least=1, whole=True)

    def warm_up(self, node: Node) -> int:
        """How many micro-batches go forward before the first comes back: all."""
        return self.micro_batches

    def worker(self, node: Node) -> Role:
        stage, state = self.stage(node), self.rule.init(node.weights)
        while True:
            pieces = []
            for _ in range(self.warm_up(node)):
                yield from stage.forward(node.weights)
            for _ in range(self.micro_batches - self.warm_up(node)):
                yield from stage.forward(node.weights)
                pieces.append((yield from stage.backward()))
            for _ in range(self.warm_up(node)):
                pieces.append((yield from stage.backward()))
            weights, state = self.rule.update(node.weights, pieces, state)
            node.apply(weights, pieces)


@dataclass(frozen=True)
class OneForwardOneBackward(GPipe):
    """GPipe with a schedule that holds fewer activations: once warm, one micro-batch forward, one backward.

    The gradient and the time of `gpipe`; stage s of S holds S - s activations at most, not M.

    Source: Narayanan et al. (2019), arXiv 1806.03377; with a flush Narayanan et al. (2021), arXiv 2104.04473,
    section 2.2.1.
    """

    def warm_up(self, node: Node) -> int:
        """How many micro-batches go forward before the first comes back: one for each stage behind it."""
        return min(node.workers - 1 - node.rank, self.micro_batches)
