"""Gossip: what averaging conserves, where it leads, which methods are one and the same, and seconds per step."""

import math
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from experiments.verify.finding import Family, Finding, close, differ, equals
from experiments.verify.trials import LR, left_by, method, quadratic, slope
from simulator import Cluster, Network, Node, Rule, Stop
from simulator.laws import Constant, Exponential
from simulator.streams import BATCHES, stream
from simulator.topology import Exponential as ExponentialGraph
from simulator.topology import Graph, Ring, Topology, Torus

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
    for P, overlap in [(8, 0), (6, 0), (8, 1), (6, 3)]:
        cluster = on(ONE_PEER, P, Exponential(1.0), bandwidth=20.0, latency=0.1, message_bytes=4.0)
        nodes, under_way = left_by(
            cluster, method("sgp", Rule(lr=LR), overlap=overlap), slope(), Stop(time=17.0), apart
        )
        weight = sum(node.weight for node in nodes.values()) + sum(message.value[1] for message in under_way)
        setting = f"sgp, P = {P}, overlap {overlap}, {len(under_way)} messages under way"
        yield equals(f"{setting}: sum of w = P", ASSRAN, P, weight, excludes=1.0)
        x = torch.stack([node.weight * node.weights for node in nodes.values()]).sum(0)
        x = sum((message.value[0] for message in under_way), x)
        yield close(f"{setting}: sum of x sees gradients alone", ASSRAN, x, summed(nodes, LR))
    for order in ORDERS:
        nodes, _ = left_by(on(Torus(), 6), method("dpsgd", Rule(lr=LR), order=order), slope(), Stop(time=9.5), apart)
        x = torch.stack([node.weights for node in nodes.values()]).sum(0)
        yield close(f"dpsgd, {order}: sum of x sees gradients alone", LIAN, x, summed(nodes, LR))


def summed(nodes: dict[int, Node], lr: float) -> Tensor:
    """What the models of all nodes add up to if only their own steps down the slope have changed them."""
    drawn = [islice(slope().batches(rank, [stream(0, BATCHES, rank)]), node.version) for rank, node in nodes.items()]
    steps = sum((batch for of in drawn for batch in of), torch.zeros(5, dtype=torch.float64))
    return STARTS[: len(nodes)].sum(0, keepdim=True) - lr * steps


@gossip.check
def pairwise() -> Iterator[Finding]:
    """Pairs average atomically: the sum is conserved whenever no exchange is under way, and shared out alike."""
    cluster = on(Ring(), 8, Exponential(1.0), latency=0.02)
    for name, lr in [("lr 0", 0.0), ("sees gradients alone", LR)]:
        sums, expected = [], []
        for time in np.arange(5.0, 9.0, 0.2):
            nodes, under_way = left_by(cluster, method("adpsgd", Rule(lr=lr)), slope(), Stop(time=float(time)), apart)
            if not under_way:
                sums.append(torch.stack([node.weights for node in nodes.values()]).sum(0))
                expected.append(summed(nodes, lr))
        statement = f"adpsgd, {len(sums)} moments without exchange: sum of x, {name}"
        yield close(statement, AD, sums, expected)
    nodes = left_by(cluster, method("adpsgd", Rule(lr=0.0)), quadratic(), Stop(time=300.0), apart).nodes
    mean = [STARTS[:8].mean(0, keepdim=True)] * 8
    yield close("adpsgd, lr 0: x -> mean of the starts", AD, [node.weights for node in nodes.values()], mean)


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
