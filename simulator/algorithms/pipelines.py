"""A model cut into stages, one per node: naive, GPipe, 1F1B, and PipeDream without a flush."""

from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal

from laggard.simulator.algorithms.base import Role
from laggard.simulator.algorithms.collectives import COLLECTIVES
from laggard.simulator.algorithms.staging import Carriage, Pipeline, Replicated
from laggard.simulator.engine.node import Node
from laggard.simulator.learning.gradients import GradientPromise
from laggard.simulator.learning.promises import total
from laggard.simulator.timing.events import Event


@dataclass(frozen=True)
class Naive(Pipeline):
    """Model parallelism without a pipeline: one mini-batch at a time passes through all stages.

        w <- w - lr g(w)

    This is plain SGD, and one node works at a time.

    Source: Huang et al. (2019), arXiv 1811.06965, figure 2b, the baseline of pipelines.
    """

    def worker(self, node: Node) -> Role:
        stage = self.stage(node)
        state = self.rule.init(node.weights)
        while True:
            yield from stage.forward(node.weights)
            piece = yield from stage.backward()
            weights, state = self.rule.update(node.weights, [piece], state)
            node.apply(weights, [piece])


@dataclass(frozen=True)
class GPipe(Replicated):
    """GPipe: an update of all stages after M micro-batches, which pass through them in a pipeline.

        w <- w - lr (1/M) sum_m g_m(w)

    with the gradient of all M together. A micro-batch is a mini-batch of the task. With equal
    stages on a free network an update takes (M + S - 1)(f + b) seconds, of which (S - 1) / (M + S -
    1) is the bubble.

    With R replicas of the pipeline, on R S workers, each has M micro-batches of its own, and a
    stage sums its gradient with those of its replicas by a collective once its last backward pass
    is done: w <- w - lr (1 / (R M)) sum g(w), `sync_ps` of R workers that accumulate M. With equal
    work in all stages, and a collective of C_s seconds for stage s = 0 .. S - 1 on links of its
    own, an update takes max_s (C_s - s (f + b)) seconds longer.

    Attributes:
        micro_batches: M, micro-batches in an update.
        replicas: R; worker r S + s has stage s of replica r.
        collective: the collective by which replicas of a stage sum gradients, as in `all_reduce`.

    Source: Huang et al. (2019), arXiv 1811.06965, section 2.3; replicas: Narayanan et al. (2021),
    arXiv 2104.04473, section 3.3.
    """

    collective: Literal[
        "ring", "naive_ring", "mesh", "recursive_doubling", "halving_doubling", "tree", "server"
    ] = "ring"

    def links(self, workers: int) -> Iterable[tuple[int, int]]:
        """The pairs of neighbouring stages, both ways, and of replicas in the collective."""
        yield from super().links(workers)
        depth = self.depth(workers)
        partners = COLLECTIVES[self.collective].partners
        replicas = workers // depth
        for replica, stage in product(range(replicas), range(depth)):
            for partner in partners(replica, replicas):
                yield replica * depth + stage, partner * depth + stage

    def warm_up(self, stage: Carriage) -> int:
        """The number of forward passes before the first backward pass: all."""
        return self.micro_batches

    def worker(self, node: Node) -> Role:
        stage = self.stage(node)
        state = self.rule.init(node.weights)
        while True:
            pieces = yield from stage.make_passes(
                node.weights, self.micro_batches, self.warm_up(stage)
            )
            gradients = pieces
            if self.replicas > 1:
                gradients = [(yield from self.average(node, stage.size, pieces))]
            weights, state = self.rule.update(node.weights, gradients, state)
            node.apply(weights, pieces)

    def average(
        self, node: Node, size: float, pieces: Sequence[GradientPromise]
    ) -> Generator[Event, Any, GradientPromise]:
        """The mean of all replicas' gradients of a stage, with a message of `size` models."""
        depth = self.depth(node.workers)
        ranks = range(node.rank % depth, node.workers, depth)
        collective = COLLECTIVES[self.collective].of_bucket(slice(None), size)
        count = len(ranks) * len(pieces)
        summed = yield from collective.reduce(
            node, total(pieces), node.weights.shape[1], node.version, ranks=ranks
        )
        return pieces[0].map(lambda _, summed: summed / count, summed, batches=count)


@dataclass(frozen=True)
class OneForwardOneBackward(GPipe):
    """GPipe that stores fewer activations: one forward, one backward pass in turn after a warm-up.

        w <- w - lr (1/M) sum_m g_m(w)

    with the gradient and the time of `gpipe`. Stage s of S stores S - s activations at most, not M.

    Source: Narayanan et al. (2019), arXiv 1806.03377; with a flush Narayanan et al. (2021), arXiv
    2104.04473, section 2.2.1.
    """

    def warm_up(self, stage: Carriage) -> int:
        """The number of forward passes before the first backward pass: one for each later stage."""
        return stage.later


@dataclass(frozen=True)
class PipeDream(Pipeline):
    """PipeDream: a stage updates after each mini-batch, at stashed weights, without a flush.

        w_s <- w_s - lr g_s(w_1(t - n + 1), ..., w_s(t - n + s), ..., w_n(t)),    s = 1 .. n

    at stage s of n. The backward pass of a mini-batch uses the weights of its forward pass, and is
    n - s updates late. With one stage it is plain SGD. Vertical sync, with which all stages use one
    version for a mini-batch, is not implemented.

    Source: Narayanan et al. (2019), arXiv 1806.03377, sections 3.2 and 3.3.
    """

    def worker(self, node: Node) -> Role:
        stage = self.stage(node)
        state = self.rule.init(node.weights)
        # One mini-batch for this stage and for each later one: gradients are then n - s updates
        # late.
        for _ in range(node.workers - node.rank):
            yield from stage.forward(node.weights)
        while True:
            piece = yield from stage.backward()
            weights, state = self.rule.update(node.weights, [piece], state)
            node.apply(weights, [piece])
            yield from stage.forward(node.weights)
