"""Links: queues and max-min fairness, against worked examples and against an independent
solution.
"""

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laggard.simulator import SERVER, Cluster, InvalidSettingError, Network, Star
from laggard.simulator.network.config import Card, Hosts, SlowLink
from laggard.simulator.network.fifo import FifoSharing
from laggard.simulator.network.links import Link
from laggard.simulator.network.topology import Auto, Complete, CompleteWithServers, Ring
from laggard.simulator.network.transport import Transport
from laggard.simulator.timing.clock import Clock

BANDWIDTH = 10.0


class Traffic:
    """Messages on wires, and when each arrived."""

    def __init__(self, network, topology=None, workers=8, crashes=False):
        self.env, self.times, self.events = Clock(), {}, {}
        self.transport = Transport(self.env, network, topology or Star(), workers, crashes)

    def send(self, name, moment, sender, receiver, size):
        def go():
            arrival = self.events[name] = self.env.event()
            arrival._ok, arrival._value = True, None
            arrival.callbacks.append(lambda _: self.times.__setitem__(name, self.env.now))
            self.transport.carry(sender, receiver, size, arrival)

        self.env.call_in(moment, go)

    def cut(self, moment, rank, lost):
        def go():
            cut = self.transport.cut(rank)
            lost.append(
                [name for name, event in self.events.items() if any(event is one for one in cut)]
            )

        self.env.call_in(moment, go)

    def run(self):
        self.env.run_to_end()


def arrivals(sends, network, topology=None, workers=8):
    """When messages `(moment, sender, receiver, bytes)` arrive."""
    traffic = Traffic(network, topology, workers)
    for index, send in enumerate(sends):
        traffic.send(index, *send)
    traffic.run()
    return [traffic.times[index] for index in range(len(sends))]


@pytest.mark.parametrize("sharing", ["fair", "fifo"])
def test_a_message_alone_takes_latency_and_bytes_over_bandwidth(sharing):
    network = Network(bandwidth=BANDWIDTH, latency=0.5, sharing=sharing)
    assert arrivals([(1.0, 0, SERVER, 20.0)], network) == pytest.approx([1.0 + 0.5 + 2.0])


def test_fair_messages_into_one_card_end_together():
    P, size, alpha = 8, 5.0, 0.25
    network = Network(bandwidth=BANDWIDTH, latency=alpha, sharing="fair")
    together = arrivals([(0.0, rank, SERVER, size) for rank in range(P)], network)
    assert together == pytest.approx([alpha + P * size / BANDWIDTH] * P)
    assert len(set(together)) == 1, "to the very instant, not but for rounding"


def test_fifo_messages_into_one_card_end_in_turn():
    P, size, alpha = 8, 5.0, 0.25
    network = Network(bandwidth=BANDWIDTH, latency=alpha, sharing="fifo")
    in_turn = arrivals([(0.0, rank, SERVER, size) for rank in range(P)], network)
    assert in_turn == pytest.approx([alpha + (rank + 1) * size / BANDWIDTH for rank in range(P)])


def test_a_late_small_message_delays_the_others_by_its_own_bytes():
    """Two messages of 20 bytes at 5 B/s each; at 2 s, 10 bytes each left, a third of 5 bytes comes.

    Three at 10/3 B/s: the third passes in 1.5 s, at 3.5 s, when the others have 5 bytes each left,
    which take
    1 s at 5 B/s: they end at 4.5 s instead of 4 s, by the third's 5 bytes over 10 B/s later.
    """
    sends = [(0.0, 0, SERVER, 20.0), (0.0, 1, SERVER, 20.0), (2.0, 2, SERVER, 5.0)]
    assert arrivals(sends, Network(bandwidth=BANDWIDTH)) == pytest.approx([4.5, 4.5, 3.5])


def test_a_workers_own_card_can_be_what_binds():
    """Two workers at 10 B/s into a server of 15 B/s: 7.5 each; one alone gets 10, its own card."""
    network = Network(bandwidth=BANDWIDTH, server_bandwidth=15.0)
    assert arrivals([(0.0, 0, SERVER, 30.0), (0.0, 1, SERVER, 15.0)], network) == pytest.approx(
        [3.5, 2.0]
    )


@pytest.mark.parametrize("sharing", ["fair", "fifo"])
def test_directions_are_separate(sharing):
    network = Network(bandwidth=BANDWIDTH, sharing=sharing)
    assert arrivals([(0.0, 0, SERVER, 20.0), (0.0, SERVER, 0, 20.0)], network) == pytest.approx(
        [2.0, 2.0]
    )


