"""Gossip: averages."""

import math
from itertools import product

import numpy as np
import pytest
import torch

from laggard.simulator import Rule, Stop
from laggard.simulator.learning.rules import Step
from laggard.simulator.network.topology import Graph, Ring
from laggard.simulator.timing.distributions import Exponential
from tests.cases import quick
from tests.theory.gossiping import (
    AD,
    ASSRAN,
    ONE_PEER,
    mean_of_starts,
    on,
    start_apart,
    sum_by_gradients,
)
from tests.theory.statements import close, differ, equal
from tests.theory.trials import LR, method, quadratic, remains_of, slope

DIGRAPH = Graph("gnp_random_graph", {"n": 8, "p": 0.3, "seed": 9, "directed": True})
"""Strongly connected; out-degrees are 2 to 5 and in-degrees 1 to 5, so that weights 1 would be
biased.
"""
GRAPHS = {
    "a digraph": (DIGRAPH, 8),
    "a ring": (Ring(), 7),
    "one peer": (ONE_PEER, 6),
}


def averaged(cluster, seconds, name="sgp", **settings):
    """All nodes' models after so many seconds of averaging alone, and the mean of their starts for
    each.
    """
    stop, algorithm = Stop(time=seconds + 0.5), method(name, Rule(lr=0.0), **settings)
    nodes = remains_of(cluster, algorithm, quadratic(), stop, start_apart).nodes
    return [node.weights for node in nodes.values()], mean_of_starts(cluster.workers)


@pytest.mark.parametrize(
    ("name", "overlap"),
    quick(product(GRAPHS, (0, 1, 3)), only=[("a digraph", 0), ("a ring", 1), ("one peer", 3)]),
)
def test_models_tend_to_mean_of_starts(name, overlap):
    """Without gradients, models tend to the mean of the starts."""
    graph, P = GRAPHS[name]
    z, mean = averaged(on(graph, P), 130 * max(1, overlap), overlap=overlap)
    text = f"sgp on {name}, P = {P}, overlap {overlap}, lr 0: z -> mean of the starts"
    close(text, z, mean, source=ASSRAN)


def test_one_exponential_peer_averages_in_log2_steps():
    """With one exponential peer, all models are the mean after log2 P steps."""
    for P in (8, 16):
        rounds = int(math.log2(P))
        text = f"sgp, one peer, P = {P}: the exact mean after {rounds} steps"
        close(text, *averaged(on(ONE_PEER, P), rounds), source=ASSRAN)
        differ(
            f"sgp, one peer, P = {P}: not a step before",
            *averaged(on(ONE_PEER, P), rounds - 1),
            source=ASSRAN,
        )
    text = "sgp, one peer, P = 6: not exact after 3 steps"
    differ(text, *averaged(on(ONE_PEER, 6), 3), source=ASSRAN)
    nodes = remains_of(
        on(ONE_PEER, 8), method("sgp", Rule(lr=LR)), quadratic(), Stop(time=20.5)
    ).nodes
    weights = [node.weight for node in nodes.values()]
    equal("sgp, one peer, P = 8, in step: w = 1", 1.0, weights, source=ASSRAN, rtol=0.0)


UNDER_WAY = {
    "sgp, P = 8": ("sgp", 8, {}),
    "sgp, P = 6": ("sgp", 6, {}),
    "sgp, P = 8, overlap 1": ("sgp", 8, {"overlap": 1}),
    "sgp, P = 6, overlap 3": ("sgp", 6, {"overlap": 3}),
    "osgp, tau = 3, H = 1": ("osgp", 6, {"overlap": 3, "local_steps": 1}),
    "osgp, tau = 4, H = 2": ("osgp", 6, {"overlap": 4, "local_steps": 2}),
}


@pytest.mark.parametrize("label", UNDER_WAY)
def test_push_sum_conserves_weight_and_models(label):
    """Nodes and messages together hold the whole weight; only gradients change the sum of models."""
    name, P, settings = UNDER_WAY[label]
    cluster = on(ONE_PEER, P, Exponential(1.0), bandwidth=20.0, latency=0.1, message_bytes=4.0)
    if name == "osgp":
        cluster = on(ONE_PEER, P, Exponential(1.0), latency=2.5)
    algorithm = method(name, Rule(lr=LR), **settings)
    nodes, under_way = remains_of(cluster, algorithm, slope(), Stop(time=17.0), start_apart)
    weight = sum(node.weight for node in nodes.values()) + sum(
        message.value[1] for message in under_way
    )
    setting = f"{label}, {len(under_way)} messages under way"
    equal(f"{setting}: sum of w = P", P, weight, source=ASSRAN, wrong=1.0)
    x = torch.stack([node.weight * node.weights for node in nodes.values()]).sum(0)
    x = sum((message.value[0] for message in under_way), x)
    close(
        f"{setting}: sum of x sees gradients alone", x, sum_by_gradients(nodes, LR), source=ASSRAN
    )


