"""Methods whose nodes may compress what they send, and servers that may compress their answers."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

from laggard.simulator.algorithms.base import Algorithm, Role
from laggard.simulator.engine.cluster import Cluster
from laggard.simulator.engine.node import Node
from laggard.simulator.errors import InvalidSettingError
from laggard.simulator.learning.compression import Compress, Encoder, Whole
from laggard.simulator.learning.rules import Rule
from laggard.simulator.learning.weights import stamp
from laggard.simulator.network.topology import SERVER
from laggard.simulator.timing.events import Event, Message, Receive, with_list

if TYPE_CHECKING:
    from torch import Tensor

WHOLE_MESSAGES = {"shards": (1, "1"), "bucket_bytes": (None, "null")}
"""The settings with which a node sends its whole value at once; in Python and in a config."""


@dataclass(frozen=True)
class Compressing(Algorithm):
    """A method whose workers may compress what they send.

    Attributes:
        compress: the compressor of the workers' messages; null sends all numbers.
    """

    compress: Compress | None = field(default=None, kw_only=True)

    def check(self, cluster: Cluster) -> None:
        super().check(cluster)
        if self.compress is None:
            return
        self._check_messages("compress", self.compress, cluster)
        # A server adds up what it has decoded, as each node of a mesh does.
        collective = getattr(self, "collective", "mesh")
        if collective != "mesh" and not self.compress.is_linear:
            expected = f"mesh: a sum of {self.compress.name} messages is larger than one of them"
            raise InvalidSettingError(type(self).__name__, "collective", expected, collective)

    def _check_messages(self, key: str, compress: Compress, cluster: Cluster) -> None:
        """Refuse messages with parts of a model, and servers that lose messages in a crash."""
        name = type(self).__name__
        for other, (whole, text) in WHOLE_MESSAGES.items():
            value = getattr(self, other, whole)
            if value != whole:
                raise InvalidSettingError(name, other, f"{text} with {key}", value)
        if cluster.server_crashes:
            expected = "null where servers crash: a restored one lacks what it was sent"
            raise InvalidSettingError(name, key, expected, compress.name)

    def encoder(self, node: Node) -> Whole:
        """The encoder of a node's messages, each of a whole model."""
        (encoder,) = self.encoders(node, [node.weights.shape[1]])
        return encoder

    def encoders(self, node: Node, parts: Sequence[int]) -> Sequence[Whole]:
        """The encoders of a node that sends its model in parts; each message has its own draws.

        Args:
            parts: the number of parameters of each part.
        """
        if self.compress is None:
            return [Whole() for _ in parts]
        numbers = count(1)
        return [Encoder(self.compress, node.rank, params, numbers) for params in parts]


class Answers:
    """A server's models on their way to workers: whole.

    Attributes:
        send: `send(worker, weights, size=...)`, the verb of the node.
    """

    def __init__(self, node: Node) -> None:
        self.send = node.send

    def forget(self, worker: int) -> None:
        """Note that a worker has announced itself: it holds no model."""


class CompressedAnswers(Answers):
    """A server's models on their way to workers: whole at first, then C of what has changed.

    Worker i holds v_i, and the server knows it: v_i <- v_i + C(w - v_i), so that w - v_i is what it
    has not sent. Workers that hold the same are sent the same.

    A change is useful only to a worker that has the model before it, and a smaller message could
    overtake that model on a shared link. So the next change waits until the bytes of the model have
    left, and then contains all that has changed.
    """

    def __init__(self, node: Node, compress: Compress) -> None:
        self._node = node
        self._compress = compress
        self._size = compress.size(node.weights.shape[1])
        self._held: dict[int, tuple[Tensor, int]] = {}  # v_i, and the messages that made it
        self._coded: tuple[Tensor, Tensor, int, Tensor] | None = None  # the last v, w, and new v
        self._last: dict[int, Message] = {}  # to each worker
        self._awaited: dict[int, Message] = {}  # the departures for which changes wait
        self.send = self._send  # type: ignore[assignment]

    def forget(self, worker: int) -> None:
        for of_worker in (self._held, self._last, self._awaited):
            of_worker.pop(worker, None)

    def _send(self, worker: int, weights: "Tensor", size: float = 1.0) -> Message | None:
        """Send `weights`; None if that waits for the departure of the last message."""
        if worker in self._awaited:
            return None
        last = self._last.get(worker)
        if last is not None:
            departed = last.departed
            if not departed.fired:
                self._awaited[worker] = last
                with_list(departed).callbacks.append(partial(self._go_on, worker, last))
                return None
        messages = 0
        if worker in self._held:
            held, messages = self._held[worker]
            weights = self._next(held, weights, messages)
            size = self._size
        self._held[worker] = weights, messages + 1
        message = self._node.send(worker, stamp(weights, self._node), size=size)
        self._last[worker] = message
        return message

    def _go_on(self, worker: int, message: Message, _: Event) -> None:
        """Send what has changed, unless the worker has announced itself since."""
        if self._awaited.get(worker) is message:
            del self._awaited[worker]
            self._send(worker, self._node.weights)

    def _next(self, held: "Tensor", weights: "Tensor", call: int) -> "Tensor":
        """v + C(w - v), computed once for all workers of an update that hold the same v."""
        if not weights.shape[1]:  # timing only
            return weights
        if self._coded is not None:
            last_held, last_weights, last_call, result = self._coded
            # Models are values: identity is enough. Draws depend on the number of the message.
            if held is last_held and weights is last_weights and call == last_call:
                return result
        result = held + self._compress.apply(weights - held, self._node.rank, call)
        self._coded = held, weights, call, result
        return result


