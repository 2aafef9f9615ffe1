"""D-PSGD: against a loop over matrices, its limits, its times; and what the lock-step methods of
gossip share.
"""

import math
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

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
    Timing,
    simulate,
)
from laggard.simulator.algorithms.gossip import DPSGD
from laggard.simulator.algorithms.push_sum import SGP
from laggard.simulator.learning.rules import SGD, Adam, Nesterov, WarmUp
from laggard.simulator.network.mixing import matrix
from laggard.simulator.network.topology import Complete, Graph, Ring, Star, Torus
from laggard.simulator.network.topology import Exponential as ExponentialGraph
from laggard.simulator.testing import IDENTITIES, trial_of
from laggard.simulator.timing.distributions import Constant, Exponential, Gamma
from laggard.simulator.timing.slowdowns import Factor
from laggard.simulator.timing.streams import BATCHES, stream

LR = 0.1
ORDERS = ["combine_then_adapt", "adapt_then_combine"]


def adapt(rule, mixing="metropolis"):
    return DPSGD(rule, "adapt_then_combine", mixing)


def overlapped(rule):
    return SGP(rule, overlap=2)


LINEAR = {"sgd": SGD(), "momentum": SGD(momentum=0.9), "nesterov": Nesterov(momentum=0.8)}
TORCH = {
    "sgd": (SGD(), lambda p: torch.optim.SGD(p, LR)),
    "momentum": (SGD(momentum=0.9), lambda p: torch.optim.SGD(p, LR, momentum=0.9)),
    "adam": (Adam(), lambda p: torch.optim.Adam(p, LR)),
}


def on(graph, workers, **more):
    """A cluster of uneven workers on a slow network, unless said otherwise."""
    compute = more.pop("compute", Gamma(1.0, 0.6))
    network = Network(
        topology=graph, **({"bandwidth": 20.0, "latency": 0.05, "message_bytes": 2.0} | more)
    )
    return Cluster(workers=workers, compute=compute, network=network)


def loop(task, W, optimiser, order, steps):
    """D-PSGD as a matrix times models, one optimiser of torch's a node: all models after each
    node's step.
    """
    P = len(W)
    X = [torch.nn.Parameter(task.start([0])) for _ in range(P)]
    optimisers = [optimiser([x]) for x in X]
    batches = [task.batches(rank, [stream(0, BATCHES, rank)]) for rank in range(P)]
    stepped = []

    def mix():
        mixed = [sum(W[i, j] * X[j].detach() for j in range(P)) for i in range(P)]
        for x, value in zip(X, mixed, strict=True):
            x.data = value

    for _ in range(steps):
        for x, own in zip(X, batches, strict=True):
            x.grad = task.gradients(x.detach()[None], [next(own)])[0][0]
        if order == "combine_then_adapt":
            mix()
        for each in optimisers:
            each.step()
        stepped.append([x.detach().clone() for x in X])
        if order == "adapt_then_combine":
            mix()
    return stepped


@pytest.mark.parametrize("name", TORCH)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    ("graph", "workers"), [(Ring(), 5), (Torus(), 6), (Graph("star_graph", {"n": 4}), 5)], ids=str
)
def test_every_nodes_model_is_that_of_a_loop_over_matrices(
    name, order, graph, workers, quadratic, gossip
):
    """However uneven the workers: a fast neighbour's messages of later steps are kept apart."""
    optimizer, torch_optimiser = TORCH[name]
    algorithm = DPSGD(Rule(optimizer, lr=LR), order=order)
    seen = gossip.observe(on(graph, workers), algorithm, quadratic, Stop(updates=12)).models
    expected = loop(quadratic, matrix("metropolis", graph, 0, workers), torch_optimiser, order, 14)
    assert min(len(models) for models in seen.values()) >= 8
    for rank, models in seen.items():
        for step, model in enumerate(models[:14]):
            torch.testing.assert_close(model, expected[step][rank], rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("algorithm", [partial(adapt, mixing="uniform"), SGP], ids=["dpsgd", "sgp"])
@pytest.mark.parametrize("name", [*LINEAR, "adam"])
def test_on_the_complete_graph_with_equal_weights_it_is_synchronous_if_the_optimiser_is_linear(
    algorithm, name, quadratic
):
    rule = Rule(LINEAR.get(name, Adam()), lr=LR)
    runs = [simulate(on(graph, 4, compute=Constant(1.0)), method(rule), quadratic, stop=Stop(updates=30)).weights
            for graph, method in ((Complete(), algorithm), (Star(), SyncPS))]  # fmt: skip
    if name in LINEAR:
        torch.testing.assert_close(*runs, rtol=1e-12, atol=1e-13)
    else:
        assert (runs[0] - runs[1]).abs().max() > 1e-3


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_push_sum_with_symmetric_weights_is_adapt_then_combine_and_not_combine_then_adapt(
    data, gossip
):
    graph, workers = data.draw(gossip.graphs())
    cluster, rule = (
        on(graph, workers, compute=data.draw(gossip.laws)),
        Rule(SGD(momentum=0.5), lr=LR),
    )
    methods = [
        SGP(rule, mixing="metropolis"),
        *(DPSGD(rule, order=order) for order in reversed(ORDERS)),
    ]
    push_sum, adapt, combine = (
        gossip.observe(cluster, method, gossip.task(), Stop(updates=8)).models for method in methods
    )
    for rank in range(workers):
        for one, other in zip(push_sum[rank], adapt[rank], strict=True):
            torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-13)
    pairs = [
        pair for rank in range(workers) for pair in zip(push_sum[rank], combine[rank], strict=False)
    ]
    assert max((one - other).abs().max() for one, other in pairs) > 1e-3


