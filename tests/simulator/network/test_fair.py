"""Fair sharing, in virtual time and by filling, against the fluid model and closed forms."""

import math
import time

import numpy as np
import pytest

from laggard.simulator.network import filling, nested
from laggard.simulator.network.fair import FairSharing, MaxMin
from laggard.simulator.network.links import Link, Rated
from laggard.simulator.network.max_min import refill
from laggard.simulator.network.nested import CompiledMaxMin, NestedFairSharing
from laggard.simulator.network.star import ProcessorSharingStar
from laggard.simulator.timing.clock import Clock
from tests.simulator.network.traffic import BLOCKS, carried, fluid, max_min

# Patterns of traffic: bandwidths of the links, and the links that each message crosses.


def star(rng, flows):
    """Each message crosses a leaf's link and the server's card, in either direction."""
    capacity = np.full(flows + 1, rng.uniform(1, 20))
    kind = rng.integers(4)
    if kind == 1:  # leaves that never bind
        capacity[1:] *= 1.5
    elif kind == 2:  # equal leaves that bind when few messages are under way
        capacity[1:] /= rng.uniform(1, flows)
    elif kind == 3:  # unequal leaves
        capacity[1:] *= rng.uniform(0.01, 0.5, flows)
    return capacity, [(0, leaf) if rng.integers(2) else (leaf, 0) for leaf in range(1, flows + 1)]


