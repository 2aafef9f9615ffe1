"""A directed graph that changes from step to step, read from a file."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from laggard.simulator.errors import InvalidSettingError
from laggard.simulator.network.topology.regular import Peers

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
        file: a CSV file with the columns `step` (0, 1, ...; all of them), `sender`, `receiver` and,
            for the mixing `weights`, `weight`: the share of its sender's model that goes along the
            edge.
    """

    file: str

    @cached_property
    def steps(self) -> Sequence[StepEdges]:
        """The edges of each step.

        Raises:
            InvalidSettingError: the file cannot be read, or a line of it is no edge.
        """
        path, found = Path(self.file), dict[int, dict[tuple[int, int], float | None]]()
        try:
            with path.open(newline="", encoding="utf-8-sig") as lines:
                reader = csv.DictReader(lines, restval="")
                if not set(EDGE_COLUMNS) <= set(reader.fieldnames or ()):
                    raise self._wrong(
                        f"a file with the columns {', '.join(EDGE_COLUMNS)}", str(path)
                    )
                for row in reader:
                    step, pair, weight = self._edge(row, reader.line_num)
                    found.setdefault(step, {})[pair] = weight
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            reason = getattr(error, "strerror", None) or error
            raise self._wrong("a file that can be read", f"{path}: {reason}") from None
        if sorted(found) != list(range(len(found))) or not found:
            raise self._wrong(
                "an edge in each of the steps 0, 1, 2, ...", f"steps {sorted(found)[:10]} in {path}"
            )
        return [found[step] for step in range(len(found))]

    def ranks(self, rank: int, step: int, workers: int) -> Sequence[int]:
        return [receiver for sender, receiver in self.steps[step] if sender == rank]

    def period(self, workers: int) -> int:
        return len(self.steps)

    def share(self, sender: int, receiver: int, workers: int) -> float:
        shares = {edges[sender, receiver] for edges in self.steps if (sender, receiver) in edges}
        weight = shares.pop() if len(shares) == 1 else None
        if weight is None or not 0 < weight <= 1:
            expected = (
                "a column weight with a share from 0 to 1, of each edge the same in all of its "
                "steps"
            )
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

    def _edge(self, row: Mapping[str, str], line: int) -> tuple[int, tuple[int, int], float | None]:
        """The step, the pair and the weight of a line."""
        try:
            step, sender, receiver = (int(row[name]) for name in EDGE_COLUMNS)
            if row.get("weight", "").strip():
                weight = float(row["weight"])
            else:
                weight = None
        except ValueError:
            step = sender = receiver = -1
        if min(step, sender, receiver) < 0 or sender == receiver:
            got = ",".join(str(cell) for cell in row.values())
            raise self._wrong(
                "a step and two different ranks in every row",
                f"{got!r} in line {line} of {self.file}",
            )
        return step, (sender, receiver), weight

    def _wrong(self, expected: str, got: str) -> InvalidSettingError:
        return InvalidSettingError("TimeVarying", "file", expected, got)
