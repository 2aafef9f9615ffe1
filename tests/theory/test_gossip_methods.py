"""Gossip: identities."""

import networkx
import pytest
import torch

from laggard.simulator import Rule, Stop
from laggard.simulator.network.topology import Graph, Ring, Torus
from tests.theory.gossiping import ASSRAN, LIAN, ONE_PEER, ORDERS, on, push_sum
from tests.theory.statements import close, differ, same
from tests.theory.trials import (
    ADAM,
    LINEAR,
    LR,
    batches_of,
    first_weights,
    gradient_of,
    method,
    quadratic,
    remains_of,
)


def models_of(cluster, name, updates, rule, **settings):
    """All nodes' models after so many steps each."""
    nodes = remains_of(
        cluster, method(name, rule, **settings), quadratic(), Stop(time=updates + 0.5)
    ).nodes
    return [nodes[rank].weights for rank in sorted(nodes)]


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam"])
@pytest.mark.parametrize(("graph", "workers"), [(Ring(), 5), (Torus(), 6)], ids=["ring", "torus"])
def test_symmetric_push_sum_equals_dpsgd(graph, workers, optimizer):
    """Push-sum with symmetric weights is D-PSGD."""
    rule = {"sgd": LINEAR[0], "momentum": LINEAR[1], "adam": ADAM[0]}[optimizer]
    cluster = on(graph, workers)
    push = models_of(cluster, "sgp", 12, rule, mixing="metropolis")
    combine, adapt = (models_of(cluster, "dpsgd", 12, rule, order=order) for order in ORDERS)
    where = f"sgp, {type(graph).__name__.lower()}, symmetric W, {optimizer}"
    close(f"{where} = dpsgd, adapt_then_combine", push, adapt, source=ASSRAN)
    differ(f"{where}: not combine_then_adapt", push, combine, source=ASSRAN)


def test_weight_matters_while_models_are_under_way():
    """Omitting the push-sum weight changes models when it is not 1: here half of every model is
    under way.
    """
    runs = {
        (overlap, biased): models_of(
            on(ONE_PEER, 8), "sgp", 20, Rule(lr=0.0), overlap=overlap, biased=biased
        )
        for overlap in (0, 1)
        for biased in (False, True)
    }
    start = [first_weights(quadratic())] * 8
    halves = [0.5 * weights for weights in start]
    same("sgp, P = 8, lr 0, biased, in step: x = the start", runs[0, True], start, source=ASSRAN)
    same("sgp, P = 8, lr 0, overlap 1: x / w = the start", runs[1, False], start, source=ASSRAN)
    same(
        "sgp, P = 8, lr 0, biased, overlap 1: x = half of it", runs[1, True], halves, source=ASSRAN
    )


GRAPHS = {
    "ring": (Ring(), networkx.cycle_graph(5)),
    "torus": (Torus(), networkx.grid_2d_graph(2, 3, periodic=True)),
    "wheel_graph": (Graph("wheel_graph", {"n": 5}), networkx.wheel_graph(5)),
    "path_graph": (Graph("path_graph", {"n": 5}), networkx.path_graph(5)),
}


@pytest.mark.parametrize(
    ("order", "form"), [(ORDERS[0], "W X - lr G"), (ORDERS[1], "W (X - lr G)")], ids=ORDERS
)
@pytest.mark.parametrize("name", GRAPHS)
def test_models_match_loop_over_metropolis_matrices(name, order, form):
    """A weight is 1 / (1 + the greater degree); a node keeps the rest."""
    graph, edges = GRAPHS[name]
    P, joined = len(edges), torch.from_numpy(networkx.to_numpy_array(edges, nodelist=sorted(edges)))
    degree = joined.sum(1)
    W = joined / (1 + torch.maximum(degree[:, None], degree))
    W = W + torch.diag(1 - W.sum(1))
    mine = models_of(on(graph, P), "dpsgd", 12, Rule(lr=LR), order=order)
    X = looped(
        P, 12, lambda X, G: W @ X - LR * G if order == "combine_then_adapt" else W @ (X - LR * G)
    )
    close(f"dpsgd, {name}, P = {P}: X <- {form}", mine, list(X[:, None]), source=LIAN)


def looped(
    P,
    steps,
    step,
    starts=None,
):
    """All models `(workers, params)` after so many steps of X <- step(X, gradients)."""
    task = quadratic()
    X = torch.cat([first_weights(task)] * P) if starts is None else starts
    streams = [batches_of(task, rank) for rank in range(P)]
    for _ in range(steps):
        gradients = [
            gradient_of(task, x[None], next(own)) for x, own in zip(X, streams, strict=True)
        ]
        X = step(X, torch.cat(gradients))
    return X


@pytest.mark.parametrize("tau", [0, 1])
def test_overlap_sgp_equals_sgp_in_step(tau):
    """With at most one outstanding exchange and synchronous steps, overlap SGP equals SGP."""
    cluster = on(ONE_PEER, 6, latency=0.7)
    one = models_of(cluster, "osgp", 20, Rule(lr=LR), overlap=tau)
    text = f"osgp, P = 6, tau = {tau}, H = 1 = sgp with overlap {tau}"
    same(text, one, models_of(cluster, "sgp", 20, Rule(lr=LR), overlap=tau), source=ASSRAN)


@pytest.mark.parametrize(("tau", "H"), [(2, 1), (5, 1), (3, 2)])
def test_late_shares_match_loop_over_matrices(tau, H):
    """In the loop over matrices each share arrives tau gradients after its push."""
    P, steps = 6, 20
    half = torch.eye(P, dtype=torch.float64) / 2
    W = [half + torch.roll(half, 2**push, 0) for push in range(3)]
    text = f"osgp, one peer, P = {P}, tau = {tau}, H = {H}, messages of"
    for latency, late, end in (
        (tau - 0.5, tau, "(tau - 1/2) t_c: shares tau steps late"),
        (0.5, 1, "t_c / 2: shares one step late"),
    ):
        cluster = on(ONE_PEER, P, latency=latency)
        found = models_of(cluster, "osgp", steps, Rule(lr=LR), overlap=tau, local_steps=H)
        _, expected = push_sum(quadratic(), W, steps, lr=LR, late=late, H=H)
        close(f"{text} {end}", found, list(expected[:, None]), source=ASSRAN)
