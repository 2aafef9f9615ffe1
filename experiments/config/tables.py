"""Tables that a config names, as CSV or Parquet: slowdowns, network changes, and partitions."""

import math
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from laggard.simulator.errors import HUGE, InvalidSettingError
from laggard.simulator.network.changes import Change, Changes
from laggard.simulator.timing.slowdowns import Crash, Recorded, Window
from laggard.simulator.timing.tables import (
    ONE,
    RANK_COLUMNS,
    ForeignTable,
    read_foreign_table,
    to_unit,
    without_unit,
)
from laggard.units import OWN_UNITS, BandwidthUnit, TimeUnit

RowT = TypeVar("RowT")
SLOWDOWN_COLUMNS = ("worker", "from", "to", "factor")
PARTITION_COLUMNS = ("worker", "sample")
NETWORK_COLUMNS = ("sender", "receiver", "from", "to", "bandwidth", "latency")
COLUMN_OF = {"start": "from", "at": "from", "end": "to", "back": "to"}
"""The column of a row's field, where it has another name."""
NAMES_OF = {
    "worker": RANK_COLUMNS,
    "from": ("from", "start"),
    "to": ("to", "until", "end"),
    "sender": ("sender", "source", "src"),
    "receiver": ("receiver", "target", "dst"),
}
"""All names of a column."""
QUANTITIES_OF = {"from": "time", "to": "time", "latency": "time", "bandwidth": "bandwidth"}
"""The quantity of each column of numbers; a unit at the end of its name counts."""
DOWN, ANY = "down", ("", "*")
OPTIONAL_COLUMNS = {"to", "bandwidth", "latency"}
"""Columns whose cells may be empty."""
MISSING = {"na", "n/a", "nan", "null", "none"}
"""What R, pandas and databases write into a cell without a value."""


class SlowdownTable(Recorded):
    """Slowdowns and crashes of workers over time, one in each row of a table.

    Rows act as windows and crashes would in the list of slowdowns: factors multiply where they
    overlap.

    Attributes:
        file: CSV or Parquet with the columns `worker`, `from` and `to` in seconds, where an empty
            `to` means for ever, and `factor`: a number, or `down`. Columns may end in another unit,
            as `from_ms`.
        unit: the unit of `from` and `to`: s, ms, us or ns; by default that in their names, else s.
    """

    def __init__(self, file: str, unit: TimeUnit | None = None) -> None:
        table = TextTable("SlowdownTable", Path(file), SLOWDOWN_COLUMNS, {"time": unit})
        rows = table.rows(_event)
        events = [row for row in rows if row is not None]
        if len(events) < len(rows):
            dropped = len(rows) - len(events)
            warnings.warn(f"{file}: {dropped} rows whose from equals to are left out", stacklevel=2)
        super().__init__(events)


class NetworkTable(Changes):
    """Bandwidths and latencies over time, one change in each row of a table.

    Where several rows hold at once, the pair's row counts, else the sender's, else the receiver's,
    else the row for all nodes; where none holds, the network's own values count. Only rows of a
    pair change the values of that pair in `links`.

    Attributes:
        file: CSV or Parquet with the columns `sender` and `receiver`, where -1 is the server and an
            empty cell or `*` is any node, `from` and `to` in seconds, where an empty `to` is for
            ever, `bandwidth` in bytes per second, of the pair's link, the sender's up link, the
            receiver's down link or all cards, and `latency` in seconds; where one of the two is
            empty, it does not change.
        unit: the unit of `from`, `to` and `latency`: s, ms, us or ns; by default that in their
            names, else s.
        bandwidth_unit: the unit of `bandwidth`, as Mbit/s or GB/s; by default that in its name,
            else bytes/s.
    """

    def __init__(
        self, file: str, unit: TimeUnit | None = None, bandwidth_unit: BandwidthUnit | None = None
    ) -> None:
        units = {"time": unit, "bandwidth": bandwidth_unit}
        table = TextTable("NetworkTable", Path(file), NETWORK_COLUMNS, units)
        super().__init__(table.rows(_change))
        self.table = table

    def error(self, index: int, name: str, expected: str) -> InvalidSettingError:
        return InvalidSettingError(
            "Network", "changes.file", *self.table.problem(index, name, expected)
        )


