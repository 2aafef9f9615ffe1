"""Networks that change over time, against the fluid model from scratch, cumulative capacities and
constant networks.
"""

import math
import re
from bisect import bisect_right
from contextlib import nullcontext
from dataclasses import replace
from heapq import heappop, heappush

import numpy as np
import pytest

from laggard.simulator import SERVER, Cluster, Evaluate, Network, Rule, Star, Stop, simulate
from laggard.simulator.algorithms import ALGORITHMS
from laggard.simulator.engine.stopping import check_periods
from laggard.simulator.errors import InvalidSettingError
from laggard.simulator.network.changes import Change, Changes, StepFunction
from laggard.simulator.network.config import Card, Hosts, SlowLink
from laggard.simulator.network.topology import Complete
from laggard.simulator.network.transport import Transport
from laggard.simulator.network.varying import VaryingFairSharing, VaryingFifoSharing, VaryingLink
from laggard.simulator.recording.messages import Record
from laggard.simulator.testing.fingerprint import fingerprint
from laggard.simulator.timing.clock import Clock
from laggard.simulator.timing.distributions import Gamma
from laggard.simulator.timing.slowdowns import Crash

BANDWIDTH = 10.0
Traffic = tuple[list[tuple[float, float, tuple[int, ...]]], list[StepFunction]]


def random_steps(rng: np.random.Generator, span: float, most: int = 5) -> StepFunction:
    """A bandwidth that changes up to so many times, with outages now and then, but not in the
    end.
    """
    moments = np.unique(rng.uniform(0, span, rng.integers(0, most + 1))).tolist()
    values = (
        rng.choice([0.0, 1.0, 2.0, 5.0], len(moments))
        if rng.integers(2)
        else rng.uniform(0, 5, len(moments))
    )
    first, last = rng.uniform(0.5, 5, 2).tolist()
    return StepFunction(moments, [first, *values.tolist()[:-1], last] if moments else [first])


def random_traffic(seed: int, star: bool = False) -> Traffic:
    """Messages `(moment, bytes, links)` between random nodes, or to one, over links that change."""
    rng = np.random.default_rng([seed, star])
    nodes, messages = int(rng.integers(2, 7)), int(rng.integers(2, 20))
    sends = []
    for moment in (
        rng.choice([0.0, 1.0, 2.5], messages) if rng.integers(2) else rng.uniform(0, 8, messages)
    ):
        one, other = rng.choice(nodes, 2, replace=False).tolist()
        route = (one, nodes) if star else (one, nodes + other)
        sends.append((float(moment), float(10 ** rng.uniform(-1, 1.2)), route))
    return sends, [random_steps(rng, 20.0) for _ in range(2 * nodes)]


def carried(
    sharing: VaryingFairSharing | VaryingFifoSharing, env: Clock, traffic: Traffic, withdrawn=()
) -> np.ndarray:
    """When the messages end; those that are withdrawn at 3 s do not."""
    sends, steps = traffic
    ends, links, flows = np.full(len(sends), math.nan), [VaryingLink(one) for one in steps], {}

    def begin(index):
        _, size, route = sends[index]
        passed = lambda delay: ends.__setitem__(index, env.now + delay)  # noqa: E731
        flows[index] = sharing.carry(size, tuple(links[link] for link in route), passed)

    def withdraw(index):
        if index in flows and math.isnan(ends[index]):
            sharing.withdraw(flows[index])

    for index, (moment, _, _) in enumerate(sends):
        env.call_in(moment, lambda index=index: begin(index))
    for index in withdrawn:
        env.call_in(8.5, lambda index=index: withdraw(index))
    env.run_to_end()
    return ends


def fair_rates(routes: list[tuple[int, ...]], capacity: list[float]) -> list[float]:
    """Max-min fair rates by progressive filling in its plainest form."""
    rates: dict[int, float] = {}
    while len(rates) < len(routes):
        growing = [index for index in range(len(routes)) if index not in rates]
        head = {}
        for link in {link for index in growing for link in routes[index]}:
            used = sum(rates[index] for index in rates if link in routes[index])
            head[link] = (capacity[link] - used) / sum(link in routes[index] for index in growing)
        narrowest = min(head, key=head.__getitem__)
        rates |= {
            index: max(head[narrowest], 0.0) for index in growing if narrowest in routes[index]
        }
    return [rates[index] for index in range(len(routes))]