def test_a_busy_down_link_does_not_hold_the_up_link():
    """Fifo, cut-through: A's card is free after its own bytes, though C's takes B's message
    first.
    """
    env = Clock()
    sharing, ended = FifoSharing(env), {}
    up_a, up_b, down_c, down_d = (Link(BANDWIDTH) for _ in range(4))
    for name, route in {
        "B to C": (up_b, down_c),
        "A to C": (up_a, down_c),
        "A to D": (up_a, down_d),
    }.items():
        sharing.carry(
            10.0, route, lambda delay, name=name: ended.__setitem__(name, env.now + delay)
        )
    env.run()
    assert ended == pytest.approx({"B to C": 1.0, "A to C": 2.0, "A to D": 2.0})


def test_fifo_serves_in_order_of_arrival_at_each_link():
    """A's second message waits behind its first and comes to the server's card after B's."""
    network = Network(bandwidth=BANDWIDTH, sharing="fifo")
    sends = [(0.0, 0, SERVER, 10.0), (0.1, 0, SERVER, 10.0), (0.5, 1, SERVER, 10.0)]
    assert arrivals(sends, network) == pytest.approx([1.0, 3.0, 2.0])


def test_fifo_tail_leaves_no_link_before_the_one_before():
    network = Network(bandwidth=1.0, server_bandwidth=100.0, sharing="fifo")
    assert arrivals([(0.0, 0, SERVER, 10.0)], network) == pytest.approx([10.0])


@pytest.mark.parametrize(
    "speeds", [*itertools.permutations([1.0, 4.0, 10.0]), (1.0, 1e9, 1.0), (3.0, 7.0, 3.0, 5.0)]
)
def test_a_message_alone_in_queues_goes_at_the_pace_of_its_slowest_link(speeds):
    """Cut-through: max_k N / b_k, from 2 s on; what comes at its end to the last link finds that
    free.
    """
    env, ends = Clock(), []
    sharing, links = FifoSharing(env), [Link(speed) for speed in speeds]
    env.call_in(
        2.0, lambda: sharing.carry(20.0, tuple(links), lambda delay: ends.append(env.now + delay))
    )
    env.run_to_end()
    assert ends == [pytest.approx(2 + 20 / min(speeds))]
    assert links[-1].free == ends[0]


@pytest.mark.parametrize("fast", [BANDWIDTH, 3 * BANDWIDTH, 1e12])
def test_a_link_of_a_pair_that_is_no_slower_than_the_cards_changes_nothing_in_queues(fast):
    sends = [(0.1 * k, k % 3, SERVER if k % 2 else 3, 3.0 + k) for k in range(12)]
    network = Network(bandwidth=BANDWIDTH, server_bandwidth=15.0, sharing="fifo")
    pairs = [SlowLink(one, other, fast) for one in range(3) for other in (SERVER, 3)]
    with_links = Network(bandwidth=BANDWIDTH, server_bandwidth=15.0, sharing="fifo", links=pairs)
    topology = CompleteWithServers()
    assert arrivals(sends, with_links, topology) == pytest.approx(
        arrivals(sends, network, topology), rel=1e-9
    )


def test_free_network_and_tokens_take_the_latency():
    assert arrivals([(0.0, 0, SERVER, 1e9)], Network(latency=0.5)) == [0.5]
    assert arrivals([(0.0, 0, SERVER, 0.0)], Network(bandwidth=BANDWIDTH, latency=0.5)) == [0.5]


def test_the_star_joins_workers_to_the_server_alone():
    assert Star().joins(0, SERVER, 8)
    assert Star().joins(SERVER, 5, 8)
    with pytest.raises(
        InvalidSettingError, match=r"Star.send: expected a pair that a Star joins, got '0 -> 1'"
    ):
        Traffic(Network()).transport.check(0, 1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"bandwidth": 0.0},
        {"bandwidth": math.nan},
        {"latency": -1.0},
        {"server_bandwidth": -1.0},
        {"sharing": "random"},
        {"message_bytes": -4.0},
        {"wiring": "strings"},
        {"colocated": True, "server_bandwidth": 1.0},
        {"colocated": True, "hosts": Hosts(2)},
        {"wiring": "pairs", "hosts": Hosts(2)},
        {"cards": [Card(0, 1.0)], "hosts": Hosts(2)},
        {"links": [SlowLink(0, 1, 1.0)], "hosts": Hosts(2)},
    ],
)
def test_settings_out_of_range_are_refused(wrong):
    with pytest.raises(InvalidSettingError, match=list(wrong)[-1]):
        Network(**wrong)


