"""Workers that make many local steps between two averages of their models."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from laggard.simulator.algorithms.base import Role, count_awaited
from laggard.simulator.algorithms.compressing import CompressingServer
from laggard.simulator.algorithms.local_steps import (
    OuterOptimizer,
    restart_optimizer,
    take_local_steps,
)
from laggard.simulator.algorithms.sharding import Sharded, Shards
from laggard.simulator.engine.cluster import Cluster
from laggard.simulator.engine.node import Node
from laggard.simulator.errors import InvalidSettingError, NumberOrShare, PositiveInt
from laggard.simulator.learning.gradients import GradientPromise
from laggard.simulator.learning.rules import Rule, RuleState
from laggard.simulator.learning.weights import mean, mean_by_samples

if TYPE_CHECKING:
    from torch import Tensor

WHY_UPDATES = {
    "compress": "which leaves out small changes, not small weights",
    "compress_down": "since workers' models lack what the server has not sent",
}
"""The reasons why a setting needs changes to be averaged."""
Contribution = tuple[Sequence[GradientPromise], "Tensor", int]
"""A worker's contribution to a round: its gradients, the resulting model or its change, and the
number of samples that it learns from.
"""


@dataclass(frozen=True)
class LocalSGD(CompressingServer, Sharded):
    """Local SGD: a server averages the models of workers after H local steps each.

        x_i <- w;    H times x_i <- x_i - lr g(x_i);    w <- sum_i (n_i / n) x_i

    over the first N workers, where worker i learns from n_i samples and n = sum_i n_i. With
    `average: updates`, w <- w + sum_i (n_i / n) (x_i - w), the same but for rounding. With
    `weighting: equal` each of the N workers counts 1/N. An update is a round; staleness 0. With H =
    1 and equal weights it is `sync_ps` for SGD, momentum and Nesterov whose buffers persist, all
    waited for; not for Adagrad, RMSProp, Adam, nor with `reset`. Workers keep the state of their
    optimiser from one round to the next; one that crashes loses it, and its round. Each shard drops
    what arrives late at it.

    Attributes:
        local_steps: H, mini-batches of each worker from one average to the next.
        average: whether the models (`weights`) or their changes (`updates`) are averaged.
        weighting: the weight of a worker in an average: by its number of samples, as in
            McMahan et al., or equally, as in Stich. Without effect if all have equally many.
        reset: whether the workers' optimisers reset their buffers at every read.
        wait_for: N, workers per round, or below 1 their share, rounded up; all by default.

    Source: McMahan et al. (2017), arXiv 1602.05629 (FedAvg); Stich (2019), arXiv 1805.09767,
    algorithm 1.
    """

    SPACE: ClassVar = {"algorithm.local_steps": {"choice": [2, 4, 8, 16, 32]}}

    rule: Rule
    local_steps: PositiveInt = 8
    average: Literal["weights", "updates"] = "weights"
    weighting: Literal["samples", "equal"] = "samples"
    reset: bool = False
    wait_for: NumberOrShare | None = None

    def updates_in_parts(self, workers: int) -> bool:
        return False  # the rule is the workers' own, who have whole models

    def check(self, cluster: Cluster) -> None:
        super().check(cluster)
        count_awaited(self, self.wait_for, cluster.workers)
        for key, why in WHY_UPDATES.items():
            if getattr(self, key) is not None and self.average != "updates":
                expected = f"updates with {key}, {why}"
                raise InvalidSettingError(type(self).__name__, "average", expected, self.average)

    def worker(self, node: Node) -> Role:
        servers = Shards(node, self.shards)
        state = self.rule.init(node.weights, replicas=node.workers)
        encoder = self.encoder(node)
        servers.announce()
        while True:
            read = yield from servers.read()
            if self.reset:
                state = restart_optimizer(node, self.rule, state)
            model, state, gradients = yield from take_local_steps(
                node, self.rule, read, state, self.local_steps
            )
            result = model - read if self.average == "updates" else model
            yield node.work(encoder.seconds)
            result = encoder.encode_change(result, gradients[-1])
            servers.push((gradients, result, node.samples), size=encoder.size)

    def server(self, node: Node) -> Role:
        state = self.outer().init(node.weights)
        gathered = dict[int, Contribution]()
        awaited = count_awaited(self, self.wait_for, node.workers)
        answers = self.answers(node)
        while True:
            worker, pushed = yield node.receive()
            if pushed is None:
                answers.forget(worker)
            # All local steps have the same read, so the first gradient tells whether the push is
            # late.
            if pushed is not None and pushed[0][0].staleness == 0:
                gathered[worker] = pushed
            elif pushed is not None:  # the push is late
                for gradient in pushed[0]:
                    gradient.drop()
            # else the worker has contributed, crashed since, and waits for the update
            if worker not in gathered:
                answers.send(worker, node.weights, size=1 / self.shards)
            if len(gathered) == awaited:
                yield node.work(node.apply_seconds)
                average = self.average_of([gathered[rank] for rank in sorted(gathered)])
                if self.average == "updates":
                    average = node.weights + average
                weights, state = self.next_weights(node.weights, average, state)
                gradients = [gradient for taken, *_ in gathered.values() for gradient in taken]
                node.apply(weights, gradients)
                for reader in gathered:
                    answers.send(reader, node.weights, size=1 / self.shards)
                gathered = {}

    def average_of(self, contributions: Sequence[Contribution]) -> "Tensor":
        """The mean of the workers' models, or of their changes, `(ensemble, params)`."""
        models = [model for _, model, _ in contributions]
        if self.weighting == "equal":
            return mean(models)
        return mean_by_samples(models, [samples for *_, samples in contributions])

    def outer(self) -> Rule:
        """The server's own rule."""
        return Rule(lr=1.0)

    def next_weights(
        self, weights: "Tensor", average: "Tensor", state: RuleState
    ) -> "tuple[Tensor, RuleState]":
        """The server's next weights `(ensemble, params)`, and its rule's state."""
        return average, state


@dataclass(frozen=True)
class DiLoCo(OuterOptimizer, LocalSGD):
    """DiLoCo: local SGD whose average is used as a gradient by an outer optimiser at the server.

        d = sum_i (n_i / n) (w - x_i);    b <- momentum b + d;    w <- w - outer_lr (d + momentum b)

    after H steps of each worker i, which learns from n_i of n samples. The outer step along -d is
    Nesterov's here. With SGD, outer_lr 1 and no momentum it is `local_sgd`, whose other settings it
    shares.

    Attributes:
        outer_lr, outer_momentum: the learning rate and the momentum of the outer optimiser.
        outer_optimizer: Nesterov, or SGD with heavy-ball momentum.

    Source: Douillard et al. (2023), arXiv 2311.08105, algorithm 1; FedOpt of Reddi et al. (2021),
    arXiv 2003.00295.
    """
