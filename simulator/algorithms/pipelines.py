"""A model cut into stages, one per node: naive, GPipe, 1F1B, PipeDream without a flush, and
replicas with servers.
"""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, product
from typing import Any, ClassVar, Literal

from laggard.simulator.algorithms.base import Role
from laggard.simulator.algorithms.collectives import COLLECTIVES
from laggard.simulator.algorithms.staging import Carriage, Pipeline, Replicated
from laggard.simulator.engine.cluster import Cluster
from laggard.simulator.engine.node import Node
from laggard.simulator.errors import InvalidSettingError, PositiveInt
from laggard.simulator.learning.gradients import GradientPromise
from laggard.simulator.learning.promises import total
from laggard.simulator.learning.task import Layer
from laggard.simulator.network.topology import SERVER, CompleteWithServers, Topology
from laggard.simulator.timing.events import Event


@dataclass(frozen=True)
class Naive(Pipeline):
    """Model parallel without a pipeline: one mini-batch passes through all stages and back before
    the next begins.

    w <- w - lr g(w): plain SGD, and one node works at a time.

    Source: Huang et al. (2019), arXiv 1811.06965, figure 2b, the baseline of pipelines.
    """

    def worker(self, node: Node) -> Role:
        stage, state = self.stage(node), self.rule.init(node.weights)
        while True:
            yield from stage.forward(node.weights)
            piece = yield from stage.backward()
            weights, state = self.rule.update(node.weights, [piece], state)
            node.apply(weights, [piece])


@dataclass(frozen=True)
class GPipe(Replicated):
    """GPipe: M micro-batches follow each other through the stages, and back, before all stages
    update together.

    w <- w - lr (1/M) sum_m g_m(w), the gradient of all M together; a micro-batch is a mini-batch of
    the task. With equal stages on a free network an update takes (M + S - 1)(f + b) seconds, of
    which (S - 1) / (M + S - 1) is the bubble.

    With R replicas of the pipeline, on R S workers, each has M micro-batches of its own, and a
    stage sums its gradient
    with those of its replicas by a collective once its last backward pass is done: w <- w - lr (1 /
    (R M)) sum g(w), `sync_ps` of R workers that accumulate M. With equal work in all stages, and a
    collective of C_s seconds for stage s = 0 .. S - 1 on links of its own, an update takes max_s
    (C_s - s (f + b)) seconds longer.

    Attributes:
        micro_batches: M, micro-batches in an update.
        replicas: R; worker r S + s has stage s of replica r.
        collective: how the replicas of a stage sum their gradients, as in `all_reduce`.

    Source: Huang et al. (2019), arXiv 1811.06965, section 2.3; replicas: Narayanan et al. (2021),
    arXiv 2104.04473, section 3.3.
    """

    collective: Literal[
        "ring", "naive_ring", "mesh", "recursive_doubling", "halving_doubling", "tree", "server"
    ] = "ring"

    def links(self, workers: int) -> Iterable[tuple[int, int]]:
        """From each stage to the next, and back; and from each to those of its replicas that the
        collective names.
        """
        yield from super().links(workers)
        depth, partners = self.depth(workers), COLLECTIVES[self.collective].partners
        replicas = workers // depth
        for replica, stage in product(range(replicas), range(depth)):
            yield from (
                (replica * depth + stage, to * depth + stage) for to in partners(replica, replicas)
            )

    def warm_up(self, stage: Carriage) -> int:
        """The number of forward passes before the first backward pass: all."""
        return self.micro_batches

    def worker(self, node: Node) -> Role:
        stage, state = self.stage(node), self.rule.init(node.weights)
        while True:
            pieces = yield from stage.make_passes(
                node.weights, self.micro_batches, self.warm_up(stage)
            )
            gradients = (
                pieces
                if self.replicas == 1
                else [(yield from self.average(node, stage.size, pieces))]
            )
            weights, state = self.rule.update(node.weights, gradients, state)
            node.apply(weights, pieces)

    def average(
        self, node: Node, size: float, pieces: Sequence[GradientPromise]
    ) -> Generator[Event, Any, GradientPromise]:
        """The mean of all replicas' gradients of a stage, whose parameters have the size of `size`
        models.
        """
        ranks = range(node.rank % self.depth(node.workers), node.workers, self.depth(node.workers))
        collective, count = (
            COLLECTIVES[self.collective].of_bucket(slice(None), size),
            len(ranks) * len(pieces),
        )
        summed = yield from collective.reduce(
            node, total(pieces), node.weights.shape[1], node.version, ranks=ranks
        )
        return pieces[0].map(lambda _, summed: summed / count, summed, batches=count)


@dataclass(frozen=True)
class OneForwardOneBackward(GPipe):
    """GPipe with a schedule that stores fewer activations: after a warm-up, one micro-batch
    forward, one backward.

    The gradient and the time of `gpipe`; stage s of S stores S - s activations at most, not M.

    Source: Narayanan et al. (2019), arXiv 1806.03377; with a flush Narayanan et al. (2021), arXiv
    2104.04473, section 2.2.1.
    """

    def warm_up(self, stage: Carriage) -> int:
        """The number of forward passes before the first backward pass: one for each later stage."""
        return stage.later


