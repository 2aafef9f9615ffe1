"""Seconds of an update whose communication overlaps with the passes of the mini-batches before and after it."""

import math
from collections.abc import Sequence
from heapq import heappop, heappush
from typing import NamedTuple

from laggard import simulator
from laggard.experiments.theory import Forms
from laggard.simulator import Cluster
from laggard.simulator.algorithms.priority import MOST_SLICES
from laggard.simulator.learning.task import Layer
from laggard.simulator.network.topology import SERVER
from laggard.simulator.timing.distributions.distribution import mean_of

OVERLAP_SECONDS: Forms[float] = Forms()
"""With equal cards and constant times; of an algorithm, a cluster, the model's layers and its bytes."""


class Slice(NamedTuple):
    """A slice of a layer: the moment (s) from which on it can be sent, and the seconds that this takes."""

    there: float
    layer: int
    seconds: float


def exchange(slices: Sequence[Slice], by_layer: bool) -> list[float]:
    """When each of `slices` has been sent, one at a time: the front-most layer's first, or what has waited longest."""
    ends, now = [math.nan] * len(slices), 0.0
    coming = sorted(range(len(slices)), key=lambda each: slices[each].there, reverse=True)
    waiting: list[tuple[int, float, int]] = []
    while coming or waiting:
        if not waiting:
            now = max(now, slices[coming[-1]].there)
        while coming and slices[coming[-1]].there <= now:
            each = coming.pop()
            heappush(waiting, (slices[each].layer * by_layer, slices[each].there, each))
        each = heappop(waiting)[-1]
        now += slices[each].seconds
        ends[each] = now
    return ends


@OVERLAP_SECONDS.of(simulator.P3)
def _p3(algorithm: simulator.P3, cluster: Cluster, layers: Sequence[Layer], model_bytes: float) -> float | None:
    """The recursion in the docstring of `P3`, from one backward pass to the next: nothing is sent when it begins."""
    network, works, weights = cluster.network, list[float](), list[float]()
    if network.sharing != "fair" or not layers:
        return None
    learnt = any(layer.params for layer in layers)
    for layer in layers:
        if not works or (weights[-1] and (layer.params or not learnt)):
            works.append(0.0)
            weights.append(0.0)
        works[-1] += layer.work
        weights[-1] += layer.params if learnt else 1
    seconds, by_layer = cluster.compute.mean / sum(works), algorithm.order == "priority"
    back = algorithm.backward / (1 + algorithm.backward)
    there, up, beta = 0.0, list[Slice](), cluster.workers / algorithm.shards / network.bandwidth
    for number in reversed(range(len(works))):
        there += back * seconds * works[number]
        size = model_bytes * weights[number] / sum(weights)
        count = min(MOST_SLICES, max(1, math.ceil(size / (algorithm.slice_bytes or math.inf) - 1e-9)))
        up += [Slice(there, number, mean_of(network.latency) + size / count * beta)] * count
    come = sorted(zip(exchange(up, by_layer), up, strict=True), key=lambda each: each[0])
    slower = mean_of(network.latency_from(SERVER)) - mean_of(network.latency)
    down = [Slice(at, one.layer, one.seconds + slower) for at, one in come]
    answered = exchange(down, by_layer)
    for number, work in enumerate(works):
        awaited = [at for at, one in zip(answered, down, strict=True) if one.layer == number]
        there = max(there, *awaited) + (1 - back) * seconds * work
    return there
