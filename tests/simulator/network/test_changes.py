"""Networks that change over time, against the fluid model and constant networks; queues."""

import math
from contextlib import nullcontext

import numpy as np
import pytest

from laggard.simulator import SERVER, Cluster, Evaluate, Network, Rule, Stop, simulate
from laggard.simulator.algorithms import ALGORITHMS
from laggard.simulator.engine.stopping import check_periods
from laggard.simulator.errors import InvalidSettingError
from laggard.simulator.network.changes import Change, Changes
from laggard.simulator.network.config import Card, Hosts, SlowLink
from laggard.simulator.network.star import ProcessorSharingStar
from laggard.simulator.network.topology import Complete
from laggard.simulator.network.varying import VaryingFairSharing
from laggard.simulator.recording.messages import Record
from laggard.simulator.testing.fingerprint import fingerprint
from laggard.simulator.timing.distributions import Gamma
from laggard.simulator.timing.slowdowns import Crash
from laggard.simulator.timing.steps import StepFunction
from tests.simulator.network.traffic import BLOCKS, Traffic, arrivals, carried, fluid

BANDWIDTH = 10.0
WIRES = [{}, {"wiring": "pairs"}]


def random_steps(rng, span=20.0):
    """A bandwidth that changes up to five times, with outages now and then, but not at the end."""
    moments = np.unique(rng.uniform(0, span, rng.integers(6))).tolist()
    values = rng.uniform(0, 5, len(moments) + 1)
    if rng.integers(2):
        values = rng.choice([0.0, 1.0, 2.0, 5.0], len(moments) + 1)
    values[[0, -1]] = rng.uniform(0.5, 5, 2)
    return StepFunction(moments, values.tolist())


@pytest.mark.parametrize("star", [False, True])
@BLOCKS
def test_messages_over_changing_links_follow_fluid(star, block):
    stars = 0
    for seed in range(block * 40, block * 40 + 40):
        rng = np.random.default_rng([seed, star])
        nodes, messages = int(rng.integers(2, 7)), int(rng.integers(2, 20))
        moments = rng.uniform(0, 8, messages)
        if rng.integers(2):
            moments = rng.choice([0.0, 1.0, 2.5], messages)
        sends = []
        for moment in moments.tolist():
            sender, receiver = rng.choice(nodes, 2, replace=False).tolist()
            route = (sender, nodes if star else nodes + receiver)
            sends.append((moment, float(10 ** rng.uniform(-1, 1.2)), route))
        steps = [random_steps(rng) for _ in range(2 * nodes)]
        withdrawn = dict.fromkeys(range(0, messages, 5), 8.5) if seed % 3 == 0 else {}
        found, _, groups = carried(sends, steps, withdrawn, VaryingFairSharing)
        expected = fluid(sends, steps, withdrawn)
        np.testing.assert_allclose(found, expected, rtol=1e-9, err_msg=f"seed {seed}")
        stars += any(issubclass(group, ProcessorSharingStar) for group in groups.values())
    assert stars > 20


SECONDS = 80
"""Rows begin and end at whole seconds, all of them before that."""
FREE = [1e30] * SECONDS


def over_time(rows, column, pairs, usual):
    """The value of each second: that of the first of `pairs` with a row then, or the usual one."""
    values = list(usual)
    for second in range(SECONDS):
        holding = {
            (row.sender, row.receiver): getattr(row, column)
            for row in rows
            if row.start <= second < row.end and getattr(row, column) is not None
        }
        values[second] = next((holding[pair] for pair in pairs if pair in holding), values[second])
    return values


def crossed(rows, wiring, speeds, own, pair):
    """The links between two nodes and their bandwidths in each second, by the definition of the
    rows.
    """
    sender, receiver = pair
    usual = [[speeds[rank]] * SECONDS for rank in pair]
    up = over_time(rows, "bandwidth", [(sender, None), (None, None)], usual[0])
    down = over_time(rows, "bandwidth", [(None, receiver), (None, None)], usual[1])
    between = None
    if pair in own.pairs and own.bandwidth:
        between = [own.bandwidth] * SECONDS
    if wiring == "pairs":
        return {pair: over_time(rows, "bandwidth", [pair], between or map(min, up, down))}
    link = over_time(rows, "bandwidth", [pair], between or FREE)
    links = {("up", sender): up, pair: link, ("down", receiver): down}
    return {name: values for name, values in links.items() if values != FREE}