@dataclass(frozen=True)
class PipeDream(Pipeline):
    """PipeDream: as many mini-batches in flight as stages, and a stage updates after each, at
    stashed weights.

    Stage s of n, s = 1 .. n, applies w_s <- w_s - lr g_s(w_1(t - n + 1), ..., w_s(t - n + s), ...,
    w_n(t)): the backward pass of a mini-batch uses the weights of its forward pass, and is n - s
    updates late. With one stage it is plain SGD. Vertical sync, with which all stages use one
    version for a mini-batch, is not there.

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
    """PipeDream-2BW: two versions of the weights, and M micro-batches an update, which is late by
    one on every stage.

    w_{t+1} = w_t - lr (1/M) sum_m g_m(w_{t-1}): `delayed` with delay 1, without a bubble. A
    micro-batch is a mini-batch of the task.

    Attributes:
        micro_batches: M, at least the number of stages less one, or a stage would wait for itself;
            the paper asks for as many as stages.

    Source: Narayanan et al. (2021), arXiv 2006.09503, section 3.1.
    """

    micro_batches: PositiveInt = 4

    def check(self, cluster: Cluster) -> None:
        if self.micro_batches < cluster.workers - 1:
            expected = f"at least workers - 1 = {cluster.workers - 1}, or the first stage would wait for itself"
            raise InvalidSettingError(
                type(self).__name__, "micro_batches", expected, self.micro_batches
            )

    def worker(self, node: Node) -> Role:
        stage, state = self.stage(node), self.rule.init(node.weights)
        before, pieces = node.weights, []
        for micro_batch in count():
            # then its mini-batch reads the version before
            fresh = node.version == micro_batch // self.micro_batches
            yield from stage.forward(before if fresh else node.weights)
            if micro_batch >= node.workers - 1 - node.rank:
                pieces.append((yield from stage.backward()))
            if len(pieces) == self.micro_batches:
                before = node.weights
                weights, state = self.rule.update(before, pieces, state)
                node.apply(weights, pieces)
                pieces = []


@dataclass(frozen=True)
class AsyncPipelines(Replicated):
    """Asynchronous SGD by replicas that are pipelines: each stage pushes to a server of its own,
    and awaits only that.

    A replica takes M micro-batches through its S stages and back, as `gpipe` or `1f1b` do. When a
    stage has made its last backward pass it pushes its gradients to its server, which applies them
    and answers with its new parameters,

        w_s <- w_s - lr (1/M) sum_m g_s(w_1(t_1), ..., w_S(t_S))

    where t_s are the updates that server s had made when it answered this replica last. A stage
    begins its next mini-batch as soon as it has its own parameters and its input. It does not wait
    for those of other stages, so that versions t_s may differ between stages; all passes of a
    mini-batch on one stage use one version. A replica that loses a stage by a crash stops for good,
    and the others go on.

    On a free network R = 1 is `gpipe` or `1f1b`; S = M = 1 is `async_ps` with R workers. Mean
    staleness R - 1 on every stage. With constant and equal times on a free network, R updates take
    the time of one mini-batch. That is, for a replica alone on private links, with equal work in
    all stages, activations that take no time, and C_s seconds from the push of stage s = 0 .. S - 1
    to the answer: (M + S - 1)(f + b) + max_s (C_s - s (f + b)).

    Attributes:
        schedule: of the passes, that of `gpipe` or of `1f1b`.

    Source: Dean et al. (2012), NIPS, sections 3 and 4.1; Huang et al. (2019), arXiv 1811.06965
    (micro-batches).
    """

    topology: ClassVar[Topology] = CompleteWithServers()
    schedule: Literal["gpipe", "1f1b"] = "gpipe"

    def roles(self, workers: int) -> Mapping[int, Sequence[Callable[[Node], Role]]]:
        roles = super().roles(workers)
        return {SERVER - stage: roles[SERVER] for stage in range(self.depth(workers))} | dict(roles)

    def owner(self, rank: int, workers: int) -> int:
        """The server of the stage on node `rank`."""
        return SERVER - rank % self.depth(workers)

    def slices(
        self, workers: int, params: int, layers: Sequence[Layer] = ()
    ) -> Mapping[int, slice]:
        stages = super().slices(workers, params, layers)
        return {self.owner(rank, workers): stages[rank] for rank in range(self.depth(workers))}

    def links(self, workers: int) -> Iterable[tuple[int, int]]:
        """From each stage to the next, and back; and between each and its server."""
        yield from super().links(workers)
        for rank in range(workers):
            server = self.owner(rank, workers)
            yield from ((rank, server), (server, rank))

    def worker(self, node: Node) -> Role:
        stage, server = self.stage(node), self.owner(node.rank, node.workers)
        warm_up = self.micro_batches if self.schedule == "gpipe" else stage.later
        node.send(server, None, size=0)  # announces the stage
        while True:
            _, weights = yield node.receive()
            pieces = yield from stage.make_passes(weights, self.micro_batches, warm_up)
            node.send(server, pieces, size=stage.size)

    def server(self, node: Node) -> Role:
        size, state = self.stages(node)[SERVER - node.rank].size, self.rule.init(node.weights)
        while True:
            worker, pieces = yield node.receive()
            if pieces is not None:
                yield node.work(node.apply_seconds)
                weights, state = self.rule.update(node.weights, pieces, state)
                node.apply(weights, pieces)
            node.send(worker, node.weights, size=size)
