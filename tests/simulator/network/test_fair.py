"""Fair sharing, in virtual time and by filling, against the fluid model from scratch and against
closed forms.
"""

import math
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from laggard.simulator.network import filling, nested
from laggard.simulator.network.fair import FairSharing, MaxMin
from laggard.simulator.network.links import Link, Rated
from laggard.simulator.network.max_min import fill, refill
from laggard.simulator.network.nested import CompiledMaxMin, NestedFairSharing
from laggard.simulator.network.star import ProcessorSharingStar
from laggard.simulator.timing.clock import Clock


def max_min(crosses, capacity):
    """Rates of flows by progressive filling in its plainest form; `crosses` is (flows, links), of
    zeros and ones.
    """
    rates, room, unrated = (
        np.zeros(len(crosses)),
        capacity.astype(float),
        np.ones(len(crosses), bool),
    )
    while unrated.any():
        load = crosses[unrated].sum(axis=0)
        share = np.where(load > 0, room / np.maximum(load, 1), math.inf)
        fixed = unrated & (crosses[:, share.argmin()] > 0)
        rates[fixed] = share.min()
        room = room - crosses[fixed].sum(axis=0) * share.min()
        unrated &= ~fixed
    return rates


def fluid(sends, capacity, withdrawn):
    """When messages `(moment, size, links)` end in the fluid model, all rates solved anew at every
    event; nan if never.

    `withdrawn` has the moments at which messages leave, if they have not ended by then.
    """
    begins, size = (
        np.array([moment for moment, _, _ in sends]),
        np.array([size for _, size, _ in sends]),
    )
    crosses = np.zeros((len(sends), len(capacity)))
    for index, (_, _, links) in enumerate(sends):
        crosses[index, list(links)] = 1
    stops = np.array([withdrawn.get(index, math.inf) for index in range(len(sends))])
    left, ends, gone, now = (
        size.copy(),
        np.full(len(sends), math.nan),
        np.zeros(len(sends), bool),
        0.0,
    )
    while not gone.all():
        alive = ~gone & (begins <= now)
        rates = np.zeros(len(sends))
        rates[alive] = max_min(crosses[alive], capacity)
        moments = [*begins[begins > now], *stops[alive], *(now + left[alive] / rates[alive])]
        now, step = min(moments), min(moments) - now
        left -= rates * step
        through = alive & (left <= 1e-10 * size)
        ends[through] = now
        gone |= through | (alive & (stops <= now))
    return ends


def simulated(sends, capacity, withdrawn, kind=FairSharing):
    """When `FairSharing`, or another kind, lets them end, in which order, and what kind of group
    each joined.
    """
    env, ends, flows, order, groups = Clock(), np.full(len(sends), math.nan), {}, [], {}
    sharing, links = kind(env), [Link(bandwidth) for bandwidth in capacity]

    def begin(index):
        _, size, crossed = sends[index]
        flows[index] = sharing.carry(
            size, tuple(links[link] for link in crossed), lambda delay: end(index, delay)
        )
        groups[index] = type(flows[index].group)

    def end(index, delay):
        assert delay == 0.0
        ends[index] = env.now
        order.append(index)

    def withdraw(index):
        if math.isnan(ends[index]):
            sharing.withdraw(flows[index])

    for index, (moment, _, _) in enumerate(sends):
        env.call_in(moment, lambda index=index: begin(index))
    for index, moment in withdrawn.items():
        env.call_in(moment, lambda index=index: withdraw(index))
    env.run_to_end()
    assert not any(link.flows for link in links)
    return ends, order, groups


def star(rng, flows):
    """Messages over a link of their own, in some order, and one that all share: the server's card,
    in or out.
    """
    capacity = rng.uniform(1, 20) * np.ones(flows + 1)
    kind = rng.integers(4)
    if kind == 1:  # cards that never bind
        capacity[1:] = capacity[0] * 1.5
    elif kind == 2:  # cards that bind when few messages are under way, all alike
        capacity[1:] = capacity[0] / rng.uniform(1, flows)
    elif kind == 3:  # each of its own speed
        capacity[1:] = capacity[0] * rng.uniform(0.01, 0.5, flows)
    return capacity, [(0, own) if rng.integers(2) else (own, 0) for own in range(1, flows + 1)]


