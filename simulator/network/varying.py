"""Links whose bandwidth changes over time, and how messages share them: in queues, or max-min
fairly.
"""

import math
from collections.abc import Iterable, Mapping
from functools import lru_cache, partial, reduce
from typing import Any, cast

from laggard.simulator.errors import HUGE
from laggard.simulator.network.changes import Pair, StepFunction, lowest, overlay
from laggard.simulator.network.config import Network, SlowLink
from laggard.simulator.network.fair import FairSharing, MaxMin
from laggard.simulator.network.fifo import FifoSharing, Queued
from laggard.simulator.network.links import Ends, Flow, Link, Passed, Rated, Timer, slack
from laggard.simulator.network.star import ProcessorSharingStar
from laggard.simulator.timing.clock import Clock


class VaryingPaths:
    """The latency and the links between any two machines of a network with changes."""

    def __init__(self, network: Network, workers: int) -> None:
        assert network.changes is not None
        machine = partial(network.machine, workers=workers)
        self._network, self._latencies = network, network.changes.by_pair("latency", machine)
        self._bandwidths = network.changes.by_pair("bandwidth", machine)
        # most links of a network change alike
        self._steps = lru_cache(maxsize=2**16)(self._changed)
        self._lowest = lru_cache(maxsize=2**16)(lowest)

    @property
    def latencies_change(self) -> bool:
        """Whether some row has a latency."""
        return bool(self._latencies)

    def latency(self, sender: int, pair: tuple[int, int], own: SlowLink | None) -> Any:
        """The latency of messages of node `sender` between two machines: seconds, a law, or a step
        function of them.

        Args:
            own: what `links` says of the pair.
        """
        pairs: list[Pair] = [pair, (pair[0], None), (None, pair[1]), (None, None)]
        base = self._network.latency_from(sender)
        if own is not None and own.latency is not None:
            pairs, base = [pair], own.latency
        rows = [self._latencies[each] for each in pairs if each in self._latencies]
        steps = overlay(StepFunction([], [base]), rows, "latency")
        if steps.moments:
            return steps
        return steps.values[0]

    def links(
        self, pair: tuple[int, int], own: SlowLink | None, trunks: Mapping[Ends, float | None]
    ) -> dict[Ends, StepFunction]:
        """The bandwidth of each link between two machines, some of which are `trunks`, if it ever
        has one.
        """
        network, (start, end) = self._network, pair
        up = self._bandwidth(network.card_bandwidth(start), (start, None), (None, None))
        down = self._bandwidth(network.card_bandwidth(end), (None, end), (None, None))
        if own is None or own.bandwidth is None:
            between = math.inf
        else:
            between = own.bandwidth
        found: dict[Ends, StepFunction] = {pair: self._bandwidth(between, pair)}
        if network.wiring == "cards":
            constant = {
                ends: self._bandwidth(math.inf if speed is None else speed)
                for ends, speed in trunks.items()
            }
            found = {("up", start): up, **found, **constant, ("down", end): down}
        elif between == math.inf:
            if pair in self._bandwidths:
                rows = [self._bandwidths[pair]]
            else:
                rows = []
            found = {pair: overlay(self._lowest(up, down), rows, "bandwidth")}
        return {ends: steps for ends, steps in found.items() if steps.values != [HUGE]}

    def _bandwidth(self, base: float, *pairs: Pair) -> StepFunction:
        """`base`, and where rows hold what the first of `pairs` has that has one; `HUGE` where it
        is infinite.
        """
        return self._steps(
            min(base, HUGE), tuple(pair for pair in pairs if pair in self._bandwidths)
        )

    def _changed(self, base: float, pairs: Iterable[Pair]) -> StepFunction:
        return overlay(
            StepFunction([], [base]), [self._bandwidths[pair] for pair in pairs], "bandwidth"
        )


class VaryingLink(Link):
    """A link whose bandwidth changes.

    Attributes:
        steps: its bandwidth over time; `bandwidth` is that of the moment, where messages share it.
    """

    __slots__ = ("steps",)

    def __init__(self, steps: StepFunction) -> None:
        super().__init__(steps.values[0])
        self.steps = steps

    def finish(self, begin: float, size: float) -> float:
        """The moment e (s) at which `size` bytes have passed that begin at `begin`: int_begin^e
        c(t) dt = size.
        """
        left, time = size, begin
        while True:
            rate, until = float(self.steps.at(time)), self.steps.until(time)
            passed = rate * (until - time)
            if left - passed <= slack(size, rate, time):
                return min(time + left / rate, until)
            left, time = left - passed, until

    def latest_begin(self, end: float, size: float, least: float) -> float:
        """The latest moment b (s), but no earlier than `least`, with int_b^end c(t) dt = size."""
        left, time = size, end
        while time > least:
            since = max(self.steps.since(time), least)
            rate = float(self.steps.at(since))
            if left <= rate * (time - since):
                return max(time - left / rate, since)  # rounding may go below it
            left, time = left - rate * (time - since), since
        return least

    def head(self, before: "VaryingLink", begin: float, tail: float, size: float) -> float:
        """The first moment (s) from which on a message can cross this link without a pause as it
        leaves that before.

        With c(t) the bandwidth here and d(t) that of the link before, which the message leaves from
        `begin` to `tail`, it is the first b with int_b^t c <= int_begin^t d at all t. It need hold
        only where a time with c > d ends.
        """
        first, time, passed = begin, begin, 0.0
        while time < tail:
            until = min(before.steps.until(time), self.steps.until(time), tail)
            here, there = self.steps.at(time), before.steps.at(time)
            passed = min(passed + there * (until - time), size)
            # else the rest leaves at once, at `tail`
            if until == tail and size - passed <= slack(size, there, tail):
                passed = size
            if here > there:
                first = self.latest_begin(until, passed, first)
            time = until
        return first