def fluid(traffic: Traffic, withdrawn=()) -> np.ndarray:
    """The fluid model: all rates anew at every moment at which a message comes or ends, or a
    bandwidth changes.
    """
    sends, steps = traffic
    left, ends, now = (
        {i: send[1] for i, send in enumerate(sends)},
        np.full(len(sends), math.nan),
        0.0,
    )
    changes = sorted(
        {8.5, *(send[0] for send in sends), *(moment for one in steps for moment in one.moments)}
    )
    while left:
        active = [i for i in left if sends[i][0] <= now]
        capacity = [one.values[bisect_right(one.moments, now)] for one in steps]
        rates = dict(zip(active, fair_rates([sends[i][2] for i in active], capacity), strict=True))
        change = next((moment for moment in changes if moment > now), math.inf)
        through = min((now + left[i] / rates[i] for i in active if rates[i] > 0), default=math.inf)
        after = min(change, through)
        for i in active:
            left[i] -= rates[i] * (after - now)
            if left[i] <= 1e-10 * sends[i][1]:
                ends[i] = after
                del left[i]
        now = after
        if now >= 8.5:
            for i in withdrawn:
                left.pop(i, None)
    return ends


@pytest.mark.parametrize("star", [False, True])
@pytest.mark.parametrize(
    "block", [0, *(pytest.param(block, marks=pytest.mark.slow) for block in range(1, 10))]
)
def test_messages_that_share_links_that_change_end_when_the_fluid_model_says(star, block):
    stars = 0
    for seed in range(block * 40, block * 40 + 40):
        traffic, env = random_traffic(seed, star), Clock()
        withdrawn = range(0, len(traffic[0]), 5) if seed % 3 == 0 else ()
        sharing = VaryingFairSharing(env)
        found = carried(sharing, env, traffic, withdrawn)
        np.testing.assert_allclose(
            found, fluid(traffic, withdrawn), rtol=1e-9, err_msg=f"seed {seed}"
        )
        stars += bool(sharing._stars)
    assert stars > 20


class Cumulative:
    """C(t) = int_0^t c(s) ds of a link, and its inverse by bisection: independent of how the queues
    compute it.
    """

    def __init__(self, steps: StepFunction) -> None:
        self.moments = np.array([0.0, *steps.moments, 1e4])
        # fast enough not to matter, and small enough for sums
        values = np.minimum(steps.values, 1e3)
        self.bytes = np.concatenate([[0.0], np.cumsum(np.diff(self.moments) * values)])

    def at(self, time: float) -> float:
        return float(np.interp(time, self.moments, self.bytes))

    def finish(self, begin: float, size: float) -> float:
        return first(lambda end: self.at(end) - self.at(begin) >= size * (1 - 1e-14), begin)

    def head(self, before: "Cumulative", begin: float, tail: float, size: float) -> float:
        """The first moment from which on no byte would cross this link before it has left the one
        before.
        """
        moments = [t for t in {*self.moments, *before.moments, tail} if begin < t <= tail]
        allowed = [
            size if t == tail else min(before.at(t) - before.at(begin), size) for t in moments
        ]
        allowed = [most + 1e-10 for most in allowed]
        here = [self.at(t) for t in moments]
        return first(
            lambda b: all(c - self.at(b) <= most for c, most in zip(here, allowed, strict=True)),
            begin,
        )


def first(holds, least: float) -> float:
    """The first number from `least` on with which something holds, and does from then on."""
    if holds(least):
        return least
    below, above = least, 1e4
    for _ in range(100):
        middle = (below + above) / 2
        below, above = (below, middle) if holds(middle) else (middle, above)
    return above


def slowest(steps: list[StepFunction]) -> Cumulative:
    """A link that is as fast as the slowest of several."""
    moments = sorted({moment for one in steps for moment in one.moments})
    values = [
        min(one.values[bisect_right(one.moments, at)] for one in steps)
        for at in (-math.inf, *moments)
    ]
    return Cumulative(StepFunction(moments, values))


