"""Synchronous SGD without a server: the nodes sum their gradients by a collective."""

from dataclasses import dataclass
from typing import ClassVar

from laggard.simulator.algorithms.base import Role
from laggard.simulator.algorithms.bucketing import Bucketed
from laggard.simulator.algorithms.collectives.reducing import Reducing
from laggard.simulator.algorithms.collectives.schedule import ALL
from laggard.simulator.algorithms.compressing import Compressing
from laggard.simulator.engine.node import Node
from laggard.simulator.learning.promises import concatenate


@dataclass(frozen=True)
class AllReduce(Compressing, Reducing, Bucketed):
    """All-reduce SGD: the nodes sum their gradients by a collective, and each makes the update.

        w <- w - lr (1/P) sum_j g_j(w)

    at every node. Models and the nodes' optimiser states are equal after every update, bit for bit:
    it is `sync_ps` without a server, and with one worker plain SGD. Staleness 0; a compensation
    sees the mean gradient, which is fresh, so that only `one_over_n` has an effect.

    In each step of a collective a node waits until it has received its message, and until the last
    byte of the message that it sends has left; with `rendezvous` of the network, until that message
    has arrived. All wait for a straggler. A collective takes these seconds for P nodes that begin
    together, N bytes, latency alpha, beta seconds a byte and full duplex, with either `sharing`,
    the last two with `sharing: fair`:

    ring                2 (P - 1) alpha + 2 ((P - 1) / P) N beta
    naive_ring          (P - 1)(alpha + N beta)
    mesh                alpha + (P - 1) N beta on a card each, alpha + N beta on a link per pair
    recursive_doubling  log2 P (alpha + N beta)
    halving_doubling    2 log2 P alpha + 2 ((P - 1) / P) N beta
    tree                2 ceil(log2 P)(alpha + N beta)
    server              2 alpha + 2 ((P - 1) / S) N beta, S of the nodes serve; S = P is the direct
                        all-reduce
    hierarchical        2 (g - 1)(alpha' + N beta' / g) + 2 (m - 1)(alpha + N beta / m),
                        m hosts of g workers

    With `bucket_bytes`, buckets of gradients are summed one after another while the backward pass
    goes on:

        e_k = max(r_k, e_{k-1}) + R(c_k)

    Bucket k has c_k bytes, is computed at r_k and summed at e_k. R(c) is one of the times above,
    for c bytes. A step takes e_K, for the last bucket K; with alpha = 0 that is no more than the
    t_c + R(N) of one bucket.

    Source: Patarasuk & Yuan (2009), ring; Thakur, Rabenseifner, Gropp (2005), recursive doubling
    and halving, tree.

    Attributes:
        collective: the collective that sums the gradients. The naive ring forwards whole gradients;
            on the mesh every node sends its own to every other; with `server` the first of the
            nodes add up gradients and send the sum to all, each of which updates its own model;
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
        if self.bucket_bytes is None:
            return self.at_once(node)
        return self.in_buckets(node)

    def at_once(self, node: Node) -> Role:
        """Sum the gradients once they are computed."""
        collective = self.collective_of(node.group_size)
        encoder = self.encoder(node)
        if self.compress is not None:
            collective = collective.of_bucket(ALL, encoder.size)
        reduce = collective.reduce
        state = node.state or self.rule.init(node.weights)
        while True:
            gradient = yield node.compute(node.weights)
            message = gradient
            if self.compress is not None:
                yield node.work(encoder.seconds)
                message = encoder.encode_gradient(gradient)
            total = yield from reduce(node, message, node.weights.shape[1], node.version)
            state = self.step(node, gradient, total, state)

    def in_buckets(self, node: Node) -> Role:
        """Sum the gradients bucket by bucket: each when it is ready and the last sum is done."""
        collective = self.collective_of(node.group_size)
        buckets = self.buckets(node)
        sums = [collective.of_bucket(bucket.columns, bucket.size) for bucket in buckets]
        params = node.weights.shape[1]
        state = node.state or self.rule.init(node.weights)
        while True:
            work = node.compute(node.weights, buckets=[bucket.ready for bucket in buckets])
            totals = []
            for number, ready in enumerate(work.buckets):
                gradient = yield ready
                part = gradient[sums[number].columns]
                tag = (node.version, number)
                totals.append((yield from sums[number].reduce(node, part, params, tag, gradient)))
            # the last layers come first, but last in the model
            state = self.step(node, gradient, concatenate(totals[::-1]), state)
