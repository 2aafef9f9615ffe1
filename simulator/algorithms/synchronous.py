"""The synchronous parameter server: of the gradients, the weights or the updates of its workers, the mean."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from simulator.algorithm import Role
from simulator.bounds import Invalid, bounded
from simulator.cluster import Cluster
from simulator.gradients import Settled
from simulator.node import Node
from simulator.rules import Rule, RuleState, mean
from simulator.shards import Sharded, Shards

Contribution = tuple[Sequence[Settled], Tensor]
"""What a worker brings to an update: its gradients, and the model or the change of it that they led to."""


@dataclass(frozen=True)
class SyncPS(Sharded):
    """Synchronous SGD: an update is the mean of gradients at the same weights, then every contributor re-reads.

    w <- w - lr (1/N) sum of the first N workers' gradients at the present version. Waiting for all P workers
    (`wait_for` unset) it is one worker with the P mini-batches together; with `wait_for` N < P the slowest P - N are
    backup workers, and what they bring late is dropped. A worker counts once an update, even if it crashes and returns.

    With `average: weights`, w <- (1/N) sum_i x_i after each worker's own steps x_i <- x_i - lr g(x_i) from w; with
    `updates`, w <- w + (1/N) sum_i (x_i - w), the same but for rounding. Both are `gradients` for one step of SGD,
    momentum or Nesterov whose buffers persist, all waited for; not for Adagrad, RMSProp, Adam, nor with `reset`.

    Shards decide each for itself who was late: with backup workers a gradient may count on some of them only.

    Attributes:
        wait_for: N, workers per update; all by default.
        cancel: True interrupts the workers that are late with the new weights; False lets them finish first.
        average: what is averaged. With `weights` and `updates` every worker has an optimiser of its own.
        local_steps: mini-batches of a worker per update; where gradients are averaged, all at the weights read.
        reset: the workers' optimisers forget their buffers at every read.

    Source: Chen et al. (2016), arXiv 1604.00981, algorithms 3 and 4; Dutta et al. (2018), arXiv 1803.01113 (K-sync).
    """

    rule: Rule
    wait_for: int | None = None
    cancel: bool = False
    average: Literal["gradients", "weights", "updates"] = "gradients"
    local_steps: int = 1
    reset: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.wait_for is not None:
            bounded(self, "wait_for", least=1, whole=True)
        bounded(self, "local_steps", least=1, whole=True)
        if self.average not in ("gradients", "weights", "updates"):
            raise Invalid(type(self).__name__, "average", "gradients, weights or updates", self.average)

    def check(self, cluster: Cluster) -> None:
        super().check(cluster)
        if self.wait_for is not None and self.wait_for > cluster.workers:
            expected = f"at most workers = {cluster.workers}, or the server would wait for ever"
            raise Invalid(type(self).__name__, "wait_for", expected, self.wait_for)

    def worker(self, node: Node) -> Role:
        servers, state = Shards(node, self.shards), self.rule.init(node.weights, replicas=node.workers)
        servers.announce()
        while True:
            model = read = yield from servers.read()
            gradients: list[Settled] = []
            if self.reset:
                state = self.rule.init(read, replicas=node.workers)._replace(progress=state.progress)
            for _ in range(self.local_steps):
                work = node.compute(model, read)
                if not self.cancel:
                    yield work
                elif (yield from servers.overtaken(work)):  # the others were quicker: their update is the news
                    work.cancel()
                    for gradient in gradients:
                        gradient.drop()
                    break
                gradients.append(work.value)
                if self.average != "gradients":
                    model, state = self.rule.update(model, [work.value], state)
            else:
                servers.push((gradients, model - read if self.average == "updates" else model))

    def server(self, node: Node) -> Role:
        state, workers, gathered = self.rule.init(node.weights), dict[int, None](), dict[int, Contribution]()
        while True:
            worker, pushed = yield node.receive()
            workers[worker] = None
            if pushed is None:
                node.send(worker, node.weights, size=1 / self.shards)
            elif (late := pushed[0][0].staleness > 0) or worker in gathered:
                for gradient in pushed[0]:
                    gradient.drop()
                if late and not self.cancel:  # else the answer is an update: it is under way, or to come
                    node.send(worker, node.weights, size=1 / self.shards)
            else:
                gathered[worker] = pushed
            if len(gathered) == (self.wait_for or node.workers):
                yield node.work(node.apply_seconds)
                state = self.merge(node, [gathered[worker] for worker in sorted(gathered)], state)
                for reader in workers if self.cancel else gathered:
                    node.send(reader, node.weights, size=1 / self.shards)
                gathered = {}

    def merge(self, node: Node, contributions: Sequence[Contribution], state: RuleState) -> RuleState:
        """The update that `contributions` make; the state is the server's optimiser's, if it has one."""
        gradients = [gradient for taken, _ in contributions for gradient in taken]
        if self.average == "gradients":
            weights, state = self.rule.update(node.weights, gradients, state)
        else:
            offered = mean([offer for _, offer in contributions])
            weights = offered if self.average == "weights" else node.weights + offered
        node.apply(weights, gradients)
        return state
