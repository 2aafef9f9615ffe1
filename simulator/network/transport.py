"""A network under a running clock: links, and the messages that cross them."""

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, cast

from simpy.events import Event

from laggard.simulator.errors import InvalidSettingError, check_duration
from laggard.simulator.network.config import Network
from laggard.simulator.network.fair import FairSharing
from laggard.simulator.network.fifo import FifoSharing
from laggard.simulator.network.groups import TRUNK, Trunks
from laggard.simulator.network.latency import Latencies
from laggard.simulator.network.links import Ends, Flow, Link
from laggard.simulator.network.nested import NestedFairSharing
from laggard.simulator.network.topology import Topology
from laggard.simulator.network.varying import VaryingFairSharing, VaryingPaths
from laggard.simulator.timing.clock import Clock
from laggard.simulator.timing.steps import StepFunction

Sharing = FairSharing | FifoSharing


class Transfer:
    """A message under way, and how it crosses its links; once its arrival is `scheduled` it has
    crossed them.
    """

    __slots__ = ("flow", "receiver", "scheduled", "sender")

    def __init__(self, sender: int, receiver: int) -> None:
        self.sender, self.receiver = sender, receiver
        self.flow: Flow | None = None
        self.scheduled = False


class Transport:
    """The links of a network, and what crosses them.

    With `crashes` it records the messages under way, so that a crash can lose them.

    Attributes:
        post: schedules the arrival of any message, where all take the latency alone and none can be
            lost; else None.
    """

    def __init__(
        self,
        env: Clock,
        network: Network,
        topology: Topology,
        workers: int,
        crashes: bool = False,
        seed: int = 0,
    ) -> None:
        """`seed` is that of latencies that are drawn."""
        topology.check(workers)
        self._env, self._network, self._topology, self._workers = env, network, topology, workers
        alike = network.unlimited and not crashes
        self.post: Callable[[Event], None] | None = None
        if alike:
            self.post = env.after_seconds(cast(float, network.latency))
        self._varying: VaryingPaths | None = None
        if network.changes is not None:
            self._varying = VaryingPaths(network, workers)
        self._trunks: Trunks | None = None
        if network.groups is not None:
            self._trunks = Trunks(network, workers)
        draws = network.draws_latency or (
            self._varying is not None and self._varying.latencies_change
        )
        self._drawn = Latencies(env, network, seed) if draws else None
        self._sharing = _make_sharing(network, env)
        self._special = {
            network.on_machines(pair, workers): link
            for link in network.links
            for pair in link.pairs
        }
        self._links: dict[Ends, Link] = {}
        # bounded: a mesh of 1,024 has a million pairs
        self._path = lru_cache(maxsize=2**16)(self._between)
        self._transfers: dict[Event, Transfer] | None = {} if crashes else None

    def check(self, sender: int, receiver: int) -> None:
        """Raise `InvalidSettingError` unless the topology joins the two."""
        if not self._topology.joins(sender, receiver, self._workers):
            topology = type(self._topology).__name__
            raise InvalidSettingError(
                topology, "send", f"a pair that a {topology} joins", f"{sender} -> {receiver}"
            )

    def carry(self, sender: int, receiver: int, size: float, arrival: Event) -> None:
        """Schedule `arrival` for the moment at which `size` bytes from `sender` have reached
        `receiver`.

        Whether the topology joins the two is not checked here: see `check`.
        """
        if self.post is not None:
            self.post(arrival)
            return
        latency, beside, route = self._path(sender, receiver)
        drawn = self._drawn
        # a number
        seconds: Any = latency if drawn is None else drawn.draw(latency, sender) + beside
        transfer = None
        if self._transfers is not None:  # recorded until it arrives
            transfer = self._transfers[arrival] = Transfer(sender, receiver)
            cast(list[Callable[[Event], object]], arrival.callbacks).insert(0, self._transfers.pop)

        def passed(delay: float) -> None:
            if transfer is not None:
                transfer.scheduled = True
            check_duration(delay, "Network", "bytes over bandwidth")
            if drawn is None:
                self._env.after(delay + seconds, arrival)
            else:
                drawn.schedule(sender, receiver, delay, seconds, arrival)

        if size == 0 or not route:
            passed(0.0)
            return
        flow = self._sharing.carry(size, route, passed)
        if transfer is not None:
            transfer.flow = flow

    def cut(self, rank: int) -> list[Event]:
        """Lose the messages under way from and to worker `rank`; their arrivals, which are
        returned, never happen.

        They free their links. In a queue (`fifo`) their time stays reserved, except on the worker's
        own links.
        """
        assert self._transfers is not None, "without crashes, messages under way are not recorded"
        if self._drawn is not None:
            self._drawn.cut(rank)
        lost = {
            arrival: one
            for arrival, one in self._transfers.items()
            if rank in (one.sender, one.receiver)
        }
        for arrival, transfer in lost.items():
            del self._transfers[arrival]
            if transfer.scheduled:
                self._env.cancel(arrival)
            elif transfer.flow is not None:
                self._sharing.withdraw(transfer.flow)
        if not self._network.colocated:
            shared: tuple[str, ...] = (TRUNK,)
            if self._network.host_size > 1:
                shared = (TRUNK, "up", "down")
            for ends, link in self._links.items():
                if rank in ends and ends[0] not in shared:
                    link.free = min(link.free, self._env.now)
        return list(lost)

    def _between(self, sender: int, receiver: int) -> tuple[Any, float, tuple[Link, ...]]:
        """The latency between two nodes, what is added to one that is drawn, and the links with a
        bandwidth between.
        """
        start, end = self._network.on_machines((sender, receiver), self._workers)
        if start == end:
            return self._inside(sender, receiver)
        special = self._special.get((start, end))
        beside: float = 0.0
        trunks: Mapping[Ends, float | None] = {}
        if self._trunks is not None:
            beside, trunks = self._trunks.between(start, end)
        if self._varying is not None:
            latency = self._varying.latency(sender, (start, end), special)
            route = self._varying_route(self._varying.links((start, end), special, trunks))
        elif special is None:
            latency = self._network.latency_from(sender)
            route = self._route(start, end, None, trunks)
        else:
            latency = special.latency
            if latency is None:
                latency = self._network.latency_from(sender)
            route = self._route(start, end, special.bandwidth, trunks)
        if beside and self._drawn is None:
            return latency + beside, 0.0, route
        return latency, beside, route

    def _varying_route(self, links: Mapping[Ends, StepFunction]) -> tuple[Link, ...]:
        for ends, steps in links.items():
            if ends not in self._links:
                changes = steps if steps.moments else None
                self._links[ends] = Link(steps.values[0], changes)
        return tuple(self._links[ends] for ends in links)

    def _route(
        self, start: int, end: int, between: float | None, trunks: Mapping[Ends, float | None]
    ) -> tuple[Link, ...]:
        """The links between two machines: their cards, one of the pair with the bandwidth
        `between`, and `trunks`.
        """
        cards = [self._network.card_bandwidth(rank) for rank in (start, end)]
        if self._network.wiring == "pairs":
            crossed: list[tuple[Ends, float | None]] = [((start, end), between or min(cards))]
        else:
            crossed = [
                (("up", start), cards[0]),
                ((start, end), between),
                *trunks.items(),
                (("down", end), cards[1]),
            ]
        return tuple(
            self._link(key, speed)
            for key, speed in crossed
            if speed is not None and speed < math.inf
        )

    def _inside(self, sender: int, receiver: int) -> tuple[float, float, tuple[Link, ...]]:
        """The same between two nodes of one machine: nothing, or the inner cards of a host."""
        hosts = self._network.hosts
        if hosts is None or sender == receiver:
            return 0.0, 0.0, ()
        if hosts.bandwidth == math.inf:
            return hosts.latency, 0.0, ()
        keys = ("inner up", sender), ("inner down", receiver)
        return hosts.latency, 0.0, tuple(self._link(key, hosts.bandwidth) for key in keys)

    def _link(self, key: Ends, bandwidth: float) -> Link:
        return self._links.setdefault(key, Link(bandwidth))


def _make_sharing(network: Network, env: Clock) -> Sharing:
    """What decides how the messages on a link share its bandwidth."""
    if network.sharing == "fifo":
        return FifoSharing(env)
    if network.changes is not None:
        return VaryingFairSharing(env)
    if network.groups is not None:
        return NestedFairSharing(env)
    return FairSharing(env)
