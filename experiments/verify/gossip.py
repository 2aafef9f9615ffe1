"""Gossip: what averaging conserves, where it leads, which methods are one and the same, and seconds per step."""

import math
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from experiments.verify.finding import Family, Finding, close, differ, equals
from experiments.verify.trials import LINEAR, LR, TORCH, every, left_by, method, quadratic, slope
from simulator import Cluster, Network, Node, Rule, Stop
from simulator.laws import Constant, Exponential
from simulator.mixing import matrix
from simulator.streams import BATCHES, start_seed, stream
from simulator.topology import Complete, Graph, Ring, Topology, Torus
from simulator.topology import Exponential as ExponentialGraph

ASSRAN, LIAN, AD = "Assran et al. (2019)", "Lian et al. (2017)", "Lian et al. (2018)"
ONE_PEER = ExponentialGraph(peers=1)
DIGRAPH = Graph("gnp_random_graph", {"n": 8, "p": 0.3, "seed": 9, "directed": True})
"""Strongly connected; out-degrees are 2 to 5 and in-degrees 1 to 5, so that weights 1 would be biased."""
ORDERS = ("combine_then_adapt", "adapt_then_combine")
STARTS = torch.linspace(-1.0, 1.0, 16, dtype=torch.float64)[:, None].exp().expand(16, 5)

gossip = Family("gossip", "Gossip: averages, identities and times")


def on(graph: Topology, workers: int, compute: Any = None, **network: Any) -> Cluster:
    """Workers on a graph."""
    return Cluster(workers, compute or Constant(1.0), network=Network(topology=graph, **network))


def apart(node: Node) -> None:
    """Let each node start elsewhere."""
    node.weights = STARTS[node.rank][None]


def models(cluster: Cluster, name: str, updates: float, rule: Rule, **settings: Any) -> list[Tensor]:
    """All nodes' models after so many steps each."""
    nodes = left_by(cluster, method(name, rule, **settings), quadratic(), Stop(time=updates + 0.5)).nodes
    return [nodes[rank].weights for rank in sorted(nodes)]


def averaged(graph: Topology, workers: int, seconds: int, **settings: Any) -> tuple[list[Tensor], list[Tensor]]:
    """All nodes' models after so many seconds of averaging alone, and the mean of their starts for each."""
    stop, algorithm = Stop(time=seconds + 0.5), method("sgp", Rule(lr=0.0), **settings)
    nodes = left_by(on(graph, workers), algorithm, quadratic(), stop, apart).nodes
    return [node.weights for node in nodes.values()], [STARTS[:workers].mean(0, keepdim=True)] * workers


@gossip.check
def push_sum() -> Iterator[Finding]:
    """Without gradients, models tend to the mean of the starts; one exponential peer is there in log2 P steps."""
    for name, graph, P in [("a digraph", DIGRAPH, 8), ("a ring", Ring(), 7), ("one peer", ONE_PEER, 6)]:
        for overlap in (0, 1, 3):
            z, mean = averaged(graph, P, 400, overlap=overlap)
            yield close(f"sgp on {name}, P = {P}, overlap {overlap}, lr 0: z -> mean of the starts", ASSRAN, z, mean)
    for P in (8, 16):
        rounds = int(math.log2(P))
        yield close(
            f"sgp, one peer, P = {P}: the exact mean after {rounds} steps", ASSRAN, *averaged(ONE_PEER, P, rounds)
        )
        yield differ(f"sgp, one peer, P = {P}: not a step before", ASSRAN, *averaged(ONE_PEER, P, rounds - 1))
    yield differ("sgp, one peer, P = 6: not exact after 3 steps", ASSRAN, *averaged(ONE_PEER, 6, 3))
    nodes = left_by(on(ONE_PEER, 8), method("sgp", Rule(lr=LR)), quadratic(), Stop(time=20.5)).nodes
    yield equals("sgp, one peer, P = 8, in step: w = 1", ASSRAN, 1.0, [node.weight for node in nodes.values()], 0.0)


