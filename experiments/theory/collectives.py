"""Seconds in which nodes that begin together sum their values by a collective, on a card each."""

import math
from collections.abc import Callable

from laggard.simulator import AllReduce, Cluster
from laggard.simulator.algorithms.collectives.reducing import Reducing
from laggard.simulator.network.groups import Trunks
from laggard.simulator.timing.distributions.distribution import mean_of

COLLECTIVE_SECONDS: dict[str, Callable[[int, float, float], float]] = {
    "ring": lambda P, alpha, transfer: 2 * (P - 1) * alpha + 2 * (P - 1) / P * transfer,
    "naive_ring": lambda P, alpha, transfer: (P - 1) * (alpha + transfer),
    "mesh": lambda P, alpha, transfer: alpha + (P - 1) * transfer,
    "recursive_doubling": lambda P, alpha, transfer: math.log2(P) * (alpha + transfer),
    "halving_doubling": lambda P, alpha, transfer: 2 * math.log2(P) * alpha + 2 * (P - 1) / P * transfer,
    "tree": lambda P, alpha, transfer: 2 * math.ceil(math.log2(P)) * (alpha + transfer),
    "server": lambda P, alpha, transfer: 2 * alpha + 2 * (P - 1) * transfer,
}
"""Of P, alpha and N beta (`transfer`)."""


def collective_seconds(algorithm: Reducing, cluster: Cluster, transfer: float) -> float | None:
    """What the collective of `algorithm` takes for bytes that a card sends in `transfer` seconds, if that is known."""
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
    """Seconds of a ring whose messages are cut into slices, on cards that are queues; of alpha and N beta."""
    tau = transfer / P / slices
    if (slices - 1) * tau >= alpha:
        return 2 * (P - 1) / P * transfer + alpha
    return 2 * (P - 1) * (alpha + tau) + (slices - 1) * tau


def trunk_seconds(algorithm: AllReduce, cluster: Cluster, size: float) -> float | None:
    """What a ring or a hierarchical sum of N = `size` bytes takes over trunks between m groups of g workers.

    P = m g; with alpha_i the latency from group i to the next, beta_i the seconds a byte of the slowest trunk there,

        ring            2 (P - 1) max_i (alpha_i + N max(beta, beta_i) / P)
        hierarchical    2 (g - 1)(alpha + N beta / g) + 2 (m - 1) max_i (alpha_i + N max(beta, g beta_i) / P)

    None for other collectives, where two of these ways share a trunk, where groups are no stretches of equally many
    ranks, in buckets or slices; and where g messages would wait in a queue at the trunk.
    """
    network, P = cluster.network, cluster.workers
    g = network.group_size(P)
    if g is None or algorithm.bucket_bytes is not None or algorithm.ring_slices > 1:
        return None
    m, trunks, alpha, beta = P // g, Trunks(network, P), mean_of(network.latency), 1 / network.bandwidth
    ways = [trunks.between(group * g, (group + 1) % m * g) for group in range(m)] if m > 1 else []
    crossed = [ends for _, links in ways for ends in links]
    if len(set(crossed)) < len(crossed):
        return None
    slowest = [max((1 / speed for speed in links.values() if speed is not None), default=0.0) for _, links in ways]
    at_once = 1 if algorithm.collective == "ring" else g
    between = [alpha + far + size / P * max(beta, at_once * slow)
               for (far, _), slow in zip(ways, slowest, strict=True)]  # fmt: skip
    if algorithm.collective == "ring":
        return 2 * (P - 1) * max([*between, (alpha + size / P * beta) * (P > 1)])
    if algorithm.collective != "hierarchical" or (network.sharing != "fair" and 1 < g < P):
        return None
    return 2 * (g - 1) * (alpha + size / g * beta) + 2 * (m - 1) * max(between, default=0.0)
