"""Synchronous SGD without a server: the nodes sum their gradients by a collective."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import ClassVar

from laggard.simulator.algorithms.base import Role
from laggard.simulator.algorithms.bucketing import Bucketed
from laggard.simulator.algorithms.collectives.reducing import Reducing
from laggard.simulator.algorithms.slicing import Sliced, SliceQueue, forward_by_layers
from laggard.simulator.engine.node import Node
from laggard.simulator.errors import Positive
from laggard.simulator.learning.promises import Later, Promise, concatenate


@dataclass(frozen=True)
class AllReduce(Reducing, Bucketed):
    """All-reduce SGD: the nodes sum their gradients by a collective, and each updates its own model
    by the mean.

    w <- w - lr (1/P) sum_j g_j(w), at every node. Models and the nodes' optimiser states are equal
    after every update, bit for bit: it is `sync_ps` without a server, and with one worker plain
    SGD.
    Staleness 0; a compensation sees the mean gradient, which is fresh, so that only `one_over_n`
    has an effect.
    A worker that crashes is not readmitted, and the others wait for it forever.

    For P nodes that begin together, N bytes, latency alpha, beta seconds a byte, full duplex; all
    wait for a straggler:
    ring                2 (P - 1) alpha + 2 ((P - 1) / P) N beta
    naive_ring          (P - 1)(alpha + N beta)
    mesh                alpha + (P - 1) N beta on a card each, alpha + N beta on a link a pair
    recursive_doubling  log2 P (alpha + N beta)
    halving_doubling    2 log2 P alpha + 2 ((P - 1) / P) N beta
    tree                2 ceil(log2 P)(alpha + N beta)
    server              2 alpha + 2 ((P - 1) / S) N beta, S of the nodes serve
    hierarchical        2 (g - 1)(alpha' + N beta' / g) + 2 (m - 1)(alpha + N beta / m), m hosts of g workers

    With `bucket_bytes`, buckets of gradients are summed one after another while the backward pass
    goes on. Bucket k of c_k bytes is computed after r_k and summed after e_k = max(r_k, e_{k-1}) +
    R(c_k), R one of these times, and a step takes e_K, where the K-th is the last: with alpha = 0
    no more than the t_c + R(N) of one bucket.

    Source: Patarasuk & Yuan (2009), ring; Thakur, Rabenseifner, Gropp (2005), recursive doubling
    and halving, tree.

    Attributes:
        collective: how the gradients are summed. The naive ring forwards whole gradients; on the
            mesh every node sends its own to every other; with `server` the first of the nodes add
            up gradients and send the sum to all, each of which updates its own model;
            `hierarchical` goes inside and across the network's hosts, or groups.
        ring_slices: parts into which the ring cuts each message, at most 1,024; a node passes one
            on while the next comes, which hides the latency. With `sharing: fifo` only.
        servers: S of `server`, at most all nodes; each adds up one part.
        bucket_bytes: size of a bucket (bytes), filled from the last layer on, the first with 1 MiB
            at most; null sends the whole gradient once it is computed.
        backward: the time of a backward pass in forward passes; a mini-batch takes both.
    """

    only_collectives: ClassVar[bool] = True

    def worker(self, node: Node) -> Role:
        return self.at_once(node) if self.bucket_bytes is None else self.in_buckets(node)

    def at_once(self, node: Node) -> Role:
        """Sum the gradients once they are computed."""
        reduce = self.collective_of(node.group_size).reduce
        state = self.rule.init(node.weights)
        while True:
            gradient = yield node.compute(node.weights)
            total = yield from reduce(node, gradient, node.weights.shape[1], node.version)
            state = self.step(node, gradient, total, state)

    def in_buckets(self, node: Node) -> Role:
        """Sum the gradients bucket by bucket, each as soon as it is there and the one before is
        summed.
        """
        collective, buckets = self.collective_of(node.group_size), self.buckets(node)
        sums = [collective.of_bucket(bucket.columns, bucket.size) for bucket in buckets]
        params, state = node.weights.shape[1], self.rule.init(node.weights)
        while True:
            work, totals = (
                node.compute(node.weights, buckets=[bucket.ready for bucket in buckets]),
                [],
            )
            for number, ready in enumerate(work.buckets):
                gradient, tag = (yield ready), (node.version, number)
                part = gradient[sums[number].columns]
                totals.append((yield from sums[number].reduce(node, part, params, tag, gradient)))
            state = self.step(node, gradient, concatenate(totals[::-1]), state)


COMPUTED, FREE, ORDER, SUM, GRADIENT = "computed", "free", "order", "sum", "gradient"
"""What the roles of `PriorityAllReduce` tell each other, as tags."""


@dataclass(frozen=True)
class PriorityAllReduce(Reducing, Sliced):
    """All-reduce SGD in slices: the front layers' are summed first, and a layer's forward pass
    waits only for its own.

    w <- w - lr (1/P) sum_j g_j(w), at every node: the weights of `all_reduce`, bit for bit, at
    other times. A layer is cut into slices of at most c bytes. The nodes sum one slice after
    another by a collective, while they compute.

    All must sum the same slice next, or they would wait for each other forever. The first node
    names it, as Horovod's coordinator does. A node tells it which layers it has computed, and
    whenever the first node is free, it names one of the slices that all have computed, of the
    front-most layer. That takes messages of no bytes, there and back. So no node waits inside a
    collective for a gradient that is not there, however slow a node is. There is no deadlock, since
    forward passes wait for sums and backward passes for nothing. No collective is interrupted.

    Let R(c) be the seconds in which P equal nodes sum c bytes (`all_reduce`), alpha the latency,
    and f_l and b_l those of the passes of layer l, the last of which is L. A slice that is computed
    after r, and named after the one before, is summed after e; x_l is the e of the layer's last
    slice:

        e = max(r + alpha, e of the one before) + alpha + R(c)
        F_l = max(F_{l-1}, x_l of the step before) + f_l,    B_L = F_L + b_L,    B_l = B_{l+1} + b_l

    On a free network a step takes f + b, of uneven nodes that of the slowest; with one layer in one
    slice, 2 alpha more than `all_reduce`. Where a collective ends everywhere at once, the network
    is busy at the same times in any order: with constant latencies and slowdowns no update comes
    later than with `order: fifo`, whatever the nodes and slices. A tree does not end so, nor does a
    server over queues (`sharing: fifo`): there a single update may come later.
    A worker that crashes is not readmitted, and the others wait for it forever.

    Attributes:
        slice_bytes: c (bytes); null sums whole layers. ByteScheduler has 1,000,000 parameters. A
            layer has 4,096 slices at most.
        order: which slice is summed first: that of the front-most layer, or with `fifo` the one
            computed first.
        collective, ring_slices, servers: how a slice is summed, as those of `all_reduce`.
        backward: the time of a backward pass in forward passes; layers share both by their work.

    Source: Peng et al. (2019), SOSP (ByteScheduler); the coordinator: Horovod,
    horovod/common/controller.h.
    """

    slice_bytes: Positive | None = 4_000_000.0

    def roles(self, workers: int) -> Mapping[int, Sequence[Callable[[Node], Role]]]:
        both = [self.worker, self.exchange]
        return {rank: both if rank else [*both, self.coordinate] for rank in range(workers)}

    def links(self, workers: int) -> Iterable[tuple[int, int]]:
        """Also between the first node and all others."""
        yield from super().links(workers)
        yield from (pair for rank in range(1, workers) for pair in ((0, rank), (rank, 0)))

    def worker(self, node: Node) -> Role:
        """Compute gradients; the forward pass of a layer waits for its sums."""
        layers, first = self.layers(node), True
        while True:
            seconds, batch = node.duration(), node.batch()
            wait = None if first else partial(await_sums, node)
            started, first = (yield from forward_by_layers(node, layers, seconds, wait)), False
            own = Later()  # slices of it are summed before all of it is computed
            node.put(own, GRADIENT)
            for layer in reversed(layers):
                yield node.work(share=layer.backward, of=seconds)
                if layer.number == 0:
                    gradient = node.promise(node.weights, batch, started)
                    own.become(gradient)
                    node.put(gradient, GRADIENT)
                if node.rank == 0:
                    node.put(layer.number, COMPUTED)
                else:
                    node.send(0, layer.number, COMPUTED, size=0)

    def coordinate(self, node: Node) -> Role:
        """Whenever the first node is free, name the slice that is next of those that all nodes have
        computed.
        """
        layers, waiting, computed = self.layers(node), SliceQueue(self.order), Counter[int]()
        for turn in count():
            yield node.receive(FREE)
            while not waiting or node.arrived(COMPUTED):
                _, number = yield node.receive(COMPUTED)
                computed[number] += 1
                if computed[number] % node.workers == 0:
                    for piece in range(layers[number].slices):
                        waiting.put(number, (number, piece))
            named = waiting.take()
            for rank in range(1, node.workers):
                node.send(rank, named, (ORDER, turn), size=0)
            node.put(named, (ORDER, turn))

    def exchange(self, node: Node) -> Role:
        """Sum the slices of a gradient, one after another as they are named; then update the
        model.
        """
        collective, params = self.collective_of(node.group_size), node.weights.shape[1]
        state = self.rule.init(node.weights)
        slices = {
            (layer.number, piece): collective.of_bucket(layer.slice_columns(piece), layer.size)
            for layer in self.layers(node)
            for piece in range(layer.slices)
        }
        turns = count()
        while True:
            _, own = yield node.receive(GRADIENT)
            totals: dict[tuple[int, int], Promise] = {}
            while len(totals) < len(slices):
                turn = next(turns)
                if node.rank == 0:
                    node.put(None, FREE)
                _, named = yield node.receive((ORDER, turn))
                part = slices[named]
                totals[named] = yield from part.reduce(node, own[part.columns], params, turn)
                if len(totals) == len(slices):
                    _, gradient = yield node.receive(GRADIENT)
                    total = concatenate([totals[one] for one in slices])
                    state = self.step(node, gradient, total, state)
                node.put(None, (SUM, named[0]))


def await_sums(node: Node, layer: int, slices: int) -> Role:
    """Wait until so many slices of the layer of that number are summed."""
    for _ in range(slices):
        yield node.receive((SUM, layer))
