"""Tables that a config names, as CSV or Parquet: slowdowns, network changes, and partitions."""

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from laggard.simulator.errors import HUGE, InvalidSettingError
from laggard.simulator.network.changes import Change, Changes
from laggard.simulator.timing.slowdowns import Crash, Recorded, Window
from laggard.simulator.timing.tables import RANK_COLUMNS, read_foreign_table

RowT = TypeVar("RowT")
SLOWDOWN_COLUMNS = ("worker", "from", "to", "factor")
PARTITION_COLUMNS = ("worker", "sample")
NETWORK_COLUMNS = ("sender", "receiver", "from", "to", "bandwidth", "latency")
COLUMN_OF = {"start": "from", "at": "from", "end": "to", "back": "to"}
"""The column of a row's field, where it has another name."""
NAMES_OF = {"worker": RANK_COLUMNS}
"""Other names of a column."""
DOWN, ANY = "down", ("", "*")


class SlowdownTable(Recorded):
    """Slowdowns and crashes of workers over time, one in each row of a table.

    Rows act as windows and crashes would in the list of slowdowns: factors multiply where they
    overlap.

    Attributes:
        file: CSV or Parquet with the columns `worker`, `from` and `to` in seconds, where an empty
            `to` means for ever, and `factor`: a number, or `down`.
    """

    def __init__(self, file: str) -> None:
        rows = TextTable("SlowdownTable", Path(file), SLOWDOWN_COLUMNS).rows(_event)
        events = [row for row in rows if row is not None]
        if len(events) < len(rows):
            dropped = len(rows) - len(events)
            warnings.warn(f"{file}: {dropped} rows whose from equals to are left out", stacklevel=2)
        super().__init__(events)


class NetworkTable(Changes):
    """Bandwidths and latencies over time, one change in each row of a table.

    Of rows that hold at once that of a pair counts, else the sender's, else the receiver's, else
    that of all; without a row the network's own values count. Values of a pair in `links` are
    changed by rows of that pair alone.

    Attributes:
        file: CSV or Parquet with the columns `sender` and `receiver`, where -1 is the server and an
            empty cell or `*` is any node, `from` and `to` in seconds, where an empty `to` is for
            ever, `bandwidth` in bytes per second, of the pair's link, the sender's up link, the
            receiver's down link or all cards, and `latency` in seconds; where one of the two is
            empty, it does not change.
    """

    def __init__(self, file: str) -> None:
        table = TextTable("NetworkTable", Path(file), NETWORK_COLUMNS)
        super().__init__(table.rows(_change))
        self.table = table

    def error(self, index: int, name: str, expected: str) -> InvalidSettingError:
        return InvalidSettingError(
            "Network", "changes.file", *self.table.problem(index, name, expected)
        )


class TextTable:
    """The cells of a table that a config names, as text.

    Attributes:
        owner: the setting that names it.
        path: where it is.
        cells: the texts of the columns in each row; empty where a cell is.
    """

    def __init__(self, owner: str, path: Path, columns: Sequence[str]) -> None:
        """Raises `InvalidSettingError` where the file cannot be read, lacks one of the columns, or
        has no row.
        """
        self.owner, self.path = owner, path
        table = read_foreign_table(owner, path)
        places = [table.find(*NAMES_OF.get(name, (name,))) for name in columns]
        if None in places:
            got = f"{path} with {', '.join(table.names)}"
            raise InvalidSettingError(
                owner, "file", f"rows with the columns {', '.join(columns)}", got
            )
        self.cells = [
            tuple(table.plain(row[place]) for place in places if place is not None)
            for row in table.rows
        ]

    def rows(self, read: Callable[..., RowT]) -> list[RowT]:
        """What `read` makes of the cells of each row.

        Raises:
            InvalidSettingError: one of them cannot be read, with a `ValueError` of what was
                expected.
        """
        result = []
        for index, cells in enumerate(self.cells):
            try:
                result.append(read(*cells))
            except InvalidSettingError as error:
                problem = self.problem(index, error.field, error.expected)
                raise InvalidSettingError(self.owner, "file", *problem) from None
            except ValueError as error:
                problem = self.problem(index, "", str(error))
                raise InvalidSettingError(self.owner, "file", *problem) from None
        return result

    def problem(self, index: int, name: str, expected: str) -> tuple[str, str]:
        """What was expected of the field `name` of a row, and the row that came instead."""
        if name:
            expected = f"{expected} as {COLUMN_OF.get(name, name)}"
        return expected, f"{','.join(self.cells[index])!r} in row {index + 1} of {self.path}"


