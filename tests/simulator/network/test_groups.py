"""Trunks between groups: who shares them, against closed forms and against the fluid model from
scratch.
"""

import itertools
import math

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
from laggard.simulator.timing.distributions import Constant, Gamma, Uniform
from tests.simulator.network.test_fair import fluid
from tests.simulator.network.test_network import Traffic

sharings = pytest.mark.parametrize("sharing", ["fair", "fifo"])
TREE = Groups(
    count=4,
    trunks=[
        Trunk([0, 1], "east", 8.0),
        Trunk([2, 3], "west", 8.0),
        Trunk(["east"], "west", 4.0, latency=0.5),
    ],
)
"""Two racks in each of two data centres."""


def arrivals(sends, network, workers=16):
    """When messages `(moment, sender, receiver, bytes)` arrive."""
    network.check(workers)
    traffic = Traffic(network, CompleteWithServers(), workers)
    for index, send in enumerate(sends):
        traffic.send(index, *send)
    traffic.run()
    return np.array([traffic.times[index] for index in range(len(sends))])


def data_centres(**more):
    trunk = {"bandwidth": 2.0, "latency": 0.25} | {
        key: more.pop(key) for key in ("bandwidth",) if key in more
    }
    return Network(
        bandwidth=10.0, latency=0.5, groups=Groups(2, trunks=[Trunk([0], 1, **trunk)]), **more
    )


@sharings
@pytest.mark.parametrize("k", range(1, 9))
def test_messages_between_two_data_centres_share_the_trunk(sharing, k):
    """Eight nodes each: k of N bytes across take k N / C and both latencies, both ways at once;
    others N / b.
    """
    size, C, b = 20.0, 2.0, 10.0
    across = [(1.0, node, 8 + node, size) for node in range(k)]
    back = [(1.0, receiver, sender, size) for _, sender, receiver, _ in across]
    inside = (
        [(1.0, node, (node + 1) % 8, size) for node in range(k, 8)] if sharing == "fifo" else []
    )
    found = arrivals([*across, *back, *inside], data_centres(sharing=sharing))
    one_after_another = np.arange(1, k + 1) if sharing == "fifo" else np.full(k, k)
    assert found[:k] == pytest.approx(1 + 0.75 + one_after_another * size / C)
    assert found[k : 2 * k] == pytest.approx(found[:k])
    assert np.sort(found[2 * k :])[:1] == pytest.approx([1 + 0.5 + size / b] * (len(inside) > 0))


@pytest.mark.parametrize("k", [1, 3, 7])
def test_messages_inside_a_group_have_what_the_trunk_leaves_of_their_cards(k):
    """k across at C / k each; one more of each of their senders, inside, has the card's b - C /
    k.
    """
    C, b, size = 2.0, 10.0, 1000.0
    across = [(0.0, node, 8 + node, size) for node in range(k)]
    inside = [(0.0, node, 7, 1.0) for node in range(k)]
    found = arrivals([*across, *inside], data_centres())
    rate = min(b - C / k, b / k)
    assert found[k:] == pytest.approx(0.5 + 1.0 / rate)


def test_oversubscription_is_of_the_cards_of_the_groups_workers():
    """Four racks of four cards of 10 B/s at 4 to 1 have trunks of 10 B/s; one with a card of 2 B/s
    has 8 B/s.
    """
    groups = Groups(count=4, trunks=[Trunk([0, 1, 2, 3], "core", oversubscription=4.0)])
    network = Network(bandwidth=10.0, groups=groups, cards=[Card(15, 2.0)])
    network.check(16)
    edges = Trunks(network, 16).graph.edges
    assert [edges[rack, "core"]["bandwidth"] for rack in range(4)] == [10.0, 10.0, 10.0, 8.0]
    all_out = [(0.0, node, 4 + node, 20.0) for node in range(4)]
    assert arrivals(all_out, network) == pytest.approx([4 * 20.0 / 10.0] * 4)
    hosts = Network(bandwidth=10.0, groups=groups, hosts=Hosts(2))
    assert Trunks(hosts, 16).graph.edges[0, "core"]["bandwidth"] == 5.0, "two machines a rack"


