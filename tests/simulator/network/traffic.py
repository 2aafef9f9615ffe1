"""Messages over links, and when they end in a fluid model that is solved from scratch."""

import math

import numpy as np
import pytest

from laggard.simulator import Star
from laggard.simulator.network.links import Link
from laggard.simulator.network.transport import Transport
from laggard.simulator.timing.clock import Clock
from laggard.simulator.timing.steps import StepFunction


class Traffic:
    """Messages over a network, and when each of them arrived."""

    def __init__(self, network, topology=None, workers=8, crashes=False):
        network.check(workers)
        self.env, self.times, self.events = Clock(), {}, {}
        self.transport = Transport(self.env, network, topology or Star(), workers, crashes)

    def send(self, name, moment, sender, receiver, size):
        def go():
            arrival = self.events[name] = self.env.event()
            arrival._ok, arrival._value = True, None
            arrival.callbacks.append(lambda _: self.times.__setitem__(name, self.env.now))
            self.transport.carry(sender, receiver, size, arrival)

        self.env.call_in(float(moment), go)

    def cut(self, moment, rank, lost):
        """Crash a node; the names of the messages that are lost go to `lost`."""

        def go():
            cut = self.transport.cut(rank)
            lost.append([name for name, event in self.events.items() if event in cut])

        self.env.call_in(moment, go)

    def run(self):
        self.env.run_to_end()


def arrivals(sends, network, topology=None, workers=8):
    """When messages `(moment, sender, receiver, bytes)` arrive."""
    traffic = Traffic(network, topology, workers)
    for index, send in enumerate(sends):
        traffic.send(index, *send)
    traffic.run()
    return np.array([traffic.times[index] for index in range(len(sends))])


def make_link(bandwidth):
    """A link of constant bandwidth, or of one that is a step function."""
    if not isinstance(bandwidth, StepFunction):
        return Link(bandwidth)
    return Link(bandwidth.values[0], bandwidth if bandwidth.moments else None)


def carried(sends, links, withdrawn, kind):
    """When messages `(moment, bytes, links)` end under the sharing `kind`, in which order, and what
    kind of group each joined.

    Args:
        links: of each link, its bandwidth or the steps of it.
        withdrawn: when a message leaves, if it has not ended by then.
    """
    env, ends, flows, order, groups = Clock(), np.full(len(sends), math.nan), {}, [], {}
    sharing = kind(env)
    links = [make_link(link) for link in links]

    def begin(index):
        _, size, route = sends[index]
        route = tuple(links[link] for link in route)
        flows[index] = sharing.carry(size, route, lambda delay: end(index, delay))
        groups[index] = type(getattr(flows[index], "group", None))

    def end(index, delay):
        ends[index] = env.now + delay
        order.append(index)

    def withdraw(index):
        if index in flows and math.isnan(ends[index]):
            sharing.withdraw(flows[index])

    for index, (moment, _, _) in enumerate(sends):
        env.call_in(moment, lambda index=index: begin(index))
    for index, moment in withdrawn.items():
        env.call_in(moment, lambda index=index: withdraw(index))
    env.run_to_end()
    assert not any(link.flows for link in links)
    return ends, order, groups


def max_min(crosses, capacity):
    """Rates of flows by progressive filling; `crosses` is (flows, links), of zeros and ones."""
    rates, room = np.zeros(len(crosses)), np.array(capacity, float)
    unrated = np.ones(len(crosses), bool)
    while unrated.any():
        load = crosses[unrated].sum(axis=0)
        share = np.where(load > 0, room / np.maximum(load, 1), math.inf)
        fixed = unrated & (crosses[:, share.argmin()] > 0)
        rates[fixed] = share.min()
        room = np.maximum(room - crosses[fixed].sum(axis=0) * share.min(), 0.0)
        unrated &= ~fixed
    return rates


def fluid(sends, links, withdrawn):
    """When messages `(moment, bytes, links)` end if all rates are solved again at every event; nan
    if they never do. The arguments are those of `carried`.
    """
    links = [link if isinstance(link, StepFunction) else StepFunction([], [link]) for link in links]
    changes = np.array(sorted({moment for link in links for moment in link.moments}))
    begins, sizes = (np.array([send[place] for send in sends]) for place in (0, 1))
    crosses = np.zeros((len(sends), len(links)))
    for index, (_, _, route) in enumerate(sends):
        crosses[index, list(route)] = 1
    stops = np.array([withdrawn.get(index, math.inf) for index in range(len(sends))])
    left, ends, now = sizes.copy(), np.full(len(sends), math.nan), 0.0
    gone = np.zeros(len(sends), bool)
    while not gone.all():
        alive = ~gone & (begins <= now)
        rates = np.zeros(len(sends))
        rates[alive] = max_min(crosses[alive], [link.at(now)[0] for link in links])
        moving = rates > 0
        through = now + left[moving] / rates[moving]
        after = min([*begins[begins > now], *stops[alive], *changes[changes > now], *through])
        left -= rates * (after - now)
        now = after
        through = alive & (left <= 1e-10 * sizes)
        ends[through] = now
        gone |= through | (stops <= now)
    return ends


BLOCKS = pytest.mark.parametrize(
    "block", [0, *(pytest.param(block, marks=pytest.mark.slow) for block in range(1, 10))]
)
"""Blocks of seeds: the first one in every run of the tests, the others before a release."""