class TextTable:
    """The cells, as text, of a table that a config names.

    Attributes:
        owner: the setting that names it.
        path: the path of the table.
        cells: the texts of the columns in each row, in laggard's units; empty where a cell is.
    """

    def __init__(
        self,
        owner: str,
        path: Path,
        columns: Sequence[str],
        units: Mapping[str, str | None] | None = None,
    ) -> None:
        """Read the columns; `units` has the unit of a quantity where the config names one.

        Raises:
            InvalidSettingError: the file cannot be read, lacks one of the columns, or has no row;
                or a unit contradicts the name of a column.
        """
        self.owner, self.path = owner, path
        table = read_foreign_table(owner, path)
        texts = []
        for name in columns:
            place = _find_column(table, name)
            if place is None:
                got = f"{path} with {', '.join(table.names)}"
                expected = f"rows with the columns {', '.join(columns)}"
                raise InvalidSettingError(owner, "file", expected, got)
            if name == "worker":
                texts.append([str(rank) for rank in self._ranks(table, place)])
                continue
            quantity = QUANTITIES_OF.get(name, "")
            factor = ONE
            if quantity:
                factor = to_unit(table, place, quantity, (units or {}).get(quantity))
            cells = [_convert(table, row[place], factor, quantity) for row in table.rows]
            if name in OPTIONAL_COLUMNS:
                cells = ["" if cell.casefold() in MISSING else cell for cell in cells]
            texts.append(cells)
        self.cells = list(zip(*texts, strict=True))

    def _ranks(self, table: ForeignTable, place: int) -> list[int]:
        """The ranks in the column `worker`, where a partition names every worker."""
        if self.owner == "PartitionTable":
            (ranks,) = table.ranks(place)
            return ranks
        return table.ranks_of_some(place)

    def rows(self, read: Callable[..., RowT]) -> list[RowT]:
        """The results of `read` for the cells of each row.

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
        """The texts of an error: the expected value of field `name`, and the row."""
        if name:
            expected = f"{expected} as {COLUMN_OF.get(name, name)}"
        return expected, f"{','.join(self.cells[index])!r} in row {index + 1} of {self.path}"


def _find_column(table: ForeignTable, column: str) -> int | None:
    """The index of a column, whose name may end in a unit.

    Raises:
        InvalidSettingError: two columns have that name, or a unit may mean bits or bytes.
    """
    names = NAMES_OF.get(column, (column,))
    places = []
    for place, name in enumerate(table.names):
        if column in QUANTITIES_OF and _begins_with_word(name, names):
            name = without_unit(table, place, QUANTITIES_OF[column])
        if name.casefold() in names:
            places.append(place)
    if len(places) > 1:
        got = " and ".join(table.names[place] for place in places)
        raise table.error(f"one column {column}", got)
    return next(iter(places), None)


def _begins_with_word(name: str, words: Sequence[str]) -> bool:
    """Whether one of `words` stands before something else in `name`: `from` in `from_ms`."""
    for word in words:
        rest = name[len(word) :]
        if name.casefold().startswith(word) and rest and not rest[0].islower():
            return True
    return False


def _convert(table: ForeignTable, cell: str, factor: Decimal, quantity: str) -> str:
    """The text of a cell; a number is converted to laggard's unit."""
    number = table.number(cell, factor, quantity)
    if number is None or (factor == 1 and table.number(cell) is not None):
        return table.plain(cell)
    return repr(number)


def _event(worker: str, start: str, end: str, factor: str) -> Window | Crash | None:
    """The slowdown or crash in a row; None where it has no length."""
    rank = int(worker)
    try:
        if end and float(end) == math.inf:
            end = ""
        # A negative start is not left out here: `Window` or `Crash` refuses it.
        if end and float(end) == float(start) >= 0:
            return None
        if factor.casefold() == DOWN:
            back = float(end) if end else None
            return Crash(rank, at=float(start), back=back)
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
            unit = OWN_UNITS[QUANTITIES_OF[COLUMN_OF.get(name, name)]]
            raise InvalidSettingError("Change", name, f"a number ({unit})", cell) from None
    return Change(_rank_in("sender", sender), _rank_in("receiver", receiver), **values)


def _rank_in(name: str, cell: str) -> int | None:
    """The rank in a cell, perhaps spelt `3.0`: Parquet has floats in columns with empty cells."""
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
    place = re.fullmatch(r"([0-9]{1,9})(\.0*)?", sample, re.ASCII)  # 3.0 where pandas has floats
    if place is None:
        raise ValueError("a place in the training set, 0, 1, ..., as sample")
    return int(worker), int(place[1])


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
        """The ranks and the indices of samples, `(2, rows)`."""
        table = TextTable("PartitionTable", Path(self.file), PARTITION_COLUMNS)
        rows = table.rows(_sample)
        if len(set(rows)) < len(rows):
            raise InvalidSettingError(
                "PartitionTable", "file", "each row once", f"a row twice in {self.file}"
            )
        return np.array(rows, dtype=np.int64).T

    def shards(
        self, labels: np.ndarray, workers: int, rng: np.random.Generator
    ) -> list[np.ndarray]:
        """The samples of each worker, in the order of the table.

        Raises:
            ValueError: a sample or a worker does not exist, or a worker has no samples.
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