@sharings
def test_a_tree_of_two_levels(sharing):
    """Over the racks' trunks of 8 B/s, and where the data centre differs also over its trunk of 4
    B/s and 0.5 s.
    """
    network = Network(bandwidth=10.0, latency=0.125, groups=TREE, sharing=sharing)
    pairs, seconds = (
        [(0, 1), (0, 4), (0, 8), (15, 3)],
        [0.125 + 2.0, 0.125 + 2.5, 0.625 + 5.0, 0.625 + 5.0],
    )
    for pair, expected in zip(pairs, seconds, strict=True):
        assert arrivals([(0.0, *pair, 20.0)], network) == pytest.approx([expected])
    together = arrivals([(0.0, rank, 8 + rank, 20.0) for rank in range(8)], network)
    assert max(together) == pytest.approx(0.625 + 8 * 20.0 / 4.0)
    assert arrivals([(0.0, 0, 8, 0.0)], network) == pytest.approx([0.625]), (
        "a token takes the latencies"
    )


@pytest.mark.parametrize("place", [0, 1, "east", "west"])
def test_servers_are_at_one_switch(place):
    """A message to the server crosses the trunks to it: rack 2 is 0.5 s from all in the east."""
    groups = Groups(count=4, trunks=TREE.trunks, servers=place)
    found = arrivals([(0.0, 8, SERVER, 0.0), (0.0, SERVER, 8, 0.0)], Network(groups=groups))
    assert found == pytest.approx([0.0 if place == "west" else 0.5] * 2)


def test_members_place_workers_and_servers():
    groups = Groups(members=[[0, 2, -1], [1, 3, -2]], trunks=[Trunk([0], 1, latency=1.0)])
    pairs = list(itertools.permutations([0, 1, 2, 3, -1, -2], 2))
    found = arrivals([(0.0, *pair, 0.0) for pair in pairs], Network(groups=groups), workers=4)
    side = {0: 0, 2: 0, -1: 0, 1: 1, 3: 1, -2: 1}
    assert found.tolist() == [float(side[one] != side[other]) for one, other in pairs]


def test_a_colocated_server_is_where_its_worker_is():
    groups = Groups(count=2, trunks=[Trunk([0], 1, latency=1.0)])
    network = Network(groups=groups, colocated=True)
    assert arrivals([(0.0, 3, -4, 0.0), (0.0, 0, -4, 0.0)], network, workers=4).tolist() == [
        0.0,
        1.0,
    ]


def test_a_way_is_the_same_there_and_back_and_over_the_fewest_trunks():
    for seed in range(20):
        graph = nx.gnp_random_graph(9, 0.35, seed=seed)
        edges = [(a, b) for a, b in graph.edges]
        if not nx.is_connected(graph):
            continue
        network = Network(groups=Groups(9, trunks=[Trunk([a], b, 1.0) for a, b in edges]))
        network.check(9)
        trunks, lengths = Trunks(network, 9), dict(nx.all_pairs_shortest_path_length(graph))
        for one, other in itertools.combinations(range(9), 2):
            way = trunks.path(one, other)
            assert list(trunks.path(other, one)) == list(reversed(way))
            assert len(way) - 1 == lengths[one][other]
            there, back = (trunks.between(*pair)[1] for pair in ((one, other), (other, one)))
            assert not there.keys() & back.keys(), "a direction each"


def random_network(rng, workers):
    """A random connected graph of switches, servers at one of them, cards and links of pairs of any
    speed.
    """
    count = int(rng.choice([size for size in (1, 2, 4, 8) if workers % size == 0]))
    names = [*range(count), "x", "y"]
    tree = nx.random_labeled_tree(len(names), seed=int(rng.integers(1000)))
    edges = {frozenset(edge) for edge in tree.edges}
    edges |= {
        frozenset(rng.choice(len(names), 2, replace=False).tolist()) for _ in range(rng.integers(3))
    }
    speeds = [None, 0.5, 1.0, 3.0, 7.5]
    trunks = [Trunk([names[a]], names[b], speeds[rng.integers(5)], latency=float(rng.choice([0, 0.5])))
              for a, b in map(sorted, edges)]  # fmt: skip
    more = {"cards": [Card(int(rng.integers(workers)), 2.0)]} if rng.integers(2) else {}
    if not more and count < workers and rng.integers(2):
        more = {"hosts": Hosts(2, 8.0)}
    if "cards" in more and rng.integers(2):
        more["links"] = [SlowLink(0, 5, float(rng.uniform(0.5, 9)))]
    groups = Groups(count, trunks=trunks, servers=names[rng.integers(len(names))])
    return Network(bandwidth=float(rng.choice([1.0, 4.0])), latency=0.25, groups=groups, **more)


