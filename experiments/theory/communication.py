"""Seconds of communication: a collective's by itself, and an update's whose messages overlap with
the passes.
"""

import math
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

from laggard import simulator
from laggard.experiments.theory import Forms
from laggard.simulator import Cluster
from laggard.simulator.algorithms.collectives.reducing import Reducing
from laggard.simulator.algorithms.slicing import MOST_SLICES, Sliced
from laggard.simulator.learning.task import Layer
from laggard.simulator.network.groups import Trunks
from laggard.simulator.network.topology import SERVER
from laggard.simulator.timing.distributions.distribution import mean_of

COLLECTIVE_SECONDS: dict[str, Callable[[int, float, float], float]] = {
    "ring": lambda P, alpha, transfer: 2 * (P - 1) * alpha + 2 * (P - 1) / P * transfer,
    "naive_ring": lambda P, alpha, transfer: (P - 1) * (alpha + transfer),
    "mesh": lambda P, alpha, transfer: alpha + (P - 1) * transfer,
    "recursive_doubling": lambda P, alpha, transfer: math.log2(P) * (alpha + transfer),
    "halving_doubling": lambda P, alpha, transfer: (
        2 * math.log2(P) * alpha + 2 * (P - 1) / P * transfer
    ),
    "tree": lambda P, alpha, transfer: 2 * math.ceil(math.log2(P)) * (alpha + transfer),
    "server": lambda P, alpha, transfer: 2 * alpha + 2 * (P - 1) * transfer,
}
"""Of P, alpha and N beta (`transfer`)."""
OVERLAP_SECONDS: Forms[float] = Forms()
"""With equal cards and constant times; of an algorithm, a cluster, the model's layers and its
bytes.
"""


def collective_seconds(algorithm: Reducing, cluster: Cluster, transfer: float) -> float | None:
    """What the collective of `algorithm` takes for bytes that a card sends in `transfer` seconds,
    if that is known.
    """
    P, name, fair = cluster.workers, algorithm.collective, cluster.network.sharing == "fair"
    if P == 1:
        return 0.0
    if name not in COLLECTIVE_SECONDS or ("doubling" in name and P & (P - 1)):
        return None
    alpha = mean_of(cluster.network.latency)
    if algorithm.ring_slices > 1 and not fair:
        return ring_in_slices_seconds(P, algorithm.ring_slices, alpha, transfer)
    if name == "server" and not fair:  # who is answered first is early in the next round
        return 2 * alpha + P * transfer if algorithm.servers == 1 else None
    if algorithm.servers > 1:
        return 2 * alpha + 2 * (P - 1) / algorithm.servers * transfer
    return COLLECTIVE_SECONDS[name](P, alpha, transfer)


def ring_in_slices_seconds(P: int, slices: int, alpha: float, transfer: float) -> float:
    """Seconds of a ring whose messages are cut into slices, on cards that are queues; of alpha and
    N beta.
    """
    tau = transfer / P / slices
    if (slices - 1) * tau >= alpha:
        return 2 * (P - 1) / P * transfer + alpha
    return 2 * (P - 1) * (alpha + tau) + (slices - 1) * tau


def trunk_seconds(algorithm: simulator.AllReduce, cluster: Cluster, size: float) -> float | None:
    """What a ring or a hierarchical sum of N = `size` bytes takes over trunks between m groups of g
    workers.

    P = m g; with alpha_i the latency from group i to the next, beta_i the seconds a byte of the
    slowest trunk there,

        ring            2 (P - 1) max_i (alpha_i + N max(beta, beta_i) / P)
        hierarchical    2 (g - 1)(alpha + N beta / g) + 2 (m - 1) max_i (alpha_i + N max(beta, g beta_i) / P)

    None for other collectives, where two of these ways share a trunk, where groups are no stretches
    of equally many ranks, in buckets or slices; and where g messages would wait in a queue at the
    trunk.
    """
    network, P = cluster.network, cluster.workers
    g = network.group_size(P)
    if g is None or algorithm.bucket_bytes is not None or algorithm.ring_slices > 1:
        return None
    m, trunks, alpha, beta = (
        P // g,
        Trunks(network, P),
        mean_of(network.latency),
        1 / network.bandwidth,
    )
    ways = [trunks.between(group * g, (group + 1) % m * g) for group in range(m)] if m > 1 else []
    crossed = [ends for _, links in ways for ends in links]
    if len(set(crossed)) < len(crossed):
        return None
    slowest = [
        max((1 / speed for speed in links.values() if speed is not None), default=0.0)
        for _, links in ways
    ]
    at_once = 1 if algorithm.collective == "ring" else g
    between = [alpha + far + size / P * max(beta, at_once * slow)
               for (far, _), slow in zip(ways, slowest, strict=True)]  # fmt: skip
    if algorithm.collective == "ring":
        return 2 * (P - 1) * max([*between, (alpha + size / P * beta) * (P > 1)])
    if algorithm.collective != "hierarchical" or (network.sharing != "fair" and 1 < g < P):
        return None
    return 2 * (g - 1) * (alpha + size / g * beta) + 2 * (m - 1) * max(between, default=0.0)


