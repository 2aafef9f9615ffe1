"""Trunks: what messages between groups take that share links."""

import numpy as np
import pytest

from laggard.experiments.theory.communication import trunk_seconds
from laggard.simulator import (
    AllReduce,
    Cluster,
    Network,
    Rule,
    Stop,
    simulate,
)
from laggard.simulator.network.groups import Groups, Trunk
from laggard.simulator.network.topology import Complete
from laggard.simulator.timing.distributions import Constant
from tests.simulator.network.traffic import arrivals as arrivals_of
from tests.theory.statements import equal
from tests.theory.test_networks import either_sharing
from tests.theory.trials import update_times

LOGP, GALLAGER, JIA = "alpha-beta model", "Bertsekas & Gallager", "Jia et al. (2018)"
ALPHA, FAR, N, C = 0.125, 0.5, 3.0, 2.0


def arrivals(to, sizes, workers, groups, **network):
    """When the messages of the first workers arrive (s), which each sends to one at once."""
    sends = [(0.0, rank, to[rank], size) for rank, size in enumerate(sizes)]
    return arrivals_of(sends, Network(groups=groups, **network), Complete(), workers)


@either_sharing
@pytest.mark.parametrize("k", [1, 4, 8])
def test_two_data_centres_share_one_trunk(k, sharing):
    """One trunk joins two groups of eight: k messages each way take k N / C and both latencies."""
    groups = Groups(2, trunks=[Trunk([0], 1, C, latency=FAR)])
    to, sizes = (
        [(rank + 8) % 16 for rank in range(16)],
        [N if rank % 8 < k else 0.0 for rank in range(16)],
    )
    found = arrivals(to, sizes, 16, groups, bandwidth=10.0, latency=ALPHA, sharing=sharing)[
        np.array(sizes) > 0
    ]
    text, last = f"8 + 8, {k} over a trunk each way, {sharing}", ALPHA + FAR + k * N / C
    alone = ALPHA + FAR + N / C
    equal(f"{text}: the last, k N / C and latencies", last, found.max(), source=LOGP,
          wrong=alone if k > 1 else last - FAR)  # fmt: skip
    if sharing == "fair":
        equal(f"{text}: all together", 0.0, np.ptp(found), source=GALLAGER)
    else:
        equal(f"{text}: the first, N / C and latencies", alone, found.min(), source=LOGP)


