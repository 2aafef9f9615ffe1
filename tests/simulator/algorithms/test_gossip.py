"""Gossip in step: schedules, the record of averages, and what is refused."""

from functools import partial

import pytest
import torch

from laggard.models import Quadratic
from laggard.simulator import (
    ALGORITHMS,
    CHOCO,
    D2,
    MATCHA,
    Cluster,
    Delayed,
    GradientTracking,
    Network,
    QGDSGDm,
    RelaySGD,
    Rule,
    Stop,
    Timing,
    simulate,
)
from laggard.simulator.algorithms.gossip import DPSGD
from laggard.simulator.algorithms.pipelines import GPipe, Naive, PipeDream
from laggard.simulator.algorithms.push_sum import SGP
from laggard.simulator.learning.rules import SGD, WarmUp
from laggard.simulator.network.topology import Exponential as ExponentialGraph
from laggard.simulator.network.topology import Ring
from laggard.simulator.timing.distributions import Gamma
from tests.simulator.algorithms.observing import Observed

LR = 0.1


def adapt(rule):
    return DPSGD(rule, "adapt_then_combine")


def overlapped(rule):
    return SGP(rule, overlap=2)


def on(graph, workers):
    """A cluster of uneven workers on a slow network."""
    network = Network(topology=graph, bandwidth=20.0, latency=0.05, message_bytes=2.0)
    return Cluster(workers=workers, compute=Gamma(1.0, 0.6), network=network)


MIXINGS = [
    (DPSGD, 1),
    (adapt, 0),
    *((method, 0) for method in (GradientTracking, D2, QGDSGDm, RelaySGD, MATCHA, CHOCO)),
]


@pytest.mark.parametrize(("algorithm", "mixings"), MIXINGS)
def test_gradients_are_fresh_and_count_mixings(algorithm, mixings, quadratic):
    """Only where a node combines first, an average comes between a gradient's read and its step."""
    rows = simulate(
        on(Ring(), 5), algorithm(Rule(lr=0.01)), quadratic, stop=Stop(updates=20)
    ).updates
    assert set(rows["staleness"]) == {0}
    assert set(rows["mixings"]) == {mixings}
    assert (rows["target"] == rows["worker"]).all()


GOSSIP = [
    kind for kind in ALGORITHMS.values() if isinstance(kind.topology, Ring | ExponentialGraph)
]


PIPELINES = [Naive, partial(GPipe, micro_batches=1), PipeDream]


@pytest.mark.parametrize("algorithm", [*GOSSIP, adapt, overlapped, *PIPELINES])
def test_single_node_is_plain_sgd(algorithm, quadratic):
    """Of quasi-global momentum it is SGD without momentum. A pipeline of one stage is a node too."""
    momentum = 0.0 if algorithm is QGDSGDm else 0.9
    cluster, rule = Cluster(workers=1), Rule(SGD(momentum), lr=LR)
    one, other = (
        simulate(cluster, method(rule), quadratic, stop=Stop(updates=30))
        for method in (algorithm, Delayed)
    )
    assert torch.equal(one.weights, other.weights)
    assert one.progress.time == pytest.approx(other.progress.time, rel=1e-9)


STEPS = [DPSGD, adapt, SGP, overlapped, GradientTracking, D2, MATCHA, CHOCO]


@pytest.mark.parametrize("algorithm", STEPS)
def test_schedule_counts_epochs_of_cluster(algorithm):
    """Each of P nodes applies one gradient in P, and yet a warm-up has come as far as at a server.

    An overlapped run may end in the midst of an exchange, with one of the four nodes' last steps
    counted twice.
    """
    # every gradient is 1, or nearly
    task = Quadratic(curvature=1e-9, initial=1e9, epoch=40, dtype=torch.float64)
    rule = Rule(lr=1.0, schedule=WarmUp(length=3.0))
    run = simulate(Cluster(workers=4), algorithm(rule), task, stop=Stop(epochs=2))
    assert run.progress.epochs == 2
    moved = 1e9 - run.weights.item()
    error = 0.03 if algorithm is overlapped else 1e-6
    assert moved == pytest.approx(sum(k * 0.1 / 3 for k in range(20)), rel=error)


def test_long_run_keeps_no_tags():
    """Every step has its own tag; a tag that no node waits for is removed."""
    seen = Observed(on(Ring(), 4), DPSGD(Rule()), Timing(), Stop(updates=100))
    for node in seen.nodes.values():
        assert len(node.mailbox.mail) + len(node.mailbox._receives) <= 3