def crossed(network, sender, receiver, workers):
    """The links between two nodes as (name, capacity), said once more and plainly; None where they
    are one machine.
    """
    hosts = network.hosts
    if (
        hosts is not None
        and min(sender, receiver) >= 0
        and sender // hosts.size == receiver // hosts.size
    ):
        return [
            ((sender, "inner up"), hosts.bandwidth),
            ((receiver, "inner down"), hosts.bandwidth),
        ]

    def machine(rank):
        if hosts is not None and rank >= 0:
            return f"host {rank // hosts.size}"
        return -1 - rank if network.colocated and rank < 0 else rank

    def card(rank):
        if rank in (-1, -2):
            return network.server_bandwidth or network.bandwidth
        return {card.worker: card.bandwidth for card in network.cards}.get(rank, network.bandwidth)

    one, other = machine(sender), machine(receiver)
    if one == other:
        return None
    special = [
        link.bandwidth
        for link in network.links
        if (machine(link.sender), machine(link.receiver)) == (one, other)
        or (link.both and (machine(link.receiver), machine(link.sender)) == (one, other))
    ]
    private = [((one, other), speed) for speed in special if speed is not None]
    if network.wiring == "pairs":
        return private or [((one, other), min(card(one), card(other)))]
    return [((one, "up"), card(one)), *private, ((other, "down"), card(other))]


def exact(sends, routes):
    """Max-min fairness from scratch at every event: all rates grow alike, those at a full link
    stop.
    """
    left, ends, now = {index: send[3] for index, send in enumerate(sends)}, {}, 0.0
    while left:
        active = [index for index in left if sends[index][0] <= now]
        rates, grown = {}, 0.0
        while len(rates) < len(active):
            growing = [index for index in active if index not in rates]
            head = {}
            for index in growing:
                for link, capacity in routes[index]:
                    used = sum(rates[other] for other in rates if link in dict(routes[other]))
                    many = sum(link in dict(routes[other]) for other in growing)
                    head[link] = (capacity - used) / many
            grown = min(head.values())
            full = {link for link in head if head[link] <= grown * (1 + 1e-12)}
            rates |= {index: grown for index in growing if full & set(dict(routes[index]))}
        ahead = [send[0] for send in sends if send[0] > now]
        step = min(
            [left[index] / rates[index] for index in active] + [moment - now for moment in ahead]
        )
        now = (
            min(ahead, key=lambda moment: abs(moment - now - step))
            if step in [m - now for m in ahead]
            else now + step
        )
        for index in active:
            left[index] -= rates[index] * step
            if left[index] <= 1e-9 * sends[index][3]:
                ends[index] = now
                del left[index]
    return [ends[index] for index in range(len(sends))]


speeds = st.sampled_from([0.5, 1.0, 2.0, 3.5, 8.0])


@st.composite
def networks(draw, workers):
    """Any network of finite bandwidth on a complete graph or, with servers, on a star."""
    star = draw(st.booleans())
    if draw(st.integers(0, 2)) == 0:
        server, hosts = (
            draw(st.none() | speeds),
            Hosts(draw(st.sampled_from([1, 2, 4])), draw(speeds), latency=0.25),
        )
        return Network(
            bandwidth=draw(speeds), server_bandwidth=server, latency=0.25, hosts=hosts
        ), (Star() if star else Complete())
    colocated = star and draw(st.booleans())
    ranks = [*range(workers), *([-1, -2] if star else [])]
    pairs = st.tuples(st.sampled_from(ranks), st.sampled_from(ranks)).filter(
        lambda pair: pair[0] != pair[1]
    )
    unique = draw(st.lists(pairs, max_size=3, unique_by=lambda pair: frozenset(pair)))
    network = Network(
        bandwidth=draw(speeds),
        latency=draw(st.sampled_from([0.0, 0.25])),
        wiring=draw(st.sampled_from(["cards", "pairs"])),
        server_bandwidth=None if colocated else draw(st.none() | speeds),
        cards=[Card(w, draw(speeds)) for w in draw(st.lists(st.integers(0, workers - 1), max_size=3, unique=True))],
        links=[] if colocated else [SlowLink(*pair, draw(speeds), both=draw(st.booleans())) for pair in unique],
        colocated=colocated,
    )  # fmt: skip
    return network, Star() if star else Complete()


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_any_network_shares_max_min_fairly_over_time(data):
    """Cards, private and slow links, fast and slow cards, colocated servers, hosts, against a
    solution from scratch.
    """
    workers = 4
    network, topology = data.draw(networks(workers))
    network.check(workers)
    allowed = [
        (one, other)
        for one in range(-2, workers)
        for other in range(-2, workers)
        if one != other and topology.joins(one, other, workers)
    ]
    moments, sizes = st.integers(0, 12).map(lambda n: n / 4), st.sampled_from([0.5, 1.0, 2.75, 4.0])
    sends = data.draw(
        st.lists(st.tuples(moments, st.sampled_from(allowed), sizes), min_size=1, max_size=10).map(
            lambda drawn: [(moment, *pair, size) for moment, pair, size in drawn]
        )
    )
    found = arrivals(sends, network, topology, workers)
    routes = [crossed(network, sender, receiver, workers) for _, sender, receiver, _ in sends]
    travels = [index for index, route in enumerate(routes) if route is not None]
    ends = exact([sends[index] for index in travels], [routes[index] for index in travels])
    for index, end in zip(travels, ends, strict=True):
        assert found[index] == pytest.approx(end + network.latency, rel=1e-6)
    assert [found[index] for index in range(len(sends)) if index not in travels] == [
        sends[index][0] for index in range(len(sends)) if index not in travels
    ]


