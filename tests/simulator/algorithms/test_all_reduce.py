"""All-reduce SGD: synchronous SGD without a server, by whichever collective."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from laggard.models import Quadratic
from laggard.simulator import (
    Cluster,
    Delayed,
    Evaluate,
    InvalidSettingError,
    Network,
    Rule,
    Stop,
    SyncPS,
    simulate,
)
from laggard.simulator.algorithms.all_reduce import AllReduce
from laggard.simulator.algorithms.collectives import COLLECTIVES
from laggard.simulator.learning.rules import COMPENSATIONS, OPTIMIZERS, SGD, Adam, WarmUp
from laggard.simulator.network.config import Hosts, SlowLink
from laggard.simulator.network.topology import Exponential as ExponentialGraph
from laggard.simulator.network.topology import Ring, Star
from laggard.simulator.timing.distributions import Constant, Exponential, Gamma
from laggard.simulator.timing.slowdowns import Crash, Factor

every = pytest.mark.parametrize("collective", COLLECTIVES)
OPTIMISERS = {name: optimizer() for name, optimizer in OPTIMIZERS.items()} | {
    "momentum": SGD(momentum=0.9)
}
CLUSTER = Cluster(
    5, Gamma(1.0, 0.6), network=Network(bandwidth=50.0, latency=0.01, message_bytes=2.0)
)
UPDATES = 30


def weights_of(cluster, algorithm, task, **more):
    more = {"stop": Stop(updates=UPDATES), "evaluate": Evaluate(every_updates=UPDATES), **more}
    return simulate(cluster, algorithm, task, **more).weights


@pytest.mark.parametrize(
    ("collective", "name", "P"),
    [(collective, "adam", P) for collective in COLLECTIVES for P in (2, 6, 8)]
    + [("ring", name, 6) for name in OPTIMISERS],
)
def test_every_collective_and_every_optimiser_is_the_synchronous_server(
    collective, name, P, quadratic
):
    rule = Rule(OPTIMISERS[name], lr=0.03, schedule=WarmUp(length=2.0, unit="epochs"))
    server = weights_of(Cluster(workers=P, compute=Exponential(1.0)), SyncPS(rule), quadratic)
    network = Network(bandwidth=30.0, latency=0.1)
    reduced = weights_of(
        Cluster(P, Gamma(1.0, 0.5), network=network), AllReduce(rule, collective), quadratic
    )
    torch.testing.assert_close(reduced, server, rtol=1e-12, atol=1e-13)


@every
def test_back_propagation_too(collective, perceptron):
    rule, cluster = Rule(SGD(momentum=0.9), lr=0.1), Cluster(workers=3, compute=Exponential(1.0))
    server = weights_of(cluster, SyncPS(rule), perceptron)
    torch.testing.assert_close(
        weights_of(cluster, AllReduce(rule, collective), perceptron), server, rtol=1e-12, atol=1e-13
    )


@every
def test_rounds_do_not_mix_where_a_node_is_a_round_ahead(collective, quadratic):
    """What node 0 sends reaches node 1 late: on the mesh, node 2 is in the next round by then, and
    sends its next.
    """
    slow = Network(
        links=[SlowLink(0, 1, latency=5.0, both=False), SlowLink(2, 0, latency=2.0)], latency=0.01
    )
    rule, cluster = Rule(lr=0.1), Cluster(workers=4, compute=Gamma(1.0, 0.5))
    reduced = weights_of(replace(cluster, network=slow), AllReduce(rule, collective), quadratic)
    torch.testing.assert_close(
        reduced, weights_of(cluster, SyncPS(rule), quadratic), rtol=1e-12, atol=1e-13
    )


@pytest.mark.parametrize("name", COMPENSATIONS)
def test_every_compensation_is_the_synchronous_servers(name, quadratic):
    """One over N divides the mean gradient; the others find it fresh."""
    compensation = COMPENSATIONS[name](**({"workers": 4} if name == "one_over_n" else {}))
    rule, cluster = (
        Rule(lr=0.1, compensation=compensation),
        Cluster(workers=4, compute=Exponential(1.0)),
    )
    reduced = weights_of(cluster, AllReduce(rule), quadratic)
    torch.testing.assert_close(
        reduced, weights_of(cluster, SyncPS(rule), quadratic), rtol=1e-12, atol=1e-13
    )
    plain = weights_of(
        cluster, AllReduce(replace(rule, compensation=COMPENSATIONS["none"]())), quadratic
    )
    assert torch.equal(reduced, plain) == (name != "one_over_n")


@every
def test_one_worker_is_plain_sgd(collective, quadratic):
    rule, one = Rule(OPTIMISERS["adam"], lr=0.03), Cluster(workers=1, compute=Exponential(1.0))
    assert torch.equal(
        weights_of(one, AllReduce(rule, collective), quadratic),
        weights_of(one, Delayed(rule), quadratic),
    )


@every
def test_the_nodes_models_never_drift_apart(collective):
    nodes = []

    class Seen(AllReduce):
        def worker(self, node):
            nodes.append(node)
            return super().worker(node)

    task = Quadratic(dim=7, noise=1.0, condition=30.0)
    outcome = simulate(
        CLUSTER, Seen(Rule(OPTIMISERS["adam"]), collective), task, stop=Stop(updates=40)
    )
    assert outcome.progress.updates == 40
    assert len(nodes) == CLUSTER.workers
    assert all(torch.equal(node.weights, nodes[0].weights) for node in nodes)


@every
def test_every_gradient_is_fresh_and_applied_and_every_message_accounted_for(collective):
    outcome = simulate(
        CLUSTER, AllReduce(Rule(lr=0.1), collective), Quadratic(noise=0.1), stop=Stop(updates=40)
    )
    assert outcome.gradients["applied"] == 40 * CLUSTER.workers
    assert outcome.gradients["dropped"] == outcome.gradients["cancelled"] == 0
    assert (
        0
        <= outcome.gradients["in flight"]
        == outcome.gradients["started"] - outcome.gradients["applied"]
    )
    assert outcome.gradients["in flight"] <= CLUSTER.workers
    assert (outcome.updates["staleness"] == 0).all()
    sent, *ends = outcome.messages.values()
    assert sum(ends) == sent
    assert outcome.messages["lost"] == 0
    assert outcome.progress.samples == 40 * CLUSTER.workers
    spent = outcome.workers
    np.testing.assert_allclose(
        spent["computing"] + spent["sending"] + spent["waiting"], outcome.progress.time
    )


@every
def test_an_ensemble_is_its_members_and_late_evaluation_is_evaluation(collective, quadratic):
    lr = torch.tensor([[0.01], [0.05]], dtype=torch.float64)
    together = weights_of(CLUSTER, AllReduce(Rule(lr=lr), collective), quadratic, ensemble=2)
    for member, value in enumerate([0.01, 0.05]):
        for defer in (True, False):
            alone = weights_of(
                CLUSTER, AllReduce(Rule(lr=value), collective), quadratic, defer=defer
            )
            assert torch.equal(together[member : member + 1], alone)


@pytest.mark.parametrize("slower", [1, 3, 8])
def test_one_straggler_holds_everyone(slower):
    """P workers, one of them s times slower, on a free network: P / s times as many mini-batches as
    one worker.
    """
    P, updates = 16, 20
    cluster = Cluster(workers=P, compute=Constant(0.5), slowdowns=[Factor(worker=3, factor=slower)])
    outcome = simulate(cluster, AllReduce(Rule()), stop=Stop(updates=updates))
    assert outcome.progress.time == pytest.approx(0.5 * slower * updates)
    assert 0.5 * outcome.progress.gradients / outcome.progress.time == pytest.approx(P / slower)


def test_the_collective_comes_after_the_slowest():
    alpha, beta, n, P, updates = 0.1, 0.02, 10.0, 8, 5
    network = Network(bandwidth=1 / beta, latency=alpha, message_bytes=n)
    cluster = Cluster(P, Constant(1.0), [Factor(worker=2, factor=4.0)], network=network)
    outcome = simulate(cluster, AllReduce(Rule(), "recursive_doubling"), stop=Stop(updates=updates))
    assert outcome.progress.time == pytest.approx(
        updates * (4.0 + 3 * (alpha + n * beta)), rel=1e-9
    )


@pytest.mark.parametrize("g", [1, 4, 8])
@pytest.mark.parametrize("slower", [0.5, 2.0])
@pytest.mark.parametrize("beta", [0.02, 0.0])
def test_a_ring_over_hosts_goes_at_the_pace_of_its_slowest_link(g, slower, beta):
    """Each of the 2 (P - 1) steps takes N / P bytes inside a host of g, where g > 1, and between
    hosts, where g < P.
    """
    alpha, n, P, inner = 0.1, 10.0, 8, slower * 0.02
    hosts = Hosts(g, bandwidth=1 / inner, latency=slower * alpha)
    network = Network(
        bandwidth=1 / beta if beta else np.inf, latency=alpha, message_bytes=n, hosts=hosts
    )
    inside, across = slower * alpha + n / P * inner, alpha + n / P * beta
    step = max(inside * (g > 1), across * (g < P))
    outcome = simulate(
        Cluster(P, Constant(1.0), network=network), AllReduce(Rule()), stop=Stop(updates=1)
    )
    assert outcome.progress.time == pytest.approx(1.0 + 2 * (P - 1) * step, rel=1e-9)


@every
@pytest.mark.parametrize("at", [0.5, 1.1, 2.6])
def test_a_node_that_crashed_is_missed_for_ever_and_nobody_goes_on_with_half_a_sum(collective, at):
    """Computing, sending or waiting, and back at once: what it had sent of its gradient is not
    mixed with another's.
    """
    applied = {}

    class Noted(AllReduce):
        def worker(self, node):
            apply = node.apply

            def noted(weights, gradients):
                applied.setdefault(node.version, []).append(weights)
                apply(weights, gradients)

            node.apply = noted
            return super().worker(node)

    network = Network(bandwidth=4.0, latency=0.05, message_bytes=2.0)
    slowdowns = [Factor(worker=3, factor=1.5), Crash(worker=1, at=at, back=at + 0.01)]
    cluster = Cluster(workers=4, compute=Constant(1.0), slowdowns=slowdowns, network=network)
    outcome = simulate(
        cluster, Noted(Rule(), collective), Quadratic(dim=6, noise=1.0), stop=Stop(updates=12)
    )
    assert outcome.reached == "stalled"
    assert "node 1 is back and not readmitted" in outcome.stalled
    assert all(torch.equal(weights, models[0]) for models in applied.values() for weights in models)


def test_one_node_alone_goes_on_after_a_crash(quadratic):
    cluster = Cluster(workers=1, slowdowns=[Crash(worker=0, at=2.5, back=4.0)])
    outcome = simulate(cluster, AllReduce(Rule()), quadratic, stop=Stop(updates=6))
    assert outcome.reached == "updates"


@pytest.mark.parametrize(
    ("collective", "topology", "refused"),
    [
        ("ring", Ring(), False),
        ("naive_ring", Ring(), False),
        ("ring", ExponentialGraph(), False),
        ("recursive_doubling", Ring(), True),
        ("mesh", Ring(), True),
        ("tree", ExponentialGraph(), True),
        ("ring", Star(), True),
    ],
)
def test_a_collective_runs_where_its_messages_can_go(collective, topology, refused):
    cluster, algorithm = (
        Cluster(workers=8, network=Network(topology=topology)),
        AllReduce(Rule(), collective),
    )
    if refused:
        with pytest.raises(
            InvalidSettingError,
            match=rf"topology: expected auto.* or .*sends from \d to \d, got '{type(topology).__name__.lower()}'",
        ):
            simulate(cluster, algorithm, stop=Stop(updates=1))
    else:
        assert simulate(cluster, algorithm, stop=Stop(updates=3)).progress.updates == 3


def test_an_unknown_collective_is_refused():
    with pytest.raises(InvalidSettingError, match="collective: expected ring, naive_ring"):
        AllReduce(Rule(), "star")


@pytest.mark.parametrize("wrong", [{"bucket_bytes": 0.0}, {"backward": -1.0}, {"ring_slices": 0}])
def test_a_number_out_of_its_range_is_refused(wrong: dict[str, float]) -> None:
    (key,) = wrong
    with pytest.raises(InvalidSettingError, match=rf"AllReduce\.{key}: expected a number >"):
        AllReduce(Rule(), **wrong)


@pytest.mark.parametrize(
    ("collective", "key", "number", "expected"),
    [
        ("tree", "ring_slices", 2, "1 where collective is not ring"),
        ("ring", "servers", 2, "1 where collective is not server"),
        ("ring", "ring_slices", 1025, "at most 1024"),
        ("server", "servers", 5, "at most 4 workers"),
    ],
)
def test_a_key_of_another_collective_is_refused(collective, key, number, expected):
    with pytest.raises(InvalidSettingError, match=f"{key}: expected {expected}, got {number}"):
        simulate(
            Cluster(workers=4), AllReduce(Rule(), collective, **{key: number}), stop=Stop(updates=1)
        )


def test_slices_are_refused_where_they_would_hide_nothing():
    with pytest.raises(
        InvalidSettingError, match=r"sharing: expected fifo for a ring in slices.*, got 'fair'"
    ):
        simulate(Cluster(workers=4), AllReduce(Rule(), ring_slices=2), stop=Stop(updates=1))


@pytest.mark.parametrize("more", [{"collective": "server", "servers": 3}, {"ring_slices": 4}])
@pytest.mark.parametrize("buckets", [None, 100.0])
def test_servers_and_slices_learn_what_a_synchronous_server_learns(more, buckets):
    cluster = Cluster(
        5, Gamma(1.0, 0.5), network=Network(bandwidth=1e3, latency=0.1, sharing="fifo")
    )
    task, stop = Quadratic(dim=50, noise=0.1, dtype=torch.float64), Stop(updates=12)
    server = simulate(cluster, SyncPS(Rule(Adam())), task, stop=stop).weights
    reduced = simulate(
        cluster, AllReduce(Rule(Adam()), bucket_bytes=buckets, **more), task, stop=stop
    ).weights
    torch.testing.assert_close(reduced, server, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("wiring", ["cards", "pairs"])
def test_slices_hide_the_latency_of_cards_and_of_private_links(wiring):
    """Seven of eight chunks go round twice, in four slices; the latency of 0.01 is less than three
    slices take.
    """
    network = Network(bandwidth=1.0, latency=0.01, message_bytes=0.5, sharing="fifo", wiring=wiring)
    outcome = simulate(
        Cluster(8, Constant(1.0), network=network),
        AllReduce(Rule(), ring_slices=4),
        stop=Stop(updates=1),
    )
    assert outcome.progress.time == pytest.approx(1 + 2 * 7 / 8 * 0.5 + 0.01)


@pytest.mark.parametrize("g", [2, 3])
def test_a_sum_over_hosts_is_the_synchronous_servers(g, quadratic):
    """Three hosts of two workers and two of three: a part goes on more than once, across or
    inside.
    """
    rule, cluster = Rule(Adam(), lr=0.03), Cluster(6, Gamma(1.0, 0.5))
    hosts = replace(cluster, network=Network(hosts=Hosts(g)))
    reduced = weights_of(hosts, AllReduce(rule, "hierarchical"), quadratic)
    torch.testing.assert_close(
        reduced, weights_of(cluster, SyncPS(rule), quadratic), rtol=1e-12, atol=1e-13
    )


def test_a_sum_over_hosts_needs_hosts():
    with pytest.raises(
        InvalidSettingError, match="hosts: expected the hosts, or groups of equal size"
    ):
        simulate(Cluster(workers=4), AllReduce(Rule(), "hierarchical"), stop=Stop(updates=1))
