"""Methods whose nodes may compress what they send."""

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any

from laggard.simulator.algorithms.base import Algorithm, Role
from laggard.simulator.engine.cluster import Cluster
from laggard.simulator.engine.node import Node
from laggard.simulator.errors import InvalidSettingError
from laggard.simulator.learning.compression import Compress, Encoder, Whole
from laggard.simulator.learning.rules import Rule
from laggard.simulator.network.topology import SERVER
from laggard.simulator.timing.events import Event, Receive

WHOLE_MESSAGES = {"shards": (1, "1"), "bucket_bytes": (None, "null")}
"""The settings with which a node sends its whole value at once; in Python and in a config."""


@dataclass(frozen=True)
class Compressing(Algorithm):
    """A method whose nodes may compress what they send; servers answer with whole models.

    Attributes:
        compress: how; null sends all numbers.
    """

    compress: Compress | None = field(default=None, kw_only=True)

    def check(self, cluster: Cluster) -> None:
        super().check(cluster)
        if self.compress is None:
            return
        name = type(self).__name__
        for key, (whole, text) in WHOLE_MESSAGES.items():
            value = getattr(self, key, whole)
            if value != whole:
                raise InvalidSettingError(name, key, f"{text} beside compress", value)
        if cluster.server_crashes:
            expected = "null where servers crash: a restored one lacks what it was sent"
            raise InvalidSettingError(name, "compress", expected, self.compress.name)
        # A server adds up what it has decoded, as each node of a mesh does.
        collective = getattr(self, "collective", "mesh")
        if collective != "mesh" and not self.compress.is_linear:
            expected = f"mesh: a sum of {self.compress.name} messages has not the size of one"
            raise InvalidSettingError(name, "collective", expected, collective)

    def encoder(self, node: Node, params: int | None = None) -> Whole:
        """What codes the messages of a node.

        Args:
            params: the numbers in a message; those of the model by default.
        """
        if self.compress is None:
            return Whole()
        if params is None:
            params = node.weights.shape[1]
        return Encoder(self.compress, node.rank, params)


@dataclass(frozen=True)
class ReadComputePush(Compressing):
    """A method whose worker reads, computes, pushes, and reads again when the server answers."""

    rule: Rule

    def worker(self, node: Node) -> Role:
        if self.compress is None:
            return read_compute_push(node)
        return push_compressed(node, self.encoder(node))


def read_compute_push(node: Node) -> Role:
    """The worker of one asynchronous server."""
    node.send(SERVER, None, size=0)  # announces the worker
    while True:
        _, weights = yield node.receive()
        gradient = yield node.compute(weights)
        node.send(SERVER, gradient)


def push_compressed(node: Node, encoder: Whole) -> Role:
    """The worker of one asynchronous server that compresses its gradients."""
    node.send(SERVER, None, size=0)  # announces the worker
    while True:
        _, weights = yield node.receive()
        gradient = yield node.compute(weights)
        yield node.work(encoder.seconds)
        node.send(SERVER, encoder.encode_gradient(gradient), size=encoder.size)


def code_or_receive(node: Node, encoder: Whole) -> Generator[Event, Any, Receive]:
    """Take the time to code a message, unless one comes before; return the receive of that."""
    coding, receive = node.work(encoder.seconds), node.receive()
    yield coding | receive
    if receive.fired:
        coding.cancel()
    return receive