def narrowest(route: tuple[VaryingLink, ...]) -> VaryingLink:
    """A link that is at each moment as fast as the slowest of `route`."""
    if len(route) == 1:
        return route[0]
    return VaryingLink(reduce(lowest, [link.steps for link in route]))


class VaryingFifoSharing(FifoSharing):
    """Queues over links that change: each serves one message after another, as fast as it is at the
    moment.

    The head of a message reaches the next link as soon as that can serve the message without a
    pause. On links that never change these are the queues of `FifoSharing`.
    """

    def __init__(self, env: Clock) -> None:
        super().__init__(env)
        self._rest = lru_cache(maxsize=2**16)(narrowest)

    def _enter(self, flow: Queued, hop: int, tail: float) -> None:
        now, link, flow.timer = self._env.now, cast(VaryingLink, flow.route[hop]), None
        begin = max(now, link.free)
        link.free = link.finish(begin, flow.size)
        tail = max(link.free, tail)
        if hop + 1 == len(flow.route):
            link.free = tail
            flow.passed(tail - now)
            return
        begin = self._rest(flow.route[hop + 1 :]).head(link, begin, tail, flow.size)
        if begin == now:
            self._enter(flow, hop + 1, tail)
        else:
            flow.timer = self._env.call_in(begin - now, lambda: self._enter(flow, hop + 1, tail))


class VaryingMaxMin(MaxMin):
    """As `MaxMin`, with links whose bandwidth changes."""

    def touch(self, links: Iterable[Link]) -> None:
        """Solve anew, in this instant, for the rates that the bandwidths of `links` affect."""
        self._touched.update(dict.fromkeys(links))
        self._timer.schedule(self._env.now)

    def _release(self, link: Link) -> None:
        if all(flow.rate for flow in link.flows):  # in a star each has one
            super()._release(link)


class VaryingFairSharing(FairSharing):
    """Max-min fair sharing of links that change: at each change the rates that it affects are
    solved for anew.

    What is left of a message then goes on at its new rate, which is 0 in an outage. On links that
    never change it is `FairSharing`.
    """

    def __init__(self, env: Clock) -> None:
        super().__init__(env)
        self._general: VaryingMaxMin = VaryingMaxMin(env, self._star)
        self._links: dict[VaryingLink, None] = {}  # that change
        self._timer, self._next, self._under_way = Timer(env, self._change), math.inf, 0

    def carry(self, size: float, route: tuple[Link, ...], passed: Passed) -> Flow:
        changing = [link for link in cast(tuple[VaryingLink, ...], route) if link.steps.moments]
        if not changing:
            return super().carry(size, route, passed)
        now = self._env.now
        for link in changing:
            if not link.flows:  # else it has the bandwidth of the moment
                link.bandwidth = link.steps.at(now)
        flow = self._begin(size, route, partial(self._ended, passed))
        self._links.update(dict.fromkeys(changing))
        self._under_way += 1
        self._await(min(link.steps.until(now) for link in changing))
        return flow

    def withdraw(self, flow: Flow) -> None:
        super().withdraw(flow)
        if any(link.steps.moments for link in cast(tuple[VaryingLink, ...], flow.route)):
            self._leave()

    def _begin(self, size: float, route: tuple[Link, ...], passed: Passed) -> Flow:
        if all(link.bandwidth for link in route):
            return super().carry(size, route, passed)
        flow = Rated(next(self._numbers), size, route, passed)
        self._dissolve(route)
        flow.enter()
        self._general.join([flow])
        return flow

    def _ended(self, passed: Passed, delay: float) -> None:
        self._leave()
        passed(delay)

    def _leave(self) -> None:
        """One message less: where none is left, no change is awaited, which would keep the clock
        running.
        """
        self._under_way -= 1
        if not self._under_way:
            self._timer.cancel()
            self._next = math.inf

    def _await(self, moment: float) -> None:
        if moment < self._next:
            self._next = moment
            self._timer.schedule(moment)

    def _change(self) -> None:
        """Give the links with messages the bandwidths of this moment."""
        now, self._next = self._env.now, math.inf
        changed = [
            link for link in self._links if link.flows and link.bandwidth != link.steps.at(now)
        ]
        for star in self._stars_at(changed):
            star.complete()
        self._dissolve(changed)
        for link in changed:
            link.bandwidth = link.steps.at(now)
        self._general.touch(changed)
        self._await(
            min((link.steps.until(now) for link in self._links if link.flows), default=math.inf)
        )

    def _stars_at(self, links: Iterable[Link]) -> dict[ProcessorSharingStar, None]:
        groups = [next(iter(link.flows)).group for link in links if link.flows]
        return dict.fromkeys(group for group in groups if isinstance(group, ProcessorSharingStar))

    def _dissolve(self, links: Iterable[Link]) -> None:
        """Move the messages over `links` from stars to the general filling."""
        for star in self._stars_at(links):
            self._general.join(star.dissolve())
