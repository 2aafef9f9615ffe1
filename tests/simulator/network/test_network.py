"""Cards, links, hosts and queues: who shares what, and what a crash loses."""

import itertools
import math
from dataclasses import replace
from heapq import heapify, heappop, heappush

import numpy as np
import pytest

from laggard.simulator import SERVER, Cluster, InvalidSettingError, Network
from laggard.simulator.network import nested
from laggard.simulator.network.changes import Change, Changes
from laggard.simulator.network.config import Card, Hosts, SlowLink
from laggard.simulator.network.fifo import FifoSharing
from laggard.simulator.network.topology import Auto, Complete
from laggard.simulator.network.transport import MANY_MESSAGES
from tests.simulator.network.any_network import WORKERS, crossed, joined, random_network
from tests.simulator.network.traffic import BLOCKS, Traffic, arrivals, carried, fluid

BANDWIDTH = 10.0
SHARINGS = pytest.mark.parametrize("sharing", ["fair", "fifo"])
BANDWIDTHS = pytest.mark.parametrize("bandwidth", [BANDWIDTH, math.inf])


def queued(sends, bandwidths):
    """When messages end that wait in a queue at each link, link after link in order of arrival.

    A message comes to a link when the slowest of those that follow could pass it on without a
    pause.
    """
    free, ends = [0.0] * len(bandwidths), [0.0] * len(sends)
    numbers = (
        itertools.count()
    )  # of heads that arrive at one moment, the one known first goes first
    heads = [
        (moment, next(numbers), index, 0, -math.inf) for index, (moment, *_) in enumerate(sends)
    ]
    heapify(heads)
    while heads:
        now, _, index, hop, tail = heappop(heads)
        _, size, route = sends[index]
        moment = now
        while moment == now:  # it comes to the next link in the same moment, before all others
            link, rest = route[hop], [bandwidths[number] for number in route[hop + 1 :]]
            begin = max(moment, free[link])
            free[link] = begin + size / bandwidths[link]
            tail = ends[index] = max(free[link], tail)
            if not rest:
                free[link] = tail
                break
            moment, hop = max(begin, tail - size / min(rest)), hop + 1
        else:
            heappush(heads, (moment, next(numbers), index, hop, tail))
    return ends


@pytest.mark.parametrize("hops", [1, 2, 3])
@BLOCKS
def test_messages_in_queues_end_as_recursion_says(hops, block):
    for seed in range(block * 15, block * 15 + 15):
        rng = np.random.default_rng([seed, hops])
        nodes, messages = 3, int(rng.integers(1, 12))
        routes = (np.arange(hops) * nodes + rng.integers(nodes, size=(messages, hops))).tolist()
        moments, sizes = rng.uniform(0, 8, messages), 10 ** rng.uniform(-1, 1.2, messages)
        sends = list(zip(moments.tolist(), sizes.tolist(), routes, strict=True))
        bandwidths = rng.uniform(0.5, 5, hops * nodes).tolist()
        found, _, _ = carried(sends, bandwidths, {}, FifoSharing)
        expected = queued(sends, bandwidths)
        np.testing.assert_allclose(found, expected, rtol=1e-9, err_msg=f"seed {seed}")


def test_star_joins_workers_only_to_server():
    traffic = Traffic(Network())
    traffic.transport.check(0, SERVER)
    with pytest.raises(InvalidSettingError, match=r"Star\.send"):
        traffic.transport.check(0, 1)


@pytest.mark.parametrize("changing", [False, True])
@BLOCKS
def test_any_network_shares_max_min_fairly(block, changing, monkeypatch):
    least = nested.MIN_CHANGED
    for seed in range(block * 100, block * 100 + 100):
        monkeypatch.setattr(nested, "MIN_CHANGED", seed % 2 * least)
        rng = np.random.default_rng(seed)
        network, sends = random_network(rng), []
        if changing and network.hosts is None:  # a row without effect, far in the future
            network = replace(network, changes=Changes([Change(start=1e6, bandwidth=1.0)]))
        moments = rng.choice([0.0, 2.0, 5.5], 20) if rng.integers(2) else rng.uniform(0, 20, 20)
        sizes = rng.choice([1.0, 4.0, 10.0], 20) if rng.integers(2) else rng.uniform(0.5, 12, 20)
        pairs = rng.choice(joined(network.topology), 20).tolist()
        bandwidths, flows, latencies = {}, [], []
        for moment, pair, size in zip(moments.tolist(), pairs, sizes.tolist(), strict=True):
            links, latency = crossed(network, *pair)
            bandwidths |= links
            sends.append((moment, *pair, size))
            flows.append((moment, size, [list(bandwidths).index(link) for link in links]))
            latencies.append(latency)
        travels = [bool(route) for _, _, route in flows]
        expected = moments + latencies
        through = [flow for flow in flows if flow[2]]
        expected[travels] += fluid(through, list(bandwidths.values()), {}) - moments[travels]
        found = arrivals(sends, network, network.topology, WORKERS)
        np.testing.assert_allclose(found, expected, rtol=1e-9, err_msg=f"seed {seed}")


