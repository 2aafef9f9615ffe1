"""Links whose bandwidth changes over time, and how messages share them max-min fairly."""

import math
from collections.abc import Iterable, Mapping
from functools import lru_cache, partial
from typing import Any

from laggard.simulator.errors import HUGE
from laggard.simulator.network.changes import Pair, lowest, overlay
from laggard.simulator.network.config import Network, SlowLink
from laggard.simulator.network.fair import FairSharing
from laggard.simulator.network.links import Ends, Link, Passed, Rated, Timer
from laggard.simulator.network.star import ProcessorSharingStar
from laggard.simulator.timing.clock import Clock
from laggard.simulator.timing.steps import StepFunction


class VaryingPaths:
    """The latency and the links between any two machines of a network with changes."""

    def __init__(self, network: Network, workers: int) -> None:
        assert network.changes is not None
        machine = partial(network.machine, workers=workers)
        self._network = network
        self._latencies = network.changes.by_pair("latency", machine)
        self._bandwidths = network.changes.by_pair("bandwidth", machine)
        # Most links of a network change alike.
        self._overlay = lru_cache(maxsize=2**16)(self._new_overlay)
        self._lowest = lru_cache(maxsize=2**16)(lowest)

    @property
    def latencies_change(self) -> bool:
        """Whether a row has a latency."""
        return bool(self._latencies)

    def latency(self, sender: int, pair: tuple[int, int], link: SlowLink | None) -> Any:
        """The latency of messages of node `sender` between two machines.

        It is a number of seconds, a law, or a step function of these.

        Args:
            link: the entry of `links` for the pair.
        """
        pairs: list[Pair] = [pair, (pair[0], None), (None, pair[1]), (None, None)]
        base: Any = self._network.latency_from(sender)
        if link is not None and link.latency is not None:
            pairs, base = [pair], link.latency
        rows = [self._latencies[key] for key in pairs if key in self._latencies]
        steps = overlay(StepFunction([], [base]), rows, "latency")
        if steps.moments:
            return steps
        return steps.values[0]

    def links(
        self, pair: tuple[int, int], link: SlowLink | None, trunks: Mapping[Ends, float | None]
    ) -> dict[Ends, StepFunction]:
        """The bandwidth of each link between two machines that ever has one.

        Args:
            link: as in `latency`.
            trunks: the bandwidths of those between the two, None without one.
        """
        network, (start, end) = self._network, pair
        up = self._bandwidth(network.card_bandwidth(start), (start, None), (None, None))
        down = self._bandwidth(network.card_bandwidth(end), (None, end), (None, None))
        between = None if link is None else link.bandwidth
        bandwidths: dict[Ends, StepFunction] = {}
        if network.wiring == "cards":
            bandwidths["up", start] = up
            bandwidths[pair] = self._bandwidth(between, pair)
            for ends, bandwidth in trunks.items():
                bandwidths[ends] = self._bandwidth(bandwidth)
            bandwidths["down", end] = down
        elif between is None:
            rows = [self._bandwidths[pair]] if pair in self._bandwidths else []
            bandwidths[pair] = overlay(self._lowest(up, down), rows, "bandwidth")
        else:
            bandwidths[pair] = self._bandwidth(between, pair)
        return {ends: steps for ends, steps in bandwidths.items() if steps.values != [HUGE]}

    def _bandwidth(self, base: float | None, *pairs: Pair) -> StepFunction:
        """The bandwidth over time of a link which rows of `pairs` change; `HUGE` is none."""
        if base is None:
            base = math.inf
        changed = tuple(pair for pair in pairs if pair in self._bandwidths)
        return self._overlay(min(base, HUGE), changed)

    def _new_overlay(self, base: float, pairs: Iterable[Pair]) -> StepFunction:
        rows = [self._bandwidths[pair] for pair in pairs]
        return overlay(StepFunction([], [base]), rows, "bandwidth")


class VaryingFairSharing(FairSharing):
    """Max-min fair sharing of links that change.

    Each change sets the bandwidths of links and solves again for the rates that they affect. The
    rest of a message then goes on at its new rate, which is 0 in an outage. On links that never
    change it is `FairSharing`.
    """

    def __init__(self, env: Clock) -> None:
        super().__init__(env)
        self._changing: dict[Link, StepFunction] = {}  # links that have had messages
        self._timer = Timer(env, self._change)
        self._next = math.inf
        self._under_way = 0  # messages over links that change

    def carry(self, size: float, route: tuple[Link, ...], passed: Passed) -> Rated:
        changing = {link: link.steps for link in route if link.steps is not None}
        if not changing:
            return super().carry(size, route, passed)
        untils = []
        for link, steps in changing.items():
            bandwidth, until = steps.at(self._env.now)
            untils.append(until)
            if not link.flows:  # else the link has the bandwidth of the moment, see `_change`
                link.bandwidth = bandwidth
        flow = self._begin(size, route, partial(self._ended, passed))
        self._changing.update(changing)
        self._under_way += 1
        self._await(min(untils))
        return flow

    def withdraw(self, flow: Rated) -> None:
        super().withdraw(flow)
        if any(link.steps is not None for link in flow.route):
            self._leave()

    def _begin(self, size: float, route: tuple[Link, ...], passed: Passed) -> Rated:
        if all(link.bandwidth for link in route):
            return super().carry(size, route, passed)
        # In an outage the message has no rate. A star divides by its bandwidth, so that only the
        # general filling can hold it.
        flow = Rated(next(self._numbers), size, route, passed)
        self._dissolve(route)
        flow.enter()
        self._general.join([flow])
        return flow

    def _ended(self, passed: Passed, delay: float) -> None:
        self._leave()
        passed(delay)

    def _leave(self) -> None:
        """Count one message less; without any, no timer may keep the clock running."""
        self._under_way -= 1
        if not self._under_way:
            self._timer.cancel()
            self._next = math.inf

    def _await(self, moment: float) -> None:
        if moment < self._next:
            self._next = moment
            self._timer.schedule(moment)

    def _change(self) -> None:
        """Set the bandwidths of this moment on the links with messages."""
        now, self._next = self._env.now, math.inf
        changed = {}
        for link, steps in self._changing.items():
            bandwidth, _ = steps.at(now)
            if link.flows and link.bandwidth != bandwidth:
                changed[link] = bandwidth
        # A message that ends at this moment ends before the change: in an outage that begins now it
        # would wait.
        for star in self._stars_at(changed):
            star.complete()
        self._dissolve(changed)
        for link, bandwidth in changed.items():
            link.bandwidth = bandwidth
        self._general.touch(changed)
        untils = [steps.at(now)[1] for link, steps in self._changing.items() if link.flows]
        self._await(min(untils, default=math.inf))

    def _stars_at(self, links: Iterable[Link]) -> dict[ProcessorSharingStar, None]:
        groups = [next(iter(link.flows)).group for link in links if link.flows]
        return dict.fromkeys(group for group in groups if isinstance(group, ProcessorSharingStar))

    def _dissolve(self, links: Iterable[Link]) -> None:
        """Move the messages over `links` from stars to the general filling."""
        for star in self._stars_at(links):
            self._general.join(star.dissolve())
