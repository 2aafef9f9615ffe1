"""A network under a running clock: links, and the messages that cross them."""

import math
import warnings
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, cast

from simpy.events import Event

from laggard.simulator.errors import InvalidSettingError, check_duration
from laggard.simulator.network.config import Network, SlowLink
from laggard.simulator.network.fair import FairSharing
from laggard.simulator.network.fifo import FifoSharing
from laggard.simulator.network.groups import TRUNK, Trunks
from laggard.simulator.network.latency import Latencies
from laggard.simulator.network.links import Ends, Link
from laggard.simulator.network.nested import NestedFairSharing
from laggard.simulator.network.topology import Topology
from laggard.simulator.network.varying import VaryingFairSharing, VaryingPaths
from laggard.simulator.timing.clock import Clock
from laggard.simulator.timing.events import Departure, Message, Verb
from laggard.simulator.timing.steps import StepFunction

Sharing = FairSharing | FifoSharing
MANY_MESSAGES = 1024
"""The number of messages under way, plus four per pair of nodes, from which a warning is given."""
MIN_SECONDS = 1e-9


class Transfer:
    """A message under way, recorded where a crash can lose it.

    Attributes:
        flow: the message on its links, as the sharing has it; None without links.
        scheduled: whether its arrival is scheduled: it has crossed its links.
    """

    __slots__ = ("flow", "receiver", "scheduled", "sender")

    def __init__(self, sender: int, receiver: int) -> None:
        self.sender = sender
        self.receiver = receiver
        self.flow: Any = None
        self.scheduled = False