@pytest.mark.parametrize("P", [5, 8])
@pytest.mark.parametrize("order", ORDERS)
def test_without_gradients_models_approach_each_other_by_the_spectral_gap(P, order, gossip):
    """A ring's second eigenvalue is (1 + 2 cos(2 pi / P)) / 3: no step shrinks the distance less,
    late ones just so.
    """
    algorithm = DPSGD(Rule(lr=LR, schedule=gossip.once), order=order)
    cluster = Cluster(workers=P, network=Network(topology=Ring()))
    outcome = simulate(
        cluster, algorithm, gossip.task(), stop=Stop(updates=40), evaluate=Evaluate(every_updates=1)
    )
    consensus = outcome.metrics["consensus"][1:-1]  # it ends before the last average
    eigenvalue = (1 + 2 * math.cos(2 * math.pi / P)) / 3
    ratios = np.array([later / earlier for earlier, later in pairwise(consensus) if earlier > 1e-9])
    assert (ratios <= eigenvalue * (1 + 1e-6)).all()
    assert ratios[-1] == pytest.approx(eigenvalue, rel=1e-6)


@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_the_mean_of_the_models_changes_by_gradients_alone(data, gossip):
    graph, workers = data.draw(gossip.graphs())
    seen = gossip.observe(
        Cluster(workers, network=Network(topology=graph)),
        DPSGD(Rule(lr=LR), order=data.draw(st.sampled_from(ORDERS))),
        gossip.task(),
        Stop(updates=7),
    )
    steps = LR * sum(gradient.value for gradient in seen.applied)
    start = workers * gossip.task().start([0])
    torch.testing.assert_close(seen.total(), start - steps, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("sharing", ["fair", "fifo"])
@pytest.mark.parametrize(("graph", "degree"), [(Ring(), 2), (Complete(), 5)], ids=str)
@pytest.mark.parametrize("compute", [5.0, 0.3])
def test_a_step_takes_the_greater_of_gradient_and_messages_or_both(graph, degree, compute, sharing):
    """On one card: max(t_c, alpha + d N beta) for d neighbours if it sends before it computes, else
    their sum.
    """
    alpha, transfer = 0.125, 0.25
    network = {"bandwidth": 8.0, "latency": alpha, "message_bytes": 2.0, "sharing": sharing}
    cluster = on(graph, 6, compute=Constant(compute), **network)
    messages = alpha + degree * transfer
    for order, period in zip(ORDERS, (max(compute, messages), compute + messages), strict=True):
        times = np.unique(
            simulate(cluster, DPSGD(Rule(), order=order), stop=Stop(updates=20)).updates["time"]
        )
        first = period if order == "combine_then_adapt" else compute
        np.testing.assert_allclose(times, first + period * np.arange(20), rtol=1e-9)


@pytest.mark.parametrize(
    "algorithm", [DPSGD(Rule()), DPSGD(Rule(), "adapt_then_combine"), SGP(Rule())], ids=repr
)
def test_one_slow_worker_holds_up_everybody(algorithm):
    """P / s times the gradients of one worker, once the far ones have run as far ahead as they
    can.
    """
    P, s = 16, 10.0
    cluster = Cluster(workers=P, compute=Constant(1.0), slowdowns=[Factor(worker=0, factor=s)])
    times = simulate(cluster, algorithm, stop=Stop(time=1000.5)).updates["time"]
    assert (times > 500.5).sum() == P / s * 500


@pytest.mark.parametrize(
    ("order", "mixings"), [("combine_then_adapt", 1), ("adapt_then_combine", 0)]
)
def test_no_gradient_is_stale_and_its_mixings_are_those_between_read_and_step(
    order, mixings, quadratic
):
    rows = simulate(
        on(Ring(), 5), DPSGD(Rule(lr=LR), order=order), quadratic, stop=Stop(updates=20)
    ).updates
    assert (rows["staleness"] == 0).all()
    assert (rows["mixings"] == mixings).all()
    assert (rows["target"] == rows["worker"]).all()


@pytest.mark.parametrize("algorithm", [DPSGD, adapt, SGP, overlapped])
def test_a_single_node_is_plain_sgd(algorithm, quadratic):
    cluster, rule = Cluster(workers=1, compute=Exponential(1.0)), Rule(SGD(momentum=0.9), lr=LR)
    runs = [
        simulate(cluster, method(rule), quadratic, stop=Stop(updates=30))
        for method in (algorithm, Delayed)
    ]
    assert torch.equal(runs[0].weights, runs[1].weights)


@pytest.mark.parametrize("algorithm", [DPSGD, adapt, SGP, overlapped])
def test_a_schedule_in_epochs_is_the_clusters(algorithm):
    """Each of P nodes applies one gradient in P, and yet a warm-up has come as far as at a server.

    An overlapped run may end in the midst of an exchange, with one of the four nodes' last steps
    counted twice.
    """
    # every gradient is 1, or nearly
    task = Quadratic(curvature=1e-9, initial=1e9, epoch=40, dtype=torch.float64)
    rule = Rule(lr=1.0, schedule=WarmUp(length=3.0))
    runs = [
        simulate(Cluster(workers=4), method(rule), task, stop=Stop(epochs=2))
        for method in (algorithm, SyncPS)
    ]
    assert runs[0].progress == runs[1].progress
    moved = [1e9 - run.weights.item() for run in runs]
    error = 0.03 if algorithm is overlapped else 1e-6
    assert moved == pytest.approx([sum(k * 0.1 / 3 for k in range(20))] * 2, rel=error)


VARIANTS = {
    "adapt": adapt,
    "overlap": lambda rule: SGP(rule, overlap=3, mixing="uniform"),
    "biased": lambda rule: SGP(rule, overlap=2, biased=True),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_variants_keep_the_identities_of_every_algorithm(name):
    trial = trial_of(VARIANTS[name])
    for identity, check in IDENTITIES.items():
        # that one starts a process; the methods as they are by default are asked it
        if "hashes" not in identity:
            check(trial)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: DPSGD(Rule(), order="adapt"), "combine_then_adapt or adapt_then_combine"),
        (
            lambda: DPSGD(Rule(), mixing="uniform").check(on(Graph("star_graph", {"n": 4}), 5)),
            "doubly stochastic",
        ),
        (lambda: DPSGD(Rule()).check(on(ExponentialGraph(), 5)), "undirected"),
        (
            lambda: DPSGD(Rule()).check(on(Star(), 5)),
            "workers talk to workers, as ring, got 'star'",
        ),
        (
            lambda: SGP(Rule()).check(on(Star(), 5)),
            "workers talk to workers, as exponential, got 'star'",
        ),
        (lambda: DPSGD(Rule()).check(on(Graph("star_graph", {"n": 4}), 6)), "workers = 6"),
        (lambda: SGP(Rule(), mixing="weights").check(on(Ring(), 5)), "uniform or metropolis"),
        (lambda: SGP(Rule(), overlap=-1), "overlap: expected a number >= 0, got -1"),
    ],
)
def test_settings_at_odds_are_refused(wrong, message):
    with pytest.raises(InvalidSettingError, match=message):
        wrong()


def test_a_long_run_keeps_no_tags(gossip):
    """Every step has a tag of its own: what nobody waits for any more is forgotten."""
    seen = gossip.observe(on(Ring(), 4), DPSGD(Rule()), Timing(), Stop(updates=100))
    assert all(
        len(node.mailbox.mail) + len(node.mailbox._receives) <= 3 for node in seen.nodes.values()
    )
