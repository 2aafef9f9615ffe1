"""Rounds in lock step: times computed at once are those of messages."""

import math
import os
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from laggard.models import Quadratic
from laggard.simulator import (
    AllReduce,
    Cluster,
    Deadlock,
    Evaluate,
    Network,
    Rule,
    Stop,
    Timing,
    simulate,
)
from laggard.simulator.algorithms.collectives import COLLECTIVES, Collective
from laggard.simulator.engine.rounds import Rounds
from laggard.simulator.network import hops
from laggard.simulator.network.changes import Change, Changes
from laggard.simulator.network.config import Card, SlowLink
from laggard.simulator.network.groups import Groups, Trunk
from laggard.simulator.recording.messages import Record
from laggard.simulator.timing.distributions import Constant, Exponential, Gamma, Uniform
from laggard.simulator.timing.slowdowns import Crash, Factor, Window

WHOLE = ("worker", "target", "version_read", "version", "staleness", "mixings", "status")
FEW, MANY = 8, int(os.environ.get("LAGGARD_CASES", "2100")) // 6
QUADRATIC = Quadratic(dim=7, noise=0.3, epoch=20, dtype=torch.float64)

COIN, SPEED, BYTES = st.booleans(), st.floats(1.0, 1e4), st.just(0.0) | st.floats(1e-6, 1e3)
"""A transfer that takes less than the clock resolves ends in its own instant, before or after
others of that one.
"""
LAWS = st.one_of(
    st.sampled_from([Constant(1.0), Constant(0.3), Uniform(0.5, 1.5), Exponential(2.0)]),
    st.builds(Exponential, st.floats(1e-3, 10.0)),
    st.builds(Gamma, st.floats(1e-3, 10.0), st.floats(0.05, 2.0)),
)
WORKERS = st.one_of(st.integers(2, 5), st.integers(6, 12))
LATENCIES = st.floats(0.0, 1.0).map(lambda latency: 0.97 * latency)
"""None is a compute time above: the order of what was begun in one instant and ends in another is
that of messages, but not where an end of work and a message coincide so in both.
"""
STOPS = st.one_of(
    st.builds(Stop, updates=st.integers(1, 6)),
    st.builds(Stop, gradients=st.integers(1, 40)),
    st.builds(Stop, epochs=st.floats(0.05, 2.0), gradients=st.just(60)),
    st.builds(Stop, time=st.floats(0.1, 10.0), gradients=st.just(60)),
)


def network(draw, workers, rotates):
    """A network on which no two messages of a collective share a link."""
    pairs, limited = draw(COIN), draw(COIN)
    pairs = pairs or (limited and not rotates)
    links = []
    if draw(st.integers(0, 2)) == 0:
        ranks = draw(st.permutations(range(workers)))[:2]
        links = [
            SlowLink(
                *ranks,
                bandwidth=draw(SPEED) if draw(COIN) else None,
                latency=draw(LATENCIES),
                both=draw(COIN),
            )
        ]
    return Network(
        bandwidth=draw(SPEED) if limited else math.inf,
        latency=draw(LATENCIES),
        sharing=draw(st.sampled_from(["fair", "fifo"])),
        message_bytes=draw(BYTES),
        wiring="pairs" if pairs else "cards",
        cards=[Card(draw(st.integers(0, workers - 1)), draw(SPEED))]
        if limited and draw(COIN)
        else [],
        links=links,
        rendezvous=draw(COIN),
    )


def cluster_of(draw, rotates):
    workers = draw(WORKERS)
    rank = draw(st.integers(0, workers - 1))
    slow = [Factor(rank, factor=draw(st.sampled_from([0.5, 2.0, 3.7])))] if draw(COIN) else []
    if draw(st.integers(0, 3)) == 0:
        slow.append(Window(rank, factor=4.0, start=1.0, end=7.0))
    return Cluster(workers, draw(LAWS), slow, network=network(draw, workers, rotates))


def both(cluster, algorithm, task=None, **more):
    """The outcome of the recurrence, and that of messages."""
    with pytest.MonkeyPatch.context() as patch:
        computed = simulate(cluster, algorithm, task, **more)
        patch.setattr(Rounds, "apply_to", staticmethod(lambda *_, **__: False))
        return computed, simulate(cluster, algorithm, task, **more)