def random_changes(rng, ranks):
    """Rows that begin and end at whole seconds, those of the same ends one after another."""
    rows = {}
    for _ in range(rng.integers(1, 6)):
        sender, receiver = rng.choice(ranks, 2, replace=False).tolist()
        ends = [(sender, None), (None, receiver), (None, None), (sender, receiver)]
        ends = ends[rng.integers(4)]
        start = int(rng.integers(0, 10))
        rows[ends] = []
        for _ in range(rng.integers(1, 4)):
            start, end = (start + gap for gap in sorted(rng.choice(9, 2, replace=False).tolist()))
            bandwidth = [None, 0.0, 0.5, 2.0, 7.0][rng.integers(5)]
            latency = None
            if bandwidth is None or rng.integers(2):
                latency = [0.0, 0.5, 2.0][rng.integers(3)]
            for_ever = bandwidth != 0 and rng.integers(6) == 0
            last = math.inf if for_ever else end
            rows[ends].append(Change(*ends, float(start), float(last), bandwidth, latency))
            if for_ever:
                break
            start = end
    return [row for group in rows.values() for row in group]


@pytest.mark.parametrize("wiring", ["cards", "pairs"])
@BLOCKS
def test_any_changing_network_carries_messages_by_its_rows(wiring, block):
    """Rows name pairs, senders, receivers or all nodes, beside individual cards and links."""
    for seed in range(block * 12, block * 12 + 12):
        rng = np.random.default_rng(seed)
        speeds = {SERVER: 9.0, 0: 4.0, 1: 2.0, 2: 4.0, 3: 4.0}
        rows = random_changes(rng, list(speeds))
        own = SlowLink(0, SERVER, 3.0 if seed % 2 else None, 0.25)
        network = Network(
            bandwidth=4.0, latency=1.0, server_latency=1.5, server_bandwidth=9.0,
            cards=[Card(1, 2.0)], links=[own], wiring=wiring, changes=Changes(rows),
        )  # fmt: skip
        steps, flows, sends = {}, [], []
        for moment in sorted(rng.uniform(0, 30, 14).tolist()):
            pair = tuple(rng.choice(list(speeds), 2, replace=False).tolist())
            size = float(rng.uniform(0.5, 12))
            links = crossed(rows, wiring, speeds, own, pair)
            for name, values in links.items():
                seconds = [float(second) for second in range(1, SECONDS)]
                steps.setdefault(name, StepFunction(seconds, values))
            sends.append((moment, *pair, size))
            flows.append((moment, size, tuple(list(steps).index(name) for name in links)))
        expected, by_pair = [], {}
        for send, left in zip(sends, fluid(flows, list(steps.values()), {}), strict=True):
            moment, *pair, _ = send
            sender, receiver = pair = tuple(pair)
            usual, rows_of = 1.5 if sender == SERVER else 1.0, [pair]
            if pair in own.pairs:
                usual = 0.25
            else:
                rows_of += [(sender, None), (None, receiver), (None, None)]
            latency = over_time(rows, "latency", rows_of, [usual] * SECONDS)[int(moment)]
            # no message overtakes those of its pair that left before it
            earlier = by_pair.setdefault(pair, [])
            arrived = max([left + latency, *(there for gone, there in earlier if gone <= left)])
            earlier.append((left, arrived))
            expected.append(arrived)
        found = arrivals(sends, network, Complete(), 4)
        np.testing.assert_allclose(found, expected, rtol=1e-9, err_msg=f"seed {seed}")


REPEATED = Changes(
    [
        Change(start=1.0, end=2.0, bandwidth=BANDWIDTH, latency=0.3),
        Change(0, start=3.0, latency=0.3),
    ]
)
LATER = Changes([Change(start=1e6, bandwidth=1.0, latency=9.0)])


@pytest.mark.parametrize("changes", [REPEATED, LATER], ids=["repeated", "later"])
@pytest.mark.parametrize("wires", WIRES)
@pytest.mark.parametrize("name", ["async_ps", "all_reduce", "sgp", "adpsgd", "gpipe"])
def test_rows_without_effect_yet_change_no_run(name, wires, changes):
    """The runs agree bit for bit. Messages are recorded, since lock-step collectives agree with
    messages only to rounding.
    """
    prints = []
    for rows in (None, changes):
        network = Network(
            bandwidth=BANDWIDTH, latency=0.3, message_bytes=1.0, changes=rows, **wires
        )
        cluster = Cluster(3, Gamma(1.0, 0.6), network=network)
        algorithm, record = ALGORITHMS[name](Rule()), Record(messages=True)
        prints.append(
            fingerprint(simulate(cluster, algorithm, stop=Stop(updates=12), record=record))
        )
    assert prints[0] == prints[1]