@SHARINGS
@BANDWIDTHS
def test_slow_link_slows_only_its_pair(sharing, bandwidth):
    link = SlowLink(0, SERVER, bandwidth=1.0, latency=0.5, both=False)
    network = Network(
        bandwidth=bandwidth, server_bandwidth=1e6, latency=0.125, sharing=sharing, links=[link]
    )
    sends = [(0.0, *pair, 20.0) for pair in [(0, SERVER), (SERVER, 0), (1, SERVER)]]
    other = 20.0 / bandwidth + 0.125
    found = arrivals([*sends, (30.0, 0, SERVER, 0.0)], network)
    assert found == pytest.approx([20.5, other, other, 30.5], abs=1e-3)


@SHARINGS
@BANDWIDTHS
@pytest.mark.parametrize("inner", [4 * BANDWIDTH, math.inf])
def test_workers_of_host_share_only_outer_card(sharing, inner, bandwidth):
    """Inside alpha' + N beta' for each pair at once, both ways; two that send to others take alpha
    + 2 N beta.
    """
    hosts = Hosts(4, inner, latency=0.25)
    network = Network(bandwidth=bandwidth, latency=0.5, sharing=sharing, hosts=hosts)
    pairs = [(0, 1), (1, 0), (2, 3), (0, 4), (1, 5)]
    found = arrivals([(0.0, *pair, 20.0) for pair in pairs], network, Complete())
    assert found[:3] == pytest.approx([0.25 + 20.0 / inner] * 3)
    assert found[3:].max() == pytest.approx(0.5 + 2 * 20.0 / bandwidth)


@SHARINGS
@BANDWIDTHS
def test_messages_of_crashed_node_never_arrive(sharing, bandwidth):
    network = Network(bandwidth=bandwidth, latency=0.5, sharing=sharing)
    traffic, lost = Traffic(network, crashes=True), []
    if bandwidth == math.inf:
        for name, moment in {"arrived": 0.0, "under way": 0.75, "after": 1.25}.items():
            traffic.send(name, moment, 3, SERVER, 20.0)
    else:
        traffic.send("in its latency", 0.0, 3, SERVER, 8.0)
        traffic.send("on the link", 0.0, SERVER, 3, 20.0)
        traffic.send("behind it", 0.0, SERVER, 3, 20.0)
    traffic.send("other", 0.75, 4, SERVER, 2.0)
    traffic.cut(1.0, 3, lost)
    traffic.cut(1.0, 3, lost)
    traffic.run()
    kept = {"other", "arrived", "after"} & set(traffic.events)
    assert lost == [[name for name in traffic.events if name not in kept], []]
    assert set(traffic.times) == kept


def test_crash_frees_fair_links():
    """Two of 20 bytes at 5 B/s each; one is cut at 2 s, and the other's 10 bytes left take 1 s."""
    traffic = Traffic(Network(bandwidth=BANDWIDTH), crashes=True)
    traffic.send("cut", 0.0, 0, SERVER, 20.0)
    traffic.send("kept", 0.0, 1, SERVER, 20.0)
    traffic.cut(2.0, 0, [])
    traffic.run()
    assert traffic.times == pytest.approx({"kept": 3.0})
    assert traffic.env.now == pytest.approx(3.0), "a timer of the lost message keeps the clock"


@pytest.mark.parametrize("more", [{}, {"wiring": "pairs"}, {"hosts": Hosts(1)}], ids=str)
def test_crash_empties_queues_of_own_links(more):
    network = Network(bandwidth=BANDWIDTH, server_bandwidth=1e6, sharing="fifo", **more)
    traffic = Traffic(network, crashes=True)
    for name in range(5):
        traffic.send(name, 0.0, 0, SERVER, 20.0)
    traffic.cut(3.0, 0, [])
    traffic.send("back", 4.0, 0, SERVER, 20.0)
    traffic.run()
    assert traffic.times == pytest.approx({0: 2.0, "back": 6.0}, abs=1e-3)


