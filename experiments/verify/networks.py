"""How messages share cards: when they arrive, in closed form."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from experiments.verify.finding import Family, Finding, equals
from simulator import SERVER, Algorithm, Cluster, Network, Node, Role, Stop, simulate

GALLAGER, QUEUE, LOGP = "Bertsekas & Gallager", "fifo queue", "alpha-beta model"
P, ALPHA, TRANSFER = 8, 0.125, 0.25
networks = Family("networks", "Networks: how messages share cards")


@dataclass(frozen=True)
class Sends(Algorithm):
    """Each worker sends one message to the server, or waits for one; it computes, for the record, when that arrived.

    Attributes:
        moments: when each worker sends (s).
        sizes: of the messages, in models.
        scatter: whether it is the server that sends to each instead.
    """

    moments: Sequence[float]
    sizes: Sequence[float]
    scatter: bool = False

    def worker(self, node: Node) -> Role:
        yield node.work(self.moments[node.rank])
        if self.scatter:
            yield node.receive()
        else:
            yield node.send(SERVER, None, size=self.sizes[node.rank])
        gradient = yield node.compute(node.weights)
        gradient.drop()

    def server(self, node: Node) -> Role:
        if self.scatter:
            for worker, size in enumerate(self.sizes):
                node.send(worker, None, size=size)
        yield node.receive()


def arrivals(
    moments: Sequence[float], sizes: Sequence[float], scatter: bool = False, **network: float | str
) -> np.ndarray:
    """When each worker's message arrived (s), over cards of 1 byte a second unless told."""
    settings: Mapping[str, object] = {"bandwidth": 1.0, "message_bytes": 1.0, **network}
    cluster = Cluster(workers=len(sizes), network=Network(**settings))  # type: ignore[arg-type]
    rows = simulate(cluster, Sends(tuple(moments), tuple(sizes), scatter), stop=Stop(time=1e6)).updates
    return rows["started"][np.argsort(rows["worker"])]


@networks.check
def alone() -> Iterator[Finding]:
    """Latency, and bytes over bandwidth."""
    for sharing in ("fair", "fifo"):
        arrived = arrivals([1.0], [0.25], latency=ALPHA, sharing=sharing)
        yield equals(f"one message, {sharing}: alpha + N beta", LOGP, 1 + ALPHA + 0.25, arrived)
    token = arrivals([1.0], [0.0], latency=ALPHA)
    yield equals("a token of no bytes: alpha", LOGP, 1 + ALPHA, token)


@networks.check
def gather_and_scatter() -> Iterator[Finding]:
    """Through the server's card all messages take P N beta in either sharing; only their order differs."""
    for name, scatter in [("gather", False), ("scatter", True)]:
        for sharing in ("fair", "fifo"):
            arrived = arrivals([0.0] * P, [TRANSFER] * P, scatter, latency=ALPHA, sharing=sharing)
            statement = f"{name}, P = {P}, {sharing}: alpha + P N beta"
            yield equals(statement, LOGP, ALPHA + P * TRANSFER, arrived.max())
            if sharing == "fair":
                yield equals(f"{name}, fair: all arrive together", GALLAGER, 0.0, np.ptp(arrived))
            else:
                gaps = np.diff(np.sort(arrived))
                yield equals(f"{name}, fifo: one after another, N beta apart", QUEUE, TRANSFER, gaps)


@networks.check
def two_cards() -> Iterator[Finding]:
    """Max-min fairness: whose own card binds takes no more than that, and the others share the rest."""
    first, second = arrivals([0.0, 0.0], [30.0, 15.0], bandwidth=10.0, server_bandwidth=15.0)
    statement = "30 and 15 bytes over cards of 10 into one of 15 B/s:"
    yield equals(f"{statement} 15 / 7.5 s", GALLAGER, 2.0, second)
    yield equals(f"{statement} 2 s + 15 / 10 s", GALLAGER, 3.5, first)


@networks.check
def latecomer() -> Iterator[Finding]:
    """A message that comes when another is s seconds under way, over one card of 1 byte a second."""
    s, N = 0.75, 2.0
    for sharing, source, form, first in [("fair", GALLAGER, "2 N beta - s", 2 * N - s), ("fifo", QUEUE, "N beta", N)]:
        arrived = arrivals([0.0, s], [N, N], sharing=sharing)
        yield equals(f"two messages s apart, {sharing}: the first at {form}", source, first, arrived[0])
        yield equals(f"two messages s apart, {sharing}: the second at 2 N beta", source, 2 * N, arrived[1])


@dataclass(frozen=True)
class BothWays(Sends):
    """The server sends to its worker while the worker sends to it."""

    def worker(self, node: Node) -> Role:
        node.send(SERVER, None, size=self.sizes[0])
        yield node.receive()
        gradient = yield node.compute(node.weights)
        gradient.drop()


@networks.check
def full_duplex() -> Iterator[Finding]:
    """The directions of a card do not share."""
    for sharing in ("fair", "fifo"):
        network = Network(bandwidth=1.0, message_bytes=1.0, sharing=sharing)
        cluster = Cluster(workers=1, network=network)
        rows = simulate(cluster, BothWays((0.0,), (TRANSFER,), True), stop=Stop(time=1e6)).updates
        statement = f"two messages in opposite directions, {sharing}: N beta each"
        yield equals(statement, LOGP, TRANSFER, rows["started"], excludes=2 * TRANSFER)