class Transport:
    """The links of a network, and the messages that cross them.

    With `crashes` it records the messages under way, so that a crash can lose them.

    Attributes:
        post: schedules the arrival of any message, where all take only the same latency and none
            can be lost; else None.
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
        """`seed` is the seed of drawn latencies."""
        topology.check(workers)
        self._env = env
        self._network = network
        self._topology = topology
        self._workers = workers
        self.post: Callable[[Event], None] | None = None
        if network.unlimited and not crashes:
            self.post = env.after_seconds(cast(float, network.latency))
        self._varying: VaryingPaths | None = None
        if network.changes is not None:
            self._varying = VaryingPaths(network, workers)
        self._trunks: Trunks | None = None
        if network.groups is not None:
            self._trunks = Trunks(network, workers)
        changes = self._varying is not None and self._varying.latencies_change
        self._latencies: Latencies | None = None  # where they differ from message to message
        if network.draws_latency or changes:
            self._latencies = Latencies(env, network, seed)
        self._sharing: Any = _make_sharing(network, env)
        self._special: dict[tuple[int, int], SlowLink] = {}
        for link in network.links:
            for pair in link.pairs:
                self._special[network.on_machines(pair, workers)] = link
        self._links: dict[Ends, Link] = {}
        # bounded: a mesh of 1,024 has a million pairs
        self._path = lru_cache(maxsize=2**16)(self._between)
        self._transfers: dict[Event, Transfer] | None = {} if crashes else None
        self._departures: dict[Any, Departure] = {}  # of messages with bytes still to leave
        self._under_way = 0
        self._most_under_way = MANY_MESSAGES + 4 * workers**2
        self._leaving: list[float] = []  # moments (s) at which messages leave, where known
        self._most_leaving = MANY_MESSAGES  # above it, those that have left are removed
        self._departed = Departure(env)
        # It has fired, as None says: one event for all messages that have left.
        self._departed.callbacks = None

    def check(self, sender: int, receiver: int) -> None:
        """Raise `InvalidSettingError` unless the topology joins the two."""
        if not self._topology.joins(sender, receiver, self._workers):
            topology = type(self._topology).__name__
            expected = f"a pair that a {topology} joins"
            raise InvalidSettingError(topology, "send", expected, f"{sender} -> {receiver}")

    def departure(self, message: Message) -> Verb:
        """The event that fires when the last byte of `message` has left its sender.

        It has then crossed all links, and the latency follows. Without a latency, departure and
        arrival are one event. A message that a crash loses counts as departed at once, or in a
        queue at its scheduled time.
        """
        latency, beside, _ = self._path(message.sender.rank, message.receiver.rank)
        if self._latencies is None and latency + beside == 0:
            return message
        # Without bandwidths the last byte leaves when the message is sent.
        if self.post is not None:
            return self._departed
        left = getattr(message, "left", None)
        if left is not None and left <= self._env.now:
            return self._departed
        departure = Departure(self._env)
        if left is None:
            self._departures[message] = departure
        else:
            self._env.at(left, departure)
        return departure

    def carry(self, sender: int, receiver: int, size: float, arrival: Any) -> None:
        """Schedule `arrival` for the moment at which `size` bytes have reached `receiver`.

        `check` checks whether the topology joins the two.
        """
        if self.post is not None:
            self.post(arrival)
            return
        latency, beside, route = self._path(sender, receiver)
        latencies = self._latencies
        seconds = latency
        if latencies is not None:
            seconds = latencies.draw(latency, sender) + beside
        transfer = None
        if self._transfers is not None:  # its first callback removes the record when it arrives
            transfer = self._transfers[arrival] = Transfer(sender, receiver)
            cast(list[Callable[[Event], object]], arrival.callbacks).insert(0, self._transfers.pop)

        def passed(delay: float) -> None:
            if transfer is not None:
                transfer.scheduled = True
            check_duration(delay, "Network", "bytes over bandwidth")
            if latencies is None:
                self._env.after(delay + seconds, arrival)
            else:
                latencies.schedule(sender, receiver, delay, seconds, arrival)
            arrival.left = self._env._now + delay
            if delay:
                self._leaving.append(arrival.left)
                if len(self._leaving) > self._most_leaving:
                    self._forget_departed()
            else:
                self._under_way -= 1
            if self._departures:
                self._depart(arrival)

        self._under_way += 1
        if self._under_way > self._most_under_way:
            self._check_growth()
        if size == 0 or not route:
            passed(0.0)
            return
        flow = self._sharing.carry(size, route, passed)
        if transfer is not None:
            transfer.flow = flow

    def _depart(self, message: Any) -> None:
        """Schedule the departure of a message, where a role has asked for it."""
        departure = self._departures.pop(message, None)
        if departure is not None:
            self._env.at(message.left, departure)

    def cut(self, rank: int) -> list[Event]:
        """Lose the messages under way from and to worker `rank`; return their arrivals.

        The arrivals never happen. The messages free their links; in a queue (`fifo`) their time
        stays reserved, except on the worker's own links.
        """
        assert self._transfers is not None, "without crashes, messages under way are not recorded"
        if self._latencies is not None:
            self._latencies.cut(rank)
        lost: dict[Event, Transfer] = {}
        for arrival, transfer in self._transfers.items():
            if rank in (transfer.sender, transfer.receiver):
                lost[arrival] = transfer
        for arrival, transfer in lost.items():
            del self._transfers[arrival]
            if transfer.scheduled:
                self._env.cancel(arrival)
            elif transfer.flow is not None:
                self._sharing.withdraw(transfer.flow)
                cast(Any, arrival).left = self._env.now
                self._under_way -= 1
                self._depart(arrival)
        # On cards that a rank shares with others, times are reserved for their messages, too.
        if not self._network.colocated:
            shared: tuple[str, ...] = (TRUNK,)
            if self._network.host_size > 1:
                shared = (TRUNK, "up", "down")
            for ends, link in self._links.items():
                if rank in ends and ends[0] not in shared:
                    link.free = min(link.free, self._env.now)
        return list(lost)

    def _check_growth(self) -> None:
        """Warn if messages pile up, with the bandwidth that the busiest link would need."""
        now = self._env.now
        self._forget_departed()
        if self._under_way < self._most_under_way / 2:
            return
        self._most_under_way *= 16
        waiting = {ends: self._backlog(link) for ends, link in self._links.items()}
        ends = max(waiting, key=lambda ends: waiting[ends])
        link = self._links[ends]
        found = f"{self._under_way:,} messages are under way after {now:g} s"
        needed = link.bandwidth + waiting[ends] / max(now, MIN_SECONDS)
        carries = f"link {ends[0]} of {ends[1]} carries {link.bandwidth:g} of the {needed:.3g}"
        remedy = "raise it, or let nodes await departures (algorithm.outstanding)"
        warnings.warn(
            f"cluster.network.bandwidth: {found}: {carries} bytes/s that are sent; {remedy}",
            stacklevel=2,
        )

    def _forget_departed(self) -> None:
        """Count the messages that have left by now as gone: amortised, one step per message."""
        now = self._env.now
        leaving = [moment for moment in self._leaving if moment > now]
        self._under_way -= len(self._leaving) - len(leaving)
        self._leaving = leaving
        self._most_leaving = MANY_MESSAGES + 2 * len(leaving)

    def _backlog(self, link: Link) -> float:
        """The bytes that wait for a link."""
        if self._network.sharing == "fifo":
            return max(0.0, link.free - self._env.now) * link.bandwidth
        return sum(flow.size for flow in link.flows)

    def _between(self, sender: int, receiver: int) -> tuple[Any, float, tuple[Link, ...]]:
        """The latency between two nodes, a constant to add to a drawn one, and the links between.

        Links without a bandwidth are left out.
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
        if beside and self._latencies is None:
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
        """The links between two machines: their cards, a link of the pair, and `trunks`.

        Args:
            between: the bandwidth of the pair's link, None without one.
        """
        up = self._network.card_bandwidth(start)
        down = self._network.card_bandwidth(end)
        bandwidths: dict[Ends, float | None] = {}
        if self._network.wiring == "pairs":
            bandwidths[start, end] = min(up, down) if between is None else between
        else:
            bandwidths = {("up", start): up, (start, end): between, **trunks, ("down", end): down}
        links = []
        for ends, bandwidth in bandwidths.items():
            if bandwidth is not None and bandwidth < math.inf:
                links.append(self._link(ends, bandwidth))
        return tuple(links)

    def _inside(self, sender: int, receiver: int) -> tuple[float, float, tuple[Link, ...]]:
        """As `_between`, for two nodes of one machine: no links, or the inner cards of a host."""
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
    """The way in which the messages on a link share its bandwidth."""
    if network.sharing == "fifo":
        return FifoSharing(env)
    if network.changes is not None:
        return VaryingFairSharing(env)
    if network.groups is not None:
        return NestedFairSharing(env)
    return FairSharing(env)
