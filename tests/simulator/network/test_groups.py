"""Trunks between groups: where nodes are, and who shares trunks, against the fluid model."""

import itertools
import math
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest

from laggard.simulator import (
    SERVER,
    AllReduce,
    Cluster,
    InvalidSettingError,
    Network,
    Rule,
    Stop,
    simulate,
)
from laggard.simulator.network.changes import Change, Changes
from laggard.simulator.network.config import Card, Hosts, SlowLink
from laggard.simulator.network.groups import Groups, Trunk, Trunks
from laggard.simulator.network.topology import CompleteWithServers
from laggard.simulator.recording.messages import Record
from laggard.simulator.timing.distributions import Gamma, Uniform
from tests.simulator.network import traffic
from tests.simulator.network.traffic import BLOCKS, Traffic, fluid

SHARINGS = pytest.mark.parametrize("sharing", ["fair", "fifo"])
FAR = Trunk([0], 1, latency=1.0)


def arrivals(sends, network, workers=16):
    return traffic.arrivals(sends, network, CompleteWithServers(), workers)


def latencies(pairs, network, workers):
    """The seconds that tokens take between pairs of nodes."""
    return arrivals([(0.0, *pair, 0.0) for pair in pairs], network, workers).tolist()


def test_oversubscription_divides_cards_of_group():
    """Four racks of four cards of 10 B/s at 4 to 1 have trunks of 10 B/s; one with a card of 2 B/s
    has 8 B/s.
    """
    groups = Groups(count=4, trunks=[Trunk([0, 1, 2, 3], "core", oversubscription=4.0)])
    network = Network(bandwidth=10.0, groups=groups, cards=[Card(15, 2.0)])
    edges = Trunks(network, 16).graph.edges
    assert [edges[rack, "core"]["bandwidth"] for rack in range(4)] == [10.0, 10.0, 10.0, 8.0]
    hosts = Network(bandwidth=10.0, groups=groups, hosts=Hosts(2))
    assert Trunks(hosts, 16).graph.edges[0, "core"]["bandwidth"] == 5.0, "two machines a rack"


def test_members_place_workers_and_servers():
    groups = Groups(members=[[0, 2, -1], [1, 3, -2]], trunks=[FAR])
    pairs = list(itertools.permutations([0, 1, 2, 3, -1, -2], 2))
    side = {0: 0, 2: 0, -1: 0, 1: 1, 3: 1, -2: 1}
    expected = [float(side[sender] != side[receiver]) for sender, receiver in pairs]
    assert latencies(pairs, Network(groups=groups), 4) == expected


def test_colocated_server_is_in_group_of_worker():
    network = Network(groups=Groups(count=2, trunks=[FAR]), colocated=True)
    assert latencies([(3, -4), (0, -4)], network, 4) == [0.0, 1.0]


@pytest.mark.parametrize("seed", range(20))
def test_path_crosses_fewest_trunks_both_ways(seed):
    graph = nx.gnp_random_graph(9, 0.35, seed=seed)
    graph.add_edges_from(nx.random_labeled_tree(9, seed=seed).edges)
    trunks = Trunks(
        Network(groups=Groups(9, trunks=[Trunk([a], b, 1.0) for a, b in graph.edges])), 9
    )
    lengths = dict(nx.all_pairs_shortest_path_length(graph))
    for one, other in itertools.combinations(range(9), 2):
        path = trunks.path(one, other)
        assert list(trunks.path(other, one)) == list(reversed(path))
        assert len(path) - 1 == lengths[one][other]
        there, back = (trunks.between(*pair)[1] for pair in ((one, other), (other, one)))
        assert not there.keys() & back.keys(), "a direction each"


def random_network(rng, workers):
    """A random connected graph of switches, servers at one of them, cards and links of pairs of any
    speed.
    """
    count = int(rng.choice([1, 2, 4, 8]))
    names = [*range(count), "x", "y"]
    tree = nx.random_labeled_tree(len(names), seed=int(rng.integers(1000)))
    edges = {frozenset(edge) for edge in tree.edges}
    for _ in range(rng.integers(3)):
        edges.add(frozenset(rng.choice(len(names), 2, replace=False).tolist()))
    trunks = []
    for a, b in map(sorted, edges):
        speed = [None, 0.5, 1.0, 3.0, 7.5][rng.integers(5)]
        trunks.append(Trunk([names[a]], names[b], speed, latency=float(rng.choice([0, 0.5]))))
    more = {}
    if rng.integers(2):
        more = {"cards": [Card(int(rng.integers(workers)), 2.0)]}
        if rng.integers(2):
            more["links"] = [SlowLink(0, 5, float(rng.uniform(0.5, 9)))]
    elif count < workers and rng.integers(2):
        more = {"hosts": Hosts(2, 8.0)}
    groups = Groups(count, trunks=trunks, servers=names[rng.integers(len(names))])
    return Network(bandwidth=float(rng.choice([1.0, 4.0])), latency=0.25, groups=groups, **more)


