"""What methods without a server ask of a graph: that there is one, and whom an active half of it may ask."""

from collections.abc import Mapping, Sequence
from functools import lru_cache

from simulator.bounds import Invalid
from simulator.topology.protocol import Ranks, Topology
from simulator.topology.star import Auto, resolved


def graph_of_workers(topology: Topology | Auto, asked: Topology, workers: int) -> Topology:
    """`topology`, or the method's own where that is left to it.

    Raises:
        Invalid: it does not fit so many workers, or lets them talk to a server alone.
    """
    graph = resolved(topology, asked)
    graph.check(workers)
    if workers > 1 and not any(graph.joins(0, peer, workers) for peer in range(1, workers)):
        expected = f"a graph on which workers talk to workers, as {type(asked).__name__.lower()}"
        raise Invalid("Network", "topology", expected, type(graph).__name__.lower())
    return graph


@lru_cache(maxsize=64)
def asked_by(graph: Topology, workers: int) -> tuple[Ranks, ...]:
    """Whom each rank may ask: its neighbours, if it is of the active half; nobody, if it is of the passive one.

    The halves are the two colours of a bipartite graph, rank 0 active. On any other, as an odd ring or the complete
    graph, even ranks are active and ask odd ones, and the edges within a half are not used.

    Raises:
        Invalid: what is left falls apart, or answers cannot go back along directed edges.
    """
    steps = range(graph.period(workers))
    out = [{peer for step in steps for peer in graph.out_peers(rank, step, workers)} for rank in range(workers)]
    both_ways = [sorted(peer for peer in peers if rank in out[peer]) for rank, peers in enumerate(out)]
    active = _colours(both_ways) or {rank: rank % 2 == 0 for rank in range(workers)}
    across = [[peer for peer in peers if active.get(peer) != active.get(rank)] for rank, peers in enumerate(both_ways)]
    if len(_reached(across)) < workers:
        expected = "an undirected graph that is bipartite, or stays connected where even ranks ask odd ones alone"
        raise Invalid("Network", "topology", expected, graph)
    return tuple(tuple(peers) if active[rank] else () for rank, peers in enumerate(across))


def _reached(neighbours: Sequence[Sequence[int]]) -> Mapping[int, bool]:
    """The ranks that rank 0 reaches, and whether by an even number of edges."""
    even, fresh = {0: True}, [0]
    for rank in fresh:
        for peer in neighbours[rank]:
            if peer not in even:
                even[peer] = not even[rank]
                fresh.append(peer)
    return even


def _colours(neighbours: Sequence[Sequence[int]]) -> Mapping[int, bool] | None:
    """Which of two colours each rank has, if no two neighbours need the same."""
    colour = _reached(neighbours)
    clash = any(colour[rank] == colour[peer] for rank in colour for peer in neighbours[rank])
    return None if clash else colour
