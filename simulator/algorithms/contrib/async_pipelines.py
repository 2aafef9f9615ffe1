"""Asynchronous SGD by replicas that are pipelines, with a server for each stage."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from laggard.simulator.algorithms.base import Role
from laggard.simulator.algorithms.staging import Replicated
from laggard.simulator.engine.node import Node
from laggard.simulator.learning.task import Layer
from laggard.simulator.network.topology import SERVER, CompleteWithServers, Topology


@dataclass(frozen=True)
class AsyncPipelines(Replicated):
    """Asynchronous SGD by replicas that are pipelines: each stage pushes to its own server, and
    waits for that server only.

    A replica takes M micro-batches through its S stages and back, as `gpipe` or `1f1b` do. When a
    stage has made its last backward pass it pushes its gradients to its server, which applies them
    and answers with its new parameters,

        w_s <- w_s - lr (1/M) sum_m g_s(w_1(t_1), ..., w_S(t_S))

    where t_s are the updates that server s had made when it answered this replica last. A stage
    begins its next mini-batch as soon as it has its own parameters and its input. It does not wait
    for parameters of other stages, so that versions t_s may differ between stages; all passes of a
    mini-batch on one stage use one version. A replica that loses a stage by a crash loses its
    mini-batch and stops, and the others go on. Once all its stages are up again, each reads its
    parameters, and the replica begins a mini-batch.

    On a free network R = 1 is `gpipe` or `1f1b`; S = M = 1 is `async_ps` with R workers. Mean
    staleness R - 1 on every stage. With constant and equal times on a free network, R updates take
    the time of one mini-batch. That is, for a replica alone on private links, with equal work in
    all stages, activations that take no time, and C_s seconds from the push of stage s = 0 .. S - 1
    to the answer: (M + S - 1)(f + b) + max_s (C_s - s (f + b)).

    Attributes:
        schedule: the order of the passes, as in `gpipe` or in `1f1b`.

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

    def restart_group(self, rank: int, workers: int) -> Sequence[int]:
        """The stages of the replica of `rank`."""
        depth = self.depth(workers)
        first = rank - rank % depth
        return range(first, first + depth)

    def slices(
        self, workers: int, params: int, layers: Sequence[Layer] = ()
    ) -> Mapping[int, slice]:
        stages = super().slices(workers, params, layers)
        return {self.owner(rank, workers): stages[rank] for rank in range(self.depth(workers))}

    def links(self, workers: int) -> Iterable[tuple[int, int]]:
        """The pairs of neighbouring stages, and of each stage and its server, both ways."""
        yield from super().links(workers)
        for rank in range(workers):
            server = self.owner(rank, workers)
            yield from ((rank, server), (server, rank))

    def worker(self, node: Node) -> Role:
        stage = self.stage(node)
        server = self.owner(node.rank, node.workers)
        if self.schedule == "gpipe":
            warm_up = self.micro_batches
        else:
            warm_up = stage.later
        node.send(server, None, size=0)  # announces the stage
        while True:
            _, weights = yield node.receive()
            pieces = yield from stage.make_passes(weights, self.micro_batches, warm_up)
            node.send(server, pieces, size=stage.size)

    def server(self, node: Node) -> Role:
        size = self.stages(node)[SERVER - node.rank].size
        state = self.rule.init(node.weights)
        while True:
            worker, pieces = yield node.receive()
            if pieces is not None:
                yield node.work(node.apply_seconds)
                weights, state = self.rule.update(node.weights, pieces, state)
                node.apply(weights, pieces)
            node.send(worker, node.weights, size=size)