def queued(traffic: Traffic) -> np.ndarray:
    """When messages end that wait in a queue at each of their links, link after link in order of
    arrival there.

    A message comes to a link when the slowest of those that follow could pass it on without a
    pause.
    """
    sends, steps = traffic
    links, free, ends = (
        [Cumulative(one) for one in steps],
        [0.0] * len(steps),
        np.full(len(sends), math.nan),
    )
    heads = sorted((moment, index, 0, -math.inf) for index, (moment, _, _) in enumerate(sends))
    while heads:
        moment, index, hop, tail = heappop(heads)
        _, size, route = sends[index]
        here, link = route[hop], links[route[hop]]
        begin = max(moment, free[here])
        free[here] = link.finish(begin, size)
        end = ends[index] = max(free[here], tail)
        if hop + 1 < len(route):
            rest = slowest([steps[number] for number in route[hop + 1 :]])
            heappush(heads, (rest.head(link, begin, end, size), index, hop + 1, end))
        else:
            free[here] = end
    return ends


@pytest.mark.parametrize("hops", [1, 2, 3])
@pytest.mark.parametrize(
    "block", [0, *(pytest.param(block, marks=pytest.mark.slow) for block in range(1, 10))]
)
def test_messages_in_queues_that_change_end_when_the_recursion_says(hops, block):
    """D_n = C^-1(C(max(A_n, D_(n - 1))) + B_n) at each link, with C(t) the integral of its
    bandwidth.
    """
    for seed in range(block * 15, block * 15 + 15):
        rng = np.random.default_rng([seed, hops])
        nodes, messages = 3, int(rng.integers(1, 12))
        moments, sizes = (
            rng.uniform(0, 8, messages).tolist(),
            (10 ** rng.uniform(-1, 1.2, messages)).tolist(),
        )
        routes = [
            tuple((hop * nodes + rng.integers(nodes)).item() for hop in range(hops))
            for _ in range(messages)
        ]
        traffic = (
            list(zip(moments, sizes, routes, strict=True)),
            [random_steps(rng, 20.0) for _ in range(hops * nodes)],
        )
        env = Clock()
        found = carried(VaryingFifoSharing(env), env, traffic)
        np.testing.assert_allclose(found, queued(traffic), rtol=1e-9, err_msg=f"seed {seed}")


def arrivals(sends, network, topology=None, workers=4) -> list[float]:
    """When messages `(moment, sender, receiver, bytes)` arrive."""
    env, found = Clock(), [math.nan] * len(sends)
    network.check(workers)
    transport = Transport(env, network, topology or Complete(), workers)

    def go(index):
        _, sender, receiver, size = sends[index]
        arrival = env.event()
        arrival._ok, arrival._value = True, None
        arrival.callbacks.append(lambda _: found.__setitem__(index, env.now))
        transport.carry(sender, receiver, size, arrival)

    for index, send in enumerate(sends):
        env.call_in(send[0], lambda index=index: go(index))
    env.run_to_end()
    return found


SECONDS = 80
"""Rows begin and end at whole seconds, all of them before that."""


def over_time(rows, column, ends, usual) -> list[float]:
    """A value in each second: that of the first of `ends` that has a row then, or the usual one."""
    values = list(usual)
    for second in range(SECONDS):
        holds = {(row.sender, row.receiver): getattr(row, column) for row in rows if row.start <= second < row.end
                 and getattr(row, column) is not None}  # fmt: skip
        values[second] = next((holds[pair] for pair in ends if pair in holds), values[second])
    return values


FREE = [1e30] * SECONDS