@dataclass(frozen=True)
class CompressingServer(Compressing):
    """A method whose workers and server may compress what they send.

    With `compress_down` a worker that announces itself is sent the whole model w. From then on it
    is sent C of what has changed, and computes at v:

        v <- v + C(w - v)

    With |x - C(x)|^2 <= (1 - delta) |x|^2, the new w - v has at most the share 1 - delta of the
    squared length before the message. Where all workers are answered together, it is error feedback
    for the server's updates, with the memory w - v: DoubleSqueeze, or EF21-P. Gradients count as
    taken at the version of w. A change leaves once the bytes of the model before it have left.

    Source: Tang et al. (2019), arXiv 1905.05957 (DoubleSqueeze); Gruntkowska, Tyurin, Richtarik
    (2023), arXiv 2209.15218 (EF21-P).

    Attributes:
        compress_down: how the server compresses its models; null sends all numbers.
    """

    compress_down: Compress | None = field(default=None, kw_only=True)

    def check(self, cluster: Cluster) -> None:
        super().check(cluster)
        compress = self.compress_down
        if compress is None:
            return
        self._check_messages("compress_down", compress, cluster)
        name = type(self).__name__
        if compress.feedback != "ef":
            expected = "top_k, random_k or sign with ef: what is not sent is w - v"
            got = f"{compress.name} with {compress.feedback}"
            raise InvalidSettingError(name, "compress_down", expected, got)
        if compress.codec_seconds:
            expected = "codec_seconds of 0: cluster.reply_seconds is a server's time for an answer"
            raise InvalidSettingError(name, "compress_down", expected, compress.codec_seconds)

    def answers(self, node: Node) -> Answers:
        """The sender of a server's models."""
        if self.compress_down is None:
            return Answers(node)
        return CompressedAnswers(node, self.compress_down)


@dataclass(frozen=True)
class ReadComputePush(CompressingServer):
    """A method whose worker reads, computes, pushes, and reads again when the server answers."""

    rule: Rule

    def worker(self, node: Node) -> Role:
        if self.compress is None:
            return read_compute_push(node)
        return push_compressed(node, self.encoder(node))


def read_compute_push(node: Node) -> Role:
    """A worker's role with one asynchronous server: read, compute, push."""
    node.send(SERVER, None, size=0)  # announces the worker
    while True:
        _, weights = yield node.receive()
        gradient = yield node.compute(weights)
        node.send(SERVER, gradient)
        del gradient  # else its value and its weights stay until the next one is computed


def push_compressed(node: Node, encoder: Whole) -> Role:
    """As `read_compute_push`, for a worker that compresses its gradients."""
    node.send(SERVER, None, size=0)  # announces the worker
    while True:
        _, weights = yield node.receive()
        gradient = yield node.compute(weights)
        yield node.work(encoder.seconds)
        node.send(SERVER, encoder.encode_gradient(gradient), size=encoder.size)


def code_or_receive(node: Node, encoder: Whole) -> Generator[Event, Any, Receive]:
    """Take the time to code a message, unless a message arrives first; return that receive."""
    coding = node.work(encoder.seconds)
    receive = node.receive()
    yield coding | receive
    if receive.fired:
        coding.cancel()
    return receive