def routes_of(network, workers, pairs):
    """The links that each pair crosses, as numbers, their bandwidths, and its latency: the
    definition, said plainly.
    """
    groups, hosts = network.groups, network.hosts
    graph, numbers = nx.Graph(), {}
    for trunk in groups.trunks:
        graph.add_edge(trunk.switches[0], trunk.to, trunk=trunk)
    size, cards, found = (
        workers // groups.count,
        {card.worker: card.bandwidth for card in network.cards},
        [],
    )

    def machine(rank):
        return rank // 2 + 100 if hosts and rank >= 0 else rank

    for one, other in pairs:
        links, latency = [], network.latency
        if machine(one) == machine(other):
            found.append(([("inner up", one), ("inner down", other)], [8.0, 8.0], 0.0))
            continue
        ends = [groups.servers if rank < 0 else rank // size for rank in (one, other)]
        links.append((("up", machine(one)), cards.get(one, network.bandwidth)))
        links += [
            ((one, other), link.bandwidth) for link in network.links if (one, other) in link.pairs
        ]
        way = Trunks(network, workers).path(*ends)  # of several ways with as few trunks
        assert (
            len(way) - 1 == nx.shortest_path_length(graph, *ends)
            if ends[0] != ends[1]
            else len(way) == 1
        )
        for a, b in itertools.pairwise(way):
            trunk = graph.edges[a, b]["trunk"]
            latency += trunk.latency
            links += [((a, b), trunk.bandwidth)] if trunk.bandwidth else []
        links.append((("down", machine(other)), cards.get(other, network.bandwidth)))
        found.append(([key for key, _ in links], [speed for _, speed in links], latency))
    capacity = {}
    for keys, speeds, _ in found:
        for key, speed in zip(keys, speeds, strict=True):
            numbers.setdefault(key, len(numbers))
            capacity[numbers[key]] = speed
    routes = [tuple(numbers[key] for key in keys) for keys, _, _ in found]
    return (
        routes,
        np.array([capacity[number] for number in range(len(capacity))]),
        [latency for *_, latency in found],
    )


@pytest.mark.parametrize("changing", [False, True])
@pytest.mark.parametrize(
    "block", [0, *(pytest.param(block, marks=pytest.mark.slow) for block in range(1, 10))]
)
def test_any_network_with_trunks_shares_them_max_min_fairly(block, changing):
    """Any graph of switches: what the links carry is that of the fluid model, whose rates are
    progressive filling's.
    """
    for seed in range(block * 40, block * 40 + 40):
        rng = np.random.default_rng(seed)
        network, workers = random_network(rng, 8), 8
        # a table of rows that change nothing, far in the future
        if changing and network.hosts is None:
            changes = Changes([Change(start=1e6, bandwidth=1.0)])
            network = Network(**{**vars(network), "changes": changes})
        pairs = [
            rng.choice([SERVER, *range(workers)], 2, replace=False).tolist() for _ in range(20)
        ]
        moments = rng.choice([0.0, 2.0, 5.5], 20) if rng.integers(2) else rng.uniform(0, 20, 20)
        sizes = rng.choice([1.0, 4.0, 10.0], 20) if rng.integers(2) else rng.uniform(0.5, 12, 20)
        routes, capacity, latency = routes_of(network, workers, pairs)
        expected = (
            fluid(list(zip(moments.tolist(), sizes.tolist(), routes, strict=True)), capacity, {})
            + latency
        )
        sends = [
            (float(m), *pair, float(size))
            for m, pair, size in zip(moments, pairs, sizes, strict=True)
        ]
        np.testing.assert_allclose(
            arrivals(sends, network, workers), expected, rtol=1e-9, err_msg=f"seed {seed}"
        )


def test_latencies_of_trunks_are_added_to_those_that_are_drawn():
    """Uniform on 1 to 2 s between cards, and 0.5 s over the trunk."""
    groups = Groups(2, trunks=[Trunk([0], 1, latency=0.5)])
    drawn = arrivals(
        [(0.0, 0, 8, 0.0), (0.0, 0, 1, 0.0)], Network(latency=Uniform(1.0, 2.0), groups=groups)
    )
    without = arrivals([(0.0, 0, 8, 0.0), (0.0, 0, 1, 0.0)], Network(latency=Uniform(1.0, 2.0)))
    assert drawn == pytest.approx(without + np.array([0.5, 0.0]), rel=1e-15)


@sharings
def test_a_crash_frees_no_trunk_of_the_same_number(sharing):
    """The queue of trunk 0 stays as it was when worker 0 or 1, which sent nothing, crashes."""
    network = data_centres(sharing=sharing)
    for rank in (0, 1):
        traffic = Traffic(network, CompleteWithServers(), 16, crashes=True)
        for node in (2, 3):
            traffic.send(node, 0.0, node, 8 + node, 20.0)
            traffic.send(-node, 0.0, 8 + node, node, 20.0)
        traffic.cut(1.0, rank, [])
        traffic.send("after", 2.0, 4, 12, 20.0)
        traffic.run()
        assert traffic.times["after"] == pytest.approx(0.75 + 30.0, abs=2.01 * (sharing == "fair"))
        assert max(traffic.times.values()) == pytest.approx(0.75 + 30.0)


@sharings
@pytest.mark.parametrize("collective", ["ring", "mesh", "hierarchical", "tree"])
def test_collectives_over_trunks_send_their_messages(sharing, collective):
    """No lock step, whose recurrence knows no trunk: the times are those of a run that records its
    messages.
    """
    groups, rows = Groups(2, trunks=[Trunk([0], 1, 0.5, latency=0.25)]), []
    for record in (None, Record(messages=True)):
        for bandwidth in (math.inf, 4.0):
            network = Network(
                bandwidth=bandwidth, latency=0.1, message_bytes=8.0, sharing=sharing, groups=groups
            )
            run = simulate(Cluster(8, Gamma(1.0, 0.5), network=network), AllReduce(Rule(), collective=collective),
                           stop=Stop(updates=4), record=record)  # fmt: skip
            rows.append(run.updates["time"])
    np.testing.assert_array_equal(rows[:2], rows[2:])


@pytest.mark.parametrize("m", [1, 2, 4])
@pytest.mark.parametrize("sharing", ["fair"])
def test_hierarchical_goes_inside_and_across_the_groups(m, sharing):
    """2 (g - 1)(alpha + N beta / g) + 2 (m - 1)(alpha + 2 alpha' + N beta' / m) for racks at a
    core, and the ring's.
    """
    P, N, beta, core, alpha, far = 8, 64.0, 0.125, 0.5, 0.25, 1.0
    g = P // m
    groups = Groups(m, trunks=[Trunk(list(range(m)), "core", 1 / core, latency=far)])
    network = Network(
        bandwidth=1 / beta, latency=alpha, message_bytes=N, groups=groups, sharing=sharing
    )
    inside, across = (
        2 * (g - 1) * (alpha + N / g * beta),
        2 * (m - 1) * (alpha + 2 * far + N / m * core),
    )
    ring = (
        2 * (P - 1) * (alpha + N / P * max(beta, core) + 2 * far if m > 1 else alpha + N / P * beta)
    )
    for collective, seconds in {"hierarchical": inside + across, "ring": ring}.items():
        algorithm = AllReduce(Rule(), collective=collective)
        run = simulate(Cluster(P, Constant(1.0), network=network), algorithm, stop=Stop(updates=3))
        assert run.updates["time"].max() == pytest.approx(3 * (1 + seconds))


CORE = [Trunk([0, 1], "core", 1.0)]


@pytest.mark.parametrize(
    ("network", "said"),
    [
        (
            {"groups": Groups(3, trunks=CORE)},
            "groups.count: expected a divisor of workers = 8, got 3",
        ),
        ({"groups": Groups(2)}, "groups.trunks: .* got 'no way from group 0 to 1'"),
        ({"groups": Groups(4, trunks=CORE)}, "groups.trunks: .* got 'no way from group 0 to 2'"),
        (
            {"groups": Groups(2, trunks=[*CORE, Trunk(["a"], "b")])},
            "groups.trunks: .* 'no way from group 0 to a'",
        ),
        (
            {"groups": Groups(2, trunks=[*CORE, Trunk([1], "core")])},
            r"groups.trunks.1.switches.0: .* one trunk between",
        ),
        (
            {"groups": Groups(2, trunks=[Trunk([0, 1], 1)])},
            r"groups.trunks.0.switches.1: expected two switches",
        ),
        (
            {"groups": Groups(2, trunks=[Trunk([0], 2)])},
            r"groups.trunks.0.switches.0: expected groups below 2, .* got 2",
        ),
        (
            {"groups": Groups(2, trunks=CORE, servers="x")},
            r"groups.servers: expected a group below 2",
        ),
        (
            {"groups": Groups(2, trunks=CORE, servers=-1)},
            r"groups.servers: expected a group below 2",
        ),
        (
            {"groups": Groups(members=[[0, 1, 2], [2, 3]])},
            r"groups.members.1.0: .* each once, got 2",
        ),
        (
            {"groups": Groups(members=[[0, 1, 2, 3, 4, 5, 6]])},
            r"groups.members: expected every worker .* got 'none with 7'",
        ),
        (
            {"groups": Groups(members=[[*range(8), -1]]), "colocated": True},
            r"groups.members.0.8: expected a rank below",
        ),
        (
            {"groups": Groups(8, trunks=[Trunk(range(8), "c")]), "hosts": Hosts(2)},
            "groups.count: .* a host in one group",
        ),
        (
            {"groups": Groups(2, trunks=CORE), "wiring": "pairs"},
            "wiring: expected cards beside groups",
        ),
        (
            {
                "groups": Groups(2, trunks=[Trunk([0], 1, oversubscription=2.0)]),
                "bandwidth": math.inf,
            },
            r"groups.trunks.0.oversubscription: expected null \(bandwidth instead\)",
        ),
        (
            {
                "groups": Groups(
                    members=[range(8), [-1]], trunks=[Trunk([1], 0, oversubscription=2.0)]
                )
            },
            r"groups.trunks.0.oversubscription: expected null .* where a switch has no workers",
        ),
        (
            {"groups": Groups(2, trunks=[*CORE, Trunk(["core"], "x", oversubscription=2.0)])},
            r"groups.trunks.1.oversubscription",
        ),
    ],
)
def test_groups_that_do_not_fit_are_refused_by_their_key(network, said):
    with pytest.raises(InvalidSettingError, match=f"^Cluster.network.{said}"):
        Cluster(workers=8, network=Network(**{"bandwidth": 1.0, **network}))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda: Groups(), "Groups.count"),
        (lambda: Groups(2, members=[[0], [1]]), "Groups.count"),
        (lambda: Trunk([], 1), "Trunk.switches"),
        (lambda: Trunk([0], 1, 0.0), "Trunk.bandwidth"),
        (lambda: Trunk([0], 1, math.nan), "Trunk.bandwidth"),
        (lambda: Trunk([0], 1, 1.0, 2.0), "Trunk.oversubscription"),
        (lambda: Trunk([0], 1, latency=-1.0), "Trunk.latency"),
    ],
)
def test_groups_and_trunks_out_of_range_are_refused(wrong, said):
    with pytest.raises(InvalidSettingError, match=said):
        wrong()


def test_hierarchical_needs_equal_groups_in_order_of_rank():
    groups = Groups(members=[[0, 2], [1, 3]], trunks=[Trunk([0], 1)])
    algorithm = AllReduce(Rule(), collective="hierarchical")
    with pytest.raises(
        InvalidSettingError, match="hosts, or groups of equal size in order of rank"
    ):
        algorithm.check_cluster(Cluster(4, network=Network(groups=groups)))
