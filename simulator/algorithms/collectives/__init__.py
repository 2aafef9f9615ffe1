"""Collectives: P nodes sum the values that each of them has, and all get the sum.

A collective runs inside a role, `total = yield from ring(node, gradient, params, tag)`. Its messages carry promises and
it evaluates nothing: all sources of the sum are evaluated together when its value is first needed. All nodes get the
same sum, bit for bit. The times given are those of P nodes that begin together, N bytes, latency alpha and beta seconds
a byte, on cards that send and receive at once.
"""

from laggard.simulator.algorithms.collectives.rings import (
    Collective,
    all_others,
    mesh,
    naive_ring,
    next_in_rank,
    ring,
)
from laggard.simulator.algorithms.collectives.trees import (
    halving_doubling,
    neighbours,
    partners,
    recursive_doubling,
    tree,
)

COLLECTIVES: dict[str, Collective] = {
    "ring": Collective(ring, next_in_rank),
    "naive_ring": Collective(naive_ring, next_in_rank),
    "mesh": Collective(mesh, all_others),
    "recursive_doubling": Collective(recursive_doubling, partners),
    "halving_doubling": Collective(halving_doubling, partners),
    "tree": Collective(tree, neighbours),
}

__all__ = ["COLLECTIVES", "Collective"]