def check_same(computed, sent):
    """Whole numbers and weights are equal, and seconds to 1e-12 of the whole time."""
    end = sent.progress.time
    close = partial(np.testing.assert_allclose, rtol=1e-12, atol=1e-12 * end)
    for name in WHOLE:
        np.testing.assert_array_equal(computed.updates[name], sent.updates[name], err_msg=name)
    for name in ("time", "started", "computed"):
        close(computed.updates[name], sent.updates[name], err_msg=name)
    for name in ("computing", "sending", "waiting", "down"):
        close(computed.workers[name], sent.workers[name], err_msg=name)
    assert computed.messages == sent.messages
    assert computed.gradients == sent.gradients
    assert computed.reached == sent.reached
    assert computed.progress._replace(time=0.0) == sent.progress._replace(time=0.0)
    close(computed.progress.time, end)
    assert torch.equal(computed.weights, sent.weights)
    assert set(computed.metrics) == set(sent.metrics)
    for name, column in computed.metrics.items():
        close(column, sent.metrics[name], err_msg=name)


def storm(cases):
    return settings(
        max_examples=cases,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )


@pytest.mark.parametrize("name", COLLECTIVES)
@storm(FEW)
@given(data=st.data())
def test_recurrence_equals_messages(name, data):
    check_case(data.draw, name)


@pytest.mark.slow
@pytest.mark.parametrize("name", COLLECTIVES)
@storm(MANY)
@given(data=st.data())
def test_recurrence_equals_messages_in_many_cases(name, data):
    check_case(data.draw, name)


def check_case(draw, name):
    cluster = cluster_of(draw, COLLECTIVES[name].rotates)
    task = draw(st.sampled_from([Timing(), QUADRATIC]))
    evaluate = draw(st.sampled_from([Evaluate(every_updates=2.0), Evaluate(every_seconds=1.5)]))
    more = {"stop": draw(STOPS), "evaluate": evaluate, "seed": draw(st.integers(0, 2**31))}
    buckets = draw(st.sampled_from([None, 1e-3, 40.0, 250.0]))
    check_same(*both(cluster, AllReduce(Rule(lr=0.05), name, bucket_bytes=buckets), task, **more))


@pytest.mark.parametrize("buckets", [0.001, 0.1, 0.5])
def test_messages_of_one_instant_come_as_sent(buckets):
    """With a slow card, bytes that are sent at several moments arrive in one instant."""
    network = Network(
        bandwidth=8.0,
        latency=0.485,
        message_bytes=1.0,
        wiring="pairs",
        cards=[Card(2, 1.0)],
        links=[SlowLink(2, 0, latency=0.0, both=False)],
    )
    slow = [Window(0, factor=4.0, start=1.0, end=7.0)]
    cluster = Cluster(4, Constant(1.0), slow, network=network)
    algorithm = AllReduce(Rule(lr=0.05), "recursive_doubling", bucket_bytes=buckets)
    check_same(*both(cluster, algorithm, Timing(), stop=Stop(updates=1)))


PRIVATE = {"bandwidth": 10.0, "latency": 0.1, "message_bytes": 2.0, "wiring": "pairs"}
NETWORKS = {
    "free": Network(latency=0.05),
    "private": Network(**PRIVATE, sharing="fifo"),
    "private, uneven": Network(
        **PRIVATE, cards=[Card(1, 5.0)], links=[SlowLink(0, 1, bandwidth=3.0, latency=0.3)]
    ),
}

CARDS = Network(bandwidth=10.0, message_bytes=1.0)
HALVES = Groups(2, trunks=[Trunk([0], 1, 0.5, latency=0.25)])


@pytest.mark.parametrize("sharing", ["fair", "fifo"])
@pytest.mark.parametrize("P", [2, 5, 8])
@pytest.mark.parametrize("name", ["ring", "naive_ring"])
def test_equal_nodes_go_on_in_order_of_messages(name, P, sharing):
    network = Network(bandwidth=8.0, latency=0.25, message_bytes=P, sharing=sharing)
    stop = Stop(updates=3)
    check_same(*both(Cluster(P, network=network), AllReduce(Rule(), name), Timing(), stop=stop))