def crossed(network, workers, sender, receiver):
    """The links of a pair with their bandwidths, and its latency, by the definition."""
    groups, cards = network.groups, {card.worker: card.bandwidth for card in network.cards}

    def machine(rank):
        return rank // 2 + 100 if network.hosts and rank >= 0 else rank

    if machine(sender) == machine(receiver):
        return {("inner", sender): 8.0, ("inner down", receiver): 8.0}, 0.0
    links = {("up", machine(sender)): cards.get(sender, network.bandwidth)}
    links |= {
        pair: link.bandwidth
        for link in network.links
        for pair in link.pairs
        if pair == (sender, receiver)
    }
    size, latency = workers // groups.count, network.latency
    trunks = {frozenset((*trunk.switches, trunk.to)): trunk for trunk in groups.trunks}
    ends = [groups.servers if rank < 0 else rank // size for rank in (sender, receiver)]
    for hop in itertools.pairwise(Trunks(network, workers).path(*ends)):
        trunk = trunks[frozenset(hop)]
        latency += trunk.latency
        if trunk.bandwidth:
            links["trunk", *hop] = trunk.bandwidth
    links["down", machine(receiver)] = cards.get(receiver, network.bandwidth)
    return links, latency


@pytest.mark.parametrize("changing", [False, True])
@BLOCKS
def test_any_network_shares_trunks_max_min_fairly(block, changing):
    workers = 8
    for seed in range(block * 40, block * 40 + 40):
        rng = np.random.default_rng(seed)
        network = random_network(rng, workers)
        if changing and network.hosts is None:  # a row that changes nothing, far in the future
            network = replace(network, changes=Changes([Change(start=1e6, bandwidth=1.0)]))
        moments = rng.choice([0.0, 2.0, 5.5], 20) if rng.integers(2) else rng.uniform(0, 20, 20)
        sizes = rng.choice([1.0, 4.0, 10.0], 20) if rng.integers(2) else rng.uniform(0.5, 12, 20)
        bandwidths, sends, flows, latency = {}, [], [], []
        for moment, size in zip(moments.tolist(), sizes.tolist(), strict=True):
            pair = rng.choice([SERVER, *range(workers)], 2, replace=False).tolist()
            links, seconds = crossed(network, workers, *pair)
            bandwidths |= links
            sends.append((moment, *pair, size))
            flows.append((moment, size, tuple(list(bandwidths).index(link) for link in links)))
            latency.append(seconds)
        expected = fluid(flows, list(bandwidths.values()), {}) + latency
        found = arrivals(sends, network, workers)
        np.testing.assert_allclose(found, expected, rtol=1e-9, err_msg=f"seed {seed}")


def test_latencies_of_trunks_are_added_to_drawn_ones():
    groups, drawn = Groups(2, trunks=[FAR]), Uniform(1.0, 2.0)
    pairs = [(0, 8), (0, 1)]
    near = latencies(pairs, Network(latency=drawn), 16)
    found = latencies(pairs, Network(latency=drawn, groups=groups), 16)
    assert found == pytest.approx([near[0] + 1.0, near[1]], rel=1e-15)


@SHARINGS
@pytest.mark.parametrize("rank", [0, 1])
def test_crash_leaves_queue_of_trunk_unchanged(sharing, rank):
    """Worker 0 or 1, which sent nothing, has the number of a trunk's end."""
    groups = Groups(2, trunks=[Trunk([0], 1, bandwidth=2.0, latency=0.25)])
    network = Network(bandwidth=10.0, latency=0.5, groups=groups, sharing=sharing)
    traffic = Traffic(network, CompleteWithServers(), 16, crashes=True)
    for node in (2, 3):
        traffic.send(node, 0.0, node, 8 + node, 20.0)
        traffic.send(-node, 0.0, 8 + node, node, 20.0)
    traffic.cut(1.0, rank, [])
    traffic.send("after", 2.0, 4, 12, 20.0)
    traffic.run()
    assert max(traffic.times.values()) == pytest.approx(0.75 + 30.0)


@SHARINGS
@pytest.mark.parametrize("bandwidth", [math.inf, 4.0])
@pytest.mark.parametrize("collective", ["ring", "mesh", "hierarchical", "tree"])
def test_collectives_over_trunks_send_their_messages(sharing, bandwidth, collective):
    """No lock step, whose recurrence knows no trunk: the times are those of a run that records its
    messages.
    """
    groups, times = Groups(2, trunks=[Trunk([0], 1, 0.5, latency=0.25)]), []
    for record in (None, Record(messages=True)):
        network = Network(
            bandwidth=bandwidth, latency=0.1, message_bytes=8.0, sharing=sharing, groups=groups
        )
        cluster, algorithm = (
            Cluster(8, Gamma(1.0, 0.5), network=network),
            AllReduce(Rule(), collective),
        )
        run = simulate(cluster, algorithm, stop=Stop(updates=4), record=record)
        times.append(run.updates["time"])
    np.testing.assert_array_equal(*times)


def test_hierarchical_needs_equal_groups_in_order():
    cluster = Cluster(4, network=Network(groups=Groups(members=[[0, 2], [1, 3]], trunks=[FAR])))
    with pytest.raises(InvalidSettingError, match="order of rank"):
        AllReduce(Rule(), collective="hierarchical").check_cluster(cluster)