@pytest.mark.parametrize("sharing", ["fair", "fifo"])
@pytest.mark.parametrize("P", [2, 5, 8])
def test_a_mesh_on_private_links_and_on_cards(sharing, P):
    """Everybody sends N bytes to everybody: alpha + N beta on private links, alpha + (P - 1) N beta
    on cards.
    """
    alpha, size = 0.5, 20.0
    mesh = [(0.0, i, j, size) for i in range(P) for j in Complete().out_peers(i, 0, P)]
    for wiring, times in {"pairs": 1, "cards": P - 1}.items():
        network = Network(bandwidth=BANDWIDTH, latency=alpha, sharing=sharing, wiring=wiring)
        assert max(arrivals(mesh, network, Complete(), P)) == pytest.approx(
            alpha + times * size / BANDWIDTH
        )


@pytest.mark.parametrize("sharing", ["fair", "fifo"])
def test_a_slow_sender_does_not_hold_a_fast_receiver(sharing):
    """Seven workers at 10 B/s, one at 1 B/s, a server that is faster: each is through as soon as
    its card allows.
    """
    network = Network(
        bandwidth=BANDWIDTH, server_bandwidth=1000.0, sharing=sharing, cards=[Card(0, 1.0)]
    )
    sends = [(0.0, rank, SERVER, 20.0) for rank in range(8)]
    queue = 7 * 20.0 / 1000.0 if sharing == "fifo" else 0.0
    first, *others = arrivals(sends, network)
    assert first == pytest.approx(20.0)
    assert max(others) <= 2.0 + queue + 1e-9
    assert min(others) == pytest.approx(2.0)


@pytest.mark.parametrize("sharing", ["fair", "fifo"])
@pytest.mark.parametrize("bandwidth", [BANDWIDTH, math.inf])
def test_a_slow_link_slows_its_pair_alone(sharing, bandwidth):
    link = SlowLink(0, SERVER, bandwidth=1.0, latency=0.5, both=False)
    network = Network(
        bandwidth=bandwidth, server_bandwidth=1e6, latency=0.125, sharing=sharing, links=[link]
    )
    alone = 20.0 / bandwidth
    sends = [
        (0.0, 0, SERVER, 20.0),
        (0.0, SERVER, 0, 20.0),
        (0.0, 1, SERVER, 20.0),
        (30.0, 0, SERVER, 0.0),
    ]
    expected = [20.5, alone + 0.125, alone + 0.125, 30.5]
    assert arrivals(sends, network) == pytest.approx(expected, abs=1e-3)


def test_a_slow_link_has_a_latency_or_a_bandwidth_alone():
    far = Network(latency=0.125, links=[SlowLink(-1, 2, latency=3.0)])
    assert arrivals([(0.0, 2, SERVER, 9.0), (0.0, SERVER, 2, 9.0), (0.0, 1, SERVER, 9.0)], far) == [
        3.0,
        3.0,
        0.125,
    ]
    thin = Network(latency=0.125, links=[SlowLink(-1, 2, bandwidth=3.0)])
    assert arrivals([(0.0, 2, SERVER, 9.0), (0.0, 1, SERVER, 9.0)], thin) == [3.125, 0.125]


