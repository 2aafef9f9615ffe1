"""Ringleader: an asynchronous server that counts all workers equally, however slow they are."""

from dataclasses import dataclass

from laggard.simulator.algorithms.base import Role
from laggard.simulator.algorithms.compressing import CompressingServer
from laggard.simulator.algorithms.sharding import Sharded, Shards
from laggard.simulator.engine.node import Node
from laggard.simulator.learning.gradients import Gradient, mean_gradient
from laggard.simulator.learning.rules import Rule


@dataclass(frozen=True)
class Ringleader(CompressingServer, Sharded):
    """Ringleader ASGD: each update is the mean over workers of their mean gradients in a table.

        w <- w - lr (1/P) sum_j G_j / b_j

    where row j of the table has the sum G_j of b_j gradients of worker j. The server gathers
    without an update until every worker has a gradient in the table. The gradient that completes
    the table makes the first update. From then on the next gradient of each other worker is added
    to its row and makes an update, and the worker gets w. After P updates the round ends; gradients
    that a worker sent beyond that one are the next table. If a gradient makes no update, the server
    answers with a token of no bytes, and the worker computes again at the model that it holds.

    So where workers' losses differ, it tends to the minimum of their mean, which `async_ps` does
    not at uneven speeds. P updates take at most twice the slowest worker's mini-batch on a free
    network, and no gradient is staler than 2 P - 2 updates at its last use. Nothing is dropped. A
    gradient's row tells its staleness at its first use. A worker that crashes holds up all others
    until it is back.

    Source: Maranjyan & Richtarik (2025), arXiv 2509.22860.
    """

    rule: Rule

    def needed(self, workers: int) -> int:
        return workers

    def worker(self, node: Node) -> Role:
        servers = Shards(node, self.shards)
        encoder = self.encoder(node)
        servers.announce()
        while True:
            weights = yield from servers.read()
            gradient = yield node.compute(weights)
            yield node.work(encoder.seconds)
            servers.push(encoder.encode_gradient(gradient), size=encoder.size)

    def server(self, node: Node) -> Role:
        state = self.rule.init(node.weights)
        table = dict[int, list[Gradient]]()
        next_table = dict[int, list[Gradient]]()
        answers = self.answers(node)
        updated: set[int] = set()  # the workers whose gradients have made updates in this round
        while True:
            worker, gradient = yield node.receive()
            if gradient is None:
                answers.forget(worker)
                answers.send(worker, node.weights, size=1 / self.shards)
                continue
            row_of = next_table if worker in updated else table
            row_of.setdefault(worker, []).append(gradient)
            if worker in updated or len(table) < node.workers:
                node.send(worker, None, size=0)
                continue
            yield node.work(node.apply_seconds)
            rows = [table[rank] for rank in sorted(table)]
            weights, state = self.rule.update(node.weights, list(map(mean_gradient, rows)), state)
            node.apply(weights, [gradient for row in rows for gradient in row])
            answers.send(worker, node.weights, size=1 / self.shards)
            updated.add(worker)
            if len(updated) == node.workers:
                table, next_table, updated = next_table, {}, set()
