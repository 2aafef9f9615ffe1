"""Groups of nodes, such as racks or data centres, joined by trunks that all messages between them
share.
"""

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
    """A trunk from each of some switches to another one: a link in each direction.

    Attributes:
        switches: numbers of groups, each of which has a switch, or names of switches at which no
            node is.
        to: the other one.
        bandwidth: of each trunk, each direction (bytes/s); without one, and without
            `oversubscription`, it takes its latency alone.
        oversubscription: instead, the bandwidth of the cards of all workers of the group over that
            of its trunk.
        latency: what it adds to that of a message (s).
    """

    switches: Sequence[int | str]
    to: int | str
    bandwidth: float | None = None
    oversubscription: Positive | None = None
    latency: NonNegative = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.switches:
            raise InvalidSettingError(
                "Trunk", "switches", "at least one group or switch", self.switches
            )
        if self.bandwidth is not None and self.oversubscription is not None:
            expected = "null beside bandwidth, which says the same"
            raise InvalidSettingError("Trunk", "oversubscription", expected, self.oversubscription)
        if self.bandwidth is not None and not self.bandwidth >= 1e-9:
            raise InvalidSettingError(
                "Trunk", "bandwidth", "bytes per second > 0, at least 1e-9", self.bandwidth
            )


@dataclass(frozen=True)
class Groups(Settings):
    """Groups of nodes, each at a switch, and the trunks between switches, which all messages
    between them share.

    A message goes from its sender's card over the trunks to its receiver's card: over the fewest of
    them; of ways with equally many over the same one, also in the other direction. Inside a group
    it crosses the two cards alone.

    Attributes:
        count: groups of equally many workers, in order of rank; or `members`.
        members: the ranks in each group, every worker in one; also servers, from -1 down, that are
            not at `servers`.
        trunks: what joins the groups.
        servers: the group, or the switch, at which servers are.
    """

    count: PositiveInt | None = None
    members: Sequence[Sequence[int]] = ()
    trunks: Sequence[Trunk] = ()
    servers: int | str = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.count is None) != bool(self.members):
            raise InvalidSettingError(
                "Groups", "count", "either the number of groups or their members", self.count
            )

    def ranks(self, workers: int) -> list[list[int]]:
        """The ranks in each group, those of servers only where `members` has them."""
        if self.count is None:
            return [list(ranks) for ranks in self.members]
        size = workers // self.count
        return [list(range(first, first + size)) for first in range(0, workers, size)]

    def size(self, workers: int) -> int | None:
        """How many workers are in each group; None where groups differ in it, or are not in order
        of rank.
        """
        found = [[rank for rank in ranks if rank >= 0] for ranks in self.ranks(workers)]
        even = (
            list(chain(*found)) == list(range(workers))
            and len({len(ranks) for ranks in found}) == 1
        )
        if even:
            return len(found[0])
        return None

    def joined(self) -> Iterator[tuple[str, Switch, Switch, Trunk]]:
        """Each trunk: its key below `groups`, the two switches that it joins, and what it is."""
        for index, trunk in enumerate(self.trunks):
            for place, switch in enumerate(trunk.switches):
                yield f"trunks.{index}.switches.{place}", switch, trunk.to, trunk

    def check(self, network: "Network", workers: int) -> None:
        """Raise `InvalidSettingError` where groups or trunks do not fit the workers, or do not join
        all groups.
        """
        if network.wiring != "cards":
            raise InvalidSettingError(
                "Network", "wiring", "cards beside groups, whose trunks join cards", network.wiring
            )
        if self.count is not None and workers % self.count:
            raise _error("count", f"a divisor of workers = {workers}", self.count)
        self._check_members(network, workers)
        ranks = self.ranks(workers)
        groups = len(ranks)
        known, pairs = set[Switch](range(groups)), set[frozenset[Switch]]()
        for key, one, other, trunk in self.joined():
            for end in (one, other):
                if not isinstance(end, str) and not 0 <= end < groups:
                    raise _error(key, f"groups below {groups}, or names of switches", end)
            if one == other or frozenset((one, other)) in pairs:
                raise _error(key, "two switches, and one trunk between them", [one, other])
            cards = (
                not isinstance(one, str)
                and network.bandwidth < math.inf
                and any(rank >= 0 for rank in ranks[one])
            )
            if trunk.oversubscription is not None and not cards:
                expected = (
                    "null (bandwidth instead) where a switch has no workers, or cards have no "
                    "bandwidth"
                )
                raise _error(
                    f"{key.partition('.switches')[0]}.oversubscription",
                    expected,
                    trunk.oversubscription,
                )
            pairs.add(frozenset((one, other)))
            known |= {one, other}
        if self.servers not in known:
            raise _error(
                "servers", f"a group below {groups}, or a switch that a trunk names", self.servers
            )
        for switch in Trunks(network, workers).unreached():
            raise _error(
                "trunks",
                "trunks that join all groups and switches",
                f"no way from group 0 to {switch}",
            )

    def _check_members(self, network: "Network", workers: int) -> None:
        # a colocated one is where its worker is
        seen, servers = set[int](), 0 if network.colocated else workers
        for group, ranks in enumerate(self.ranks(workers)):
            for place, rank in enumerate(ranks):
                key = f"members.{group}.{place}"
                if rank in seen or not -servers <= rank < workers:
                    raise _error(
                        key,
                        f"a rank below workers = {workers}, or of a server, and each once",
                        rank,
                    )
                if rank > 0 and rank % network.host_size and rank - 1 not in ranks:
                    raise _error(
                        key if self.members else "count", "all workers of a host in one group", rank
                    )
                seen.add(rank)
        missing = sorted(set(range(workers)) - seen)
        if missing:
            raise _error(
                "members",
                f"every worker below workers = {workers} in a group",
                f"none with {missing[0]}",
            )


