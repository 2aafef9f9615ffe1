"""A network, as a config describes it: cards, links, latency, and how messages share them.

Every node has a card: an up link and a down link, each with its own bandwidth (full duplex). A
message crosses its sender's up link and its receiver's down link, and arrives when its bytes have
passed and the latency has passed: `latency + bytes / bandwidth` on a free network.
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


def _fast(owner: str, what: str, bandwidth: float) -> None:
    if not bandwidth >= 1e-9:
        raise InvalidSettingError(
            owner, what, "bytes per second > 0" + ", at least 1e-9" * (bandwidth > 0), bandwidth
        )


@dataclass(frozen=True)
class Card(Settings):
    """A worker whose card has a bandwidth of its own, in bytes per second and direction.

    Attributes:
        worker: its rank.
        bandwidth: of its card, each direction (bytes/s).
    """

    worker: NonNegativeInt
    bandwidth: float

    def __post_init__(self) -> None:
        super().__post_init__()
        _fast("Card", "bandwidth", self.bandwidth)


@dataclass(frozen=True)
class SlowLink(Settings):
    """Two nodes whose messages to each other have a link or a latency of their own.

    Attributes:
        sender: a rank; -1 is the server.
        receiver: another rank.
        bandwidth: of a link that these messages cross besides the cards (bytes/s); none by default.
        latency: of these messages (s); the network's by default.
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
            raise InvalidSettingError(
                "SlowLink", "receiver", "a rank other than the sender's", self.receiver
            )
        if self.bandwidth is None and self.latency is None:
            raise InvalidSettingError(
                "SlowLink", "bandwidth", "a bandwidth or a latency, or both", None
            )
        if self.bandwidth is not None:
            _fast("SlowLink", "bandwidth", self.bandwidth)

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """The (sender, receiver) whose messages it slows."""
        return [(self.sender, self.receiver), (self.receiver, self.sender)][: 1 + self.both]


@dataclass(frozen=True)
class Hosts(Settings):
    """Machines with several workers each, which share its card: ranks 0 to size - 1 are on the
    first, and so on.

    Workers of one host have an inner card each, and talk to each other over these alone.

    Attributes:
        size: workers on a host.
        bandwidth: of every inner card, each direction (bytes/s); infinite by default.
        latency: between workers of one host (s).
    """

    size: Annotated[int, Range(least=1, whole=True)]
    bandwidth: float = math.inf
    latency: NonNegative = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        _fast("Hosts", "bandwidth", self.bandwidth)