@pytest.mark.parametrize(
    ("collective", "more", "applies"),
    [
        ("ring", {}, True),
        ("tree", {"network": NETWORKS["free"]}, True),
        ("mesh", {"network": NETWORKS["private, uneven"]}, True),
        ("naive_ring", {"network": CARDS}, True),
        ("naive_ring", {"network": replace(CARDS, cards=[Card(0, 1.0)])}, False),
        ("tree", {"network": CARDS}, False),
        ("ring", {"network": Network(latency=Constant(0.1))}, False),
        ("ring", {"network": Network(changes=Changes([Change(start=50.0, latency=1.0)]))}, False),
        ("mesh", {"network": replace(CARDS, groups=HALVES)}, False),
        ("hierarchical", {"network": replace(CARDS, groups=HALVES)}, False),
        ("ring", {"slowdowns": [Crash(0, at=50.0)]}, False),
        ("ring", {"ties": "random"}, False),
    ],
)
def test_lock_step_needs_links_of_one_message(collective, more, applies, monkeypatch):
    sent, right = [], Collective.by_messages

    def noted(self, *arguments):
        sent.append(self)
        return right(self, *arguments)

    monkeypatch.setattr(Collective, "by_messages", noted)
    simulate(Cluster(4, **more), AllReduce(Rule(), collective), stop=Stop(updates=2))
    assert (not sent) == applies


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("collective", COLLECTIVES)
def test_record_of_messages_changes_nothing(collective, network):
    cluster, given = (
        Cluster(5, Gamma(0.5, 0.6), network=NETWORKS[network]),
        {"stop": Stop(updates=4)},
    )
    algorithm = AllReduce(Rule(lr=0.05), collective)
    recorded = simulate(cluster, algorithm, QUADRATIC, record=Record(messages=True), **given)
    assert len(recorded.message_log["sent"]) == recorded.messages["sent"] > 0
    check_same(simulate(cluster, algorithm, QUADRATIC, **given), recorded)


def test_many_nodes_take_seconds_of_closed_form():
    """One straggler among 600 nodes on private links, in fewer seconds than 718,800 messages
    take.
    """
    P, n, beta, alpha = 600, 1e3, 1e-3, 1e-4
    network = Network(
        bandwidth=1 / beta, latency=alpha, message_bytes=n, wiring="pairs", rendezvous=True
    )
    cluster = Cluster(P, Constant(1.0), [Factor(7, factor=3.0)], network=network)
    outcome = simulate(cluster, AllReduce(Rule()), stop=Stop(updates=2))
    round_seconds = 3.0 + 2 * (P - 1) * alpha + 2 * (P - 1) / P * n * beta
    assert outcome.progress.time == pytest.approx(2 * round_seconds, rel=1e-12)
    assert outcome.messages["sent"] == outcome.messages["delivered"] == 4 * P * (P - 1)


def test_places_in_instant_are_renumbered_in_long_ring():
    """Each step doubles them: in 2 x 39 steps they would exceed 64 bits."""
    network = Network(latency=0.1, links=[SlowLink(0, 1, latency=0.4)])
    check_same(
        *both(
            Cluster(40, Exponential(1.0), network=network), AllReduce(Rule()), stop=Stop(updates=1)
        )
    )


def test_mesh_has_more_routes_than_cache(monkeypatch):
    monkeypatch.setattr(hops, "MAX_ROUTES", 4)
    cluster = Cluster(12, Exponential(1.0), network=NETWORKS["private, uneven"])
    check_same(*both(cluster, AllReduce(Rule(), "mesh"), stop=Stop(updates=2)))


def test_deadlock_names_nodes_missing_in_round():
    class Leaves(AllReduce):
        def worker(self, node):
            if node.rank:
                yield from super().worker(node)
            yield node.work(1.0)

    with pytest.raises(Deadlock, match=r"round 0 of a collective waits for nodes \[0\]"):
        simulate(Cluster(3), Leaves(Rule()), stop=Stop(updates=2))
