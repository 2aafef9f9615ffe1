"""Collectives without forwarding: the mesh, and servers among the nodes."""

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np

from laggard.simulator.algorithms.collectives.rings import shift
from laggard.simulator.algorithms.collectives.schedule import PartsExchange, Phase


def all_others(rank: int, workers: int) -> Sequence[int]:
    """All other ranks, the next first, so that not all nodes send to the same one first."""
    return [*range(rank + 1, workers), *range(rank)]


@lru_cache(maxsize=4)
def mesh(workers: int) -> Sequence[Phase]:
    """The parallel all-reduce: every node sends its value to all others, and sums all of them.

    alpha + (P - 1) N beta seconds where a node has one card, alpha + N beta where every pair has a
    link.
    """
    own = partial(shift, 0, workers)
    return [
        [
            PartsExchange(
                partial(shift, by, workers),
                partial(shift, -by, workers),
                cut=workers,
                first=own,
                adds=False,
            )
            for by in range(1, workers)
        ]
    ]


def to_servers(servers: int, rank: int, workers: int) -> Sequence[int]:
    """The ranks to which a node sends: the servers; from a server, all others."""
    return [peer for peer in all_others(rank, workers) if min(rank, peer) < servers]


def if_below(servers: int, by: int, workers: int, rank: Any) -> Any:
    """The rank `by` places after `rank`, if it is a server's; else -1. Also for arrays of ranks."""
    other = shift(by, workers, rank)
    return np.where(other < servers, other, -1)


def if_itself_below(servers: int, by: int, workers: int, rank: Any) -> Any:
    """The rank `by` places after `rank`, if `rank` is a server's; else -1. Also for arrays."""
    return np.where(np.asarray(rank) < servers, shift(by, workers, rank), -1)


@lru_cache(maxsize=4)
def server(servers: int, workers: int) -> Sequence[Phase]:
    """Servers among the nodes: each of the first S sums a part of N / S bytes and sends it to all.

    With fair sharing 2 alpha + 2 ((P - 1) / S) N beta seconds, for P > 1. With `fifo` and one
    server, the first round of nodes that begin together takes as long, and each later one 2 alpha +
    P N beta: the server answers one node after another, so that their next gradients come one after
    another too. S = 1 is a parameter server that adds up gradients and leaves the update to the
    workers; S = P sends as few bytes as the ring, with 2 alpha instead of 2 (P - 1) alpha.
    Each part is added up once: its server adds the values of the nodes before it, the nearest
    first.

    Source: Jiang et al. (2020), A unified architecture for accelerating distributed DNN training,
    OSDI, section 2.3.
    """
    ahead, behind = range(1, workers), range(-1, -workers, -1)
    push = [
        PartsExchange(
            partial(if_below, servers, on, workers),
            partial(if_itself_below, servers, back, workers),
            1 / servers,
            servers,
            partial(shift, on, workers),
        )
        for on, back in zip(ahead, behind, strict=True)
    ]
    pull = [
        PartsExchange(
            partial(if_itself_below, servers, on, workers),
            partial(if_below, servers, back, workers),
            1 / servers,
            servers,
            partial(shift, 0, workers),
            adds=False,
        )
        for on, back in zip(ahead, behind, strict=True)
    ]
    return [push, pull]