@dataclass(frozen=True)
class Network(Settings):
    """A network, as a config describes it.

    Attributes:
        topology: which nodes may send to which; by default the one that the method needs.
        bandwidth: of every card, each direction (bytes/s); infinite by default.
        latency: from the departure of the last byte to its arrival (s); a number, or a law that is
            drawn for every message. Messages of one node to another do not overtake each other by
            it.
        sharing: `fair`, concurrent messages share the links max-min fairly, or `fifo`, each link is
            a queue in order of arrival at that link.
        wiring: `cards`, or `pairs`: instead of cards, every ordered pair of nodes has a private
            link, as fast as the slower of its two cards would be.
        server_latency: of messages that servers send (s), where it differs.
        server_bandwidth: of the servers' cards (bytes/s), where it differs from the workers'.
        message_bytes: the size of one model or gradient (bytes); 4 a parameter by default.
        cards: workers whose cards differ from the rest.
        links: pairs of nodes whose messages differ from the rest; with `wiring: pairs` it replaces
            their private link.
        colocated: whether server -1 - k stands on worker k's machine: they share its card, and
            messages between the two cost nothing.
        hosts: machines with several workers each; by default every worker has a machine of its own.
        changes: bandwidths and latencies that hold for a time only, instead of those above.
        groups: racks or data centres, and the trunks that join them; by default all nodes are at
            one free switch.
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

    def __post_init__(self) -> None:
        super().__post_init__()
        check_seconds(self, "latency", *["server_latency"] * (self.server_latency is not None))
        _fast("Network", "bandwidth", self.bandwidth)
        if self.hosts is not None:
            self._check_beside_hosts()
        if self.server_bandwidth is not None:
            _fast("Network", "server_bandwidth", self.server_bandwidth)
            if self.colocated:
                raise InvalidSettingError(
                    "Network",
                    "server_bandwidth",
                    "null: a colocated server has a worker's card",
                    self.server_bandwidth,
                )

    def _check_beside_hosts(self) -> None:
        for name, free in (
            ("wiring", "cards"),
            ("cards", ()),
            ("links", ()),
            ("colocated", False),
            ("changes", None),
        ):
            value = getattr(self, name)
            if value != free and len(value if isinstance(value, Sequence) else "x"):
                raise InvalidSettingError(
                    "Network", name, "nothing beside hosts, whose workers share a card", value
                )

    def check(self, workers: int) -> None:
        """Raise `InvalidSettingError` where the topology, a card or a link does not fit, or is
        given twice.
        """
        if not isinstance(self.topology, Auto):
            self.topology.check(workers)
        if self.hosts is not None and workers % self.hosts.size:
            raise InvalidSettingError(
                "Network", "hosts.size", f"a divisor of workers = {workers}", self.hosts.size
            )
        if self.groups is not None:
            self.groups.check(self, workers)
        if self.changes is not None:
            self.changes.check(workers, self.sharing, partial(self.machine, workers=workers))
        carded: set[int] = set()
        for index, card in enumerate(self.cards):
            if card.worker >= workers or card.worker in carded:
                expected = f"a rank below workers = {workers}, and one card each"
                raise InvalidSettingError("Network", f"cards.{index}.worker", expected, card.worker)
            carded.add(card.worker)
        linked: set[tuple[int, int]] = set()
        for index, link in enumerate(self.links):
            for end in ("sender", "receiver"):
                if not -workers <= getattr(link, end) < workers:
                    expected = (
                        f"a worker below workers = {workers}, or a server from -1 down to "
                        f"-{workers}"
                    )
                    raise InvalidSettingError(
                        "Network", f"links.{index}.{end}", expected, getattr(link, end)
                    )
            self._check_pairs(index, link, linked, workers)

    def _check_pairs(
        self, index: int, link: SlowLink, linked: set[tuple[int, int]], workers: int
    ) -> None:
        for pair in link.pairs:
            if self.on_machines(pair, workers) in linked:
                raise InvalidSettingError(
                    "Network",
                    f"links.{index}.receiver",
                    "one link a pair and direction",
                    list(pair),
                )
            linked.add(self.on_machines(pair, workers))
        graph = self.topology
        if (
            isinstance(graph, Auto)
            or self.colocated
            or any(graph.joins(*pair, workers) for pair in link.pairs)
        ):
            return
        expected = f"a pair that a {type(graph).__name__} joins"
        raise InvalidSettingError(
            "Network", f"links.{index}.receiver", expected, [link.sender, link.receiver]
        )

    def card_bandwidth(self, rank: int) -> float:
        """Bytes per second of each direction of the card of node `rank`."""
        if rank < 0:
            if self.server_bandwidth is None:
                return self.bandwidth
            return self.server_bandwidth
        return next((card.bandwidth for card in self.cards if card.worker == rank), self.bandwidth)

    def latency_from(self, rank: int) -> float | Distribution:
        """The latency of messages that node `rank` sends to other machines: seconds, or their
        law.
        """
        if rank >= 0 or self.server_latency is None:
            return self.latency
        return self.server_latency

    @property
    def draws_latency(self) -> bool:
        """Whether some messages have a latency that is drawn."""
        return any(is_law(self.latency_from(rank)) for rank in (0, -1))

    @property
    def host_size(self) -> int:
        """How many workers share a card."""
        if self.hosts is None:
            return 1
        return self.hosts.size

    def group_size(self, workers: int) -> int | None:
        """How many workers, one after another, are on a host or else in a group; None where that is
        not so.
        """
        if self.hosts is None:
            if self.groups is None:
                return None
            return self.groups.size(workers)
        return self.hosts.size

    def machine(self, rank: int, workers: int) -> int:
        """The rank to which the card of node `rank` belongs, or the number of the host."""
        if rank >= 0:
            return rank // self.host_size
        if self.colocated and -workers <= rank:
            return -1 - rank
        return rank

    def on_machines(self, pair: tuple[int, int], workers: int) -> tuple[int, int]:
        """The machines between which messages of a pair of nodes pass."""
        return self.machine(pair[0], workers), self.machine(pair[1], workers)

    @property
    def unlimited(self) -> bool:
        """Whether all messages take the same latency and no other time."""
        finite = [
            self.server_bandwidth or math.inf,
            self.bandwidth,
            *(card.bandwidth for card in self.cards),
        ]
        alike = self.latency_from(-1) == self.latency and not self.draws_latency
        free = alike and min(finite) == math.inf and not self.links
        return (
            free and not self.colocated and not self.hosts and not self.changes and not self.groups
        )
