"""A directed graph that changes from step to step, read from a file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from laggard.simulator.errors import InvalidSettingError
from laggard.simulator.network.topology.regular import Peers
from laggard.simulator.timing.tables import ForeignTable, read_foreign_table

StepEdges = Mapping[tuple[int, int], float | None]
"""(sender, receiver) -> the share of the sender's model that goes there, where the file says
one.
"""
EDGE_COLUMNS = ["step", "sender", "receiver"]


@dataclass(frozen=True, eq=False)  # a file may change, so that equal fields may be different graphs
class TimeVarying(Peers):
    """A directed graph that changes from step to step: at step t, the edges of step t modulo the
    file's steps.

    Over all steps together every worker must be reachable from every other. With push-sum, models
    then agree on any such sequence; doubly stochastic mixing needs steps whose graphs allow it.

    Source: Nedic & Olshevsky (2015), arXiv 1303.2289.

    Attributes:
        file: a table, as CSV in any dialect or Parquet, with the columns `step` (0, 1, ...; all of
            them), `sender`, `receiver` and, for the mixing `weights`, `weight`: the share of its
            sender's model that goes along the edge.
    """

    file: str

    @cached_property
    def steps(self) -> Sequence[StepEdges]:
        """The edges of each step.

        Raises:
            InvalidSettingError: the file cannot be read, or a line of it is no edge.
        """
        table = read_foreign_table("TimeVarying", self.file)
        step_place, *ends = table.require(*EDGE_COLUMNS)
        senders, receivers = table.ranks(*ends)
        (steps,) = table.ranks(step_place)
        weights = _weights(table)
        by_step: dict[int, dict[tuple[int, int], float | None]] = {}
        for index, step in enumerate(steps):
            pair = senders[index], receivers[index]
            if pair[0] == pair[1]:
                row = ",".join(table.rows[index])
                raise table.error_in_row(index, "two different ranks in every row", row)
            edges = by_step.setdefault(step, {})
            if edges.get(pair, weights[index]) != weights[index]:
                row = ",".join(table.rows[index])
                raise table.error_in_row(index, "one weight of an edge in a step", row)
            edges[pair] = weights[index]
        if sorted(by_step) != list(range(len(by_step))):
            got = f"steps {sorted(by_step)[:10]} in {table.path}"
            raise self._wrong("an edge in each of the steps 0, 1, 2, ...", got)
        return [by_step[step] for step in range(len(by_step))]

    def ranks(self, rank: int, step: int, workers: int) -> Sequence[int]:
        return [receiver for sender, receiver in self.steps[step] if sender == rank]

    def period(self, workers: int) -> int:
        return len(self.steps)

    def share(self, sender: int, receiver: int, workers: int) -> float:
        shares = {edges[sender, receiver] for edges in self.steps if (sender, receiver) in edges}
        weight = shares.pop() if len(shares) == 1 else None
        if weight is None or not 0 < weight <= 1:
            expected = "one weight > 0 and at most 1 for each edge, equal in all its steps"
            raise self._wrong(expected, f"{weight or shares or None} on {sender} -> {receiver}")
        return weight

    def check(self, workers: int) -> None:
        # here, since importing it takes longer than simulating a small cluster
        import networkx as nx

        edges = [pair for step in self.steps for pair in step]
        if outside := [pair for pair in edges if max(pair) >= workers]:
            raise self._wrong(
                f"ranks below workers = {workers}", f"an edge {outside[0][0]} -> {outside[0][1]}"
            )
        graph = nx.DiGraph(edges)
        graph.add_nodes_from(range(workers))
        if not nx.is_strongly_connected(graph):
            raise self._wrong(
                "steps over which every worker can reach every other", "some that cannot"
            )

    def _wrong(self, expected: str, got: str) -> InvalidSettingError:
        return InvalidSettingError("TimeVarying", "file", expected, got)


def _weights(table: ForeignTable) -> list[float | None]:
    """The weight of each row, None where the cell is empty."""
    place = table.find("weight")
    if place is None:
        return [None] * len(table.rows)
    weights = []
    for index, row in enumerate(table.rows):
        weight = table.number(row[place])
        if weight is None and row[place]:
            raise table.error_in_row(index, "a number as weight", row[place])
        weights.append(weight)
    return weights
