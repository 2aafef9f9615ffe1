"""Gossip: which methods are one and the same, and every node's model against a loop over matrices."""

from collections.abc import Callable, Iterator
from typing import Any

import networkx
import torch
from torch import Tensor

from experiments.verify.finding import Family, Finding, close, differ, identical
from experiments.verify.gossip import ASSRAN, LIAN, ONE_PEER, ORDERS, on
from experiments.verify.trials import LINEAR, LR, TORCH, every, left_by, method, quadratic
from simulator import Cluster, Rule, Stop
from simulator.streams import BATCHES, start_seed, stream
from simulator.topology import Complete, Graph, Ring, Torus

gossip_methods = Family("gossip_methods", "Gossip: identities")


def models(cluster: Cluster, name: str, updates: float, rule: Rule, **settings: Any) -> list[Tensor]:
    """All nodes' models after so many steps each."""
    nodes = left_by(cluster, method(name, rule, **settings), quadratic(), Stop(time=updates + 0.5)).nodes
    return [nodes[rank].weights for rank in sorted(nodes)]


@gossip_methods.check
def same_methods() -> Iterator[Finding]:
    """On the complete graph with equal weights it is a server; push-sum with symmetric weights is D-PSGD."""
    P, adam = 4, [Rule(TORCH["adam"][0], lr=LR)]
    server = Cluster(workers=P)
    for name, settings in [("sgp", {}), ("dpsgd", {"order": "adapt_then_combine", "mixing": "uniform"})]:
        mine = every(on(Complete(), P), name, rules=LINEAR, **settings)
        yield close(
            f"{name}, complete graph, weights 1/P = sync_ps, linear rules",
            ASSRAN,
            mine,
            every(server, "sync_ps", rules=LINEAR),
        )
        mine = every(on(Complete(), P), name, rules=adam, **settings)
        yield differ(
            f"{name}, complete graph, adam, is not sync_ps", ASSRAN, mine, every(server, "sync_ps", rules=adam)
        )
    for graph, workers in [(Ring(), 5), (Torus(), 6)]:
        for name, rule in zip(("sgd", "momentum", "adam"), [*LINEAR[:2], *adam], strict=True):
            push, adapt, combine = (
                models(on(graph, workers), algorithm, 12, rule, **settings)
                for algorithm, settings in [
                    ("sgp", {"mixing": "metropolis"}),
                    *(("dpsgd", {"order": order}) for order in reversed(ORDERS)),
                ]
            )
            where = f"sgp, {type(graph).__name__.lower()}, symmetric W, {name}"
            yield close(f"{where} = dpsgd, adapt_then_combine", ASSRAN, push, adapt)
            yield differ(f"{where}: not combine_then_adapt", ASSRAN, push, combine)


@gossip_methods.check
def biased() -> Iterator[Finding]:
    """Ignoring the weight matters where it is not 1: while half of every model is under way."""
    rule, runs = Rule(lr=0.0), {}
    for overlap in (0, 1):
        for ignoring in (False, True):
            settings = {"overlap": overlap, "biased": ignoring}
            runs[overlap, ignoring] = models(on(ONE_PEER, 8), "sgp", 20, rule, **settings)
    start = [quadratic().start([start_seed(0)])] * 8
    yield identical("sgp, P = 8, lr 0, biased, in step: x = the start", ASSRAN, runs[0, True], start)
    yield identical("sgp, P = 8, lr 0, overlap 1: x / w = the start", ASSRAN, runs[1, False], start)
    halves = [0.5 * weights for weights in start]
    yield identical("sgp, P = 8, lr 0, biased, overlap 1: x = half of it", ASSRAN, runs[1, True], halves)


@gossip_methods.check
def matrices() -> Iterator[Finding]:
    """Every node's model, against a loop over Metropolis matrices: 1 / (1 + the greater degree), and what is left."""
    for graph, edges, P in [
        (Ring(), networkx.cycle_graph(5), 5),
        (Torus(), networkx.grid_2d_graph(2, 3, periodic=True), 6),
        (Graph("wheel_graph", {"n": 5}), networkx.wheel_graph(5), 5),
        (Graph("path_graph", {"n": 5}), networkx.path_graph(5), 5),
    ]:
        joined = torch.from_numpy(networkx.to_numpy_array(edges, nodelist=sorted(edges)))
        degree = joined.sum(1)
        W = joined / (1 + torch.maximum(degree[:, None], degree))
        W = W + torch.diag(1 - W.sum(1))
        for order, form in zip(ORDERS, ("W X - lr G", "W (X - lr G)"), strict=True):
            mine = models(on(graph, P), "dpsgd", 12, Rule(lr=LR), order=order)
            X = looped(P, 12, lambda X, G, W=W, order=order: W @ X - LR * G if order == ORDERS[0] else W @ (X - LR * G))
            name = getattr(graph, "graph", type(graph).__name__.lower())
            yield close(f"dpsgd, {name}, P = {P}: X <- {form}", LIAN, mine, list(X[:, None]))


def looped(P: int, steps: int, step: Callable[..., Tensor]) -> Tensor:
    """All models `(workers, params)` after so many steps of X <- step(X, gradients)."""
    task = quadratic()
    X, streams = task.start([start_seed(0)] * P), [task.batches(rank, [stream(0, BATCHES, rank)]) for rank in range(P)]
    for _ in range(steps):
        gradients = [task.gradients(x[None, None], [next(own)])[0][0] for x, own in zip(X, streams, strict=True)]
        X = step(X, torch.cat(gradients))
    return X
