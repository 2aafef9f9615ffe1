"""The asynchronous parameter server, with what Downpour does about the cost of its messages."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import count
from typing import Literal

from simulator.algorithm import Role
from simulator.bounds import Invalid, bounded
from simulator.gradients import Settled
from simulator.node import Node
from simulator.rules import SGD, Rule, Uncompensated, total
from simulator.shards import Sharded, Shards


@dataclass(frozen=True)
class AsyncPS(Sharded):
    """Asynchronous SGD (Downpour): the server applies each gradient as it arrives and answers with the new weights.

    w <- w - lr g(w_read). `rule` decides what a late gradient is worth: sgd gives ASGD, a DC-ASGD compensation before
    it DC-ASGD. With one worker it is plain SGD; with P equal workers on a free network, `delayed` with delay P - 1.

    Downpour's replica goes on from its own steps, w' <- w' - lr g(w'), pushes the sum of its gradients and fetches now
    and then: a push is one update, and a fetch that is due with it rides on it. What is fetched replaces w'. Mean
    staleness, in pushes: P - 1 where n_push = n_fetch, P (n_fetch / n_push + 1) / 2 - 1 where n_push divides n_fetch;
    (P - 1) / accumulate in updates. A worker that crashes loses what it has not pushed, and holds a barrier up. Each
    shard takes the gradients as they come to it; with all of them equally quick, they learn what one server would.

    Attributes:
        n_push, n_fetch: mini-batches from one push to the next, and from one fetch to the next.
        local_rule: the replica's own steps: plain `sgd` at the rule's learning rate, the `same` optimiser as the
            server's with a state of its own, or `none`. Where every mini-batch fetches, they would be overwritten.
        warm_start: updates that worker 0 makes alone before the others begin.
        sync_every: mini-batches after which a worker waits until all have come as far, counted from the warm start.
        accumulate: G, pushes that the server sums before one step of its optimiser; nobody waits for it.

    Source: Recht et al. (2011), arXiv 1106.5730; Dean et al. (2012), NIPS, algorithm 7.1 (Downpour); Zheng et
    al. (2017), arXiv 1609.08326, algorithms 1 and 2; Aji & Heafield (2019) (accumulate).
    """

    rule: Rule
    n_push: int = 1
    n_fetch: int = 1
    local_rule: Literal["sgd", "same", "none"] = "sgd"
    warm_start: int = 0
    sync_every: int | None = None
    accumulate: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        for field in ("n_push", "n_fetch", "accumulate"):
            bounded(self, field, least=1, whole=True)
        bounded(self, "warm_start", least=0, whole=True)
        if self.local_rule not in ("sgd", "same", "none"):
            raise Invalid(type(self).__name__, "local_rule", "sgd, same or none", self.local_rule)
        if self.sync_every is not None:
            bounded(self, "sync_every", least=1, whole=True)
            if self.sync_every % self.n_push or self.sync_every % self.n_fetch:
                expected = f"a multiple of n_push = {self.n_push} and n_fetch = {self.n_fetch}"
                raise Invalid(type(self).__name__, "sync_every", expected, self.sync_every)

    def worker(self, node: Node) -> Role:
        servers, accrued = Shards(node, self.shards), list[Settled]()
        local = self.local()
        state = local.init(node.weights, replicas=node.workers)
        servers.push(([], True), size=0)  # here I am
        for step in count(1):
            if (step - 1) % self.n_fetch == 0:
                weights = read = yield from servers.read()
            gradient = yield node.compute(weights, read)
            accrued.append(gradient)
            if self.n_fetch > 1 and self.local_rule != "none":  # else nothing comes of it
                weights, state = local.update(weights, [gradient], state)
            push, fetch = step % self.n_push == 0, step % self.n_fetch == 0
            if push:
                servers.push((accrued, fetch))
                accrued = []
            elif fetch:
                servers.push(([], True), size=0)

    def local(self) -> Rule:
        """The rule of a replica's own steps."""
        optimizer = self.rule.optimizer if self.local_rule == "same" else SGD()
        return replace(self.rule, optimizer=optimizer, compensation=Uncompensated())

    def server(self, node: Node) -> Role:
        state = self.rule.init(node.weights)
        taken = dict.fromkeys(range(node.workers), 0)  # mini-batches, by worker
        gathered, pushes, held = list[Settled](), 0, dict[int, None]()
        while True:
            worker, (gradients, fetch) = yield node.receive()
            if gradients:
                gathered += gradients
                pushes += 1
                taken[worker] += len(gradients) if node.version >= self.warm_start else 0
            if pushes == self.accumulate:
                yield node.work(node.apply_seconds)
                weights, state = self.rule.update(node.weights, gathered, state, combine=total)
                node.apply(weights, gathered)
                gathered, pushes = [], 0
            if fetch:
                held[worker] = None
            for reader in self.admitted(held, taken, node.version):
                del held[reader]
                node.send(reader, node.weights, size=1 / self.shards)

    def admitted(self, held: Iterable[int], taken: Mapping[int, int], version: int) -> list[int]:
        """Those of the workers that ask for weights that need not wait for the others any more."""
        if version < self.warm_start:
            return [worker for worker in held if worker == 0]
        if self.sync_every is None:
            return list(held)
        rounds = min(taken.values()) // self.sync_every
        return [worker for worker in held if taken[worker] // self.sync_every <= rounds]