@pytest.mark.parametrize("cut", [False, True])
def test_awaited_change_does_not_keep_clock_running(cut):
    """This holds even if a crash loses the messages that it would have changed."""
    changes = Changes([Change(start=5.0, end=1e6, bandwidth=1.0)])
    network = Network(bandwidth=BANDWIDTH, changes=changes)
    traffic = Traffic(network, workers=2, crashes=True)
    for moment in (0.0, 1.0):
        traffic.send(moment, moment, 0, SERVER, 10.0)
    if cut:
        traffic.cut(1.5, 0, [])
    traffic.run()
    assert traffic.env.now == (1.5 if cut else 2.0)


@pytest.mark.parametrize("wires", WIRES)
def test_crash_in_outage_loses_waiting_messages(wires):
    """All links are down from 1 s to 5 s; worker 0 crashes at 2 s."""
    changes = Changes([Change(start=1.0, end=5.0, bandwidth=0.0)])
    network = Network(bandwidth=BANDWIDTH, message_bytes=10.0, changes=changes, **wires)
    cluster = Cluster(2, Gamma(0.1, 0.1), network=network, slowdowns=[Crash(0, at=2.0)])
    algorithm, record = ALGORITHMS["async_ps"](Rule()), Record(messages=True)
    log = simulate(cluster, algorithm, stop=Stop(time=20.0), record=record).message_log
    assert np.count_nonzero(log["status"] == "lost") == 1
    arrived = log["arrived"][(log["status"] == "delivered") & (log["bytes"] > 0)]
    assert (arrived < 20.0).all()
    assert not ((arrived > 1.0) & (arrived < 5.0)).any()


def test_step_function_knows_values_and_their_spans():
    values = {0.0: 5.0, 1.0: 7.0, 2.0: 7.0, 3.0: 0.0}
    steps = StepFunction.sample([3.0, 1.0, 2.0, 0.0, 1.0], values.__getitem__)
    assert (steps.moments, steps.values) == ([1.0, 3.0], [5.0, 7.0, 0.0])
    expected = [(5.0, 1.0), (7.0, 3.0), (7.0, 3.0), (0.0, math.inf)]
    assert [steps.at(time) for time in (0.5, 1.0, 2.9, 3.0)] == expected


ROWS = [
    Change(start=1.0, end=2.0, bandwidth=1.0),
    Change(start=2.0, latency=1.0),
    Change(0, start=1.0, latency=1.0),
]


@pytest.mark.parametrize(
    ("row", "network", "key"),
    [
        (Change(end=1.5, bandwidth=1.0), {}, "changes.0.start"),
        (Change(start=9.0, latency=1.0), {}, "changes.3.start"),
        (Change(-1, latency=1.0), {"colocated": True}, "changes.2.start"),
        (Change(-1, 0, latency=1.0), {"colocated": True}, "changes.3.receiver"),
        (Change(0, 1, latency=1.0), {"sharing": "fifo"}, "changes.0.bandwidth"),
    ],
)
def test_rows_that_do_not_fit_are_refused(row, network, key):
    network = Network(changes=Changes([*ROWS, row]), **network)
    with pytest.raises(InvalidSettingError, match=f"Cluster.network.{key}: expected"):
        Cluster(workers=4, network=network)


def test_changes_are_refused_beside_hosts():
    with pytest.raises(InvalidSettingError, match="changes"):
        Network(changes=Changes(ROWS), hosts=Hosts(2))


def test_latencies_of_queues_may_change():
    changes = Changes([Change(1, 0, start=2.0, latency=3.0)])
    network = Network(bandwidth=4.0, latency=1.0, changes=changes, sharing="fifo")
    sends = [(0.0, 1, 0, 4.0), (3.0, 1, 0, 4.0), (3.0, 2, 0, 4.0)]
    assert arrivals(sends, network, Complete()).tolist() == [2.0, 7.0, 6.0]


@pytest.mark.parametrize("bandwidth", [1.0, 0.0])
def test_evaluations_as_long_as_outage_are_refused(bandwidth):
    changes = Changes([Change(start=1.0, end=1e6, bandwidth=bandwidth)])
    cluster = Cluster(2, network=Network(bandwidth=BANDWIDTH, changes=changes))
    refused = pytest.raises(InvalidSettingError, match="every_seconds: expected")
    with nullcontext() if bandwidth else refused:
        check_periods(Stop(updates=3), Evaluate(every_seconds=1.0), cluster)