class Slice(NamedTuple):
    """A slice of a layer: the moment (s) from which on it can be sent, and the seconds that this
    takes.
    """

    there: float
    layer: int
    seconds: float


def exchange(slices: Sequence[Slice], by_layer: bool) -> list[float]:
    """When each of `slices` has been sent, one at a time: the front-most layer's first, or what has
    waited longest.
    """
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


class LayerTimes(NamedTuple):
    """The seconds of the passes of a layer with parameters, and its slices: how many, and the bytes
    of each.
    """

    forward: float
    backward: float
    slices: int
    size: float


def cut(
    algorithm: Sliced, cluster: Cluster, layers: Sequence[Layer], model_bytes: float
) -> list[LayerTimes]:
    """The layers of a model that have parameters, each with those behind it that have none, from
    the front.
    """
    works, weights = list[float](), list[float]()
    learnt = any(layer.params for layer in layers)
    for layer in layers:
        if not works or (weights[-1] and (layer.params or not learnt)):
            works.append(0.0)
            weights.append(0.0)
        works[-1] += layer.work
        weights[-1] += layer.params if learnt else 1
    forward = cluster.compute.mean / sum(works) / (1 + algorithm.backward)
    found = []
    for work, weight in zip(works, weights, strict=True):
        size = model_bytes * weight / sum(weights)
        count = min(
            MOST_SLICES, max(1, math.ceil(size / (algorithm.slice_bytes or math.inf) - 1e-9))
        )
        found.append(
            LayerTimes(forward * work, algorithm.backward * forward * work, count, size / count)
        )
    return found


def gradient_slices(
    layers: Sequence[LayerTimes], seconds: Callable[[float], float], notice: float = 0.0
) -> list[Slice]:
    """The slices of a gradient from the start of its backward pass on, as they are computed.

    Args:
        layers: the model's, from the front.
        seconds: what a slice of so many bytes takes.
        notice: the seconds after which it is known that a slice is there.
    """
    there, found = 0.0, list[Slice]()
    for number, layer in reversed(list(enumerate(layers))):
        there += layer.backward
        found += [Slice(there + notice, number, seconds(layer.size))] * layer.slices
    return found


def next_backward(
    layers: Sequence[LayerTimes], slices: Sequence[Slice], ends: Sequence[float]
) -> float:
    """When the next backward pass begins, of `slices` that have come back at their `ends`: F_L of
    the recursion.
    """
    there = sum(layer.backward for layer in layers)
    for number, layer in enumerate(layers):
        awaited = [end for end, one in zip(ends, slices, strict=True) if one.layer == number]
        there = max(there, *awaited) + layer.forward
    return there


@OVERLAP_SECONDS.of(simulator.P3)
def _p3(
    algorithm: simulator.P3, cluster: Cluster, layers: Sequence[Layer], model_bytes: float
) -> float | None:
    """The recursion in the docstring of `P3`, from one backward pass to the next: nothing is sent
    when it begins.
    """
    network, by_layer = cluster.network, algorithm.order == "priority"
    if network.sharing != "fair" or not layers:
        return None
    alpha, beta = mean_of(network.latency), cluster.workers / algorithm.shards / network.bandwidth
    parts = cut(algorithm, cluster, layers, model_bytes)
    up = gradient_slices(parts, lambda size: alpha + size * beta)
    come = sorted(zip(exchange(up, by_layer), up, strict=True), key=lambda each: each[0])
    slower = mean_of(network.latency_from(SERVER)) - alpha
    down = [Slice(at, one.layer, one.seconds + slower) for at, one in come]
    return next_backward(parts, down, exchange(down, by_layer))


@OVERLAP_SECONDS.of(simulator.PriorityAllReduce)
def _priority_all_reduce(
    algorithm: simulator.PriorityAllReduce,
    cluster: Cluster,
    layers: Sequence[Layer],
    model_bytes: float,
) -> float | None:
    """The recursion in the docstring of `PriorityAllReduce`, where a collective ends at all nodes
    at once.
    """
    network = cluster.network
    apart = algorithm.collective == "tree" or (
        algorithm.collective == "server" and network.sharing == "fifo"
    )
    if apart or not layers or collective_seconds(algorithm, cluster, 0.0) is None:
        return None
    alpha = mean_of(network.latency) if cluster.workers > 1 else 0.0
    parts = cut(algorithm, cluster, layers, model_bytes)
    found = gradient_slices(
        parts,
        lambda size: (
            alpha + (collective_seconds(algorithm, cluster, size / network.bandwidth) or 0.0)
        ),
        alpha,
    )
    return next_backward(parts, found, exchange(found, algorithm.order == "priority"))