def crowded_star(rng, flows):
    """A star whose leaves are few, so that messages of one sender meet on its own card too."""
    capacity, routes = star(rng, max(flows // 3, 1))
    return capacity, [routes[rng.integers(len(routes))] for _ in range(flows)]


def pairs(rng, flows):
    """Messages between random nodes, each with an up and a down link, some with a link of their
    pair's between.
    """
    nodes = int(rng.integers(2, 2 * flows + 2))
    capacity = (
        rng.choice([1.0, 2.0, 10.0], 2 * nodes + 1)
        if rng.integers(2)
        else rng.uniform(1, 10, 2 * nodes + 1)
    )
    routes = []
    for _ in range(flows):
        one, other = rng.choice(nodes, 2, replace=False).tolist()
        routes.append(
            (one, 2 * nodes, nodes + other) if rng.integers(6) == 0 else (one, nodes + other)
        )
    return capacity, routes


def two_stars(rng, flows):
    """Two servers, and now and then a message between them: what is a star is one for a while
    only.
    """
    half = flows // 2
    capacity = np.concatenate([rng.uniform(5, 10, 2), rng.uniform(1, 10, flows)])
    routes = [(0 if own < half else 1, 2 + own) for own in range(flows)]
    for index in rng.choice(flows, max(flows // 8, 1), replace=False):
        routes[index] = (0, 1)
    return capacity, routes


def traffic(pattern, seed):
    rng = np.random.default_rng([seed, len(pattern.__name__)])
    flows = int(rng.integers(2, 25))
    capacity, routes = pattern(rng, flows)
    sizes = [np.ones(flows), rng.uniform(0.5, 5, flows), 10 ** rng.uniform(-2, 2, flows)][
        rng.integers(3)
    ]
    span = sizes.sum() / capacity[0]
    moments = [np.zeros(flows), rng.integers(0, 4, flows) * span / 4, rng.uniform(0, span, flows)][
        rng.integers(3)
    ]
    sends = [
        (float(m), float(size), route)
        for m, size, route in zip(moments, sizes, routes, strict=True)
    ]
    chosen = rng.choice(flows, int(rng.integers(0, flows // 2 + 1)), replace=False)
    return sends, capacity, {int(i): float(moments[i] + rng.exponential(span / 3)) for i in chosen}


@pytest.mark.parametrize("pattern", [star, crowded_star, pairs, two_stars])
@pytest.mark.parametrize(
    "block", [0, *(pytest.param(block, marks=pytest.mark.slow) for block in range(1, 5))]
)
def test_messages_end_when_the_fluid_model_says(pattern, block):
    for seed in range(block * 20, block * 20 + 20):
        sends, capacity, withdrawn = traffic(pattern, seed)
        found, _, _ = simulated(sends, capacity, withdrawn)
        np.testing.assert_allclose(
            found, fluid(sends, capacity, withdrawn), rtol=1e-9, err_msg=f"seed {seed}"
        )


def racks(rng, flows):
    """Messages from cards over the trunks of a few racks into one or two servers' cards, as many
    hops as they like.
    """
    count, servers = int(rng.integers(1, 4)), int(rng.integers(1, 3))
    speeds = rng.choice([2.0, 4.0, 8.0], 3) if rng.integers(2) else rng.uniform(1, 9, 3)
    capacity = np.concatenate(
        [np.full(servers, speeds[0]), np.full(count, speeds[1]), np.full(flows, speeds[2])]
    )
    if rng.integers(2):
        capacity *= rng.uniform(0.9, 1.1, len(capacity))
    own = [int(rng.integers(flows)) if rng.integers(4) == 0 else index for index in range(flows)]
    server = rng.integers(servers, size=flows) * (rng.random() < 0.5)
    return capacity, [
        (servers + count + own[i], servers + own[i] % count, int(server[i])) for i in range(flows)
    ]


@pytest.mark.parametrize("pattern", [racks, star, pairs, two_stars])
@pytest.mark.parametrize(
    "block", [0, *(pytest.param(block, marks=pytest.mark.slow) for block in range(1, 10))]
)
def test_messages_over_nested_links_end_when_the_fluid_model_says(pattern, block):
    found_stars = 0
    for seed in range(block * 20, block * 20 + 20):
        sends, capacity, withdrawn = traffic(pattern, seed)
        found, _, groups = simulated(sends, capacity, withdrawn, NestedFairSharing)
        np.testing.assert_allclose(
            found, fluid(sends, capacity, withdrawn), rtol=1e-9, err_msg=f"seed {seed}"
        )
        found_stars += list(groups.values()).count(ProcessorSharingStar) > 1
    assert found_stars


def between_racks(rng, flows):
    """Messages from nodes of a few racks to nodes of others: a card, two trunks, a card; some
    inside a rack.
    """
    count, size = int(rng.integers(2, 5)), int(rng.integers(1, 6))
    nodes = count * size
    capacity = (
        rng.uniform(1, 4, 2 * nodes + 2 * count)
        if rng.integers(2)
        else np.repeat([2.0, size], [2 * nodes, 2 * count])
    )
    routes = []
    for one, other in rng.integers(nodes, size=(flows, 2)).tolist():
        trunks = (
            (2 * nodes + one // size, 2 * nodes + count + other // size)
            if one // size != other // size
            else ()
        )
        routes.append((one, *trunks, nodes + other))
    return capacity, routes


@pytest.mark.parametrize(
    ("pattern", "reach"), [(between_racks, 0), (between_racks, 2), (racks, 0), (pairs, 0)]
)
@pytest.mark.parametrize(
    "block", [0, *(pytest.param(block, marks=pytest.mark.slow) for block in range(1, 10))]
)
def test_messages_whose_rates_are_compiled_end_when_the_fluid_model_says(
    pattern, block, reach, monkeypatch
):
    """All of them from the first on, or from when each changes two rates."""
    monkeypatch.setattr(nested, "REACH", reach)
    compiled = 0
    for seed in range(block * 20, block * 20 + 20):
        sends, capacity, withdrawn = traffic(pattern, seed)
        found, _, groups = simulated(sends, capacity, withdrawn, NestedFairSharing)
        np.testing.assert_allclose(
            found, fluid(sends, capacity, withdrawn), rtol=1e-9, err_msg=f"seed {seed}"
        )
        compiled += CompiledMaxMin in groups.values()
    assert compiled or block  # a later block may have no such traffic


def test_many_messages_between_racks_are_compiled_and_end_as_without(monkeypatch):
    """200 messages, and as each ends another: in a row of four racks nearly all rates depend on
    each other.
    """
    ends = []
    for reach in (nested.REACH, math.inf):
        monkeypatch.setattr(nested, "REACH", reach)
        capacity, routes = np.repeat([10.0, 100.0], [160, 8]), []
        for one, other in np.random.default_rng(1).integers(80, size=(400, 2)).tolist():
            routes.append((one, 160 + one // 20, 164 + other // 20, 80 + other))
        sends = [
            (0.05 * max(index - 200, 0), 5.0 + index % 7, route)
            for index, route in enumerate(routes)
        ]
        found, _, groups = simulated(sends, capacity, {}, NestedFairSharing)
        ends.append(found)
        assert (CompiledMaxMin in groups.values()) == (reach < math.inf)
    np.testing.assert_allclose(ends[0], ends[1], rtol=1e-9)


@pytest.mark.parametrize("seed", range(20))
def test_compiled_rates_are_those_of_the_plain_form_and_of_uncompiled_code(seed, monkeypatch):
    rng = np.random.default_rng(seed)
    capacity, routes = between_racks(rng, int(rng.integers(1, 60)))
    crosses = np.zeros((len(routes), len(capacity)))
    # what lies in rows that are not used makes no difference
    rows = np.full((len(routes) + 3, 4), -1)
    for row, route in enumerate(routes):
        rows[row, : len(route)] = route
        crosses[row, list(route)] = 1
    found = filling.max_min_rates(rows, len(routes), capacity)
    np.testing.assert_allclose(found, max_min(crosses, capacity), rtol=1e-12)
    known = rng.uniform(1, 9, (len(rows), 5)) * [1000, 1, 1, 1, 1000]
    calls = {name: getattr(filling, name) for name in ("advance", "due", "max_min_rates", "sink")}
    compiled = [known.copy(), known.copy()]
    for each, plain in zip(compiled, (False, True), strict=True):
        for name, call in calls.items():
            monkeypatch.setattr(filling, name, call.py_func if plain else call)
        assert (filling.max_min_rates(rows, len(routes), capacity) == found).all()
        first = filling.advance(10.0, rows, each, len(routes), capacity, 1e-12)
        assert first == each[: len(routes), filling.END].min()
        assert filling.due(first, math.ulp(first), each, len(routes)).tolist() == [
            row
            for row in reversed(range(len(routes)))
            if each[row, filling.END] <= first * (1 + 1e-11)
        ]
    assert (compiled[0] == compiled[1]).all()


def test_messages_over_the_trunks_of_racks_into_one_card_form_a_star():
    """300 of 7 bytes, 75 over each trunk of 11 or more B/s, into a card of 11 B/s: all end at n N /
    b.
    """
    n, size, bandwidth = 300, 7.0, 11.0
    capacity = np.array([bandwidth, 11.0, 12.0, 22.0, 99.0] + n * [11.0])
    sends = [(0.0, size, (5 + own, 1 + own % 4, 0)) for own in range(n)]
    ends, order, groups = simulated(sends, capacity, {}, NestedFairSharing)
    assert ends == pytest.approx(np.full(n, n * size / bandwidth), rel=1e-12)
    assert order == list(range(n))
    assert set(groups.values()) == {ProcessorSharingStar}


@pytest.mark.parametrize("out", [False, True])
@pytest.mark.parametrize("cards", ["as fast", "faster", "slower when few"])
def test_equal_messages_over_one_card_end_together_in_the_order_sent(cards, out):
    """n N / b, whatever the cards of the others as long as none is below b / n; and all that as one
    hub.
    """
    n, size, bandwidth = 300, 7.0, 11.0
    others = {"as fast": 1.0, "faster": 3.0, "slower when few": 0.01}[cards] * bandwidth
    routes = [(0, 1 + own) if out else (1 + own, 0) for own in range(n)]
    ends, order, groups = simulated(
        [(0.0, size, route) for route in routes], np.array([bandwidth] + n * [others]), {}
    )
    assert ends == pytest.approx(np.full(n, n * size / bandwidth), rel=1e-12)
    assert len(set(ends)) == 1
    assert order == list(range(n))
    assert set(groups.values()) == {ProcessorSharingStar}


@pytest.mark.parametrize("first", [1.0, 0.3, 2.5])
@pytest.mark.parametrize("second", [0.1, 0.5, 4.0])
def test_two_messages_share_a_processor(first, second):
    """Sizes a and b over one link of 1 B/s, the second s after the first: the shorter ends when
    twice it has passed.
    """
    s = 0.2
    ends, _, _ = simulated(
        [(0.0, first, (0, 1)), (s, second, (2, 0))], np.array([1.0, 1.0, 1.0]), {}
    )
    if first - s <= second:
        assert ends == pytest.approx([2 * first - s, first + second], rel=1e-12)
    else:
        assert ends == pytest.approx([first + second, s + 2 * second], rel=1e-12)


def test_who_is_bound_and_who_is_not_changes_with_the_crowd():
    """Cards of 1, 3 and 10 into 10 B/s: 1, 3 and 6; when a fourth of 10 comes, 1, 3, 3 and 3; and
    back.
    """
    sends = [(0.0, 100.0, (1, 0)), (0.0, 100.0, (2, 0)), (0.0, 100.0, (3, 0)), (5.0, 15.0, (4, 0))]
    ends, _, groups = simulated(sends, np.array([10.0, 1.0, 3.0, 10.0, 10.0]), {})
    assert ends == pytest.approx([100.0, 100 / 3, 5 + 5 + 55 / 6, 10.0], rel=1e-12)
    assert set(groups.values()) == {ProcessorSharingStar}


def test_a_star_is_one_again_when_what_tied_it_to_another_has_ended():
    """Five of 9 bytes into each of two cards of 5 B/s; one of 2 bytes over both joins the stars
    from 1 s to 3.4 s.

    One of 1 byte comes to the first card at 5 s, when the five there have 4.4 bytes left, and ends
    1.2 s later.
    """
    capacity = np.array([5.0, 5.0] + 11 * [9.0])
    sends = [(0.0, 9.0, (own // 5, 2 + own)) for own in range(10)]
    ends, _, groups = simulated([*sends, (1.0, 2.0, (0, 1)), (5.0, 1.0, (0, 12))], capacity, {})
    assert ends == pytest.approx([*5 * [9.6], *5 * [9.4], 3.4, 6.2], rel=1e-12)
    assert groups == {**dict.fromkeys([*range(10), 11], ProcessorSharingStar), 10: MaxMin}


def test_messages_that_stay_behind_when_others_form_a_star_end_when_they_should(monkeypatch):
    """Six bytes over each pair of three links of 1 B/s end at 12 s, those of the stars between two
    of the others.
    """
    monkeypatch.setattr(nested, "REACH", 0)
    capacity = np.array([5.0, 5.0] + 10 * [9.0] + 3 * [1.0])
    sends = [(0.0, 9.0, (own // 5, 2 + own)) for own in range(10)] + [(1.0, 2.0, (0, 1))]
    sends += [(0.0, 6.0, (12, 13)), (0.0, 6.0, (13, 14)), (0.0, 6.0, (12, 14))]
    ends, _, groups = simulated(sends, capacity, {}, NestedFairSharing)
    assert ends == pytest.approx([*10 * [9.4], 3.4, *3 * [12.0]], rel=1e-12)
    assert groups[10] is CompiledMaxMin


def test_a_link_that_is_never_empty_does_not_drift():
    """Two messages of N bytes in turn over b B/s, each sent when its forerunner ends: they end (k +
    3/2) N / b.
    """
    size, bandwidth, messages = 0.7, 0.3, 20_000
    env, ends, services = Clock(), [], []
    sharing, links = FairSharing(env), [Link(bandwidth) for _ in range(3)]

    def send(own):
        flow = sharing.carry(size, (links[own], links[0]), lambda _: again(own))
        services.append(flow.group._virtual_service)

    def again(own):
        ends.append(env.now)
        if len(ends) < messages:
            send(own)

    env.call_in(0.0, lambda: send(1))
    env.call_in(0.5 * size / bandwidth, lambda: send(2))
    env.run_to_end()
    expected = (np.arange(messages - 1) + 1.5) * size / bandwidth
    np.testing.assert_allclose(ends[: messages - 1], expected, rtol=1e-12)
    assert max(services) < 20 * size


def test_a_message_on_a_star_costs_the_same_however_many_there_are():
    """Growth with log n alone: from 16 to 1,024 messages under way, far from the 64 times of rating
    all of them.
    """

    def cost(flows, messages=3000):
        env, rng, ended = Clock(), np.random.default_rng(0), 0
        sharing, links = FairSharing(env), [Link(1.0) for _ in range(flows + 1)]
        sizes = iter(rng.uniform(0.5, 1.5, flows + messages + 1).tolist())

        def send(own):
            sharing.carry(next(sizes), (links[own], links[0]), lambda _: again(own))

        def again(own):
            nonlocal ended
            ended += 1
            env.stopped = ended >= messages
            send(own)

        for own in range(1, flows + 1):
            send(own)
        begin = time.process_time()
        env.run_to_end()
        return time.process_time() - begin

    assert min(cost(1024) for _ in range(3)) < 8 * min(cost(16) for _ in range(3))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_filling_is_max_min_fair(data):
    """No link is overfull, and every message crosses a full link on which nobody is faster than
    it.
    """
    links = [Link(data.draw(st.floats(0.5, 50.0))) for _ in range(data.draw(st.integers(2, 6)))]
    pairs = data.draw(
        st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=12)
    )
    routes = [
        (links[a % len(links)], links[b % len(links)])
        for a, b in pairs
        if a % len(links) != b % len(links)
    ]
    flows = [Rated(number, 1.0, route, lambda _: None) for number, route in enumerate(routes)]
    for flow in flows:
        flow.enter()
    fill(flows)
    for link in links:
        assert sum(flow.share for flow in link.flows) <= link.bandwidth * (1 + 1e-9)
    for flow in flows:
        assert flow.bottleneck in flow.route
        assert sum(other.share for other in flow.bottleneck.flows) >= flow.bottleneck.bandwidth * (
            1 - 1e-9
        )
        assert all(other.share <= flow.share * (1 + 1e-9) for other in flow.bottleneck.flows)


@pytest.mark.parametrize(
    "seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, 20))]
)
def test_filling_those_concerned_is_filling_all(seed):
    """Messages come and go one by one on links that many cross; those that keep their rates would
    have got them.
    """
    rng = np.random.default_rng(seed)
    links = [
        Link(bandwidth)
        for bandwidth in rng.choice([1.0, 2.0, 5.0], 12) * rng.uniform(1, 1.0 + seed % 2, 12)
    ]
    flows, changed = [], []
    for number in range(150):
        if flows and rng.random() < 0.4:
            flow = flows.pop(rng.integers(len(flows)))
            flow.leave()
        else:
            route = tuple(
                links[index] for index in rng.choice(12, rng.integers(1, 4), replace=False)
            )
            flow = Rated(number, 1.0, route, lambda _: None)
            flow.enter()
            flows.append(flow)
        concerned = refill(flow.route)
        for one in concerned:
            one.rate = one.share
        changed.append(len(concerned) < len(flows))
        crosses = np.array([[link in one.route for link in links] for one in flows], float).reshape(
            len(flows), 12
        )
        rates = max_min(crosses, np.array([link.bandwidth for link in links]))
        np.testing.assert_allclose([one.rate for one in flows], rates, rtol=1e-10)
    assert any(changed), "the others keep theirs"


def test_messages_that_return_from_a_star_when_another_ends_do_not_end_with_it():
    """Four of 9 bytes at 1 B/s, their own links, into a card of 100 B/s; at 1 s another star is
    tied to theirs.

    A message over two cards, up to 0.5 s, had them in the general filling before, where one that
    shared with it ends at that very moment, 1 s.
    """
    capacity = np.array([100.0, 2.0, 1.0, 1.0, 1.0, 1.0, 1.0])
    sends = [(0.0, 9.0, (0, 3 + own)) for own in range(4)] + [
        (0.0, 0.5, (0, 1)),
        (0.0, 1.5, (1,)),
        (0.0, 50.0, (2,)),
    ]
    ends, _, _ = simulated([*sends, (1.0, 1.0, (0, 2))], capacity, {})
    assert ends == pytest.approx([9.0, 9.0, 9.0, 9.0, 0.5, 1.0, 51.0, 3.0], rel=1e-12)
