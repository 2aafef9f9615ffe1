"""Groups of nodes, such as racks or data centres, joined by trunks that their messages share."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, pairwise
from typing import TYPE_CHECKING

from laggard.simulator.errors import (
    InvalidSettingError,
    NonNegative,
    Positive,
    PositiveInt,
    Settings,
)

if TYPE_CHECKING:
    from laggard.simulator.network.config import Network
    from laggard.simulator.network.links import Ends

Switch = int | str


@dataclass(frozen=True)
class Trunk(Settings):
    """Trunks from some switches to another one: each is a link in each direction.

    Attributes:
        switches: numbers of groups, each of which has a switch, or names of switches without nodes.
        to: the other switch.
        bandwidth: the bandwidth of each trunk in each direction (bytes/s); without one, and without
            `oversubscription`, a trunk only adds its latency.
        oversubscription: instead, the bandwidth of the cards of all workers of the group over that
            of its trunk.
        latency: added to that of a message (s).
    """

    switches: Sequence[int | str]
    to: int | str
    bandwidth: float | None = None
    oversubscription: Positive | None = None
    latency: NonNegative = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.switches:
            expected = "at least one group or switch"
            raise InvalidSettingError("Trunk", "switches", expected, self.switches)
        if self.bandwidth is None:
            return
        if self.oversubscription is not None:
            expected = "null: either bandwidth or oversubscription, not both"
            raise InvalidSettingError("Trunk", "oversubscription", expected, self.oversubscription)
        if not self.bandwidth >= 1e-9:
            expected = "a number >= 1e-9 (bytes per second)"
            raise InvalidSettingError("Trunk", "bandwidth", expected, self.bandwidth)


@dataclass(frozen=True)
class Groups(Settings):
    """Groups of nodes, each at a switch, and the trunks between switches.

    A message goes from its sender's card over the trunks to its receiver's card, on a path with the
    fewest trunks; of several such paths always the same one, also in the other direction. Inside a
    group it crosses only the two cards.

    Attributes:
        count: number of groups of equally many workers, in order of rank; or `members`.
        members: the ranks in each group, every worker in one; also servers, from -1 down, that are
            not at `servers`.
        trunks: the trunks that join the groups.
        servers: the group, or the switch, of the servers.
    """

    count: PositiveInt | None = None
    members: Sequence[Sequence[int]] = ()
    trunks: Sequence[Trunk] = ()
    servers: int | str = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.count is None) != bool(self.members):
            expected = "either the number of groups or their members"
            raise InvalidSettingError("Groups", "count", expected, self.count)

    def ranks(self, workers: int) -> list[list[int]]:
        """The ranks in each group; servers only where `members` has them."""
        if self.count is None:
            return [list(ranks) for ranks in self.members]
        size = workers // self.count
        return [list(range(first, first + size)) for first in range(0, workers, size)]

    def size(self, workers: int) -> int | None:
        """The number of workers of each group; None unless all are equal, in order of rank."""
        groups = [[rank for rank in ranks if rank >= 0] for ranks in self.ranks(workers)]
        sizes = {len(ranks) for ranks in groups}
        if len(sizes) == 1 and list(chain(*groups)) == list(range(workers)):
            return len(groups[0])
        return None

    def joined(self) -> Iterator[tuple[str, Switch, Switch, Trunk]]:
        """Each trunk: its key below `groups`, the two switches that it joins, and its settings."""
        for index, trunk in enumerate(self.trunks):
            for place, switch in enumerate(trunk.switches):
                yield f"trunks.{index}.switches.{place}", switch, trunk.to, trunk

    def check(self, network: "Network", workers: int) -> None:
        """Raise `InvalidSettingError` where groups or trunks do not fit."""
        if network.wiring != "cards":
            expected = "cards, since the trunks of groups join cards"
            raise InvalidSettingError("Network", "wiring", expected, network.wiring)
        if self.count is not None and workers % self.count:
            raise _error("count", f"a divisor of workers = {workers}", self.count)
        self._check_members(network, workers)
        ranks = self.ranks(workers)
        groups = len(ranks)
        switches: set[Switch] = set(range(groups))
        pairs: set[frozenset[Switch]] = set()
        for key, switch, to, trunk in self.joined():
            ends = {key: switch, f"{key.partition('.switches')[0]}.to": to}
            for end_key, end in ends.items():
                if not isinstance(end, str) and not 0 <= end < groups:
                    raise _error(end_key, f"groups below {groups}, or names of switches", end)
            pair = frozenset((switch, to))
            if switch == to or pair in pairs:
                raise _error(key, "two switches, and one trunk between them", [switch, to])
            pairs.add(pair)
            switches |= pair
            if trunk.oversubscription is None:
                continue
            has_cards = not isinstance(switch, str) and any(rank >= 0 for rank in ranks[switch])
            if not has_cards or network.bandwidth == math.inf:
                key = f"{key.partition('.switches')[0]}.oversubscription"
                where = "where a switch has no workers, or cards have no bandwidth"
                expected = f"null (bandwidth instead) {where}"
                raise _error(key, expected, trunk.oversubscription)
        if self.servers not in switches:
            expected = f"a group below {groups}, or a switch that a trunk names"
            raise _error("servers", expected, self.servers)
        unreached = Trunks(network, workers).unreached()
        if unreached:
            expected = "trunks that join all groups and switches"
            raise _error("trunks", expected, f"no path from group 0 to {unreached[0]}")

    def _check_members(self, network: "Network", workers: int) -> None:
        servers = 0 if network.colocated else workers  # a colocated one is where its worker is
        members: set[int] = set()
        for group, ranks in enumerate(self.ranks(workers)):
            for place, rank in enumerate(ranks):
                key = f"members.{group}.{place}"
                if rank in members or not -servers <= rank < workers:
                    expected = f"a rank below workers = {workers}, or of a server, and each once"
                    raise _error(key, expected, rank)
                if rank > 0 and rank % network.host_size and rank - 1 not in ranks:
                    key = key if self.members else "count"
                    raise _error(key, "all workers of a host in one group", rank)
                members.add(rank)
        missing = sorted(set(range(workers)) - members)
        if missing:
            expected = f"every worker below workers = {workers} in a group"
            raise _error("members", expected, f"none with {missing[0]}")


def _error(field: str, expected: str, got: object) -> InvalidSettingError:
    return InvalidSettingError("Network", f"groups.{field}", expected, got)


class Trunks:
    """The trunks that messages cross between the machines of a network with groups."""

    def __init__(self, network: "Network", workers: int) -> None:
        # here, since importing it takes longer than simulating a small cluster
        import networkx as nx

        groups = network.groups
        assert groups is not None
        self._size = network.host_size
        self._servers = groups.servers
        members = groups.ranks(workers)
        self._switch: dict[int, Switch] = {}
        for group, ranks in enumerate(members):
            self._switch.update(dict.fromkeys(ranks, group))
        self.graph = nx.Graph()
        self.graph.add_nodes_from(range(len(members)))
        for number, (_, switch, to, trunk) in enumerate(groups.joined()):
            bandwidth = trunk.bandwidth
            if trunk.oversubscription is not None:
                ranks = members[int(switch)]
                machines = sorted({network.machine(rank, workers) for rank in ranks})
                cards = [network.card_bandwidth(machine) for machine in machines if machine >= 0]
                bandwidth = math.fsum(cards) / trunk.oversubscription
            self.graph.add_edge(
                switch, to, number=number, first=switch, bandwidth=bandwidth, latency=trunk.latency
            )
        self._place = {switch: place for place, switch in enumerate(self.graph)}
        self._paths = lru_cache(maxsize=1024)(
            lambda switch: nx.single_source_shortest_path(self.graph, switch)
        )

    def unreached(self) -> list[Switch]:
        """The switches without a path from the first group."""
        return [switch for switch in self.graph if switch not in self._paths(0)]

    def switch(self, machine: int) -> Switch:
        """The switch of a machine."""
        rank = machine
        if machine >= 0:  # the number of a host: the rank of its first worker
            rank = machine * self._size
        return self._switch.get(rank, self._servers)

    def path(self, start: Switch, end: Switch) -> Sequence[Switch]:
        """The switches on the path from one to another; the same path in both directions."""
        if self._place[start] > self._place[end]:
            return list(reversed(self._paths(end)[start]))
        path: Sequence[Switch] = self._paths(start)[end]
        return path

    def between(self, start: int, end: int) -> tuple[float, Mapping["Ends", float | None]]:
        """The latency of the trunks between two machines (s), and their bandwidths (bytes/s)."""
        path = self.path(self.switch(start), self.switch(end))
        bandwidths: dict[Ends, float | None] = {}
        latencies = []
        for switch, to in pairwise(path):
            edge = self.graph.edges[switch, to]
            direction = 0 if edge["first"] == switch else 1
            bandwidths[TRUNK, 2 * edge["number"] + direction] = edge["bandwidth"]
            latencies.append(edge["latency"])
        return math.fsum(latencies), bandwidths


TRUNK = "trunk"
"""The first part of a trunk's key among the links; the second is 2 number + direction."""