def crossed(rows, wiring, speeds, own, sender, receiver) -> dict[tuple, list[float]]:
    """The links between two nodes and their bandwidths in each second: what the rows mean, said
    once more.
    """
    up = over_time(rows, "bandwidth", [(sender, None), (None, None)], [speeds[sender]] * SECONDS)
    down = over_time(
        rows, "bandwidth", [(None, receiver), (None, None)], [speeds[receiver]] * SECONDS
    )
    between = (
        [own.bandwidth] * SECONDS if (sender, receiver) in own.pairs and own.bandwidth else None
    )
    if wiring == "pairs":
        return {
            (sender, receiver): over_time(
                rows, "bandwidth", [(sender, receiver)], between or map(min, up, down)
            )
        }
    link = over_time(rows, "bandwidth", [(sender, receiver)], between or FREE)
    return {
        ("up", sender): up,
        **({(sender, receiver): link} if link != FREE else {}),
        ("down", receiver): down,
    }


def random_changes(rng: np.random.Generator, ranks: list[int]) -> list[Change]:
    """Rows that begin and end at whole seconds, those of the same ends one after another."""
    rows = []
    for _ in range(rng.integers(1, 6)):
        sender, receiver = rng.choice(ranks, 2, replace=False).tolist()
        given = [
            {"sender": sender},
            {"receiver": receiver},
            {},
            {"sender": sender, "receiver": receiver},
        ]
        ends = given[rng.integers(4)]
        if any(
            (row.sender, row.receiver) == (ends.get("sender"), ends.get("receiver")) for row in rows
        ):
            continue
        start = int(rng.integers(0, 10))
        for _ in range(rng.integers(1, 4)):
            start, end = (start + gap for gap in sorted(rng.choice(9, 2, replace=False).tolist()))
            bandwidth = [None, 0.0, 0.5, 2.0, 7.0][rng.integers(5)]
            latency = (
                [0.0, 0.5, 2.0][rng.integers(3)] if bandwidth is None or rng.integers(2) else None
            )
            last = math.inf if bandwidth != 0 and rng.integers(6) == 0 else float(end)
            rows.append(
                Change(**ends, start=float(start), end=last, bandwidth=bandwidth, latency=latency)
            )
            if last == math.inf:
                break
            start = end
    return rows


@pytest.mark.parametrize("wiring", ["cards", "pairs"])
@pytest.mark.parametrize("sharing", ["fair", "fifo"])
@pytest.mark.parametrize(
    "block", [0, *(pytest.param(block, marks=pytest.mark.slow) for block in range(1, 10))]
)
def test_any_network_that_changes_carries_messages_as_its_rows_say(wiring, sharing, block):
    """Rows of pairs, of senders, of receivers and of all, beside cards and links of their own."""
    for seed in range(block * 12, block * 12 + 12):
        rng = np.random.default_rng(seed)
        ranks = [SERVER, 0, 1, 2, 3]
        rows = random_changes(rng, ranks)
        own = SlowLink(0, SERVER, 3.0, 0.25) if seed % 2 else SlowLink(0, SERVER, latency=0.25)
        network = Network(bandwidth=4.0, latency=1.0, server_latency=1.5, server_bandwidth=9.0, cards=[Card(1, 2.0)],
                          links=[own], wiring=wiring, sharing=sharing, changes=Changes(rows))  # fmt: skip
        speeds, names, traffic, sends = {SERVER: 9.0, 0: 4.0, 1: 2.0, 2: 4.0, 3: 4.0}, {}, [], []
        for moment in sorted(rng.uniform(0, 30, 14).tolist()):
            sender, receiver = rng.choice(ranks, 2, replace=False).tolist()
            sends.append((moment, sender, receiver, float(rng.uniform(0.5, 12))))
            links = crossed(rows, wiring, speeds, own, sender, receiver)
            for name, values in links.items():
                names.setdefault(
                    name, StepFunction([float(second) for second in range(1, SECONDS)], values)
                )
            traffic.append((moment, sends[-1][3], tuple(list(names).index(name) for name in links)))
        solve = fluid if sharing == "fair" else queued
        left, expected = solve((traffic, list(names.values()))), []
        for (moment, sender, receiver, _), end in zip(sends, left, strict=True):
            special = (sender, receiver) in own.pairs
            usual = 0.25 if special else 1.5 if sender == SERVER else 1.0
            ends = [(sender, receiver), (sender, None), (None, receiver), (None, None)]
            latency = over_time(rows, "latency", ends[:1] if special else ends, [usual] * SECONDS)[
                int(moment)
            ]
            earlier = [
                there
                for pair, gone, there in expected
                if pair == (sender, receiver) and gone <= end
            ]
            expected.append(((sender, receiver), end, max([end + latency, *earlier])))
        found = arrivals(sends, network)
        np.testing.assert_allclose(
            found, [there for _, _, there in expected], rtol=1e-9, err_msg=f"seed {seed}"
        )