def crowded_star(rng, flows):
    """A star with few leaves, so that messages of one leaf meet on its link too."""
    capacity, routes = star(rng, max(flows // 3, 1))
    return capacity, [routes[rng.integers(len(routes))] for _ in range(flows)]


def pairs(rng, flows):
    """Messages between random nodes over an up and a down link; some over a third link."""
    nodes = int(rng.integers(2, 2 * flows + 2))
    capacity = rng.uniform(1, 10, 2 * nodes + 1)
    if rng.integers(2):
        capacity = rng.choice([1.0, 2.0, 10.0], 2 * nodes + 1)
    routes = []
    for _ in range(flows):
        sender, receiver = rng.choice(nodes, 2, replace=False).tolist()
        third = (2 * nodes,) if rng.integers(6) == 0 else ()
        routes.append((sender, *third, nodes + receiver))
    return capacity, routes


def two_stars(rng, flows):
    """Two servers, and a few messages between them that join the two stars for a while."""
    capacity = np.concatenate([rng.uniform(5, 10, 2), rng.uniform(1, 10, flows)])
    routes = [(int(leaf >= flows // 2), 2 + leaf) for leaf in range(flows)]
    for index in rng.choice(flows, max(flows // 8, 1), replace=False):
        routes[index] = (0, 1)
    return capacity, routes


def racks(rng, flows):
    """Messages from cards over the trunks of a few racks into the cards of one or two servers."""
    count, servers = int(rng.integers(1, 4)), int(rng.integers(1, 3))
    speeds = rng.choice([2.0, 4.0, 8.0], 3) if rng.integers(2) else rng.uniform(1, 9, 3)
    capacity = np.repeat(speeds, [servers, count, flows])
    if rng.integers(2):
        capacity *= rng.uniform(0.9, 1.1, len(capacity))
    cards = [int(rng.integers(flows)) if rng.integers(4) == 0 else index for index in range(flows)]
    server = rng.integers(servers, size=flows) * (rng.random() < 0.5)
    return capacity, [
        (servers + count + card, servers + card % count, int(server[index]))
        for index, card in enumerate(cards)
    ]


def between_racks(rng, flows):
    """Messages between nodes of a few racks: a card, two trunks, a card; some inside a rack."""
    count, size = int(rng.integers(2, 5)), int(rng.integers(1, 6))
    nodes = count * size
    capacity = np.repeat([2.0, size], [2 * nodes, 2 * count])
    if rng.integers(2):
        capacity = rng.uniform(1, 4, len(capacity))
    routes = []
    for sender, receiver in rng.integers(nodes, size=(flows, 2)).tolist():
        up, down = 2 * nodes + sender // size, 2 * nodes + count + receiver // size
        trunks = (up, down) if sender // size != receiver // size else ()
        routes.append((sender, *trunks, nodes + receiver))
    return capacity, routes


def random_traffic(pattern, seed):
    """Random sizes and moments for a pattern; some messages are withdrawn early."""
    rng = np.random.default_rng([seed, len(pattern.__name__)])
    flows = int(rng.integers(2, 25))
    capacity, routes = pattern(rng, flows)
    sizes = [np.ones(flows), rng.uniform(0.5, 5, flows), 10 ** rng.uniform(-2, 2, flows)]
    sizes = sizes[rng.integers(3)]
    span = sizes.sum() / capacity[0]
    moments = [np.zeros(flows), rng.integers(0, 4, flows) * span / 4, rng.uniform(0, span, flows)]
    moments = moments[rng.integers(3)]
    chosen = rng.choice(flows, int(rng.integers(0, flows // 2 + 1)), replace=False)
    withdrawn = {int(i): float(moments[i] + rng.exponential(span / 3)) for i in chosen}
    return list(zip(moments.tolist(), sizes.tolist(), routes, strict=True)), capacity, withdrawn


@pytest.mark.parametrize(
    ("kind", "group", "patterns", "least"),
    [
        (FairSharing, ProcessorSharingStar, [star, crowded_star, pairs, two_stars], 0),
        (
            NestedFairSharing,
            ProcessorSharingStar,
            [racks, star, pairs, two_stars],
            nested.MIN_CHANGED,
        ),
        # rates that are compiled from the first message on, or once two have changed
        (NestedFairSharing, CompiledMaxMin, [between_racks, racks, pairs], 0),
        (NestedFairSharing, CompiledMaxMin, [between_racks], 2),
    ],
)
@BLOCKS
def test_messages_end_with_fluid_model(kind, group, patterns, least, block, monkeypatch):
    monkeypatch.setattr(nested, "MIN_CHANGED", least)
    for pattern in patterns:
        groups = []
        for seed in range(block * 20, block * 20 + 20):
            sends, capacity, withdrawn = random_traffic(pattern, seed)
            found, _, joined = carried(sends, capacity, withdrawn, kind)
            expected = fluid(sends, capacity, withdrawn)
            text = f"{pattern.__name__}, seed {seed}"
            np.testing.assert_allclose(found, expected, rtol=1e-9, err_msg=text)
            groups += joined.values()
        assert group in groups or block  # a later block may have no such traffic


def test_many_messages_between_racks_switch_to_compiled_rates(monkeypatch):
    """200 messages at a time: in a row of four racks nearly all rates depend on each other."""
    ends = []
    capacity, routes = np.repeat([10.0, 100.0], [160, 8]), []
    for sender, receiver in np.random.default_rng(1).integers(80, size=(400, 2)).tolist():
        routes.append((sender, 160 + sender // 20, 164 + receiver // 20, 80 + receiver))
    sends = [(0.05 * max(i - 200, 0), 5.0 + i % 7, route) for i, route in enumerate(routes)]
    for least in (1000, math.inf):
        monkeypatch.setattr(nested, "MIN_CHANGED", least)
        found, _, groups = carried(sends, capacity, {}, NestedFairSharing)
        ends.append(found)
        assert (CompiledMaxMin in groups.values()) == (least < math.inf)
    np.testing.assert_allclose(ends[0], ends[1], rtol=1e-9)


@pytest.mark.parametrize("seed", range(20))
def test_compiled_rates_match_plain_code(seed):
    rng = np.random.default_rng(seed)
    capacity, routes = between_racks(rng, int(rng.integers(1, 60)))
    flows = len(routes)
    crosses = np.zeros((flows, len(capacity)))
    rows = np.full((flows + 3, 4), -1)  # unused rows make no difference
    for row, route in enumerate(routes):
        rows[row, : len(route)] = route
        crosses[row, list(route)] = 1
    state = rng.uniform(1, 9, (len(rows), 5)) * [1000, 1, 1, 1, 1000]
    after = []
    for module in (nested.compile_filling(), filling):
        known = state.copy()
        first = module.advance(10, rows, known, flows, capacity, 1e-12)
        rates = known[:flows, filling.RATE]
        np.testing.assert_allclose(rates, max_min(crosses, capacity), rtol=1e-12)
        ends = known[:flows, filling.END]
        assert first == ends.min()
        due = module.due(first, math.ulp(first), known, flows)
        assert due.tolist() == np.flatnonzero(ends <= first * (1 + 1e-11))[::-1].tolist()
        after.append(known)
    assert (after[0] == after[1]).all()
    # The integer moment, as a clock's first one, has not led to compiling another function.
    assert len(nested.compile_filling().advance.signatures) == 1


def many_between_racks(magnitudes):
    """600 messages between 16 racks of 16 nodes: routes as rows, and bandwidths of the links.

    Bandwidths spread over `magnitudes` powers of ten; with 0 they are equal, and many links become
    full at one level.
    """
    rng, size, nodes = np.random.default_rng(7), 16, 256
    senders, receivers = rng.integers(nodes, size=(2, 600))
    up, down = 2 * nodes + senders // size, 2 * nodes + size + receivers // size
    bandwidths = np.repeat([1.0, size], [2 * nodes, 2 * size])
    bandwidths *= 10 ** rng.uniform(-magnitudes / 2, magnitudes / 2, len(bandwidths))
    return np.stack([senders, up, down, nodes + receivers], axis=1), bandwidths


@pytest.mark.parametrize("magnitudes", [0, 1, 12, 200])
def test_rates_of_many_links_are_max_min_fair_in_any_buckets(magnitudes, monkeypatch):
    """With one bucket, with the usual ones, and with a bucket for nearly every level."""
    routes, bandwidths = many_between_racks(magnitudes)
    crosses = np.zeros((len(routes), len(bandwidths)))
    np.put_along_axis(crosses, routes, 1.0, axis=1)
    fair = max_min(crosses, bandwidths)
    compiled = nested.compile_filling().max_min_rates(routes, len(routes), bandwidths)
    plain = filling.max_min_rates(routes, len(routes), bandwidths)
    np.testing.assert_array_equal(plain, compiled)
    np.testing.assert_allclose(plain, fair, rtol=1e-9)
    for shift in (62, 45):
        monkeypatch.setattr(filling, "BUCKET_SHIFT", shift)
        others = filling.max_min_rates(routes, len(routes), bandwidths)
        np.testing.assert_allclose(others, fair, rtol=1e-9)


N, BYTES, BANDWIDTH = 300, 7.0, 11.0


@pytest.mark.parametrize(
    ("kind", "links", "route"),
    [
        # a leaf that is as fast as the card, a faster one, and one that binds when few are left
        *((FairSharing, [speed] * N, lambda leaf: (0, 1 + leaf)) for speed in (11.0, 33.0, 0.11)),
        (FairSharing, [11.0] * N, lambda leaf: (1 + leaf, 0)),
        # over the trunks of four racks
        (
            NestedFairSharing,
            [11.0] * N + [11.0, 12.0, 22.0, 99.0],
            lambda leaf: (1 + leaf, 1 + N + leaf % 4, 0),
        ),
    ],
)
def test_equal_messages_end_together_in_order_sent(kind, links, route):
    """On one star, n messages of N bytes take n N / b."""
    sends = [(0.0, BYTES, route(leaf)) for leaf in range(N)]
    ends, order, groups = carried(sends, [BANDWIDTH, *links], {}, kind)
    assert ends == pytest.approx(np.full(N, N * BYTES / BANDWIDTH), rel=1e-12)
    assert len(set(ends)) == 1
    assert order == list(range(N))
    assert set(groups.values()) == {ProcessorSharingStar}


JOINED = [(0.0, 9.0, (leaf // 5, 2 + leaf)) for leaf in range(10)] + [(1.0, 2.0, (0, 1))]
"""Five messages of 9 bytes into each of two cards of 5 B/s; one of 2 bytes over both cards joins
the two stars from 1 s to 3.4 s.
"""


def test_star_is_restored_after_coupling_flow_ends():
    """One of 1 byte comes to the first card at 5 s, when the five there have 4.4 bytes left, and
    ends 1.2 s later.
    """
    ends, _, groups = carried(
        [*JOINED, (5.0, 1.0, (0, 12))], [5.0, 5.0] + 11 * [9.0], {}, FairSharing
    )
    assert ends == pytest.approx([*5 * [9.6], *5 * [9.4], 3.4, 6.2], rel=1e-12)
    assert groups == {**dict.fromkeys([*range(10), 11], ProcessorSharingStar), 10: MaxMin}


def test_messages_that_stay_in_filling_end_in_time(monkeypatch):
    """Six bytes over each pair of three links of 1 B/s end at 12 s, after the stars have left."""
    monkeypatch.setattr(nested, "MIN_CHANGED", 0)
    sends = [*JOINED, *((0.0, 6.0, route) for route in [(12, 13), (13, 14), (12, 14)])]
    capacity = [5.0, 5.0] + 10 * [9.0] + 3 * [1.0]
    ends, _, groups = carried(sends, capacity, {}, NestedFairSharing)
    assert ends == pytest.approx([*10 * [9.4], 3.4, *3 * [12.0]], rel=1e-12)
    assert groups[10] is CompiledMaxMin


def test_empty_message_ends_in_instant_of_another_end(monkeypatch):
    """It joins at 2 s, as the first of two that share a link of 1 B/s ends: the ends of this
    instant are taken again once it has a rate.
    """
    monkeypatch.setattr(nested, "MIN_CHANGED", 0)
    sends = [(0.0, 1.0, (0, 1)), (0.0, 3.0, (1, 2)), (2.0, 0.0, (0, 2))]
    ends, _, groups = carried(sends, [1.0, 1.0, 1.0], {}, NestedFairSharing)
    assert ends == pytest.approx([2.0, 4.0, 2.0], rel=1e-12)
    assert groups[2] is CompiledMaxMin


def test_messages_that_return_from_star_end_in_time():
    """Four of 9 bytes at 1 B/s, the speed of their leaves, into a card of 100 B/s; at 1 s another
    star is tied to theirs.

    Until 0.5 s a message over two cards kept them in the general filling, where another message
    ends at that very moment, 1 s.
    """
    sends = [(0.0, 9.0, (0, 3 + leaf)) for leaf in range(4)]
    sends += [(0.0, 0.5, (0, 1)), (0.0, 1.5, (1,)), (0.0, 50.0, (2,)), (1.0, 1.0, (0, 2))]
    ends, _, _ = carried(sends, [100.0, 2.0, 1.0, 1.0, 1.0, 1.0, 1.0], {}, FairSharing)
    assert ends == pytest.approx([9.0, 9.0, 9.0, 9.0, 0.5, 1.0, 51.0, 3.0], rel=1e-12)


def test_link_that_is_never_empty_does_not_drift():
    """Two messages of N bytes in turn over b B/s, each sent when the one before ends: they end at
    (k + 3/2) N / b.
    """
    size, bandwidth, messages = 0.7, 0.3, 20_000
    env, ends, services = Clock(), [], []
    sharing, links = FairSharing(env), [Link(bandwidth) for _ in range(3)]

    def send(leaf):
        flow = sharing.carry(size, (links[leaf], links[0]), lambda _: send_next(leaf))
        services.append(flow.group._virtual_service)

    def send_next(leaf):
        ends.append(env.now)
        if len(ends) < messages:
            send(leaf)

    env.call_in(0.0, lambda: send(1))
    env.call_in(0.5 * size / bandwidth, lambda: send(2))
    env.run_to_end()
    expected = (np.arange(messages - 1) + 1.5) * size / bandwidth
    np.testing.assert_allclose(ends[: messages - 1], expected, rtol=1e-12)
    assert max(services) < 20 * size


def test_cost_of_message_on_star_grows_slowly():
    """The cost grows as log n from 16 to 1,024 messages under way; rating all of them would make
    it 64 times as large.
    """

    def cost(flows, messages=3000):
        env, rng, ended = Clock(), np.random.default_rng(0), 0
        sharing, links = FairSharing(env), [Link(1.0) for _ in range(flows + 1)]
        sizes = iter(rng.uniform(0.5, 1.5, flows + messages + 1).tolist())

        def send(leaf):
            sharing.carry(next(sizes), (links[leaf], links[0]), lambda _: send_next(leaf))

        def send_next(leaf):
            nonlocal ended
            ended += 1
            env.stopped = ended >= messages
            send(leaf)

        for leaf in range(1, flows + 1):
            send(leaf)
        begin = time.process_time()
        env.run_to_end()
        return time.process_time() - begin

    assert min(cost(1024) for _ in range(3)) < 8 * min(cost(16) for _ in range(3))


@pytest.mark.parametrize("seed", range(4))
def test_refilling_some_flows_is_filling_all(seed):
    """After each arrival or departure, `refill` of the affected messages gives the rates of a full
    filling.
    """
    rng = np.random.default_rng(seed)
    speeds = rng.choice([1.0, 2.0, 5.0], 12) * rng.uniform(1, 1.0 + seed % 2, 12)
    links = [Link(speed) for speed in speeds]
    flows, some_kept = [], False
    for number in range(150):
        if flows and rng.random() < 0.4:
            flow = flows.pop(rng.integers(len(flows)))
            flow.leave()
        else:
            route = rng.choice(12, rng.integers(1, 4), replace=False)
            flow = Rated(number, 1.0, tuple(links[index] for index in route), lambda _: None)
            flow.enter()
            flows.append(flow)
        changed = refill(flow.route)
        for other in changed:
            other.rate = other.share
        some_kept |= len(changed) < len(flows)
        crosses = [[float(link in other.route) for link in links] for other in flows]
        rates = max_min(np.reshape(crosses, (len(flows), 12)), speeds)
        np.testing.assert_allclose([other.rate for other in flows], rates, rtol=1e-10)
    assert some_kept
