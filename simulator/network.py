"""Links with bandwidth and latency, and two ways in which the messages under way share them.

Every node has a card: an up link and a down link, each with its own bandwidth (full duplex). A message
crosses its sender's up link and its receiver's down link, and arrives when its bytes have passed and the
latency has gone by: `latency + bytes / bandwidth` on a free network.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, Protocol

import simpy

from simulator.bounds import Invalid, bounded, duration
from simulator.sharing import FairSharing, FifoSharing, Link
from simulator.topology import SERVER, Auto, Topology


@dataclass(frozen=True)
class Network:
    """A network, as a config describes it.

    Attributes:
        topology: who may talk to whom.
        bandwidth: of every card, each direction, in bytes per second; infinite by default.
        latency: seconds from the last byte's leaving to its arrival.
        sharing: `fair`, concurrent messages share the links max-min fairly, or `fifo`, each link is a queue
            in order of arrival at that link.
        server_bandwidth: of the server's card, where it differs from the workers'.
        message_bytes: the size of one model or gradient; by default 4 bytes a parameter.
    """

    topology: Topology | Auto = field(default_factory=Auto)
    bandwidth: float = math.inf
    latency: float = 0.0
    sharing: Literal["fair", "fifo"] = "fair"
    server_bandwidth: float | None = None
    message_bytes: float | None = None

    def __post_init__(self) -> None:
        if not self.bandwidth > 0:
            raise Invalid("Network", "bandwidth", "bytes per second > 0", self.bandwidth)
        if self.server_bandwidth is not None and not self.server_bandwidth > 0:
            raise Invalid("Network", "server_bandwidth", "bytes per second > 0", self.server_bandwidth)
        if self.message_bytes is not None:
            bounded(self, "message_bytes", least=0)
        if self.sharing not in SHARINGS:
            raise Invalid("Network", "sharing", " or ".join(SHARINGS), self.sharing)
        bounded(self, "latency", least=0)

    def card_bandwidth(self, rank: int) -> float:
        """Bytes per second of each direction of the card of node `rank`."""
        return self.server_bandwidth if rank == SERVER and self.server_bandwidth is not None else self.bandwidth


def passing(seconds: float) -> float:
    """The time that a message's bytes take, if it is one.

    Raises:
        Invalid: so many bytes over so little bandwidth take for ever.
    """
    return duration(seconds, "Network", "bytes over bandwidth")


class Sharing(Protocol):
    """How messages under way share links."""

    def carry(self, size: float, route: tuple[Link, ...], passed: Callable[[float], None]) -> None:
        """Carry `size` bytes over `route` from now on; tell `passed` when the last byte leaves the last link."""
        ...


SHARINGS: dict[str, Callable[[simpy.Environment], Sharing]] = {"fair": FairSharing, "fifo": FifoSharing}


class Wires:
    """A network under a running clock: cards, and the messages that cross them."""

    def __init__(self, env: simpy.Environment, network: Network, topology: Topology, workers: int) -> None:
        topology.check(workers)
        self._env, self._network, self._topology, self._workers = env, network, topology, workers
        self._sharing = SHARINGS[network.sharing](env)
        self._unlimited = all(network.card_bandwidth(rank) == math.inf for rank in (0, SERVER))
        self._up: dict[int, Link] = {}
        self._down: dict[int, Link] = {}

    def carry(self, sender: int, receiver: int, size: float, arrival: simpy.Event) -> None:
        """Schedule `arrival` for the moment at which `size` bytes from `sender` have reached `receiver`.

        Raises:
            Invalid: the topology does not join the two.
        """
        if not self._topology.joins(sender, receiver, self._workers):
            topology = type(self._topology).__name__
            raise Invalid(topology, "send", f"a pair that a {topology} joins", f"{sender} -> {receiver}")
        latency, schedule = self._network.latency, self._env.schedule
        if size == 0 or self._unlimited:
            schedule(arrival, delay=latency)
        else:
            route = (self._card(self._up, sender), self._card(self._down, receiver))
            self._sharing.carry(size, route, lambda delay: schedule(arrival, delay=passing(delay) + latency))

    def _card(self, cards: dict[int, Link], rank: int) -> Link:
        if rank not in cards:
            cards[rank] = Link(self._network.card_bandwidth(rank))
        return cards[rank]