def test_rounding_makes_no_message_reach_a_link_before_it_may():
    """What passes from `least` on begins at `least` itself, not at a moment that is smaller by its
    last digit.
    """
    rng = np.random.default_rng(0)
    for _ in range(1000):
        rate, least, lasts = rng.choice([0.7, 1.0, 3.0, 5.0]), rng.random(), rng.random()
        link = VaryingLink(StepFunction([], [rate]))
        begin = link.latest_begin(least + lasts, rate * (least + lasts - least), least)
        assert least <= begin <= least + 1e-12


def test_a_link_that_is_free_from_a_moment_on_has_passed_no_more_before():
    """0.5 B/s for a second, then no limit but the receiver's card of 4 B/s: the last 3.5 bytes take
    0.875 s.
    """
    rows = [Change(0, 1, start=3.0, end=5.0, bandwidth=0.5)]
    for sharing in ("fair", "fifo"):
        network = Network(
            bandwidth=9.0, cards=[Card(1, 4.0)], sharing=sharing, changes=Changes(rows)
        )
        assert arrivals([(4.0, 0, 1, 4.0)], network) == pytest.approx([5.875], rel=1e-12)


WIRES = [{}, {"sharing": "fifo"}, {"wiring": "pairs"}, {"wiring": "pairs", "sharing": "fifo"}]
REPEATED = Changes(
    [
        Change(start=1.0, end=2.0, bandwidth=BANDWIDTH, latency=0.3),
        Change(0, start=3.0, latency=0.3),
    ]
)
LATER = Changes([Change(start=1e6, bandwidth=1.0, latency=9.0)])


@pytest.mark.parametrize("changes", [REPEATED, LATER], ids=["repeated", "later"])
@pytest.mark.parametrize(("number", "name"), list(enumerate(sorted(ALGORITHMS))))
def test_rows_that_change_nothing_yet_change_no_run_bit_for_bit(number, name, changes):
    """Collectives in lock step agree with messages to rounding alone, so that their messages are
    compared.
    """
    workers, wires, prints = 1 if name == "delayed" else 3, WIRES[number % 4], []
    for given in (None, changes):
        network = Network(
            bandwidth=BANDWIDTH, latency=0.3, message_bytes=1.0, changes=given, **wires
        )
        cluster = Cluster(workers, Gamma(1.0, 0.6), network=network)
        run = simulate(
            cluster, ALGORITHMS[name](Rule()), stop=Stop(updates=30), record=Record(messages=True)
        )
        prints.append(fingerprint(run))
    assert prints[0] == prints[1]


@pytest.mark.parametrize("wires", WIRES)
@pytest.mark.parametrize("collective", ["ring", "mesh"])
def test_a_collective_on_a_network_that_changes_sends_its_messages(collective, wires):
    """No lock step: with a card that changes the times are others, and those of a run that records
    its messages.
    """
    network = Network(bandwidth=BANDWIDTH, latency=0.3, message_bytes=20.0, **wires)
    algorithm, stop, rows = (
        ALGORITHMS["all_reduce"](Rule(), collective=collective),
        Stop(updates=6),
        [],
    )
    changed = Changes([Change(0, start=2.0, end=7.0, bandwidth=1.0)])
    for changes, record in (
        (None, None),
        (REPEATED, None),
        (changed, None),
        (changed, Record(messages=True)),
    ):
        cluster = Cluster(3, Gamma(1.0, 0.5), network=replace(network, changes=changes))
        rows.append(simulate(cluster, algorithm, stop=stop, record=record).updates["time"])
    np.testing.assert_allclose(rows[1], rows[0], rtol=1e-12)
    np.testing.assert_array_equal(rows[2], rows[3])
    assert rows[2][-1] > rows[0][-1] + 1


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("sharing", ["fair", "fifo"])
def test_a_change_awaited_does_not_keep_the_clock_running(sharing, cut):
    """Nor where what it would have changed is lost in a crash."""
    changes = Changes([Change(start=5.0, end=1e6, bandwidth=1.0)])
    network, env = Network(bandwidth=BANDWIDTH, sharing=sharing, changes=changes), Clock()
    transport = Transport(env, network, Star(), 2, crashes=True)
    for moment in (0.0, 1.0):
        event = env.event()
        event._ok, event._value, event.callbacks = True, None, []
        env.call_in(moment, lambda event=event: transport.carry(0, SERVER, 10.0, event))
    if cut:
        env.call_in(1.5, lambda: transport.cut(0))
    env.run_to_end()
    assert env.now == (1.5 if cut else 2.0)


