"""Asynchronous parameter server."""

from dataclasses import dataclass

from simulator.algorithm import Algorithm, Role
from simulator.node import Node
from simulator.rules import Rule
from simulator.topology import SERVER


@dataclass(frozen=True)
class AsyncPS(Algorithm):
    """Asynchronous SGD: the server applies each gradient as it arrives and answers with the new weights.

    w <- w - lr g(w_read). `rule` decides what a late gradient is worth: sgd gives ASGD, a DC-ASGD
    compensation before it DC-ASGD. With one worker it is plain SGD; with P equal workers on a free network,
    `delayed` with delay P - 1.

    Source: Recht et al. (2011), arXiv 1106.5730; Dean et al. (2012); as in Zheng et al. (2017),
    arXiv 1609.08326, algorithms 1 and 2.
    """

    rule: Rule

    def worker(self, node: Node) -> Role:
        node.send(SERVER, None, size=0)  # here I am
        while True:
            _, weights = yield node.receive()
            gradient = yield node.compute(weights)
            node.send(SERVER, gradient)

    def server(self, node: Node) -> Role:
        state = self.rule.init(node.weights)
        while True:
            worker, gradient = yield node.receive()
            if gradient is not None:
                yield node.work(node.apply_seconds)
                weights, state = self.rule.update(node.weights, [gradient], state)
                node.apply(weights, [gradient])
            node.send(worker, node.weights)
