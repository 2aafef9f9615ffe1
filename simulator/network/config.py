"""A network: cards, links, latency, and the way in which messages share them.

Every node has a card: an up link and a down link, each with its own bandwidth (full duplex). A
message crosses its sender's up link and its receiver's down link, and arrives when its bytes have
passed and the latency has gone by: `latency + bytes / bandwidth` on a free network.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Literal

from laggard.simulator.errors import (
    InvalidSettingError,
    NonNegative,
    NonNegativeInt,
    Range,
    Settings,
)
from laggard.simulator.network.changes import Changes
from laggard.simulator.network.groups import Groups
from laggard.simulator.network.topology import Auto, Topology
from laggard.simulator.timing.distributions import Distribution
from laggard.simulator.timing.distributions.distribution import check_seconds, is_law


def _check_bandwidth(owner: str, field: str, bandwidth: float) -> None:
    if bandwidth >= 1e-9:
        return
    expected = "bytes per second > 0"
    if bandwidth > 0:
        expected += ", at least 1e-9"
    raise InvalidSettingError(owner, field, expected, bandwidth)


@dataclass(frozen=True)
class Card(Settings):
    """A worker whose card has another bandwidth than the rest.

    Attributes:
        worker: its rank.
        bandwidth: the bandwidth of its card in each direction (bytes/s).
    """

    worker: NonNegativeInt
    bandwidth: float

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_bandwidth("Card", "bandwidth", self.bandwidth)


@dataclass(frozen=True)
class SlowLink(Settings):
    """Two nodes whose messages to each other have another link or latency than the rest.

    Attributes:
        sender: a rank; -1 is the server.
        receiver: another rank.
        bandwidth: the bandwidth of a link that these messages cross besides the cards (bytes/s);
            none by default.
        latency: the latency of these messages (s); the network's by default.
        both: whether the same holds for messages from `receiver` to `sender`, with a link in each
            direction.
    """

    sender: Annotated[int, Range(whole=True)]
    receiver: Annotated[int, Range(whole=True)]
    bandwidth: float | None = None
    latency: NonNegative | None = None
    both: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sender == self.receiver:
            expected = "a rank other than the sender's"
            raise InvalidSettingError("SlowLink", "receiver", expected, self.receiver)
        if self.bandwidth is not None:
            _check_bandwidth("SlowLink", "bandwidth", self.bandwidth)
        elif self.latency is None:
            expected = "a bandwidth or a latency, or both"
            raise InvalidSettingError("SlowLink", "bandwidth", expected, None)

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """The pairs (sender, receiver) whose messages it slows."""
        pairs = [(self.sender, self.receiver)]
        if self.both:
            pairs.append((self.receiver, self.sender))
        return pairs


@dataclass(frozen=True)
class Hosts(Settings):
    """Machines with several workers each, which share a card; the first has ranks 0 to size - 1.

    Workers of one host also have an inner card each, for messages between them.

    Attributes:
        size: number of workers of a host.
        bandwidth: the bandwidth of every inner card in each direction (bytes/s); infinite by
            default.
        latency: the latency between workers of one host (s).
    """

    size: Annotated[int, Range(least=1, whole=True)]
    bandwidth: float = math.inf
    latency: NonNegative = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_bandwidth("Hosts", "bandwidth", self.bandwidth)


@dataclass(frozen=True)
class Network(Settings):
    """The settings of a network.

    Attributes:
        topology: the pairs of nodes that exchange messages; by default the method's own.
        bandwidth: the bandwidth of every card in each direction (bytes/s); infinite by default.
        latency: the time from the departure of the last byte to its arrival (s): a number, or a
            distribution from which the time of every message is drawn. Messages from one node to
            another do not overtake each other.
        sharing: `fair`, concurrent messages share the links max-min fairly, or `fifo`, each link is
            a queue in order of arrival at that link.
        wiring: `cards`, or `pairs`: instead of cards, every ordered pair of nodes has a private
            link, as fast as the slower of its two cards would be.
        server_latency: the latency of messages that servers send (s), where it differs.
        server_bandwidth: the bandwidth of the servers' cards (bytes/s), where it differs from the
            workers'.
        message_bytes: the size of one model or gradient (bytes); 4 a parameter by default.
        cards: workers whose cards differ from the rest.
        links: pairs of nodes whose messages differ from the rest; with `wiring: pairs` it replaces
            their private link.
        colocated: whether server -1 - k stands on worker k's machine: they share its card, and
            messages between the two cost nothing.
        hosts: machines with several workers each; by default every worker has a machine of its own.
        changes: bandwidths and latencies that replace those above for a time.
        groups: racks or data centres, and the trunks that join them; by default all nodes are at
            one free switch.
        rendezvous: whether a send inside a collective is complete only when it has arrived; by
            default it is complete when its last byte has left, as in gloo where the receiver waits.
    """

    topology: Topology | Auto = field(default_factory=Auto)
    bandwidth: float = math.inf
    latency: float | Distribution = 0.0
    sharing: Literal["fair", "fifo"] = "fair"
    wiring: Literal["cards", "pairs"] = "cards"
    server_bandwidth: float | None = None
    message_bytes: NonNegative | None = None
    cards: Sequence[Card] = ()
    links: Sequence[SlowLink] = ()
    colocated: bool = False
    hosts: Hosts | None = None
    server_latency: float | Distribution | None = None
    changes: Changes | None = None
    groups: Groups | None = None
    rendezvous: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_seconds(self, "latency")
        if self.server_latency is not None:
            check_seconds(self, "server_latency")
        _check_bandwidth("Network", "bandwidth", self.bandwidth)
        if self.hosts is not None:
            self._check_beside_hosts()
        if self.server_bandwidth is not None:
            _check_bandwidth("Network", "server_bandwidth", self.server_bandwidth)
            if self.colocated:
                expected = "null: a colocated server has a worker's card"
                got = self.server_bandwidth
                raise InvalidSettingError("Network", "server_bandwidth", expected, got)

    def _check_beside_hosts(self) -> None:
        unset = [
            ("wiring", self.wiring == "cards", "cards"),
            ("cards", not self.cards, "none"),
            ("links", not self.links, "none"),
            ("colocated", not self.colocated, "false"),
            ("changes", self.changes is None, "none"),
        ]
        for name, is_unset, text in unset:
            if not is_unset:
                expected = f"{text} together with hosts, whose workers share a card"
                raise InvalidSettingError("Network", name, expected, getattr(self, name))

    def check(self, workers: int) -> None:
        """Raise `InvalidSettingError` where a setting does not fit this number of workers."""
        if not isinstance(self.topology, Auto):
            self.topology.check(workers)
        if self.hosts is not None and workers % self.hosts.size:
            expected = f"a divisor of workers = {workers}"
            raise InvalidSettingError("Network", "hosts.size", expected, self.hosts.size)
        if self.groups is not None:
            self.groups.check(self, workers)
        if self.changes is not None:
            self.changes.check(workers, self.sharing, partial(self.machine, workers=workers))
        workers_with_card: set[int] = set()
        for index, card in enumerate(self.cards):
            if card.worker >= workers or card.worker in workers_with_card:
                expected = f"a rank below workers = {workers}, and one card each"
                raise InvalidSettingError("Network", f"cards.{index}.worker", expected, card.worker)
            workers_with_card.add(card.worker)
        self._check_links(workers)

    def _check_links(self, workers: int) -> None:
        pairs_with_link: set[tuple[int, int]] = set()
        for index, link in enumerate(self.links):
            for end in ("sender", "receiver"):
                rank = getattr(link, end)
                if not -workers <= rank < workers:
                    servers = f"or a server from -1 down to -{workers}"
                    expected = f"a worker below workers = {workers}, {servers}"
                    raise InvalidSettingError("Network", f"links.{index}.{end}", expected, rank)
            key = f"links.{index}.receiver"
            for pair in link.pairs:
                machines = self.on_machines(pair, workers)
                if machines in pairs_with_link:
                    expected = "one link a pair and direction"
                    raise InvalidSettingError("Network", key, expected, list(pair))
                pairs_with_link.add(machines)
            graph = self.topology
            # A colocated server uses its worker's links, also to workers that no topology joins
            # with it.
            if isinstance(graph, Auto) or self.colocated:
                continue
            if not any(graph.joins(*pair, workers) for pair in link.pairs):
                expected = f"a pair that a {type(graph).__name__} joins"
                raise InvalidSettingError("Network", key, expected, [link.sender, link.receiver])

    def card_bandwidth(self, rank: int) -> float:
        """Bytes per second of each direction of the card of node `rank`."""
        if rank < 0:
            if self.server_bandwidth is None:
                return self.bandwidth
            return self.server_bandwidth
        return next((card.bandwidth for card in self.cards if card.worker == rank), self.bandwidth)

    def latency_from(self, rank: int) -> float | Distribution:
        """The latency of messages that node `rank` sends to other machines: seconds, or a law."""
        if rank >= 0 or self.server_latency is None:
            return self.latency
        return self.server_latency

    @property
    def draws_latency(self) -> bool:
        """Whether the latency of some messages is drawn."""
        return any(is_law(self.latency_from(rank)) for rank in (0, -1))

    @property
    def host_size(self) -> int:
        """The number of workers that share a card."""
        if self.hosts is None:
            return 1
        return self.hosts.size

    def group_size(self, workers: int) -> int | None:
        """The number of consecutive workers on a host or else in a group; None without either."""
        if self.hosts is not None:
            return self.hosts.size
        if self.groups is not None:
            return self.groups.size(workers)
        return None

    def machine(self, rank: int, workers: int) -> int:
        """The machine of node `rank`: a rank, or the number of a host."""
        if rank >= 0:
            return rank // self.host_size
        if self.colocated and -workers <= rank:
            return -1 - rank
        return rank

    def on_machines(self, pair: tuple[int, int], workers: int) -> tuple[int, int]:
        """The machines of a pair of nodes."""
        return self.machine(pair[0], workers), self.machine(pair[1], workers)

    @property
    def unlimited(self) -> bool:
        """Whether all messages take the same latency and no other time."""
        if self.draws_latency or self.latency_from(-1) != self.latency:
            return False
        if self.links or self.colocated or self.hosts or self.changes or self.groups:
            return False
        bandwidths = [self.bandwidth, *(card.bandwidth for card in self.cards)]
        if self.server_bandwidth is not None:
            bandwidths.append(self.server_bandwidth)
        return min(bandwidths) == math.inf
