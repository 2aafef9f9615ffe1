"""Networks that change over time: bandwidths, outages, latencies."""

import numpy as np
import pytest

from laggard.simulator import SERVER, AllReduce, Cluster, Network, Rule, Stop, simulate
from laggard.simulator.network.changes import Change, Changes
from laggard.simulator.timing.distributions import Constant
from tests.simulator.network.traffic import arrivals as arrivals_of
from tests.theory.statements import equal
from tests.theory.test_networks import arrivals as over_cards

CAPACITY, GALLAGER = "cumulative capacity", "Bertsekas & Gallager"
ALPHA, P = 0.125, 4
STEPS = [
    Change(receiver=SERVER, start=2.0, end=5.0, bandwidth=0.25),
    Change(receiver=SERVER, start=5.0, bandwidth=2.0),
]
"""The server's down link: 1 byte a second up to 2 s, then 0.25 up to 5 s, then 2."""
MOMENTS, BYTES = [0.0, 2.0, 5.0, 105.0], [0.0, 2.0, 2.75, 202.75]
"""Its cumulative capacity C(t), which is linear between these moments."""


def arrivals(moments, sizes, rows, latency=0.0):
    """When each worker's message has reached the server (s), whose card has 1 byte a second, theirs
    100.
    """
    cards = {"bandwidth": 100.0, "server_bandwidth": 1.0}
    return over_cards(moments, sizes, changes=Changes(rows), latency=latency, **cards)


def inverse(size):
    """The moment t (s) at which C(t) = `size` bytes."""
    return float(np.interp(size, BYTES, MOMENTS))


@pytest.mark.parametrize("size", [1.0, 2.0, 2.5, 7.0])
def test_bytes_are_integral_of_bandwidth(size):
    """Bytes passed until t are the integral of the bandwidth; its inverse gives the end of a
    message.
    """
    arrived = arrivals([0.5], [size], STEPS, latency=ALPHA)
    text = f"{size:g} bytes from 0.5 s on over 1, 0.25, then 2 B/s, fair: alpha + C^-1(C(0.5) + N)"
    equal(text, ALPHA + inverse(0.5 + size), arrived, source=CAPACITY)


def test_two_messages_share_changing_card():
    """Two messages get half of the card each: the smaller ends at C(t) = 2 M, the other at C(t) =
    M + N.
    """
    first, second = arrivals([0.0, 0.0], [1.125, 3.0], STEPS)
    equal(
        "1.125 and 3 bytes over 1, 0.25, then 2 B/s, fair: C^-1(2 M)",
        inverse(2.25),
        first,
        source=GALLAGER,
    )
    equal(
        "1.125 and 3 bytes over 1, 0.25, then 2 B/s, fair: C^-1(M + N)",
        inverse(4.125),
        second,
        source=GALLAGER,
    )


def test_narrow_card_leaves_rest_to_other():
    """If the other card of one message becomes the bottleneck, the other message gets the rest."""
    rows = [Change(0, start=2.0, bandwidth=0.25)]
    first, second = arrivals([0.0, 0.0], [2.0, 4.0], rows)
    text = "2 and 4 bytes, 0.5 B/s each up to 2 s, then 0.25 and 0.75"
    equal(f"{text}: 2 s + 1 / 0.25 s", 6.0, first, source=GALLAGER)
    equal(f"{text}: 2 s + 3 / 0.75 s", 6.0, second, source=GALLAGER)


@pytest.mark.parametrize("workers", [1, 6])
def test_outage_delays_messages_under_way(workers):
    """Bytes wait until the outage ends: messages under way are late by its length, finished ones
    are not.
    """
    sizes = [1.0] * workers
    without = arrivals([0.0] * workers, sizes, [])
    outage = Change(start=0.5, end=8.0, bandwidth=0.0)
    arrived = arrivals([0.0] * workers, sizes, [outage])
    equal(
        f"P = {workers}, down for 7.5 s, fair: later by",
        7.5,
        arrived - without,
        source=CAPACITY,
    )
    after = arrivals(
        [0.0] * workers,
        sizes,
        [Change(start=float(workers), end=99.0, bandwidth=0.0)],
    )
    equal(
        f"P = {workers}, down from P N beta on, fair: later by",
        0.0,
        after - without,
        source=CAPACITY,
    )


def test_latency_is_taken_when_message_leaves():
    """The latency is that of the sending time."""
    rows = [Change(start=2.0, end=4.0, latency=3.0), Change(1, start=2.0, end=4.0, latency=0.5)]
    moments, latencies = [1.0, 3.0, 3.0, 5.0], [ALPHA, 0.5, 3.0, ALPHA]
    took = arrivals(moments, [0.0] * 4, rows, latency=ALPHA) - np.array(moments)
    for moment, latency, found in zip(moments, latencies, took, strict=True):
        text = f"a token sent at {moment:g} s, latency {latency:g} s then"
        equal(text, latency, found, source="definition")


def test_messages_to_node_do_not_overtake():
    """A message never arrives before one that left earlier for the same node."""
    network = Network(latency=ALPHA, changes=Changes([Change(end=0.5, latency=3.0)]))
    found = arrivals_of([(0.0, 0, SERVER, 0.0), (1.0, 0, SERVER, 0.0)], network, workers=1)
    text = "a token sent at 1 s with a latency of 0.125 s, after one at 0 s with 3 s"
    equal(text, 3.0, found[1], source="definition", wrong=1 + ALPHA)


def test_ring_uses_changing_bandwidth_fully():
    """In a ring of equal cards each link carries 2 (P - 1) N / P bytes without a pause, at the
    present bandwidth.
    """
    changes = Changes(
        [Change(start=2.0, end=5.0, bandwidth=0.25), Change(start=5.0, bandwidth=2.0)]
    )
    network = Network(bandwidth=1.0, message_bytes=4.0, changes=changes)
    found = simulate(
        Cluster(P, Constant(1.0), network=network), AllReduce(Rule()), stop=Stop(updates=1)
    ).updates
    text = f"ring of {P}, 4 bytes, cards of 1, 0.25, then 2 B/s, fair: C^-1(C(1) + 2 (P - 1) N / P)"
    equal(text, inverse(1 + 6.0), found["time"], source=CAPACITY)