def test_a_colocated_server_shares_its_workers_card():
    """Shard -1 on worker 0, -2 on worker 1: worker 0's message to -1 is free, 2's share with what 0
    itself is sent.
    """
    network = Network(bandwidth=BANDWIDTH, latency=0.5, colocated=True)
    assert arrivals([(1.0, 0, -1, 20.0), (1.0, -2, 1, 20.0)], network) == [1.0, 1.0]
    into_one_card = [(0.0, 2, -1, 20.0), (0.0, -2, 0, 20.0)]
    assert arrivals(into_one_card, network) == pytest.approx([4.5, 4.5])
    assert arrivals(into_one_card, Network(bandwidth=BANDWIDTH, latency=0.5)) == pytest.approx(
        [2.5, 2.5]
    )


@pytest.mark.parametrize("sharing", ["fair", "fifo"])
@pytest.mark.parametrize("inner", [4 * BANDWIDTH, math.inf])
@pytest.mark.parametrize("bandwidth", [BANDWIDTH, math.inf])
def test_workers_of_a_host_share_its_card_and_have_inner_cards_of_their_own(
    sharing, inner, bandwidth
):
    """Inside alpha' + N beta' for each pair at once, both ways; two that send to others take alpha
    + 2 N beta.
    """
    network = Network(
        bandwidth=bandwidth, latency=0.5, sharing=sharing, hosts=Hosts(4, inner, latency=0.25)
    )
    inside = [(0.0, one, other, 20.0) for one, other in [(0, 1), (1, 0), (2, 3)]]
    across = [(0.0, one, other, 20.0) for one, other in [(0, 4), (1, 5)]]
    found = arrivals([*inside, *across], network, Complete())
    assert found[:3] == pytest.approx([0.25 + 20.0 / inner] * 3)
    assert max(found[3:]) == pytest.approx(0.5 + 2 * 20.0 / bandwidth)


@pytest.mark.parametrize("sharing", ["fair", "fifo"])
@pytest.mark.parametrize("bandwidth", [BANDWIDTH, math.inf])
def test_what_is_cut_never_arrives_and_the_rest_does(sharing, bandwidth):
    network = Network(bandwidth=bandwidth, latency=0.5, sharing=sharing)
    traffic, lost = Traffic(network, crashes=True), []
    if bandwidth == math.inf:
        for name, moment in {"arrived": 0.0, "under way": 0.75, "after": 1.25}.items():
            traffic.send(name, moment, 3, SERVER, 20.0)
        traffic.send("other", 0.75, 4, SERVER, 20.0)
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


def test_a_cut_frees_what_was_held_on_fair_links():
    """Two of 20 bytes at 5 B/s each; one is cut at 2 s, and the other's 10 bytes left take 1 s."""
    traffic, lost = Traffic(Network(bandwidth=BANDWIDTH), crashes=True), []
    traffic.send("cut", 0.0, 0, SERVER, 20.0)
    traffic.send("kept", 0.0, 1, SERVER, 20.0)
    traffic.cut(2.0, 0, lost)
    traffic.run()
    assert traffic.times == pytest.approx({"kept": 3.0})
    assert traffic.env.now == pytest.approx(3.0), (
        "no timer of the lost message keeps the clock running"
    )


@pytest.mark.parametrize(
    "more", [{"wiring": "cards"}, {"wiring": "pairs"}, {"hosts": Hosts(1)}], ids=str
)
def test_after_a_cut_a_queue_begins_anew_on_the_nodes_own_links(more):
    network = Network(bandwidth=BANDWIDTH, server_bandwidth=1e6, sharing="fifo", **more)
    traffic, lost = Traffic(network, crashes=True), []
    for name in range(5):
        traffic.send(name, 0.0, 0, SERVER, 20.0)
    traffic.cut(3.0, 0, lost)
    traffic.send("back", 4.0, 0, SERVER, 20.0)
    traffic.run()
    assert traffic.times == pytest.approx({0: 2.0, "back": 6.0}, abs=1e-3)


@pytest.mark.parametrize("rank", [0, 3])
def test_after_a_cut_the_queue_of_a_hosts_card_stays_as_it_was(rank):
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


