"""The synchronous parameter server: it waits for all of its workers, or for the first of them."""

from dataclasses import dataclass
from typing import ClassVar

from laggard.simulator.algorithms.base import Role, count_awaited
from laggard.simulator.algorithms.bucketing import Bucketed
from laggard.simulator.algorithms.compressing import CompressingServer
from laggard.simulator.algorithms.sharding import Sharded, Shards
from laggard.simulator.engine.cluster import Cluster
from laggard.simulator.engine.node import Node
from laggard.simulator.errors import InvalidSettingError, NumberOrShare, PositiveInt
from laggard.simulator.learning.gradients import GradientPromise
from laggard.simulator.learning.rules import Rule
from laggard.simulator.network.topology import SERVER


@dataclass(frozen=True)
class Synchronous(CompressingServer, Sharded):
    """The server of the family: a mean over the first workers at the present version.

    w <- w - lr (1/K) sum of the first K gradients
    """

    recovers = True
    rule: Rule

    def check(self, cluster: Cluster) -> None:
        super().check(cluster)
        if self.shards > 1 and cluster.server_crashes:
            # shards in different rounds may wait for each other for ever
            expected = "1 (cluster.server_crashes)"
            raise InvalidSettingError(type(self).__name__, "shards", expected, self.shards)

    def to_the_end(self, node: Node) -> Role:
        """A worker that sends each of its gradients, late or not."""
        servers = Shards(node, self.shards)
        encoder = self.encoder(node)
        servers.announce()
        while True:
            gradient = yield node.compute((yield from servers.read()))
            if encoder.seconds:
                yield node.work(encoder.seconds)
            servers.push([encoder.encode_gradient(gradient)], size=encoder.size)

    def first(self, node: Node, wait_for: int, cancel: bool = False) -> Role:
        """Wait for `wait_for` workers an update; `cancel` interrupts the others with new weights.

        A worker counts once per update, even if it crashes and returns. Gradients of weights from
        before a restore are late too.
        """
        state = node.state or self.rule.init(node.weights)
        workers: dict[int, None] = {}
        gathered: dict[int, list[GradientPromise]] = {}
        waiting: dict[int, None] = {}  # workers whom the next update answers
        answers = self.answers(node)
        send = answers.send
        while True:
            worker, gradients = yield node.receive()
            workers[worker] = None
            if gradients is None:
                answers.forget(worker)
                # It may have crashed while it waited. With a second answer it would compute a late
                # gradient before each of its others, for ever.
                waiting.pop(worker, None)
                send(worker, node.weights, size=1 / self.shards)
            else:
                late = gradients[0].staleness + gradients[0].mixings > 0
                if late or worker in gathered:
                    for gradient in gradients:
                        gradient.drop()
                    if late and not cancel:  # else the next update is its answer
                        send(worker, node.weights, size=1 / self.shards)
                    else:
                        waiting[worker] = None
                else:
                    gathered[worker] = gradients
                    waiting[worker] = None
            if len(gathered) == wait_for:
                yield node.work(node.apply_seconds)
                # in order of rank: the sum does not depend on the order of arrival
                taken = [gradient for worker in sorted(gathered) for gradient in gathered[worker]]
                weights, state = self.rule.update(node.weights, taken, state)
                node.apply(weights, taken, state)
                readers = workers if cancel else waiting
                for reader in readers:
                    send(reader, node.weights, size=1 / self.shards)
                gathered, waiting = {}, {}


BUCKET = "bucket"
"""The tag of the new weights of all buckets but the last."""