@pytest.mark.parametrize(
    ("setting", "accepted"),
    [
        ({"wiring": "pairs"}, "cards"),
        ({"cards": [Card(0, BANDWIDTH)]}, "none"),
        ({"links": [SlowLink(0, 1, BANDWIDTH)]}, "none"),
        ({"colocated": True}, "false"),
        ({"changes": Changes([Change(latency=1.0)])}, "none"),
    ],
    ids=lambda each: next(iter(each)) if isinstance(each, dict) else each,
)
def test_refusal_beside_hosts_names_the_accepted_value(setting, accepted):
    with pytest.raises(InvalidSettingError, match=f"expected {accepted} together with hosts"):
        Network(hosts=Hosts(2), **setting)


@pytest.mark.parametrize("rank", [0, 3])
def test_crash_leaves_queue_of_host_unchanged(rank):
    """Each message takes 2 s. The lost one holds its turn until 2 s, so that the next two end at 4
    s and 6 s.
    """
    network = Network(bandwidth=BANDWIDTH, server_bandwidth=1e6, sharing="fifo", hosts=Hosts(2))
    traffic, mate = Traffic(network, workers=4, crashes=True), rank ^ 1
    traffic.send("lost", 0.0, rank, SERVER, 20.0)
    traffic.send("behind", 0.0, mate, SERVER, 20.0)
    traffic.cut(1.0, rank, [])
    traffic.send("after", 1.5, mate, SERVER, 20.0)
    traffic.run()
    assert traffic.times == pytest.approx({"behind": 4.0, "after": 6.0}, abs=1e-3)


def test_crash_empties_queue_of_own_inner_card():
    """The inner card of worker 1, to which all five messages went, is reserved until 10 s."""
    network = Network(sharing="fifo", hosts=Hosts(4, BANDWIDTH))
    traffic = Traffic(network, Complete(), workers=4, crashes=True)
    for name in range(5):
        traffic.send(name, 0.0, 0, 1, 20.0)
    traffic.cut(3.0, 0, [])
    traffic.send("back", 4.0, 0, 2, 20.0)
    traffic.send("other", 4.0, 3, 1, 20.0)
    traffic.run()
    assert traffic.times == pytest.approx({0: 2.0, "back": 6.0, "other": 6.0})


def test_every_message_arrives_or_is_lost():
    for seed in range(60):
        rng = np.random.default_rng(seed)
        network = replace(random_network(rng), sharing=str(rng.choice(["fair", "fifo"])))
        traffic, lost = Traffic(network, network.topology, WORKERS, crashes=True), []
        for name, pair in enumerate(rng.choice(joined(network.topology), 12).tolist()):
            traffic.send(name, rng.uniform(0, 5), *pair, rng.uniform(0, 9))
        for moment, rank in zip(rng.uniform(0, 8, 3), rng.integers(WORKERS, size=3), strict=True):
            traffic.cut(float(moment), int(rank), lost)
        traffic.run()
        assert sorted([*traffic.times, *itertools.chain(*lost)]) == sorted(traffic.events)
        assert not any(link.flows for link in traffic.transport._links.values())


def test_departures_of_queued_messages_are_forgotten():
    """Else their moments would pile up for as long as a run of many nodes takes."""
    workers = 64
    network = Network(topology=Complete(), bandwidth=1.0, sharing="fifo")
    traffic = Traffic(network, network.topology, workers)
    for number in range(4 * MANY_MESSAGES):
        traffic.send(number, float(number), number % workers, (number + 1) % workers, 0.5)
    traffic.run()
    assert len(traffic.times) == 4 * MANY_MESSAGES
    assert len(traffic.transport._leaving) <= MANY_MESSAGES + 2
    assert traffic.transport._under_way == len(traffic.transport._leaving)


LINK, BACK = SlowLink(0, -1, 1.0), SlowLink(-1, 0, 2.0)


def test_cards_and_links_that_fit_are_accepted():
    one_way = [replace(LINK, both=False), replace(BACK, both=False)]
    for links in (one_way, [SlowLink(0, -8, 1.0), SlowLink(0, 1, 1.0)]):
        Cluster(8, network=Network(topology=Auto(), cards=[Card(7, 1.0)], links=links))
