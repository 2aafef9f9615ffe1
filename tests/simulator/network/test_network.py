"""Cards, links, hosts and queues: who shares what, and what a crash loses."""

import itertools
import math
from dataclasses import replace
from heapq import heapify, heappop, heappush

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laggard.simulator import SERVER, Cluster, InvalidSettingError, Network, Star
from laggard.simulator.network.config import Card, Hosts, SlowLink
from laggard.simulator.network.fifo import FifoSharing
from laggard.simulator.network.topology import Auto, Complete
from tests.simulator.network.traffic import BLOCKS, Traffic, arrivals, carried, fluid

BANDWIDTH = 10.0
SHARINGS = pytest.mark.parametrize("sharing", ["fair", "fifo"])
BANDWIDTHS = pytest.mark.parametrize("bandwidth", [BANDWIDTH, math.inf])


def test_busy_down_link_does_not_hold_up_link():
    """Cut-through: A's card is free after its own bytes, though C's takes B's message first."""
    up_a, up_b, down_c, down_d = range(4)
    sends = [(0.0, 10.0, route) for route in [(up_b, down_c), (up_a, down_c), (up_a, down_d)]]
    ends, _, _ = carried(sends, [BANDWIDTH] * 4, {}, FifoSharing)
    assert ends == pytest.approx([1.0, 2.0, 2.0])


def queued(sends, bandwidths):
    """When messages end that wait in a queue at each link, link after link in order of arrival.

    A message comes to a link when the slowest of those that follow could pass it on without a
    pause.
    """
    free, ends = [0.0] * len(bandwidths), [0.0] * len(sends)
    numbers = (
        itertools.count()
    )  # of heads that come at the same moment, the one known first goes first
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


def test_star_joins_workers_to_server_alone():
    traffic = Traffic(Network())
    traffic.transport.check(0, SERVER)
    with pytest.raises(InvalidSettingError, match=r"Star\.send"):
        traffic.transport.check(0, 1)


def crossed(network, sender, receiver, workers):
    """The links between two nodes as (name, bandwidth); None where they are one machine."""
    hosts = network.hosts
    if hosts and min(sender, receiver) >= 0 and sender // hosts.size == receiver // hosts.size:
        return [((sender, "inner"), hosts.bandwidth), ((receiver, "inner in"), hosts.bandwidth)]

    def machine(rank):
        if hosts and rank >= 0:
            return f"host {rank // hosts.size}"
        return -1 - rank if network.colocated and rank < 0 else rank

    def card(rank):
        if rank in (-1, -2):
            return network.server_bandwidth or network.bandwidth
        return {card.worker: card.bandwidth for card in network.cards}.get(rank, network.bandwidth)

    ends = machine(sender), machine(receiver)
    if ends[0] == ends[1]:
        return None
    private = [(ends, link.bandwidth) for link in network.links if ends in link.pairs]
    if network.wiring == "pairs":
        return private or [(ends, min(map(card, ends)))]
    return [((ends[0], "up"), card(ends[0])), *private, ((ends[1], "down"), card(ends[1]))]


speeds = st.sampled_from([0.5, 1.0, 2.0, 3.5, 8.0])


@st.composite
def networks(draw, workers):
    """Any network of finite bandwidth on a complete graph or, with servers, on a star; and the
    pairs that may send.
    """
    star = draw(st.booleans())
    topology = Star() if star else Complete()
    ranks = range(-2, workers)
    joined = [pair for pair in itertools.permutations(ranks, 2) if topology.joins(*pair, workers)]
    common = {"bandwidth": draw(speeds), "topology": topology}
    if draw(st.integers(0, 2)) == 0:
        server = draw(st.none() | speeds)
        hosts = Hosts(draw(st.sampled_from([1, 2, 4])), draw(speeds), latency=0.25)
        return Network(**common, server_bandwidth=server, latency=0.25, hosts=hosts), joined
    chosen = draw(st.lists(st.integers(0, workers - 1), max_size=3, unique=True))
    common["cards"] = [Card(worker, draw(speeds)) for worker in chosen]
    common["latency"] = draw(st.sampled_from([0.0, 0.25]))
    common["wiring"] = draw(st.sampled_from(["cards", "pairs"]))
    if star and draw(st.booleans()):
        return Network(**common, colocated=True), joined
    pairs = draw(st.lists(st.sampled_from(joined), max_size=3, unique_by=frozenset))
    links = [SlowLink(*pair, draw(speeds), both=draw(st.booleans())) for pair in pairs]
    return Network(**common, server_bandwidth=draw(st.none() | speeds), links=links), joined


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_any_network_shares_max_min_fairly(data):
    workers = 4
    network, joined = data.draw(networks(workers))
    moments, sizes = st.integers(0, 12).map(lambda n: n / 4), st.sampled_from([0.5, 1.0, 2.75, 4.0])
    drawn = st.lists(st.tuples(moments, st.sampled_from(joined), sizes), min_size=1, max_size=10)
    sends = [(moment, *pair, size) for moment, pair, size in data.draw(drawn)]
    numbers, bandwidths, routes = {}, {}, []
    for _, sender, receiver, _ in sends:
        route = crossed(network, sender, receiver, workers)
        for name, bandwidth in route or ():
            bandwidths[numbers.setdefault(name, len(numbers))] = bandwidth
        routes.append(route and tuple(numbers[name] for name, _ in route))
    travels = [index for index, route in enumerate(routes) if route]
    expected = np.array([moment for moment, *_ in sends])
    flows = [(sends[index][0], sends[index][3], routes[index]) for index in travels]
    expected[travels] = fluid(flows, list(bandwidths.values()), {}) + network.latency
    assert arrivals(sends, network, network.topology, workers) == pytest.approx(expected, rel=1e-6)


