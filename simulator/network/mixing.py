"""Mixing matrices of gossip, W[i, j] the weight node i gives node j's model, and the peers that one
node sees.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from laggard.simulator.errors import InvalidSettingError
from laggard.simulator.network.topology import Ranks, Topology

ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Mixing:
    """One node's row and column of the mixing matrix at one step.

    Attributes:
        own: the weight that it gives to its own model, W[i, i].
        out: for each peer, the share of its own model that goes there, W[peer, i].
        into: for each peer, the weight with which it takes that peer's model, W[i, peer].
    """

    own: float
    out: Mapping[int, float]
    into: Mapping[int, float]


Weight = Callable[[Topology, int, int, int, int], float]
"""(topology, sender, receiver, step, workers) -> W[receiver, sender]."""


def uniform(topology: Topology, sender: int, receiver: int, step: int, workers: int) -> float:
    """Every node keeps as much of its model as it sends to each peer: 1 / (1 + out-degree).

    Column stochastic on every digraph; doubly stochastic where every in- and out-degree is the
    same.

    Source: Assran et al. (2019), arXiv 1811.10792, section 3.
    """
    return 1 / (1 + _degree(topology, sender, step, workers))


def metropolis(topology: Topology, sender: int, receiver: int, step: int, workers: int) -> float:
    """Two neighbours weight each other with 1 / (1 + the greater of their degrees), and keep the
    rest.

    Symmetric and doubly stochastic on every undirected graph; `uniform` where all degrees are the
    same.

    Source: Xiao, Boyd & Kim (2007), average consensus with least-mean-square deviation.
    """
    if not _is_undirected(topology, step, workers):
        expected = "uniform: metropolis needs an undirected graph"
        raise InvalidSettingError(type(topology).__name__, "mixing", expected, "metropolis")
    degrees = (_degree(topology, rank, step, workers) for rank in (sender, receiver))
    return 1 / (1 + max(degrees))


def weights(topology: Topology, sender: int, receiver: int, step: int, workers: int) -> float:
    """The graph's own edge weights, each the share of its sender's model; the sender keeps the
    rest.

    Column stochastic.
    """
    return topology.share(sender, receiver, workers)


MIXINGS: dict[str, Weight] = {"uniform": uniform, "metropolis": metropolis, "weights": weights}


def mixing(name: str, topology: Topology, rank: int, step: int, workers: int) -> Mixing:
    """The mixing of `rank` at `step`, by an entry of `MIXINGS`.

    Raises:
        InvalidSettingError: the graph has no such mixing, or a node would give away more than 1.
    """
    return _mixing(name, topology, rank, step % topology.period(workers), workers)


@lru_cache(maxsize=2**16)
def _degree(topology: Topology, rank: int, step: int, workers: int) -> int:
    return len(topology.out_peers(rank, step, workers))


@lru_cache(maxsize=64)
def _is_undirected(topology: Topology, step: int, workers: int) -> bool:
    return all(
        topology.out_peers(rank, step, workers) == topology.in_peers(rank, step, workers)
        for rank in range(workers)
    )


@lru_cache(maxsize=2**14)
def _mixing(name: str, topology: Topology, rank: int, step: int, workers: int) -> Mixing:
    weight = MIXINGS[name]
    out = {
        peer: weight(topology, rank, peer, step, workers)
        for peer in topology.out_peers(rank, step, workers)
    }
    into = {
        peer: weight(topology, peer, rank, step, workers)
        for peer in topology.in_peers(rank, step, workers)
    }
    given = sum(out.values())
    if given > 1 + ROUNDING:
        expected = (
            f"weights that add up to at most 1 along the out-edges of every node, for mixing {name}"
        )
        raise InvalidSettingError(
            type(topology).__name__, "weight", expected, f"{given:g} at {rank}"
        )
    # one dict where the two are equal saves memory
    return Mixing(max(1 - given, 0.0), out, out if out == into else into)


def matrix(name: str, topology: Topology, step: int, workers: int) -> NDArray[np.float64]:
    """The mixing matrix `(workers, workers)` at `step`: W[i, j] is the weight of j's model in i's.

    Raises:
        InvalidSettingError: as `mixing`.
    """
    found = np.zeros((workers, workers))
    for rank in range(workers):
        mine = mixing(name, topology, rank, step, workers)
        found[rank, rank] = mine.own
        for peer, share in mine.out.items():
            found[peer, rank] = share
    return found


def doubly_stochastic(name: str, topology: Topology, workers: int) -> bool:
    """Whether at every step the weights that each node receives add up to 1, as those it gives
    always do.
    """
    steps = range(topology.period(workers))
    if name == "metropolis" and all(_is_undirected(topology, step, workers) for step in steps):
        return True  # symmetric by definition: the weights of a million nodes need not be added up
    return all(
        abs(mine.own + sum(mine.into.values()) - 1) < ROUNDING
        for step in steps
        for mine in (mixing(name, topology, rank, step, workers) for rank in range(workers))
    )


FEW_PEERS = 64  # mixings with more peers are not cached: a mesh of thousands would fill the memory


class NodePeers:
    """The topology as one node of `workers` sees it; answers are cached, since a method asks at
    every step.
    """

    __slots__ = ("_mixings", "_neighbours", "_period", "_rank", "_topology", "_workers")

    def __init__(self, topology: Topology, rank: int, workers: int) -> None:
        self._topology, self._rank, self._workers = topology, rank, workers
        self._period = topology.period(workers)
        self._neighbours: dict[int, tuple[Ranks, Ranks]] = {}  # by the step of the period
        self._mixings: dict[str, dict[int, Mixing]] = {}  # by name and step

    def at(self, step: int) -> tuple[Ranks, Ranks]:
        """Its out-peers and in-peers at `step`, the next in rank first."""
        within = step % self._period
        found = self._neighbours.get(within)
        if found is None:
            place = self._rank, step, self._workers
            found = self._neighbours[within] = (
                self._topology.out_peers(*place),
                self._topology.in_peers(*place),
            )
        return found

    def mixing(self, name: str, step: int) -> Mixing:
        """Its row and column of the mixing matrix called `name` at `step`.

        Raises:
            InvalidSettingError: the topology has no such mixing.
        """
        within = step % self._period
        known = self._mixings.get(name)
        if known is None:
            known = self._mixings[name] = {}
        found = known.get(within)
        if found is None:
            found = mixing(name, self._topology, self._rank, step, self._workers)
            if len(found.out) <= FEW_PEERS:
                known[within] = found
        return found