@pytest.mark.parametrize("wires", WIRES)
def test_a_crash_in_an_outage_loses_what_waits(wires):
    """Worker 0 sends 20 bytes at 0 s, of which 10 have passed when all is down from 1 s to 5 s; it
    crashes at 2 s.
    """
    changes = Changes([Change(start=1.0, end=5.0, bandwidth=0.0)])
    network = Network(bandwidth=BANDWIDTH, message_bytes=10.0, changes=changes, **wires)
    crashed = Cluster(2, Gamma(0.1, 0.1), network=network, slowdowns=[Crash(0, at=2.0)])
    run = simulate(
        crashed, ALGORITHMS["async_ps"](Rule()), stop=Stop(time=20.0), record=Record(messages=True)
    )
    log = run.message_log
    lost = log["status"] == "lost"
    assert np.count_nonzero(lost) == 1
    assert (log["arrived"][~lost & (log["status"] == "delivered")] < 20.0).all()
    assert not ((log["arrived"] > 1.0) & (log["arrived"] < 5.0) & (log["bytes"] > 0)).any()


def test_a_message_ends_where_an_outage_begins():
    """At 1 s, in a star as in general, not when the outage is over: 10 bytes of each of n are
    through by then.
    """
    for senders in (1, 5):
        for extra in ([], [(0.0, 0, 6, 1.0)]):
            outage = Changes([Change(receiver=5, start=1.0, end=9.0, bandwidth=0.0)])
            network = Network(
                bandwidth=BANDWIDTH, changes=outage, cards=[Card(5, BANDWIDTH * senders)]
            )
            sends = [(0.0, rank, 5, 10.0) for rank in range(senders)]
            expected = [1.0 + 0.1 * bool(extra), *[1.0] * (senders - 1)]
            if extra:
                sends[0] = (0.0, 0, 5, 5.0)
                expected[0] = 0.6
            found = arrivals([*sends, *extra], network, workers=8)
            assert found[: len(sends)] == pytest.approx(expected, rel=1e-12)


def test_values_of_a_step_function():
    steps = StepFunction.of(
        [3.0, 1.0, 2.0, 0.0, 1.0], {0.0: 5.0, 1.0: 7.0, 2.0: 7.0, 3.0: 0.0}.__getitem__
    )
    assert (steps.moments, steps.values) == ([1.0, 3.0], [5.0, 7.0, 0.0])
    assert [steps.at(time) for time in (0.0, 0.5, 1.0, 2.9, 3.0, 99.0)] == [
        5.0,
        5.0,
        7.0,
        7.0,
        0.0,
        0.0,
    ]
    assert [steps.until(time) for time in (0.5, 1.0, 3.0)] == [1.0, 3.0, math.inf]
    assert [steps.since(time) for time in (0.5, 1.0, 1.5, 3.0, 4.0)] == [
        -math.inf,
        -math.inf,
        1.0,
        1.0,
        3.0,
    ]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({}, "Change.bandwidth: expected a bandwidth or a latency, or both, got None"),
        (
            {"sender": 1, "receiver": 1, "latency": 1.0},
            "Change.receiver: expected a rank other than the sender's, got 1",
        ),
        ({"start": 3.0, "end": 3.0, "latency": 1.0}, "Change.end: expected a number > 3, got 3.0"),
        ({"start": math.nan, "latency": 1.0}, "Change.start: expected a number >= 0, got nan"),
        ({"end": math.nan, "latency": 1.0}, "Change.end: expected a number > 0, got nan"),
        ({"latency": -1.0}, "Change.latency: expected a number >= 0, got -1.0"),
        ({"latency": math.inf}, "Change.latency: expected a number >= 0 and <= 1e+30, got inf"),
        ({"bandwidth": -1.0}, "Change.bandwidth: expected bytes per second, 0 or at least 1e-9"),
        ({"bandwidth": 1e-10}, "Change.bandwidth: expected bytes per second, 0 or at least 1e-9"),
        (
            {"bandwidth": math.nan},
            "Change.bandwidth: expected bytes per second, 0 or at least 1e-9",
        ),
        (
            {"bandwidth": math.inf},
            "Change.bandwidth: expected bytes per second, 0 or at least 1e-9",
        ),
        ({"bandwidth": 0.0}, "Change.end: expected the moment at which the outage ends, got inf"),
        ({"sender": 0.5, "latency": 1.0}, "Change.sender: expected a whole number"),
    ],
)
def test_a_row_that_cannot_be_is_refused(row, said):
    with pytest.raises(InvalidSettingError, match=re.escape(said)):
        Change(**row)


