"""Methods whose nodes may compress what they send."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from laggard.simulator.algorithms.base import Algorithm, Role
from laggard.simulator.engine.cluster import Cluster
from laggard.simulator.engine.node import Node
from laggard.simulator.errors import InvalidSettingError
from laggard.simulator.learning.compression import Compress, Encoder
from laggard.simulator.learning.rules import Rule
from laggard.simulator.network.topology import SERVER

WHOLE_MESSAGES = {"shards": (1, "1"), "bucket_bytes": (None, "null"), "cancel": (False, "false")}
"""The settings with which a node sends its whole value at once, and knows from the next answer
whether it was dropped; in Python and in a config.
"""


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

    def encoder(self, node: Node) -> Encoder | None:
        """What codes the messages of a node; None without compression."""
        if self.compress is None:
            return None
        return Encoder(self.compress, node.rank, node.weights.shape[1])


@dataclass(frozen=True)
class ReadComputePush(Compressing):
    """A method whose worker reads, computes, pushes, and reads again when the server answers."""

    rule: Rule

    def worker(self, node: Node) -> Role:
        encoder = self.encoder(node)
        if encoder is None:
            return read_compute_push(node)
        return push_compressed(node, encoder)


def read_compute_push(node: Node) -> Role:
    """The worker of one asynchronous server."""
    node.send(SERVER, None, size=0)  # announces the worker
    while True:
        _, weights = yield node.receive()
        gradient = yield node.compute(weights)
        node.send(SERVER, gradient)
        del gradient  # else its value and its weights stay until the next one is computed


def push_compressed(
    node: Node, encoder: Encoder, pack: Callable[[Any], Any] = lambda gradient: gradient
) -> Role:
    """The worker of one server that compresses its gradients.

    Args:
        pack: from a gradient to the content of its message.
    """
    node.send(SERVER, None, size=0)  # announces the worker
    while True:
        _, weights = yield node.receive()
        gradient = yield node.compute(weights)
        yield node.work(encoder.seconds)
        node.send(SERVER, pack(encoder.encode_gradient(gradient)), size=encoder.size)
