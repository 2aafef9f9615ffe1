"""All-reduce SGD: synchronous SGD without a server, by whichever collective."""

from dataclasses import replace

import pytest
import torch

from laggard.models import Quadratic
from laggard.simulator import (
    Cluster,
    Evaluate,
    Network,
    Rule,
    Stop,
    SyncPS,
    simulate,
)
from laggard.simulator.algorithms.all_reduce import AllReduce
from laggard.simulator.algorithms.collectives import COLLECTIVES
from laggard.simulator.algorithms.contrib.priority_all_reduce import PriorityAllReduce
from laggard.simulator.engine.rounds import Rounds
from laggard.simulator.learning.rules import COMPENSATIONS, SGD, Adam
from laggard.simulator.network.config import SlowLink
from laggard.simulator.timing.distributions import Constant, Exponential, Gamma
from laggard.simulator.timing.slowdowns import Crash, Factor

every = pytest.mark.parametrize("collective", COLLECTIVES)
UPDATES = 30


def weights_of(cluster, algorithm, task, **more):
    more = {"stop": Stop(updates=UPDATES), "evaluate": Evaluate(every_updates=UPDATES), **more}
    return simulate(cluster, algorithm, task, **more).weights


@every
def test_rounds_do_not_mix_where_node_is_ahead(collective, quadratic, monkeypatch):
    """What node 0 sends reaches node 1 late: on the mesh, node 2 is in the next round by then, and
    sends its next. In lock step there are no messages that could mix.
    """
    monkeypatch.setattr(Rounds, "apply_to", staticmethod(lambda _: False))
    links = [SlowLink(0, 1, latency=5.0, both=False), SlowLink(2, 0, latency=2.0)]
    rule, cluster = Rule(lr=0.1), Cluster(workers=4, compute=Gamma(1.0, 0.5))
    slow = replace(cluster, network=Network(links=links, latency=0.01))
    stop = Stop(updates=8)
    reduced = weights_of(slow, AllReduce(rule, collective), quadratic, stop=stop)
    server = weights_of(cluster, SyncPS(rule), quadratic, stop=stop)
    torch.testing.assert_close(reduced, server, rtol=1e-12, atol=1e-13)


# `rescaled` compares the times of a server's workers; a node without a server knows its own alone.
@pytest.mark.parametrize("name", sorted(set(COMPENSATIONS) - {"rescaled"}))
def test_compensation_matches_synchronous_server(name, quadratic):
    compensation = COMPENSATIONS[name](**({"workers": 4} if name == "one_over_n" else {}))
    rule = Rule(lr=0.1, compensation=compensation)
    cluster = Cluster(workers=4, compute=Exponential(1.0))
    reduced = weights_of(cluster, AllReduce(rule), quadratic)
    server = weights_of(cluster, SyncPS(rule), quadratic)
    torch.testing.assert_close(reduced, server, rtol=1e-12, atol=1e-13)


@every
@pytest.mark.parametrize("bucket_bytes", [None, 0.5])
@pytest.mark.parametrize("at", [0.2, 0.7, 1.1, 2.6])
def test_all_stall_with_same_models_after_crash(collective, bucket_bytes, at):
    """A node crashes while it computes, sends or waits, and returns at once. No part of its lost
    gradient enters another sum.
    """
    applied = {}

    class Noted(AllReduce):
        def worker(self, node):
            apply = node.apply

            def noted(weights, gradients, state=None):
                applied.setdefault(node.version, []).append(weights)
                apply(weights, gradients, state)

            node.apply = noted
            return super().worker(node)

    network = Network(bandwidth=4.0, latency=0.05, message_bytes=2.0)
    slowdowns = [Factor(worker=3, factor=1.5), Crash(worker=1, at=at, back=at + 0.01)]
    cluster = Cluster(workers=4, compute=Constant(1.0), slowdowns=slowdowns, network=network)
    algorithm = Noted(Rule(SGD(), lr=0.01), collective, bucket_bytes=bucket_bytes)
    outcome = simulate(cluster, algorithm, Quadratic(dim=6, noise=1.0), stop=Stop(updates=12))
    assert outcome.reached == "stalled"
    assert "node 1" in outcome.stalled
    assert all(torch.equal(weights, models[0]) for models in applied.values() for weights in models)


@pytest.mark.parametrize("method", [AllReduce, PriorityAllReduce])
def test_node_alone_goes_on_after_crash(method, quadratic):
    cluster = Cluster(workers=1, slowdowns=[Crash(worker=0, at=2.5, back=4.0)])
    outcome = simulate(cluster, method(Rule()), quadratic, stop=Stop(updates=5))
    assert outcome.progress.time == pytest.approx(4.0 + 3)


@pytest.mark.parametrize("more", [{"collective": "server", "servers": 3}, {"ring_slices": 4}])
@pytest.mark.parametrize("buckets", [None, 100.0])
def test_servers_and_slices_learn_as_synchronous_server(more, buckets):
    network = Network(bandwidth=1e3, latency=0.1, sharing="fifo")
    cluster = Cluster(5, Gamma(1.0, 0.5), network=network)
    task = Quadratic(dim=50, noise=0.1, dtype=torch.float64)
    server = weights_of(cluster, SyncPS(Rule(Adam())), task)
    reduced = weights_of(cluster, AllReduce(Rule(Adam()), bucket_bytes=buckets, **more), task)
    torch.testing.assert_close(reduced, server, rtol=1e-12, atol=1e-12)
