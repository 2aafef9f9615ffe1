"""Measured seconds in a table: a row each, or a column per worker."""

import math
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from laggard.files import number_names
from laggard.simulator.errors import InvalidSettingError
from laggard.simulator.timing.distributions.distribution import Seconds
from laggard.simulator.timing.tables import (
    RANK_COLUMNS,
    RANK_NAME,
    ROW_NUMBERS,
    ForeignTable,
    read_foreign_table,
    to_unit,
    without_unit,
)

COLUMN = "seconds"
"""The column of durations where none is named and several have numbers."""
COLUMN_EACH = "columns"
"""The value of the key `worker` that says that each worker has a column."""
COUNTERS = ("index", "step", "iter", "iteration", "epoch", "batch")
"""Names of further columns in a table with a column for each worker."""


@dataclass(frozen=True)
class Rows:
    """Durations `(rows,)` in seconds, and the rank of each, if the file has ranks."""

    seconds: Seconds
    ranks: NDArray[np.int64] | None

    @cached_property
    def by_rank(self) -> dict[int, Seconds]:
        """The seconds of each rank, in the order of the file; empty without ranks."""
        if self.ranks is None:
            return {}
        order = np.argsort(self.ranks, kind="stable")
        ranks, first = np.unique(self.ranks[order], return_index=True)
        return dict(zip(ranks.tolist(), np.split(self.seconds[order], first[1:]), strict=True))


def read_rows(path: Path, column: str | None, worker: str | None, unit: str | None) -> Rows:
    """The durations in a table, and the ranks of their workers.

    Args:
        path: a table that `read_foreign_table` reads.
        column: the name of the column of durations; by default `seconds`, or else the only column
            of numbers.
        worker: the name of the column of ranks, or `columns` where each worker has a column. By
            default, a table whose columns of numbers are named `worker0` or `rank0` and so on has a
            column for each.
        unit: the unit of the durations; by default that in the column's name, or else seconds.

    Raises:
        InvalidSettingError: a line is not valid; the message names it.
    """
    table = read_foreign_table("Trace", path)
    if column is None and _has_a_column_each(table, worker):
        return _rows_of_columns(table, unit)
    names = [worker]
    if worker in RANK_COLUMNS:
        names = [worker, *RANK_COLUMNS]
    ranks = None
    if worker is not None:
        ranks = table.find(*(name for name in names if name is not None))
        if ranks is None:
            columns = ", ".join(table.names)
            expected = f"the column of ranks (one of {columns}), or {COLUMN_EACH}"
            raise InvalidSettingError("Trace", "worker", expected, worker)
    place = _find_durations(table, column, ranks)
    factor = to_unit(table, place, "time", unit)
    rows = range(len(table.rows))
    seconds = np.array([_duration(table, index, place, factor) for index in rows])
    if ranks is None:
        return Rows(seconds, None)
    (owners,) = table.ranks(ranks)
    return Rows(seconds, np.array(owners))


def _find_durations(table: ForeignTable, column: str | None, ranks: int | None) -> int:
    """The index of the column of durations."""
    if column is not None:
        place = table.find(column)
        if place is None:
            expected = f"one of {', '.join(table.names)}, of numbers"
            raise InvalidSettingError("Trace", "column", expected, column)
        return place
    seconds = table.find(COLUMN)
    if seconds is not None:
        return seconds
    numeric = [place for place in range(len(table.names)) if table.is_numeric(place, "time")]
    numeric = [place for place in numeric if place != ranks]
    if len(numeric) > 1:
        numeric = [place for place in numeric if not ROW_NUMBERS.fullmatch(table.names[place])]
    names = [table.names[place] for place in numeric]
    if not names:
        row = ", ".join(table.rows[0])
        got = f"{row} in line {table.lines[0]} of {table.path}"
        raise InvalidSettingError("Trace", "column", "a column of numbers", got)
    if len(names) > 1:
        expected = f"the name of one of {', '.join(names)}"
        raise InvalidSettingError("Trace", "column", expected, column)
    return numeric[0]


def _has_a_column_each(table: ForeignTable, worker: str | None) -> bool:
    """Whether each worker has a separate column."""
    if worker == COLUMN_EACH:
        return table.find(COLUMN_EACH) is None
    if worker is not None:
        return False
    return len(_worker_columns(table)) > 0 and table.find(COLUMN) is None


def _worker_columns(table: ForeignTable) -> list[int]:
    """The indices of the columns that are named after a worker."""
    places = []
    for place, name in enumerate(table.names):
        if RANK_NAME.match(name) and RANK_NAME.fullmatch(without_unit(table, place, "time")):
            places.append(place)
    return places


def _rows_of_columns(table: ForeignTable, unit: str | None) -> Rows:
    """The durations of a table with a column for each worker; workers may have fewer rows."""
    places = _worker_columns(table)
    if not places:
        places = [
            place
            for place, name in enumerate(table.names)
            if name.casefold() not in COUNTERS and not ROW_NUMBERS.fullmatch(name)
        ]
    names: dict[int, str] = {}
    for place in places:
        name = without_unit(table, place, "time")
        if name in names.values():
            raise table.error("one column for each worker", f"a second column of {name}")
        names[place] = name
    ranks = number_names(names.values())
    seconds: list[float] = []
    owners: list[int] = []
    for place in places:
        factor = to_unit(table, place, "time", unit)
        for index, row in enumerate(table.rows):
            if row[place]:
                seconds.append(_duration(table, index, place, factor))
                owners.append(ranks[names[place]])
    return Rows(np.array(seconds), np.array(owners))


def _duration(table: ForeignTable, index: int, place: int, factor: Decimal) -> float:
    cell = table.rows[index][place]
    seconds = table.number(cell, factor, "time")
    if seconds is None or not 0 < seconds < math.inf:
        raise table.error_in_row(index, f"numbers > 0 as {table.names[place]}", cell)
    return seconds
