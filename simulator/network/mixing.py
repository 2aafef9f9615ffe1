"""Mixing matrices of gossip: W[i, j] is the weight of node j's model in node i's."""

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
        own: the weight of its own model, W[i, i].
        out: for each peer, the share of its model that goes there, W[peer, i].
        into: for each peer, the weight of that peer's model, W[i, peer].
    """

    own: float
    out: Mapping[int, float]
    into: Mapping[int, float]


Weight = Callable[[Topology, int, int, int, int], float]
"""(topology, sender, receiver, step, workers) -> W[receiver, sender]."""


def uniform(topology: Topology, sender: int, receiver: int, step: int, workers: int) -> float:
    """Equal shares of a node's model for itself and each peer: 1 / (1 + out-degree).

    Column stochastic on every digraph; doubly stochastic where every in- and out-degree is the
    same.

    Source: Assran et al. (2019), arXiv 1811.10792, section 3.
    """
    return 1 / (1 + _degree(topology, sender, step, workers))


def metropolis(topology: Topology, sender: int, receiver: int, step: int, workers: int) -> float:
    """Two neighbours weight each other with 1 / (1 + the greater of their degrees).

    The rest is a node's own. Symmetric and doubly stochastic on every undirected graph; `uniform`
    where all degrees are the same.

    Source: Xiao, Boyd & Kim (2007), average consensus with least-mean-square deviation.
    """
    if not _is_undirected(topology, step, workers):
        expected = "uniform: metropolis needs an undirected graph"
        raise InvalidSettingError(type(topology).__name__, "mixing", expected, "metropolis")
    degrees = (_degree(topology, rank, step, workers) for rank in (sender, receiver))
    return 1 / (1 + max(degrees))


def weights(topology: Topology, sender: int, receiver: int, step: int, workers: int) -> float:
    """The weight of the edge: the share of its model that a sender gives away along it.

    The sender keeps the rest, so that the matrix is column stochastic.
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
    out, into = {}, {}
    for peer in topology.out_peers(rank, step, workers):
        out[peer] = weight(topology, rank, peer, step, workers)
    for peer in topology.in_peers(rank, step, workers):
        into[peer] = weight(topology, peer, rank, step, workers)
    total = sum(out.values())
    if total > 1 + ROUNDING:
        rule = "weights that add up to at most 1 along the out-edges of every node"
        expected = f"{rule}, for mixing {name}"
        got = f"{total:g} at {rank}"
        raise InvalidSettingError(type(topology).__name__, "weight", expected, got)
    if into == out:
        into = out  # one dictionary saves memory
    return Mixing(max(1 - total, 0.0), out, into)


def matrix(name: str, topology: Topology, step: int, workers: int) -> NDArray[np.float64]:
    """The mixing matrix `(workers, workers)` at `step`.

    Raises:
        InvalidSettingError: as `mixing`.
    """
    result = np.zeros((workers, workers))
    for rank in range(workers):
        row = mixing(name, topology, rank, step, workers)
        result[rank, rank] = row.own
        for peer, share in row.out.items():
            result[peer, rank] = share
    return result


def doubly_stochastic(name: str, topology: Topology, workers: int) -> bool:
    """Whether each row of W adds up to 1 at every step, as each column does by definition."""
    steps = range(topology.period(workers))
    if name == "metropolis" and all(_is_undirected(topology, step, workers) for step in steps):
        return True  # symmetric by definition: the weights of a million nodes need not be added up
    for step in steps:
        for rank in range(workers):
            row = mixing(name, topology, rank, step, workers)
            if abs(row.own + sum(row.into.values()) - 1) >= ROUNDING:
                return False
    return True


MAX_CACHED_PEERS = 64
"""The peers of a mixing up to which it is cached: a mesh of thousands would fill the memory."""


class NodePeers:
    """The peers and mixings of one node, cached, since a method needs them at every step."""

    __slots__ = ("_mixings", "_neighbours", "_period", "_rank", "_topology", "_workers")

    def __init__(self, topology: Topology, rank: int, workers: int) -> None:
        self._topology = topology
        self._rank = rank
        self._workers = workers
        self._period = topology.period(workers)
        self._neighbours: dict[int, tuple[Ranks, Ranks]] = {}  # by the step of the period
        self._mixings: dict[str, dict[int, Mixing]] = {}  # by name and step

    def at(self, step: int) -> tuple[Ranks, Ranks]:
        """Its out-peers and in-peers at `step`, the next in rank first."""
        within = step % self._period
        peers = self._neighbours.get(within)
        if peers is None:
            out = self._topology.out_peers(self._rank, step, self._workers)
            into = self._topology.in_peers(self._rank, step, self._workers)
            peers = self._neighbours[within] = out, into
        return peers

    def mixing(self, name: str, step: int) -> Mixing:
        """Its row and column of the mixing matrix called `name` at `step`.

        Raises:
            InvalidSettingError: the topology has no such mixing.
        """
        within = step % self._period
        by_step = self._mixings.get(name)
        if by_step is None:
            by_step = self._mixings[name] = {}
        result = by_step.get(within)
        if result is None:
            result = mixing(name, self._topology, self._rank, step, self._workers)
            if len(result.out) <= MAX_CACHED_PEERS:
                by_step[within] = result
        return result
