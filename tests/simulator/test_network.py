"""Links: queues and max-min fairness, against worked examples and against an independent solution."""

import math

import numpy as np
import pytest
import simpy
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator import SERVER, Invalid, Network, Star
from simulator.network import Wires
from simulator.sharing import FairSharing, FifoSharing, Link, fill

BANDWIDTH = 10.0


def arrivals(sends, network):
    """When messages `(moment, sender, receiver, bytes)` arrive."""
    env = simpy.Environment()
    wires, times = Wires(env, network, Star(), 8), {}

    def sender(index, moment, source, target, size):
        yield env.timeout(moment)
        arrival = env.event()
        arrival._ok, arrival._value = True, None
        arrival.callbacks.append(lambda _: times.__setitem__(index, env.now))
        wires.carry(source, target, size, arrival)

    for index, send in enumerate(sends):
        env.process(sender(index, *send))
    env.run()
    return [times[index] for index in range(len(sends))]


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

    Three at 10/3 B/s: the third passes in 1.5 s, at 3.5 s, when the others have 5 bytes each left, which take
    1 s at 5 B/s: they end at 4.5 s instead of 4 s, by the third's 5 bytes over 10 B/s later.
    """
    sends = [(0.0, 0, SERVER, 20.0), (0.0, 1, SERVER, 20.0), (2.0, 2, SERVER, 5.0)]
    assert arrivals(sends, Network(bandwidth=BANDWIDTH)) == pytest.approx([4.5, 4.5, 3.5])


def test_a_workers_own_card_can_be_what_binds():
    """Two workers at 10 B/s into a server of 15 B/s: 7.5 each; one alone gets 10, its own card."""
    network = Network(bandwidth=BANDWIDTH, server_bandwidth=15.0)
    assert arrivals([(0.0, 0, SERVER, 30.0), (0.0, 1, SERVER, 15.0)], network) == pytest.approx([3.5, 2.0])


@pytest.mark.parametrize("sharing", ["fair", "fifo"])
def test_directions_are_separate(sharing):
    network = Network(bandwidth=BANDWIDTH, sharing=sharing)
    assert arrivals([(0.0, 0, SERVER, 20.0), (0.0, SERVER, 0, 20.0)], network) == pytest.approx([2.0, 2.0])


def test_a_busy_down_link_does_not_hold_the_up_link():
    """Fifo, cut-through: A's card is free after its own bytes, though C's takes B's message first."""
    env = simpy.Environment()
    sharing, ended = FifoSharing(env), {}
    up_a, up_b, down_c, down_d = (Link(BANDWIDTH) for _ in range(4))
    for name, route in {"B to C": (up_b, down_c), "A to C": (up_a, down_c), "A to D": (up_a, down_d)}.items():
        sharing.carry(10.0, route, lambda delay, name=name: ended.__setitem__(name, env.now + delay))
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


def test_free_network_and_tokens_take_the_latency():
    assert arrivals([(0.0, 0, SERVER, 1e9)], Network(latency=0.5)) == [0.5]
    assert arrivals([(0.0, 0, SERVER, 0.0)], Network(bandwidth=BANDWIDTH, latency=0.5)) == [0.5]


def test_the_star_joins_workers_to_the_server_alone():
    assert Star().joins(0, SERVER, 8)
    assert Star().joins(SERVER, 5, 8)
    with pytest.raises(Invalid, match=r"Star.send: expected a pair that a Star joins, got '0 -> 1'"):
        arrivals([(0.0, 0, 1, 1.0)], Network())


@pytest.mark.parametrize(
    "wrong",
    [
        {"bandwidth": 0.0},
        {"bandwidth": math.nan},
        {"latency": -1.0},
        {"server_bandwidth": -1.0},
        {"sharing": "random"},
        {"message_bytes": -4.0},
    ],
)
def test_settings_out_of_range_are_refused(wrong):
    with pytest.raises(Invalid, match=next(iter(wrong))):
        Network(**wrong)


class StubFlow:
    """A message for `fill` alone."""

    def __init__(self, route):
        self.route, self.rate, self.rated = route, 0.0, 0
        for link in route:
            link.flows[self] = None


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_filling_is_max_min_fair(data):
    """No link is overfull, and every message crosses a full link on which nobody is faster than it."""
    links = [Link(data.draw(st.floats(0.5, 50.0))) for _ in range(data.draw(st.integers(2, 6)))]
    pairs = data.draw(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=12))
    routes = [(links[a % len(links)], links[b % len(links)]) for a, b in pairs if a % len(links) != b % len(links)]
    flows = [StubFlow(route) for route in routes]
    fill(flows)
    for link in links:
        assert sum(flow.rate for flow in link.flows) <= link.bandwidth * (1 + 1e-9)
    for flow in flows:
        bottlenecks = [
            link
            for link in flow.route
            if sum(other.rate for other in link.flows) >= link.bandwidth * (1 - 1e-9)
            and all(other.rate <= flow.rate * (1 + 1e-9) for other in link.flows)
        ]
        assert bottlenecks


def fluid(sends, capacities, step=1e-3):
    """Max-min fairness the slow way: rates solved anew in every small step of time."""
    left = {index: size for index, (_, _, size) in enumerate(sends)}
    ends, now = {}, 0.0
    while left:
        under_way = [index for index in left if sends[index][0] <= now + step / 2]
        rates, room, unrated = {}, dict(enumerate(capacities)), set(under_way)
        while unrated:
            load = {link: [i for i in unrated if link in sends[i][1]] for link in room}
            link = min((link for link in load if load[link]), key=lambda link: room[link] / len(load[link]))
            share = room[link] / len(load[link])
            for index in load[link]:
                rates[index] = share
                unrated.discard(index)
                for crossed in sends[index][1]:
                    room[crossed] -= share
        now += step
        for index in under_way:
            left[index] -= rates[index] * step
            if left[index] <= 0:
                ends[index] = now
                del left[index]
    return [ends[index] for index in range(len(sends))]


@pytest.mark.parametrize("seed", range(6))
def test_fair_sharing_over_time_is_the_fluid_model(seed):
    """Random traffic over five links; one group may fall apart into several when a message ends."""
    rng = np.random.default_rng(seed)
    capacities = rng.uniform(1.0, 4.0, 5)
    sends = [
        (
            float(rng.integers(0, 1500)) / 1000,
            tuple(rng.choice(5, 2, replace=False).tolist()),
            float(rng.uniform(0.5, 3)),
        )
        for _ in range(9)
    ]
    env, ends = simpy.Environment(), {}
    sharing, links = FairSharing(env), [Link(capacity) for capacity in capacities]

    def sender(index, moment, route, size):
        yield env.timeout(moment)
        sharing.carry(size, tuple(links[link] for link in route), lambda _: ends.__setitem__(index, env.now))

    for index, send in enumerate(sends):
        env.process(sender(index, *send))
    env.run()
    expected = fluid(sends, capacities)
    assert [ends[index] for index in range(len(sends))] == pytest.approx(expected, abs=0.02)