@pytest.mark.parametrize("n", [2, 3, 8])
def test_parking_lot_gives_equal_rates(n):
    """A message over n trunks in a row and one message over each trunk all get C / 2, for every n."""
    groups = Groups(n + 1, trunks=[Trunk([group], group + 1, C) for group in range(n)])
    to = [2 * n, *(2 * (rank // 2) + 2 for rank in range(1, 2 * n))]
    sizes = [N if rank == 0 or rank % 2 else 0.0 for rank in range(2 * n)]
    found = arrivals(to, sizes, 2 * n + 2, groups)[np.array(sizes) > 0]
    text = f"{n} trunks in a row, one message over all, one over each: 2 N / C"
    equal(text, 2 * N / C, found, source=GALLAGER, wrong=(n + 1) * N / C)


def test_unequal_trunks_leave_rest_to_others():
    """On trunks of 1 and 3 B/s the long message gets 1/2, so that the message on the second trunk
    gets 5/2, not 3/2.
    """
    groups = Groups(3, trunks=[Trunk([0], 1, 1.0), Trunk([1], 2, 3.0)])
    long, first, second = arrivals([4, 3, 5], [2.0, 2.0, 2.0], 6, groups)[[0, 1, 2]]
    text = "trunks of 1 and 3 B/s, 2 bytes over both, first, second"
    equal(f"{text}: the second's N / (5/2)", 0.8, second, source=GALLAGER, wrong=2 / 1.5)
    equal(f"{text}: the others' 2 N", 4.0, [long, first], source=GALLAGER)


def test_crossing_messages_leave_rest_of_trunk():
    """On trunks of 4 and 1 B/s two messages over the second get 1/2 each; one of them leaves 7/2
    of the first.
    """
    groups = Groups(3, trunks=[Trunk([0], 1, 4.0), Trunk([1], 2, 1.0)])
    both, first, second = arrivals([4, 3, 5], [1.0, 7.0, 1.0], 6, groups)[[0, 1, 2]]
    text = "trunks of 4 and 1 B/s; 1, 7 and 1 bytes over both, first, second"
    equal(f"{text}: 2 s, all three", 2.0, [both, first, second], source=GALLAGER, wrong=7 / 2)


@pytest.mark.parametrize("r", [1.0, 2.0, 8.0])
def test_uplink_of_rack_limits_senders(r):
    """All g nodes of a rack send at the same time over its uplink, which takes r N beta."""
    groups = Groups(2, trunks=[Trunk([0, 1], "core", oversubscription=r)])
    found = arrivals([4, 5, 6, 7], [N] * 4, 8, groups, bandwidth=C)
    equal(
        f"a rack at {r:g} to 1: r N beta",
        r * N / C,
        found,
        source=LOGP,
        wrong=N / C if r > 1 else 4 * N / C,
    )


@pytest.mark.parametrize(("m", "g"), [(1, 8), (2, 4), (2, 8), (4, 2), (4, 1)])
@pytest.mark.parametrize("collective", ["ring", "hierarchical"])
def test_ring_and_hierarchical_sums_pay_for_trunks(collective, m, g):
    """A ring pays for trunks in every step that has to arrive, m racks of g 2 (m - 1) times.

    Hierarchical: 2 (g - 1)(alpha + N beta / g) + 2 (m - 1)(alpha + 2 alpha' + N beta' / m).
    """
    P, groups = m * g, Groups(m, trunks=[Trunk(range(m), "core", C / 4, latency=FAR)])
    network = Network(bandwidth=C, latency=ALPHA, message_bytes=N, groups=groups, rendezvous=True)
    cluster, algorithm = Cluster(P, Constant(1.0), network=network), AllReduce(Rule(), collective)
    expected, took = (
        trunk_seconds(algorithm, cluster, N),
        update_times(cluster, algorithm, 5).max() - 1.0,
    )
    far, inside, across = ALPHA + 2 * FAR, 2 * (g - 1) * (ALPHA + N / C / g), 2 * (m - 1)
    steps = (ALPHA + 2 * FAR * (m > 1) + (4 if m > 1 else 1) * N / C / P) * 2 * (P - 1)
    form = steps if collective == "ring" else inside + across * (far + max(1, 4 * g) * N / C / P)
    text = (
        "2 (P - 1)(alpha + 2 alpha' + N beta' / P)"
        if collective == "ring"
        else "inside, then across"
    )
    text = f"{collective}, {m} racks of {g} at a core: {text}"
    other = inside + across * (ALPHA + N / C / m) if m > 1 else form + FAR
    equal(text, form, took, source=JIA if collective == "hierarchical" else LOGP, wrong=other)
    equal(
        f"{collective}, {m} racks of {g}: the tables' theory",
        form,
        expected or 0.0,
        source="derived",
    )


@pytest.mark.parametrize("oversubscription", [1.0, 8.0])
def test_ring_over_trunks_goes_on_once_bytes_left(oversubscription):
    """In the long run each step takes the slowest bytes, or the mean message of the way round."""
    m, g = 2, 4
    P, groups = 8, Groups(m, trunks=[Trunk([0], 1, C / oversubscription, latency=FAR)])
    network = Network(bandwidth=C, latency=ALPHA, message_bytes=N, groups=groups)
    cluster, algorithm = Cluster(P, Constant(1.0), network=network), AllReduce(Rule())
    times = np.sort(simulate(cluster, algorithm, stop=Stop(updates=32)).updates["time"])
    rounds = times.reshape(-1, P)[:, -1]
    took = (rounds[-1] - rounds[-1 - 2 * P]) / (2 * P) - 1.0
    inside, across = N / C / P, oversubscription * N / C / P
    mean = ALPHA + (m * (FAR + across) + m * (g - 1) * inside) / P
    form = 2 * (P - 1) * max(inside, across, mean)
    text = f"ring, 2 racks of 4, trunks of {oversubscription:g}"
    slowest = 2 * (P - 1) * (ALPHA + FAR + across)
    equal(f"{text}: long run", form, took, source="derived", wrong=slowest)
    equal(f"{text}: theory", form, trunk_seconds(algorithm, cluster, N) or 0.0, source="derived")
