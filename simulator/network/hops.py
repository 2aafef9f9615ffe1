"""The times of messages that are alone on their links, in steps in which nodes exchange them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from laggard.simulator.network.config import Network
from laggard.simulator.timing.distributions.distribution import Seconds, is_law


@dataclass(frozen=True)
class Exchange:
    """A step: one message of each node, or of some. Nodes without one do not wait.

    Attributes:
        to: a function from a rank, or an array of ranks, to the rank that it sends to; -1 for none.
        source: likewise for the rank that it receives from.
        size: the size of a message, in models.
    """

    to: Callable[[Any], Any]
    source: Callable[[Any], Any]
    size: float = 1.0


class Passage(NamedTuple):
    """The moments (s) of a message.

    Attributes:
        left: when its last byte has left.
        arrival: when it arrives.
        since: when its arrival is scheduled.
    """

    left: Any
    arrival: Any
    since: Any


class Route(NamedTuple):
    """A step's messages on a network, by rank.

    Attributes:
        to: the rank to which each node sends; -1 for none.
        receives: whether each node receives.
        times: the time of the bytes that a node sends, and the latency (s).
        size: the size of a message, in bytes.
    """

    to: Sequence[int]
    receives: Sequence[bool]
    times: Sequence[tuple[float, float]]
    size: float


MAX_ROUTES = 64
"""The number of cached routes; every step of a mesh has another one."""


class Hops:
    """The times of messages between workers, each alone on its links.

    On private links that holds for every message of a collective in lock step. On cards it holds in
    a rotation, where each node sends to one node and receives from one.

    Attributes:
        even: whether all messages of a size take the same time.
        private: whether any two nodes have a private link, or bandwidth is unlimited.
        rotates: whether messages are even, and a send is complete when its message arrives.
    """

    def __init__(self, network: Network, workers: int, model_bytes: float) -> None:
        assert not is_law(network.latency), "messages that draw their latencies are sent one by one"
        self._latency = cast(float, network.latency)
        speeds = np.full(workers, network.bandwidth)
        for card in network.cards:
            speeds[card.worker] = card.bandwidth
        self._speeds = speeds
        self._network = network
        self._model_bytes = model_bytes
        self._fair = network.sharing == "fair"
        self.rendezvous = network.rendezvous
        self._routes: dict[tuple[Any, Any, float], Route] = {}
        apart = network.hosts is None and network.groups is None  # nothing but cards is shared
        self.even = apart and not network.cards and not network.links
        self.rotates = self.even and (network.rendezvous or not network.latency)
        self.private = apart and (network.wiring == "pairs" or bool(np.isinf(speeds).all()))

    def route(self, step: Exchange) -> Route:
        """The messages of a step and their times; cached for steps that differ only in content."""
        key = step.to, step.source, step.size
        if key not in self._routes:
            if len(self._routes) > MAX_ROUTES:
                self._routes.clear()
            ranks = np.arange(len(self._speeds))
            to = step.to(ranks)
            receives = step.source(ranks) >= 0
            size = step.size * self._model_bytes
            times = self._times(size, to)
            self._routes[key] = Route(to.tolist(), receives.tolist(), times, size)
        return self._routes[key]

    def _times(self, size: float, to: NDArray[np.int64]) -> Sequence[tuple[float, float]]:
        if self.even:
            return [(size / self._network.bandwidth, self._latency)] * len(to)
        seconds, latency = self._uneven(size, to)
        return list(zip(seconds.tolist(), latency.tolist(), strict=True))

    def send(self, time: Any, seconds: float, latency: float) -> Passage:
        """Send a message at `time`, or one each at an array of times.

        The moments are rounded as by the network: `fair` sets a timer for the end of the bytes, and
        schedules the arrival then; `fifo` schedules it when the message is sent.
        """
        passed = (time + seconds) - time
        left = since = time + passed
        if self._fair:
            arrival = left + latency
        else:
            arrival, since = time + (passed + latency), time
        return Passage(left, arrival, since)

    def _uneven(self, size: float, to: NDArray[np.int64]) -> tuple[Seconds, Seconds]:
        speeds = np.minimum(self._speeds, self._speeds[to])
        latency = np.full(len(to), self._latency)
        for link in self._network.links:
            for sender, receiver in link.pairs:
                if sender < 0 or to[sender] != receiver:
                    continue
                if link.latency is not None:
                    latency[sender] = link.latency
                if link.bandwidth is None:
                    continue
                if self._network.wiring == "pairs":
                    speeds[sender] = link.bandwidth  # replaces the private link
                else:
                    speeds[sender] = min(link.bandwidth, speeds[sender])  # besides the cards
        return size / speeds, latency
