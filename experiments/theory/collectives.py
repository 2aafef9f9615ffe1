"""Seconds in which nodes that begin together sum their values by a collective, on a card each."""

import math
from collections.abc import Callable

from laggard.simulator import Cluster
from laggard.simulator.algorithms.collectives.reducing import Reducing
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
