"""Synchronous SGD whose slices of gradients travel by priority, while the next forward pass begins
layer by layer.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from laggard.simulator.algorithms.base import Role
from laggard.simulator.algorithms.sharding import Sharded, Shards
from laggard.simulator.algorithms.slicing import Sliced, SlicedLayer, SliceQueue, forward_by_layers
from laggard.simulator.engine.cluster import Cluster
from laggard.simulator.engine.node import Node
from laggard.simulator.errors import Positive
from laggard.simulator.learning.gradients import GradientPromise
from laggard.simulator.timing.events import Event, Message, with_list


@dataclass(frozen=True)
class P3(Sharded, Sliced):
    """Priority-based parameter propagation: slices of the front layers go first, and a layer waits
    only for its own slices.

        w <- w - lr (1/P) sum_i g_i(w)

    The weights are those of `sync_ps`, bit for bit; the times differ. A layer is cut into slices of
    at most c bytes. A worker sends the slices whose gradients are computed, one at a time: whenever
    one has arrived, the first slice of the front-most layer follows. A server answers a slice with
    its new values once all workers have sent it, one slice at a time by the same priority. The
    forward pass of a layer waits for the new values of its slices. Of several shards, each has an
    equal part of every slice.

    The times of a step, for layers l = 1 .. L from the front:

        F_l = max(F_{l-1}, x_l of the step before) + f_l,    B_L = F_L + b_L,    B_l = B_{l+1} + b_l

    The passes of layer l take f_l and b_l seconds: the forward pass ends at F_l, and the gradient
    is computed at B_l. All slices of the layer are answered at x_l. The layer has the share p_l of
    N bytes, in n_l slices. With P equal workers on equal cards, full duplex, fair sharing, one
    server, latency alpha and beta seconds a byte, a slice takes alpha + P p_l N beta / n_l either
    way.

    On a free network a step takes f + b, the sums of the f_l and b_l; with one layer in one slice,
    2 (alpha + P N beta) more. For equal workers and slices of one size, no step is longer than with
    `order: fifo`; otherwise it is longer by no more than the time of the largest slice. If a worker
    crashes, the others wait for it forever. It cannot return: servers may have answered some slices
    of the gradient that it has lost.

    Attributes:
        slice_bytes: c (bytes); null sends whole layers. MXNet's P3Store has 40,000 parameters. No
            layer has over 4,096 slices.
        order: the slice that goes first: a slice of the front-most layer, or with `fifo` the slice
            that was computed first.
        backward: the time of a backward pass in forward passes; layers share both by their work.

    Source: Jayarajan et al. (2019), arXiv 1905.03960; Peng et al. (2019), SOSP (ByteScheduler).
    """

    readmits: ClassVar[bool] = False

    slice_bytes: Positive | None = 160_000.0

    def updates_in_parts(self, workers: int) -> bool:
        return True

    def check(self, cluster: Cluster) -> None:
        super().check(cluster)
        why = "servers may have answered slices of a gradient that a worker loses in a crash"
        self.refuse_returns(cluster, why)

    def worker(self, node: Node) -> Role:
        servers = Shards(node, self.shards)
        layers = self.layers(node)
        stream = Stream(self.order)
        first = True
        servers.announce()
        yield from servers.read()
        while True:
            seconds = node.duration()
            batch = node.batch()
            await_slices = None if first else servers.await_slices
            started = yield from forward_by_layers(node, layers, seconds, await_slices)
            first, weights = False, servers.model()
            for layer in reversed(layers):
                yield node.work(share=layer.backward, of=seconds)
                # all of it is computed
                if layer.number:
                    gradient = None
                else:
                    gradient = node.promise(weights, batch, started)
                for number in range(layer.slices):
                    content = layer.number, number, gradient
                    stream.put(layer.number, partial(servers.push, content, size=layer.size))

    def server(self, node: Node) -> Role:
        """Answer each slice once it has come from all workers.

        An update changes every parameter by itself, so that it can begin with the slices that have
        come. Its arithmetic is done, and it is counted, once all have come: nobody computes a
        gradient at the new weights before.
        """
        stream = Stream(self.order)
        layers = self.layers(node)
        state = self.rule.init(node.weights)
        come: dict[tuple[int, int], list[int]] = {}
        gradients: dict[int, GradientPromise] = {}
        left = slices = sum(layer.slices for layer in layers)
        while True:
            worker, content = yield node.receive()
            if content is None:
                node.send(worker, node.weights, size=1 / self.shards)
                continue
            layer, number, gradient = content
            if gradient is not None:
                gradients[worker] = gradient
            readers = come.setdefault((layer, number), [])
            readers.append(worker)
            if len(readers) < node.workers:
                continue
            yield node.work(layers[layer].size * node.apply_seconds)
            # The version before the update: answers that leave after the update carry the new
            # model.
            read = node.version
            left -= 1
            if not left:
                taken = [gradients[worker] for worker in sorted(gradients)]
                weights, state = self.rule.update(node.weights, taken, state)
                node.apply(weights, taken)
                left, gradients = slices, {}
            stream.put(
                layer, partial(self.answer, node, come.pop((layer, number)), layers[layer], read)
            )

    def answer(
        self, node: Node, readers: Sequence[int], layer: SlicedLayer, read: int
    ) -> list[Message]:
        """Send `readers` a slice of `layer`, with the model if its version is above `read`."""
        model = node.weights if node.version > read else None
        return [
            node.send(reader, model, layer.number, layer.size / self.shards) for reader in readers
        ]


class Stream:
    """The sends of a node, one at a time: when one has arrived, the most urgent waiting one
    follows.

    Args:
        order: `priority`, or `fifo`: the send that has waited longest.
    """

    def __init__(self, order: str) -> None:
        self._waiting = SliceQueue(order)
        self._under_way = 0

    def put(self, layer: int, send: Callable[[], Sequence[Message]]) -> None:
        """Queue `send` and call it in its turn; it sends a slice of `layer` as one or more
        messages.
        """
        self._waiting.put(layer, send)
        if not self._under_way:
            self._send_next()

    def _send_next(self) -> None:
        messages: Sequence[Message] = self._waiting.take()()
        self._under_way = len(messages)
        for message in messages:
            with_list(message).callbacks.append(self._arrived)

    def _arrived(self, message: Event) -> None:
        self._under_way -= 1
        if self._waiting and not self._under_way:
            self._send_next()
