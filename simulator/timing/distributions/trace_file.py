"""A CSV or Parquet file of measured seconds, a row each, with the rank of the worker that took
them.
"""

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from laggard.simulator.errors import InvalidSettingError
from laggard.simulator.timing.distributions.distribution import Seconds

COLUMN = "seconds"
"""The column of durations where none is named and several have numbers."""


@dataclass(frozen=True)
class Rows:
    """Durations `(rows,)` in seconds, and the rank that each is of, where the file says it."""

    seconds: Seconds
    ranks: NDArray[np.int64] | None

    @cached_property
    def by_rank(self) -> dict[int, Seconds]:
        """The seconds of each rank, in the order of the file; none where it says no ranks."""
        if self.ranks is None:
            return {}
        order = np.argsort(self.ranks, kind="stable")
        found, first = np.unique(self.ranks[order], return_index=True)
        return dict(zip(found.tolist(), np.split(self.seconds[order], first[1:]), strict=True))


def read_rows(path: Path, column: str | None, worker: str | None) -> Rows:
    """The durations in one column of a CSV or Parquet file, and the ranks in the column `worker`.

    Raises:
        InvalidSettingError: a line is not valid; the message names it.
    """
    try:
        if path.suffix == ".parquet":
            rows = _parquet_rows(path)
        else:
            rows = _csv_rows(path)
    # Arrow's errors and undecodable text are ValueErrors
    except (OSError, ValueError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise InvalidSettingError(
            "Trace", "file", "a CSV or Parquet file that can be read", f"{path}: {reason}"
        ) from None
    if len(rows) < 2 or any(_seconds(cell) is not None for cell in rows[0][1]):
        raise InvalidSettingError(
            "Trace", "file", "a row of names and rows of numbers below it", str(path)
        )
    names = [cell.strip() for cell in rows[0][1]]
    if worker is not None and worker not in names:
        raise InvalidSettingError("Trace", "worker", f"one of {', '.join(names)}, of ranks", worker)
    pairs = zip(names, rows[1][1], strict=False)
    numbers = [name for name, cell in pairs if _seconds(cell) is not None and name != worker]
    if column is None and len(numbers) > 1 and COLUMN not in numbers:
        raise InvalidSettingError(
            "Trace", "column", f"the name of one of {', '.join(numbers)}", column
        )
    name: str | None
    if column is not None:
        name = column
    elif COLUMN in numbers:
        name = COLUMN
    else:
        name = next(iter(numbers), None)
    if name not in names:
        raise InvalidSettingError(
            "Trace", "column", f"one of {', '.join(names)}, of numbers", column
        )
    seconds = np.array([_duration(path, line, row, names.index(name)) for line, row in rows[1:]])
    if worker is None:
        return Rows(seconds, None)
    return Rows(
        seconds, np.array([_rank(path, line, row, names.index(worker)) for line, row in rows[1:]])
    )


def _csv_rows(path: Path) -> list[tuple[int, list[str]]]:
    """The number and the cells of each line that is not empty, the names first."""
    with path.open(newline="", encoding="utf-8-sig") as lines:
        reader = csv.reader(lines)
        return [(reader.line_num, row) for row in reader if any(cell.strip() for cell in row)]


def _parquet_rows(path: Path) -> list[tuple[int, list[str]]]:
    """The number and the cells, as text, of each row, the names first; a row that a CSV file has in
    that line.
    """
    # here, since importing it takes longer than simulating a small cluster
    from pyarrow import parquet

    table = parquet.read_table(path)
    columns = [
        ["" if cell is None else str(cell) for cell in column.to_pylist()]
        for column in table.columns
    ]
    return list(enumerate([table.column_names, *map(list, zip(*columns, strict=True))], 1))


def _duration(path: Path, line: int, row: Sequence[str], place: int) -> float:
    seconds = _seconds(_cell(row, place))
    if seconds is None or not 0 < seconds < math.inf:
        got = f"{_cell(row, place)!r} in line {line} of {path}"
        raise InvalidSettingError("Trace", "file", "seconds > 0 in every row", got)
    return seconds


def _rank(path: Path, line: int, row: Sequence[str], place: int) -> int:
    cell = _cell(row, place)
    if not (cell.isascii() and cell.isdigit() and len(cell) < 10):
        got = f"{cell!r} in line {line} of {path}"
        raise InvalidSettingError("Trace", "worker", "a rank, 0, 1, ..., in every row", got)
    return int(cell)


def _cell(row: Sequence[str], place: int) -> str:
    if place < len(row):
        return row[place].strip()
    return ""


def _seconds(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None
