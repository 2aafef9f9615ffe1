"""Ringmaster: an asynchronous parameter server that discards gradients above a staleness."""

from dataclasses import dataclass
from typing import ClassVar

from laggard.simulator.algorithms.base import Role
from laggard.simulator.algorithms.compressing import CompressingServer, code_or_receive
from laggard.simulator.algorithms.outgoing import Outgoing
from laggard.simulator.engine.node import Node
from laggard.simulator.errors import PositiveInt
from laggard.simulator.learning.rules import Rule
from laggard.simulator.network.topology import SERVER


@dataclass(frozen=True)
class Ringmaster(CompressingServer):
    """Ringmaster ASGD: asynchronous SGD that discards every gradient of staleness R or more.

        w <- w - lr g(w_read)    if tau < R

    Else w stays. Either way the worker re-reads. With R above every staleness it is `async_ps`;
    with R = 1 only fresh gradients count.

    Attributes:
        threshold: R, in updates.
        cancel: True stops a computation as soon as its gradient would be discarded: the server
            sends the worker the newest weights R updates after its read, and it starts again.

    Source: Maranjyan, Tyurin, Richtarik (2025), arXiv 2501.16168, Ringmaster ASGD without and with
    calculation stops.
    """

    SPACE: ClassVar = {"algorithm.threshold": {"choice": [4, 16, 64]}}

    rule: Rule
    threshold: PositiveInt = 8
    cancel: bool = False

    def worker(self, node: Node) -> Role:
        sent = Outgoing()
        encoder = self.encoder(node)
        node.send(SERVER, None, size=0)  # announces the worker
        _, weights = yield node.receive()
        while True:
            work = node.compute(weights)
            newer = node.receive()
            yield work | newer
            if encoder.seconds and not newer.fired:
                newer = yield from code_or_receive(node, encoder)
            newer = yield from sent.wait_or_receive(node, newer)
            if newer.fired:  # the gradient is too stale now
                work.cancel()
            else:
                gradient = encoder.encode_gradient(work.value)
                message = node.send(SERVER, gradient, size=encoder.size)
                if self.cancel:  # what it receives next may be no answer
                    sent.add([message])
                yield (newer := node.receive())
            _, weights = newer.value

    def server(self, node: Node) -> Role:
        state = self.rule.init(node.weights)
        read: dict[int, int] = {}  # the version that a worker was sent last
        answers = self.answers(node)
        send = answers.send
        while True:
            worker, gradient = yield node.receive()
            readers = [worker]
            if gradient is None:
                answers.forget(worker)
            elif gradient.staleness >= self.threshold:
                gradient.drop()
                if self.cancel:
                    readers = []  # the worker was sent newer weights already
            else:
                yield node.work(node.apply_seconds)
                weights, state = self.rule.update(node.weights, [gradient], state)
                node.apply(weights, [gradient])
                if self.cancel:
                    late = (
                        other
                        for other, version in read.items()
                        if node.version - version >= self.threshold
                    )
                    readers += [other for other in late if other != worker]
            for reader in readers:
                read[reader] = node.version
                send(reader, node.weights)
