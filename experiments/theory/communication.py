"""Seconds of communication: of a collective, and of updates whose messages overlap the passes."""

import math
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Any, NamedTuple

from laggard import simulator
from laggard.experiments.theory import Forms
from laggard.simulator import Cluster
from laggard.simulator.algorithms.collectives.reducing import Reducing
from laggard.simulator.algorithms.slicing import MAX_SLICES, Sliced
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
"""Seconds of each collective, from P, alpha and N beta (`transfer`)."""
OVERLAP_SECONDS: Forms[float] = Forms()
"""Seconds of an update with equal cards and constant times, from an algorithm, a cluster, the
model's layers and its bytes.
"""


def collective_seconds(algorithm: Reducing, cluster: Cluster, transfer: float) -> float | None:
    """The seconds of the algorithm's collective, if they are known.

    Args:
        transfer: the seconds in which a card sends the bytes of the sum.
    """
    P = cluster.workers
    if P == 1:
        return 0.0
    name = algorithm.collective
    is_power_of_two = P & (P - 1) == 0
    if name not in COLLECTIVE_SECONDS or ("doubling" in name and not is_power_of_two):
        return None
    alpha = mean_of(cluster.network.latency)
    fair = cluster.network.sharing == "fair"
    if algorithm.ring_slices > 1 and not fair:
        return ring_in_slices_seconds(P, algorithm.ring_slices, alpha, transfer)
    if name == "server" and not fair:
        # the worker that is answered first is early in the next round
        if algorithm.servers > 1:
            return None
        return 2 * alpha + P * transfer
    if algorithm.servers > 1:
        return 2 * alpha + 2 * (P - 1) / algorithm.servers * transfer
    return COLLECTIVE_SECONDS[name](P, alpha, transfer)


def ring_in_slices_seconds(P: int, slices: int, alpha: float, transfer: float) -> float:
    """Seconds of a ring whose messages are cut into slices, on cards that are queues.

    Args:
        alpha: the latency (s).
        transfer: N beta, the seconds in which a card sends all bytes.
    """
    tau = transfer / P / slices
    if (slices - 1) * tau >= alpha:
        return 2 * (P - 1) / P * transfer + alpha
    return 2 * (P - 1) * (alpha + tau) + (slices - 1) * tau


def trunk_seconds(algorithm: simulator.AllReduce, cluster: Cluster, size: float) -> float | None:
    """Seconds of a ring or a hierarchical sum over trunks between m groups of g workers.

    P = m g, N = `size` bytes. In a step of the ring, node i sends c_i seconds of bytes, with a
    latency of alpha_i; in the long run a node goes on after the slowest node's bytes, or after the
    way round the ring. Of a hierarchical sum over equal trunks, between groups c is N max(beta, g
    beta') / P, with beta' the seconds a byte of the slowest trunk, and a is the latency:

        ring                    2 (P - 1) max(max_i c_i, mean_i (alpha_i + c_i))
        ring, rendezvous        2 (P - 1) max_i (alpha_i + c_i)
        hierarchical            2 (g - 1)(alpha + N beta / g) + 2 (m - 1)(a + c)
        the same, rendezvous    also over unequal trunks, with the largest a + c

    None for other collectives, where two groups share a trunk to the next group, where groups are
    not equally many consecutive ranks, in buckets or slices; and where g messages would wait in a
    queue at the trunk.
    """
    network, P = cluster.network, cluster.workers
    g = network.group_size(P)
    if g is None or algorithm.bucket_bytes is not None or algorithm.ring_slices > 1:
        return None
    m = P // g
    is_ring = algorithm.collective == "ring"
    alpha, beta = mean_of(network.latency), 1 / network.bandwidth
    messages = 1 if is_ring else g  # at once over a trunk
    crossed: list[Any] = []
    between: list[tuple[float, float]] = []  # from each group to the next: latency, bytes
    if m > 1:
        trunks = Trunks(network, P)
        for group in range(m):
            next_group = (group + 1) % m
            latency, links = trunks.between(group * g, next_group * g)
            crossed += links
            speeds = [speed for speed in links.values() if speed is not None]
            slowest = max((1 / speed for speed in speeds), default=0.0)
            between.append((alpha + latency, size / P * max(beta, messages * slowest)))
    if len(set(crossed)) < len(crossed):
        return None
    if is_ring:
        inside = [(alpha, size / P * beta)] * (P - len(between))
        return 2 * (P - 1) * _ring_step([*between, *inside], network.rendezvous)
    if algorithm.collective != "hierarchical" or (network.sharing != "fair" and 1 < g < P):
        return None
    steps = set(map(sum, between))
    if len(steps) > 1 and not network.rendezvous:
        return None
    return 2 * (g - 1) * (alpha + size / g * beta) + 2 * (m - 1) * max(steps, default=0.0)


def _ring_step(messages: Sequence[tuple[float, float]], rendezvous: bool) -> float:
    """The seconds of a step of a ring in the long run: see `trunk_seconds`.

    Args:
        messages: for each node, the latency (s) of its message and the seconds of its bytes.
    """
    arrivals = list(map(sum, messages))
    if rendezvous:
        return max(arrivals)
    return max(sum(arrivals) / len(arrivals), *(seconds for _, seconds in messages))


class Slice(NamedTuple):
    """A slice of a layer.

    Attributes:
        ready: the moment (s) from which on it can be sent.
        layer: the index of its layer, from the front.
        seconds: the time that it takes to send.
    """

    ready: float
    layer: int
    seconds: float