def _error(field: str, expected: str, got: object) -> InvalidSettingError:
    return InvalidSettingError("Network", f"groups.{field}", expected, got)


class Trunks:
    """The trunks that messages cross between the machines of a network with groups."""

    def __init__(self, network: "Network", workers: int) -> None:
        # here, since importing it takes longer than simulating a small cluster
        import networkx as nx

        groups = network.groups
        assert groups is not None
        self._size, self._servers = network.host_size, groups.servers
        self._switch = {
            rank: group for group, ranks in enumerate(groups.ranks(workers)) for rank in ranks
        }
        self.graph = nx.Graph()
        self.graph.add_nodes_from(range(len(groups.ranks(workers))))
        for number, (_, switch, to, trunk) in enumerate(groups.joined()):
            bandwidth = trunk.bandwidth
            if trunk.oversubscription is not None:
                machines = {
                    network.machine(rank, workers)
                    for rank, at in self._switch.items()
                    if at == switch
                }
                cards = (
                    network.card_bandwidth(machine) for machine in sorted(machines) if machine >= 0
                )
                bandwidth = math.fsum(cards) / trunk.oversubscription
            self.graph.add_edge(
                switch, to, number=number, first=switch, bandwidth=bandwidth, latency=trunk.latency
            )
        self._place = {switch: place for place, switch in enumerate(self.graph)}
        self._paths = lru_cache(maxsize=1024)(
            lambda switch: nx.single_source_shortest_path(self.graph, switch)
        )

    def unreached(self) -> list[Switch]:
        """The switches to which there is no way from the first group."""
        return [switch for switch in self.graph if switch not in self._paths(0)]

    def switch(self, machine: int) -> Switch:
        """The switch at which a machine is."""
        return self._switch.get(machine * self._size if machine >= 0 else machine, self._servers)

    def path(self, start: Switch, end: Switch) -> Sequence[Switch]:
        """The switches on the way from one to another."""
        if self._place[start] > self._place[end]:
            return list(reversed(self._paths(end)[start]))
        path: Sequence[Switch] = self._paths(start)[end]
        return path

    def between(self, start: int, end: int) -> tuple[float, Mapping["Ends", float | None]]:
        """The latency of the trunks between two machines (s), and the bandwidth of each on the way
        (bytes/s).
        """
        path = self.path(self.switch(start), self.switch(end))
        crossed = [(self.graph.edges[one, other], one) for one, other in pairwise(path)]
        ends: dict[Ends, float | None] = {
            (TRUNK, 2 * edge["number"] + (edge["first"] != one)): edge["bandwidth"]
            for edge, one in crossed
        }
        return math.fsum(edge["latency"] for edge, _ in crossed), ends


TRUNK = "trunk"
"""The first part of a trunk's key among the links; the second is its number, twice, and its
direction.
"""