PAIRED = on(Ring(), 8, Exponential(1.0), latency=0.02)
WITHOUT_GRADIENTS = {
    "osgp, tau = 3, H = 1, on a digraph": (on(DIGRAPH, 8, latency=2.5), {"overlap": 3}, ASSRAN),
    "osgp, tau = 4, H = 2, on a digraph": (
        on(DIGRAPH, 8, latency=2.5),
        {"overlap": 4, "local_steps": 2},
        ASSRAN,
    ),
    "adpsgd": (PAIRED, {}, AD),
}


@pytest.mark.parametrize(
    "label",
    quick(WITHOUT_GRADIENTS, only=["osgp, tau = 4, H = 2, on a digraph", "adpsgd"]),
)
def test_exchanges_under_way_tend_to_mean(label):
    """Without gradients, models tend to the mean with several exchanges under way."""
    cluster, settings, source = WITHOUT_GRADIENTS[label]
    z, mean = averaged(cluster, 400.0, label.split(",")[0], **settings)
    close(f"{label}, lr 0: z -> mean of the starts", z, mean, source=source)


def distances(rule, seconds=20):
    """How far the models of nodes with gradients of noise alone are from their mean, `(P, params)`.

    SGP on 8 nodes that start together, after so many seconds of one step each.
    """
    stop = Stop(time=seconds + 0.5)
    nodes = remains_of(on(ONE_PEER, 8), method("sgp", rule), slope(), stop).nodes
    models = torch.cat([node.weights for node in nodes.values()])
    return models - models.mean(0)


def test_distance_follows_lowered_rate_in_log2_steps():
    """One exponential peer averages in log2 P steps. A step averages its own gradient, so that the
    last log2 P - 1 gradients alone are not yet equal on all nodes.
    """
    lower = distances(Rule(lr=LR / 10))
    for steps, follows in ((2, True), (1, False)):
        lowered = Step(at=[20 - steps], factor=0.1, unit="updates")
        found = distances(Rule(lr=LR, schedule=lowered))
        text = f"sgp, P = 8, {steps} steps at lr / 10: distances from the mean model"
        if follows:
            close(f"{text} are those of lr / 10", found, lower, source=ASSRAN, rtol=1e-10)
        else:
            differ(f"{text} are not yet", found, lower, source=ASSRAN)


@pytest.mark.parametrize("name", ["adpsgd", "adpsgd_overlap"])
def test_pairs_conserve_sum(name):
    """Pairs average atomically: gradients alone change the sum, as seen while no exchange is under
    way.
    """
    sums, expected = [], []
    for time in np.arange(5.0, 9.0, 0.2):
        stop, algorithm = Stop(time=float(time)), method(name, Rule(lr=LR))
        nodes, under_way = remains_of(PAIRED, algorithm, slope(), stop, start_apart)
        if not under_way:
            sums.append(torch.stack([node.weights for node in nodes.values()]).sum(0))
            expected.append(sum_by_gradients(nodes, LR))
    text = f"{name}, {len(sums)} moments without exchange: sum of x sees gradients alone"
    close(text, sums, expected, source=AD)


def test_spectral_gap_sets_convergence_rate():
    """The distance of a ring's models finally shrinks by its second eigenvalue per step."""
    P, steps = 8, 60
    far = []
    for seconds in (steps, steps + 1):
        stop, algorithm = Stop(time=seconds + 0.5), method("dpsgd", Rule(lr=0.0))
        nodes = remains_of(on(Ring(), P), algorithm, quadratic(), stop, start_apart).nodes
        X = torch.cat([nodes[rank].weights for rank in range(P)])
        far.append(float((X - X.mean(0)).norm()))
    text = f"dpsgd, ring, P = {P}, lr 0: distance shrinks by (1 + 2 cos(2 pi / P)) / 3"
    expected = (1 + 2 * math.cos(2 * math.pi / P)) / 3
    equal(text, expected, far[1] / far[0], source="Xiao & Boyd (2004)", rtol=1e-6)
