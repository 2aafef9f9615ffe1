"""Collectives: P nodes sum the values that each of them has, and all get the sum.

A collective is a schedule of steps: the sender, the receiver and the parts of each message. A role
goes through it by `total = yield from COLLECTIVES["ring"].reduce(node, gradient, params, tag)`.
Nothing is evaluated: all sources of the sum are evaluated together when its value is first needed.
All nodes get the same sum, bit for bit. The times given are those of P nodes that begin together, N
bytes, latency alpha and beta seconds a byte, on cards that send and receive at once, with either
`sharing` where none is named.
"""

from functools import partial

from laggard.simulator.algorithms.collectives.direct import all_others, mesh, server, to_servers
from laggard.simulator.algorithms.collectives.rings import (
    hierarchical,
    naive_ring,
    next_in_rank,
    ring,
    ring_in_slices,
)
from laggard.simulator.algorithms.collectives.schedule import Collective
from laggard.simulator.algorithms.collectives.trees import (
    halving_doubling,
    neighbours,
    partners,
    recursive_doubling,
    tree,
)

COLLECTIVES: dict[str, Collective] = {
    "ring": Collective(ring, next_in_rank, rotates=True),
    "naive_ring": Collective(naive_ring, next_in_rank, gathers=True, rotates=True),
    "mesh": Collective(mesh, all_others, gathers=True),
    "recursive_doubling": Collective(recursive_doubling, partners),
    "halving_doubling": Collective(halving_doubling, partners),
    "tree": Collective(tree, neighbours),
    "server": Collective(partial(server, 1), partial(to_servers, 1)),
}


def on_servers(servers: int) -> Collective:
    """The sum by `servers` of the nodes, each of which sums a part."""
    return Collective(partial(server, servers), partial(to_servers, servers))


def in_slices(slices: int) -> Collective:
    """The ring whose messages are cut into `slices`."""
    return Collective(partial(ring_in_slices, slices), next_in_rank, slices=slices)


def over_hosts(size: int) -> Collective:
    """The hierarchical all-reduce over hosts of `size` workers."""
    return Collective(partial(hierarchical, size), no_partners)


def no_partners(rank: int, workers: int) -> list[int]:
    """None: whom a worker sends to depends on the size of a host."""
    return []


__all__ = ["COLLECTIVES", "Collective", "in_slices", "on_servers", "over_hosts"]