def exchange(slices: Sequence[Slice], by_layer: bool) -> list[float]:
    """The moments (s) at which each slice has been sent, one at a time.

    Args:
        by_layer: whether the slice of the front-most layer goes first; else the slice that has
            waited longest.
    """
    ends = [math.nan] * len(slices)
    now = 0.0
    coming = sorted(range(len(slices)), key=lambda index: slices[index].ready, reverse=True)
    waiting: list[tuple[int, float, int]] = []
    while coming or waiting:
        if not waiting:
            now = max(now, slices[coming[-1]].ready)
        while coming and slices[coming[-1]].ready <= now:
            index = coming.pop()
            part = slices[index]
            priority = part.layer if by_layer else 0
            heappush(waiting, (priority, part.ready, index))
        *_, index = heappop(waiting)
        now += slices[index].seconds
        ends[index] = now
    return ends


class LayerTimes(NamedTuple):
    """The passes (s) of a layer with parameters, its number of slices, and the bytes of each."""

    forward: float
    backward: float
    slices: int
    size: float


def cut(
    algorithm: Sliced, cluster: Cluster, layers: Sequence[Layer], model_bytes: float
) -> list[LayerTimes]:
    """The layers with parameters from the front; each includes the layers without parameters behind
    it.

    In a model without parameters each layer counts as one parameter.
    """
    works: list[float] = []
    weights: list[float] = []
    has_params = any(layer.params for layer in layers)
    for layer in layers:
        params = layer.params if has_params else 1
        if not works or (weights[-1] and params):
            works.append(0.0)
            weights.append(0.0)
        works[-1] += layer.work
        weights[-1] += params
    forward_seconds = cluster.compute.mean / sum(works) / (1 + algorithm.backward)
    slice_bytes = algorithm.slice_bytes or math.inf
    times = []
    for work, weight in zip(works, weights, strict=True):
        size = model_bytes * weight / sum(weights)
        # 1e-9: the rounding that the simulation's slices allow for
        count = max(1, math.ceil(size / slice_bytes - 1e-9))
        count = min(MAX_SLICES, count)
        forward = forward_seconds * work
        backward = algorithm.backward * forward_seconds * work
        times.append(LayerTimes(forward, backward, count, size / count))
    return times


def gradient_slices(
    layers: Sequence[LayerTimes], seconds: Callable[[float], float], notice: float = 0.0
) -> list[Slice]:
    """The slices of a gradient in order of computation, from the start of its backward pass.

    Args:
        layers: the layers of the model, from the front.
        seconds: the seconds to send a slice of a number of bytes.
        notice: the seconds after which other nodes know that a slice is ready.
    """
    ready = 0.0
    slices: list[Slice] = []
    for number, layer in reversed(list(enumerate(layers))):
        ready += layer.backward
        part = Slice(ready + notice, number, seconds(layer.size))
        slices += [part] * layer.slices
    return slices


def next_backward(
    layers: Sequence[LayerTimes], slices: Sequence[Slice], ends: Sequence[float]
) -> float:
    """The start (s) of the next backward pass: F_L of the recursion.

    Args:
        ends: the moments at which the slices have come back.
    """
    now = sum(layer.backward for layer in layers)
    for number, layer in enumerate(layers):
        for end, part in zip(ends, slices, strict=True):
            if part.layer == number:
                now = max(now, end)
        now += layer.forward
    return now


@OVERLAP_SECONDS.of(simulator.P3)
def _p3(
    algorithm: simulator.P3, cluster: Cluster, layers: Sequence[Layer], model_bytes: float
) -> float | None:
    """The recursion in the docstring of `P3`, from one backward pass to the next: nothing is sent
    when it begins.
    """
    network = cluster.network
    if network.sharing != "fair" or not layers:
        return None
    by_layer = algorithm.order == "priority"
    alpha = mean_of(network.latency)
    beta = cluster.workers / algorithm.shards / network.bandwidth
    parts = cut(algorithm, cluster, layers, model_bytes)
    up = gradient_slices(parts, lambda size: alpha + size * beta)
    arrivals = zip(exchange(up, by_layer), up, strict=True)
    slower = mean_of(network.latency_from(SERVER)) - alpha
    down = []
    for arrival, part in sorted(arrivals, key=lambda pair: pair[0]):
        down.append(Slice(arrival, part.layer, part.seconds + slower))
    return next_backward(parts, down, exchange(down, by_layer))


@OVERLAP_SECONDS.of(simulator.PriorityAllReduce)
def _priority_all_reduce(
    algorithm: simulator.PriorityAllReduce,
    cluster: Cluster,
    layers: Sequence[Layer],
    model_bytes: float,
) -> float | None:
    """The recursion in the docstring of `PriorityAllReduce`. It holds where the first node is one
    of several at which a collective ends last.
    """
    network, name = cluster.network, algorithm.collective
    if name == "tree" or (name == "server" and network.sharing == "fifo"):
        return None
    # The first node begins a latency before the others, so that one node ends so much earlier.
    leads = cluster.workers == 2 or name in ("halving_doubling", "server")
    if leads and mean_of(network.latency) and not network.rendezvous:
        return None
    if not layers or collective_seconds(algorithm, cluster, 0.0) is None:
        return None
    alpha = 0.0
    if cluster.workers > 1:
        alpha = mean_of(network.latency)

    def seconds(size: float) -> float:
        summed = collective_seconds(algorithm, cluster, size / network.bandwidth)
        return alpha + (summed or 0.0)

    parts = cut(algorithm, cluster, layers, model_bytes)
    slices = gradient_slices(parts, seconds, alpha)
    return next_backward(parts, slices, exchange(slices, algorithm.order == "priority"))