@gossip.check
def conserved() -> Iterator[Finding]:
    """Nodes and messages together hold all the weight, and models that only gradients have changed."""
    task = slope()
    for P, overlap in [(8, 0), (6, 0), (8, 1), (6, 3)]:
        cluster = on(ONE_PEER, P, Exponential(1.0), bandwidth=20.0, latency=0.1, message_bytes=4.0)
        nodes, under_way = left_by(cluster, method("sgp", Rule(lr=LR), overlap=overlap), task, Stop(time=17.0))
        weight = sum(node.weight for node in nodes.values()) + sum(message.value[1] for message in under_way)
        setting = f"sgp, P = {P}, overlap {overlap}, {len(under_way)} messages under way"
        yield equals(f"{setting}: sum of w = P", ASSRAN, P, weight, excludes=1.0)
        x = torch.stack([node.weight * node.weights for node in nodes.values()]).sum(0)
        x = sum((message.value[0] for message in under_way), x)
        yield close(f"{setting}: sum of x sees gradients alone", ASSRAN, x, without_averaging(list(nodes.values())))
    for order in ORDERS:
        nodes, _ = left_by(on(Torus(), 6), method("dpsgd", Rule(lr=LR), order=order), task, Stop(time=9.5))
        x = torch.stack([node.weights for node in nodes.values()]).sum(0)
        yield close(f"dpsgd, {order}: sum of x sees gradients alone", LIAN, x, without_averaging(list(nodes.values())))


def without_averaging(nodes: list[Node]) -> Tensor:
    """The sum of models that have only descended the slope, each as often as its node has."""
    task = slope()
    drawn = [islice(task.batches(node.rank, [stream(0, BATCHES, node.rank)]), node.version) for node in nodes]
    steps = sum((batch for of in drawn for batch in of), torch.zeros(5, dtype=torch.float64))
    return len(nodes) * task.start([start_seed(0)]) - LR * steps


@gossip.check
def pairwise() -> Iterator[Finding]:
    """Pairs average atomically: the sum is conserved whenever no exchange is under way, and shared out alike."""
    cluster = on(Ring(), 8, Exponential(1.0), latency=0.02)
    quiet, first = 0, STARTS[:8].sum(0, keepdim=True)
    sums = []
    for time in np.arange(5.0, 9.0, 0.2):
        nodes, under_way = left_by(cluster, method("adpsgd", Rule(lr=0.0)), quadratic(), Stop(time=float(time)), apart)
        if not under_way:
            quiet += 1
            sums.append(torch.stack([node.weights for node in nodes.values()]).sum(0))
    yield close(f"adpsgd, lr 0, at {quiet} moments without exchange: sum of x", AD, sums, [first] * quiet)
    nodes = left_by(cluster, method("adpsgd", Rule(lr=0.0)), quadratic(), Stop(time=300.0), apart).nodes
    mean = [first / 8] * 8
    yield close("adpsgd, lr 0: x -> mean of the starts", AD, [node.weights for node in nodes.values()], mean)


@gossip.check
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


@gossip.check
def matrices() -> Iterator[Finding]:
    """Every node's model, against a loop over mixing matrices."""
    for graph, P in [(Ring(), 5), (Torus(), 6), (Graph("star_graph", {"n": 4}), 5)]:
        W = torch.from_numpy(matrix("metropolis", graph, 0, P))
        for order, form in zip(ORDERS, ("W X - lr G", "W (X - lr G)"), strict=True):
            mine = models(on(graph, P), "dpsgd", 12, Rule(lr=LR), order=order)
            X = looped(P, 12, lambda X, G, W=W, order=order: W @ X - LR * G if order == ORDERS[0] else W @ (X - LR * G))
            yield close(f"dpsgd, {type(graph).__name__.lower()}, P = {P}: X <- {form}", LIAN, mine, list(X[:, None]))


def looped(P: int, steps: int, step: Callable[..., Tensor]) -> Tensor:
    """All models `(workers, params)` after so many steps of X <- step(X, gradients)."""
    task = quadratic()
    X, streams = task.start([start_seed(0)] * P), [task.batches(rank, [stream(0, BATCHES, rank)]) for rank in range(P)]
    for _ in range(steps):
        gradients = [task.gradients(x[None, None], [next(own)])[0][0] for x, own in zip(X, streams, strict=True)]
        X = step(X, torch.cat(gradients))
    return X


@gossip.check
def spectral_gap() -> Iterator[Finding]:
    """A ring's models approach each other, in the end, by its second eigenvalue a step."""
    P, steps = 8, 60
    far = []
    for seconds in (steps, steps + 1):
        nodes = left_by(
            on(Ring(), P), method("dpsgd", Rule(lr=0.0)), quadratic(), Stop(time=seconds + 0.5), apart
        ).nodes
        X = torch.cat([nodes[rank].weights for rank in range(P)])
        far.append(float((X - X.mean(0)).norm()))
    statement = f"dpsgd, ring, P = {P}, lr 0: distance shrinks by (1 + 2 cos(2 pi / P)) / 3"
    yield equals(statement, "Xiao & Boyd (2004)", (1 + 2 * math.cos(2 * math.pi / P)) / 3, far[1] / far[0], 1e-6)