def _event(worker: str, start: str, end: str, factor: str) -> Window | Crash | None:
    """The slowdown or crash in a row; None where it has no length."""
    if not (worker.isascii() and worker.isdigit()):
        raise ValueError("a rank, 0, 1, ..., as worker")
    rank = int(worker)
    try:
        if end and float(end) == float(start) >= 0:
            return None
        if factor == DOWN:
            return Crash(rank, at=float(start), back=float(end) if end else None)
        until = float(end) if end else HUGE
        return Window(rank, factor=float(factor), start=float(start), end=until)
    except InvalidSettingError:
        raise
    except ValueError:
        raise ValueError(f"seconds in from and to, and a number or {DOWN} as factor") from None


def _change(
    sender: str, receiver: str, start: str, end: str, bandwidth: str, latency: str
) -> Change:
    """The change of the network in a row."""
    values: dict[str, Any] = {
        "start": math.nan,
        "end": math.inf,
        "bandwidth": None,
        "latency": None,
    }
    for name, cell in zip(values, (start, end, bandwidth, latency), strict=True):
        try:
            if cell:
                values[name] = float(cell)
        except ValueError:
            raise InvalidSettingError("Change", name, "a number", cell) from None
    return Change(_rank_in("sender", sender), _rank_in("receiver", receiver), **values)


def _rank_in(name: str, cell: str) -> int | None:
    """The rank in a cell; as a number with a point where Parquet has empty cells beside it."""
    if cell in ANY:
        return None
    try:
        rank = float(cell)
    except ValueError:
        rank = math.nan
    if not rank.is_integer():
        raise InvalidSettingError("Change", name, "a rank, -1 for the server, or * for any", cell)
    return int(rank)


def _sample(worker: str, sample: str) -> tuple[int, int]:
    """The worker and the sample in a row."""
    if not all(cell.isascii() and cell.isdigit() and len(cell) < 10 for cell in (worker, sample)):
        raise ValueError("two numbers 0, 1, ... in every row")
    return int(worker), int(sample)


@dataclass(frozen=True)
class PartitionTable:
    """The samples of each worker, from a table with a row for each worker and sample.

    A sample may be at several workers, or at none, and is then never trained on. Samples count from
    0 in the order of the training set, which for files is that of the file.

    Attributes:
        file: CSV or Parquet with the columns `worker` and `sample`: ranks, and places in the
            training set.
    """

    file: str

    def __post_init__(self) -> None:
        self.rows  # noqa: B018  # read now, so that a broken file is refused when a config is read

    @cached_property
    def rows(self) -> np.ndarray:
        """The workers and the samples, `(2, rows)`."""
        table = TextTable("PartitionTable", Path(self.file), PARTITION_COLUMNS)
        rows = table.rows(_sample)
        if len(set(table.cells)) < len(rows):
            raise InvalidSettingError(
                "PartitionTable", "file", "every row once", f"some twice in {self.file}"
            )
        return np.array(rows, dtype=np.int64).T

    def shards(
        self, labels: np.ndarray, workers: int, rng: np.random.Generator
    ) -> list[np.ndarray]:
        """The samples of each worker, in the order of the table.

        Raises:
            ValueError: there is no such sample, or no sample or no worker of a rank.
        """
        owners, samples = self.rows
        if samples.max() >= len(labels):
            expected = f"samples from 0 to {len(labels) - 1}, those of the training set"
            raise ValueError(f"partition: expected {expected}, got {samples.max()} in {self.file}")
        if strange := set(owners) ^ set(range(workers)):
            worker = min(strange)
            amount = "none" if worker < workers else "some"
            got = f"{amount} for worker {worker} in {self.file}"
            raise ValueError(
                f"partition: expected samples for each of {workers} workers, got {got}"
            )
        return [samples[owners == rank] for rank in range(workers)]