THREE = [
    Change(start=1.0, end=2.0, bandwidth=1.0),
    Change(start=2.0, latency=1.0),
    Change(0, start=1.0, latency=1.0),
]


@pytest.mark.parametrize(
    ("more", "network", "said"),
    [
        (
            [Change(4, latency=1.0)],
            {},
            "changes.3.sender: expected a worker below workers = 4, or a server",
        ),
        (
            [Change(receiver=-5, latency=1.0)],
            {},
            "changes.3.receiver: expected a worker below workers = 4, or a server",
        ),
        (
            [Change(start=1.5, bandwidth=1.0)],
            {},
            "changes.3.start: expected at least 2, when the bandwidth of the same",
        ),
        (
            [Change(end=1.5, bandwidth=1.0)],
            {},
            "changes.0.start: expected at least 1.5, when the bandwidth of the same",
        ),
        (
            [Change(start=9.0, latency=1.0)],
            {},
            "changes.3.start: expected at least inf, when the latency of the same",
        ),
        (
            [Change(-1, latency=1.0)],
            {"colocated": True},
            "changes.2.start: expected at least inf, when the latency of",
        ),
        (
            [Change(-1, 0, latency=1.0)],
            {"colocated": True},
            "changes.3.receiver: expected a node on another machine",
        ),
    ],
)
def test_rows_that_do_not_fit_are_refused(more, network, said):
    rows = Changes([*THREE, *more])
    with pytest.raises(InvalidSettingError, match=re.escape(f"Cluster.network.{said}")):
        Cluster(workers=4, network=Network(changes=rows, **network))


def test_what_changes_is_refused_beside_hosts_and_a_pair_beside_queues_of_its_own_runs():
    with pytest.raises(InvalidSettingError, match="changes: expected nothing beside hosts"):
        Network(changes=Changes(THREE), hosts=Hosts(2))
    rows = Changes([*THREE, Change(1, 0, latency=1.0)])
    Cluster(workers=4, network=Network(changes=rows, sharing="fifo"))
    rows = Changes([*THREE, Change(1, 0, bandwidth=1.0)])
    Cluster(workers=4, network=Network(changes=rows, sharing="fifo", wiring="pairs"))


def test_evaluations_as_long_as_an_outage_are_refused():
    outage = Changes([Change(start=1.0, end=1e6, bandwidth=0.0)])
    for changes, enough in (
        (None, True),
        (Changes([Change(start=1.0, end=1e6, bandwidth=1.0)]), True),
        (outage, False),
    ):
        cluster = Cluster(2, network=Network(bandwidth=BANDWIDTH, changes=changes))
        with (
            nullcontext()
            if enough
            else pytest.raises(InvalidSettingError, match="every_seconds: expected at least 10")
        ):
            check_periods(Stop(updates=3), Evaluate(every_seconds=1.0), cluster)