def test_after_a_cut_a_queue_begins_anew_on_the_workers_own_inner_card():
    """The card of the other worker of the host, to which all five messages went, is reserved until
    10 s.
    """
    traffic = Traffic(
        Network(sharing="fifo", hosts=Hosts(4, BANDWIDTH)), Complete(), workers=4, crashes=True
    )
    for name in range(5):
        traffic.send(name, 0.0, 0, 1, 20.0)
    traffic.cut(3.0, 0, [])
    traffic.send("back", 4.0, 0, 2, 20.0)
    traffic.send("other", 4.0, 3, 1, 20.0)
    traffic.run()
    assert traffic.times == pytest.approx({0: 2.0, "back": 6.0, "other": 6.0})


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_every_message_arrives_or_is_cut_whoever_crashes_when(data):
    workers = 4
    network, topology = data.draw(networks(workers))
    network = Network(**{**vars(network), "sharing": data.draw(st.sampled_from(["fair", "fifo"]))})
    traffic, lost = Traffic(network, topology, workers, crashes=True), []
    pairs = [
        (one, other)
        for one in range(-2, workers)
        for other in range(-2, workers)
        if topology.joins(one, other, workers)
    ]
    sends = data.draw(
        st.lists(st.tuples(st.floats(0, 5), st.sampled_from(pairs), st.floats(0, 9)), max_size=12)
    )
    for name, (moment, pair, size) in enumerate(sends):
        traffic.send(name, moment, *pair, size)
    for moment, rank in data.draw(
        st.lists(st.tuples(st.floats(0, 8), st.integers(0, workers - 1)), max_size=3)
    ):
        traffic.cut(moment, rank, lost)
    traffic.run()
    assert sorted([*traffic.times, *itertools.chain(*lost)]) == list(range(len(sends)))
    assert not any(link.flows for link in traffic.transport._links.values())


@pytest.mark.parametrize(
    ("network", "said"),
    [
        (
            lambda: Network(cards=[Card(8, 1.0)]),
            r"Cluster.network.cards.0.worker: expected a rank below workers = 8",
        ),
        (
            lambda: Network(cards=[Card(1, 1.0), Card(1, 2.0)]),
            r"Cluster.network.cards.1.worker: .* one card each, got 1",
        ),
        (lambda: Network(cards=[Card(1, 0.0)]), r"Card.bandwidth: expected bytes per second > 0"),
        (lambda: Network(cards=[Card(-1, 1.0)]), r"Card.worker: expected a number >= 0"),
        (
            lambda: Network(links=[SlowLink(0, 8, 1.0)]),
            r"Cluster.network.links.0.receiver: .* workers = 8.* got 8",
        ),
        (
            lambda: Network(links=[SlowLink(-9, 0, 1.0)]),
            r"Cluster.network.links.0.sender: .* down to -8, got -9",
        ),
        (
            lambda: Network(links=[SlowLink(0, -1, 1.0), SlowLink(-1, 0, 2.0)]),
            r"links.1.receiver: expected one link a",
        ),
        (
            lambda: Network(topology=Star(), links=[SlowLink(0, 1, 1.0)]),
            r"links.0.receiver: expected a pair that a Star",
        ),
        (
            lambda: Network(topology=Ring(), links=[SlowLink(0, -1, 1.0)]),
            r"links.0.receiver: .* that a Ring joins",
        ),
        (
            lambda: Network(hosts=Hosts(3)),
            r"Cluster.network.hosts.size: expected a divisor of workers = 8, got 3",
        ),
        (
            lambda: Network(links=[SlowLink(2, 2, 1.0)]),
            r"SlowLink.receiver: expected a rank other than the sender's",
        ),
        (
            lambda: Network(links=[SlowLink(2, 3)]),
            r"SlowLink.bandwidth: expected a bandwidth or a latency",
        ),
        (
            lambda: Network(links=[SlowLink(2, 3, -1.0)]),
            r"SlowLink.bandwidth: expected bytes per second > 0",
        ),
        (
            lambda: Network(links=[SlowLink(2, 3, latency=-1.0)]),
            r"SlowLink.latency: expected a number >= 0",
        ),
    ],
)
def test_cards_and_links_that_do_not_fit_the_cluster_are_refused_by_their_key(network, said):
    with pytest.raises(InvalidSettingError, match=said):
        Cluster(workers=8, network=network())


def test_cards_and_links_that_fit_are_accepted():
    network = Network(
        topology=Auto(),
        cards=[Card(7, 1.0)],
        links=[SlowLink(0, -8, 1.0), SlowLink(0, 1, 1.0, both=False)],
    )
    Cluster(workers=8, network=network)
    Cluster(
        workers=8,
        network=Network(links=[SlowLink(0, 1, 1.0, both=False), SlowLink(1, 0, 2.0, both=False)]),
    )