@dataclass(frozen=True)
class SyncPS(Synchronous, Bucketed):
    """Synchronous SGD: an update is the mean of all workers' gradients at the same weights.

        w <- w - lr (1/P) sum_i g_i(w)

    This equals one worker with all P mini-batches, which count equally whatever the workers'
    numbers of samples. Staleness 0.

    With `bucket_bytes`, a worker sends the last mini-batch's gradient in buckets, one at a time,
    while the backward pass goes on. A server answers each bucket with its new weights once all
    workers have sent it. For P equal workers, one server's card with full duplex and fair sharing,
    latency alpha and beta seconds a byte:

        e_k = max(r_k, e_{k-1}) + alpha + P c_k beta,    a_k = max(e_k, a_{k-1}) + P c_k beta

    Bucket k has c_k bytes, is computed at r_k and has arrived at e_k; its answer has left at a_k. A
    step takes a_K + alpha, for the last bucket K.

    Attributes:
        accumulate: mini-batches of a worker per update, all at the weights that it read.
        bucket_bytes: size of a bucket (bytes), filled from the last layer on, the first with 1 MiB
            at most; null sends the whole gradient once it is computed.
        backward: the time of a backward pass in forward passes; a mini-batch takes both.

    Source: Chen et al. (2016), arXiv 1604.00981, algorithms 3 and 4, without backup workers.
    """

    accumulate: PositiveInt = 1

    def updates_in_parts(self, workers: int) -> bool:
        return super().updates_in_parts(workers) or self.bucket_bytes is not None

    def check(self, cluster: Cluster) -> None:
        super().check(cluster)
        if self.bucket_bytes is not None and cluster.has_crashes:
            why = "others may have new weights of buckets of a lost gradient"
            where = "where workers crash or leave, or servers crash"
            name = type(self).__name__
            expected = f"null {where}: {why}"
            raise InvalidSettingError(name, "bucket_bytes", expected, self.bucket_bytes)
        if self.compress is not None and self.accumulate > 1:
            expected = "1 with compress"
            raise InvalidSettingError(type(self).__name__, "accumulate", expected, self.accumulate)

    def worker(self, node: Node) -> Role:
        if self.compress is not None:
            return self.to_the_end(node)
        if self.bucket_bytes is not None:
            return self.in_buckets(node)
        if self.shards == 1:
            return self.with_one_server(node)
        return self.with_shards(node)

    def with_one_server(self, node: Node) -> Role:
        node.send(SERVER, None, size=0)  # announces the worker
        while True:
            _, weights = yield node.receive()
            gradients = []
            for _ in range(self.accumulate):
                gradients.append((yield node.compute(weights)))
            node.send(SERVER, gradients)

    def with_shards(self, node: Node) -> Role:
        servers = Shards(node, self.shards)
        servers.announce()
        while True:
            weights = yield from servers.read()
            gradients = []
            for _ in range(self.accumulate):
                gradients.append((yield node.compute(weights)))
            servers.push(gradients)

    def in_buckets(self, node: Node) -> Role:
        servers = Shards(node, self.shards)
        buckets = self.buckets(node)
        servers.announce()
        while True:
            weights = yield from servers.read()
            gradients = []
            for _ in range(self.accumulate - 1):
                gradients.append((yield node.compute(weights)))
            work = node.compute(weights, buckets=[bucket.ready for bucket in buckets])
            for number, (bucket, ready) in enumerate(zip(buckets, work.buckets, strict=True)):
                gradient = yield ready
                # their values are known with the last bucket
                whole = [*gradients, gradient] if ready is work else []
                sent = servers.push((number, whole), size=bucket.size)
                while sent:
                    yield sent.pop()
            # `read` awaits the last bucket alone, and the next mini-batch needs the weights of all.
            for _ in range((len(buckets) - 1) * self.shards):
                yield node.receive(BUCKET)

    def server(self, node: Node) -> Role:
        if self.bucket_bytes is None:
            return self.first(node, node.workers)
        return self.bucket_by_bucket(node)

    def bucket_by_bucket(self, node: Node) -> Role:
        """Answer each bucket with its new weights once all workers have sent it.

        An update changes each parameter independently, so that it can begin with the first bucket.
        Its arithmetic is done, and it is counted, with the last one: no worker uses the new weights
        before.
        """
        state = self.rule.init(node.weights)
        sizes = [bucket.size for bucket in self.buckets(node)]
        gathered: list[dict[int, list[GradientPromise]]] = [{} for _ in sizes]
        while True:
            worker, content = yield node.receive()
            if content is None:
                node.send(worker, node.weights, size=1 / self.shards)
                continue
            number, gradients = content
            gathered[number][worker] = gradients
            if len(gathered[number]) < node.workers:
                continue
            yield node.work(sizes[number] * node.apply_seconds)
            readers, gathered[number] = gathered[number], {}
            tag: str | None = BUCKET
            answer = None
            if number == len(sizes) - 1:
                taken = [gradient for worker in sorted(readers) for gradient in readers[worker]]
                weights, state = self.rule.update(node.weights, taken, state)
                node.apply(weights, taken)
                tag, answer = None, node.weights
            for reader in readers:
                node.send(reader, answer, tag=tag, size=sizes[number] / self.shards)


@dataclass(frozen=True)
class KSync(Synchronous):
    """K-sync SGD (backup workers): an update is the mean of the first K workers' gradients.

        w <- w - lr (1/K) sum_k g_k(w)

    over the first K of P workers' gradients at the present version. The slowest P - K are backup
    workers, and their late gradients are dropped. With K = P it is `sync_ps`. Exponential times
    with mean 1 / mu on a free network, the late cancelled: (H_P - H_(P-K)) / mu seconds an update.
    Staleness 0. Each shard decides by itself which gradients were late: one may count on some
    shards only.

    Attributes:
        wait_for: K, workers per update, or below 1 their share, rounded up; all by default.
        cancel: True interrupts the workers that are late with the new weights; False lets them
            finish first.

    Source: Chen et al. (2016), arXiv 1604.00981, algorithms 3 and 4; Dutta et al. (2018), arXiv
    1803.01113.
    """

    SPACE: ClassVar = {"algorithm.wait_for": {"choice": [0.75, 0.9]}}

    wait_for: NumberOrShare | None = None
    cancel: bool = False

    def check(self, cluster: Cluster) -> None:
        super().check(cluster)
        if self.cancel and cluster.server_crashes:
            why = "a late gradient would wait for an update that may never come"
            expected = f"false where servers crash: {why}"
            raise InvalidSettingError(type(self).__name__, "cancel", expected, True)
        count_awaited(self, self.wait_for, cluster.workers)

    def worker(self, node: Node) -> Role:
        if self.cancel:
            return self.until_overtaken(node)
        return self.to_the_end(node)

    def until_overtaken(self, node: Node) -> Role:
        """Send a gradient unless the next update comes first."""
        servers = Shards(node, self.shards)
        encoder = self.encoder(node)
        servers.announce()
        while True:
            work = node.compute((yield from servers.read()))
            overtaken = yield from servers.wait_until_overtaken(work)
            if encoder.seconds and not overtaken:
                coding = node.work(encoder.seconds)
                overtaken = yield from servers.wait_until_overtaken(coding)
                coding.cancel()
            if overtaken:
                work.cancel()
                continue
            gradient = encoder.encode_gradient(work.value)
            yield from servers.push_in_turn([gradient], size=encoder.size)

    def server(self, node: Node) -> Role:
        return self.first(node, count_awaited(self, self.wait_for, node.workers), self.cancel)