@SHARINGS
@BANDWIDTHS
def test_slow_link_slows_its_pair_alone(sharing, bandwidth):
    link = SlowLink(0, SERVER, bandwidth=1.0, latency=0.5, both=False)
    network = Network(
        bandwidth=bandwidth, server_bandwidth=1e6, latency=0.125, sharing=sharing, links=[link]
    )
    sends = [(0.0, *pair, 20.0) for pair in [(0, SERVER), (SERVER, 0), (1, SERVER)]]
    other = 20.0 / bandwidth + 0.125
    found = arrivals([*sends, (30.0, 0, SERVER, 0.0)], network)
    assert found == pytest.approx([20.5, other, other, 30.5], abs=1e-3)


@pytest.mark.parametrize(("own", "seconds"), [({"latency": 3.0}, 3.0), ({"bandwidth": 3.0}, 3.125)])
def test_slow_link_has_latency_or_bandwidth(own, seconds):
    network = Network(latency=0.125, links=[SlowLink(-1, 2, **own)])
    sends = [(0.0, *pair, 9.0) for pair in [(2, SERVER), (SERVER, 2), (1, SERVER)]]
    assert arrivals(sends, network).tolist() == [seconds, seconds, 0.125]


def test_colocated_server_shares_card_of_worker():
    """Shard -1 is on worker 0, -2 on worker 1: worker 0's message to -1 is free, worker 2's shares
    the card with what -2 sends to worker 0.
    """
    network = Network(bandwidth=BANDWIDTH, latency=0.5, colocated=True)
    assert arrivals([(1.0, 0, -1, 20.0), (1.0, -2, 1, 20.0)], network).tolist() == [1.0, 1.0]
    into_one_card = [(0.0, 2, -1, 20.0), (0.0, -2, 0, 20.0)]
    assert arrivals(into_one_card, network) == pytest.approx([4.5, 4.5])
    apart = replace(network, colocated=False)
    assert arrivals(into_one_card, apart) == pytest.approx([2.5, 2.5])


@SHARINGS
@BANDWIDTHS
@pytest.mark.parametrize("inner", [4 * BANDWIDTH, math.inf])
def test_workers_of_host_share_outer_card_alone(sharing, inner, bandwidth):
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


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_every_message_arrives_or_is_lost(data):
    network, joined = data.draw(networks(4))
    network = replace(network, sharing=data.draw(st.sampled_from(["fair", "fifo"])))
    traffic, lost = Traffic(network, network.topology, 4, crashes=True), []
    sends = st.tuples(st.floats(0, 5), st.sampled_from(joined), st.floats(0, 9))
    for name, (moment, pair, size) in enumerate(data.draw(st.lists(sends, max_size=12))):
        traffic.send(name, moment, *pair, size)
    crashes = st.lists(st.tuples(st.floats(0, 8), st.integers(0, 3)), max_size=3)
    for moment, rank in data.draw(crashes):
        traffic.cut(moment, rank, lost)
    traffic.run()
    assert sorted([*traffic.times, *itertools.chain(*lost)]) == sorted(traffic.events)
    assert not any(link.flows for link in traffic.transport._links.values())


LINK, BACK = SlowLink(0, -1, 1.0), SlowLink(-1, 0, 2.0)


def test_cards_and_links_that_fit_are_accepted():
    one_way = [replace(LINK, both=False), replace(BACK, both=False)]
    for links in (one_way, [SlowLink(0, -8, 1.0), SlowLink(0, 1, 1.0)]):
        Cluster(8, network=Network(topology=Auto(), cards=[Card(7, 1.0)], links=links))
