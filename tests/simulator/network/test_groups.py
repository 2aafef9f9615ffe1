"""Trunks between groups: where nodes are, and who shares trunks, against the fluid model."""

import itertools

import networkx as nx
import pytest

from laggard.simulator import (
    AllReduce,
    Cluster,
    InvalidSettingError,
    Network,
    Rule,
)
from laggard.simulator.network.config import Card, Hosts
from laggard.simulator.network.groups import Groups, Trunk, Trunks
from laggard.simulator.network.topology import CompleteWithServers
from laggard.simulator.timing.distributions import Uniform
from tests.simulator.network import traffic
from tests.simulator.network.traffic import Traffic

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


def test_hierarchical_needs_equal_groups_in_order():
    cluster = Cluster(4, network=Network(groups=Groups(members=[[0, 2], [1, 3]], trunks=[FAR])))
    with pytest.raises(InvalidSettingError, match="order of rank"):
        AllReduce(Rule(), collective="hierarchical").check_cluster(cluster)
