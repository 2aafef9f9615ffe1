"""Whom a node may talk to at which step, and with what weight they mix: the topology's answers, each asked for once."""

from simulator.mixing import Mixing, mixing
from simulator.topology import Ranks, Topology

FEW = 64  # peers, up to which a node remembers what each of them gets: a mesh of thousands would fill the memory


class Peers:
    """The topology as one node of `workers` sees it; a method asks at every step, so that answers are remembered."""

    def __init__(self, topology: Topology, rank: int, workers: int) -> None:
        self._topology, self._rank, self._workers = topology, rank, workers
        self._period = topology.period(workers)
        self._neighbours: dict[int, tuple[Ranks, Ranks]] = {}  # by the step of the period
        self._mixings: dict[tuple[str, int], Mixing] = {}  # by name and step

    def at(self, step: int) -> tuple[Ranks, Ranks]:
        """To whom it may send at `step`, and who sends to it then; the next in rank first."""
        within = step % self._period
        known = self._neighbours.get(within)
        if known is None:
            place = self._rank, step, self._workers
            known = self._neighbours[within] = self._topology.out_peers(*place), self._topology.in_peers(*place)
        return known

    def mixing(self, name: str, step: int) -> Mixing:
        """Its row and column of the mixing matrix called `name` at `step`.

        Raises:
            Invalid: the topology has no such mixing.
        """
        within = name, step % self._period
        known = self._mixings.get(within)
        if known is None:
            known = mixing(name, self._topology, self._rank, step, self._workers)
            if len(known.out) <= FEW:
                self._mixings[within] = known
        return known
