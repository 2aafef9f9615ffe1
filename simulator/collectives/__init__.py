"""Collectives: how P nodes add up what each of them has, so that every one of them has the sum.

A collective runs inside a role, `total = yield from ring(node, gradient, params, tag)`. Its messages carry promises and
it asks for no value: whoever needs the sum first has all that it is made of evaluated together. All nodes get the same
sum, bit for bit. The times given are those of P nodes that begin together, N bytes, latency alpha and beta seconds a
byte, on cards that send and receive at once.
"""

from simulator.collectives import hypercube, tree
from simulator.collectives.averaged import Averaged
from simulator.collectives.circles import everybody_else, mesh, naive_ring, next_in_rank, ring
from simulator.collectives.steps import Collective

COLLECTIVES: dict[str, Collective] = {
    "ring": Collective(ring, next_in_rank),
    "naive_ring": Collective(naive_ring, next_in_rank),
    "mesh": Collective(mesh, everybody_else),
    "recursive_doubling": Collective(hypercube.recursive_doubling, hypercube.partners),
    "halving_doubling": Collective(hypercube.halving_doubling, hypercube.partners),
    "tree": Collective(tree.tree, tree.partners),
}

__all__ = ["COLLECTIVES", "Averaged", "Collective"]
