"""Tables that a config names, as CSV or Parquet: workers and the network over time, and who has
which samples.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import numpy as np

from laggard.simulator.errors import HUGE, InvalidSettingError
from laggard.simulator.network.changes import Change, Changes
from laggard.simulator.timing.recorded import Recorded
from laggard.simulator.timing.slowdowns import Crash, Window

RowT = TypeVar("RowT")
SLOWDOWN_COLUMNS = ("worker", "from", "to", "factor")
PARTITION_COLUMNS = ("worker", "sample")
NETWORK_COLUMNS = ("sender", "receiver", "from", "to", "bandwidth", "latency")
COLUMN_OF = {"start": "from", "at": "from", "end": "to", "back": "to"}
"""The column of a row's field, where it has another name."""
DOWN, ANY = "down", ("", "*")


class SlowdownTable(Recorded):
    """What happened to workers, a row of a table each: so many times as slow from one moment to
    another, or down.

    Rows act as windows and crashes would in the list of slowdowns: factors multiply where they
    overlap.

    Attributes:
        file: CSV or Parquet with the columns `worker`, `from` and `to` in seconds, where an empty
            `to` is for ever, and `factor`: a number, or `down`.
    """

    def __init__(self, file: str) -> None:
        super().__init__(TextTable("SlowdownTable", Path(file), SLOWDOWN_COLUMNS).rows(_event))


class NetworkTable(Changes):
    """Bandwidths and latencies that hold from one moment to another, a row of a table each.

    Of rows that hold at once that of a pair counts, else the sender's, else the receiver's, else
    that of all; where there is none, what the network says. What its `links` say of a pair is
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
    """A table that a config names, as text.

    Attributes:
        owner: the setting that names it.
        path: where it is.
        cells: of some of its columns, a row each; empty where there is nothing.
    """

    def __init__(self, owner: str, path: Path, columns: Sequence[str]) -> None:
        """Raises `InvalidSettingError` where the file cannot be read, lacks one of the columns, or
        has no row.
        """
        import pandas as pd

        self.owner, self.path = owner, path
        try:
            if path.suffix == ".parquet":
                table = pd.read_parquet(path)
            else:
                plain = {"dtype": str, "keep_default_na": False, "compression": None}
                table = pd.read_csv(path, skipinitialspace=True, encoding="utf-8-sig", **plain)
        except (OSError, ValueError) as error:  # also pandas' and Arrow's own errors
            got = f"{path}: {getattr(error, 'strerror', None) or ' '.join(str(error).split())}"
            raise InvalidSettingError(
                owner, "file", "a CSV or Parquet file that can be read", got
            ) from None
        if not set(columns) <= set(table.columns) or table.empty:
            got = f"{path} with {len(table)} rows of {', '.join(map(str, table.columns)) or 'nothing'}"
            raise InvalidSettingError(
                owner, "file", f"rows with the columns {', '.join(columns)}", got
            )
        texts = [
            ["" if pd.isna(cell) else str(cell).strip() for cell in table[name]] for name in columns
        ]
        self.cells = list(zip(*texts, strict=True))

    def rows(self, read: Callable[..., RowT]) -> list[RowT]:
        """What `read` makes of the cells of each row.

        Raises:
            InvalidSettingError: one of them cannot be read, with a `ValueError` of what was
                expected.
        """
        found = []
        for index, cells in enumerate(self.cells):
            try:
                found.append(read(*cells))
            except InvalidSettingError as error:
                problem = self.problem(index, error.field, error.expected)
                raise InvalidSettingError(self.owner, "file", *problem) from None
            except ValueError as error:
                raise InvalidSettingError(
                    self.owner, "file", *self.problem(index, "", str(error))
                ) from None
        return found

    def problem(self, index: int, name: str, expected: str) -> tuple[str, str]:
        """What was expected of the field `name` of a row, and the row that came instead."""
        as_column = f" as {COLUMN_OF.get(name, name)}" if name else ""
        return (
            f"{expected}{as_column}",
            f"{','.join(self.cells[index])!r} in row {index + 1} of {self.path}",
        )


def _event(worker: str, start: str, end: str, factor: str) -> Window | Crash:
    """What a row says."""
    if not (worker.isascii() and worker.isdigit()):
        raise ValueError("a rank, 0, 1, ..., as worker")
    try:
        begin, until = float(start), float(end) if end else None
        slow = None if factor == DOWN else float(factor)
    except ValueError:
        raise ValueError(f"seconds in from and to, and a number or {DOWN} as factor") from None
    if slow is None:
        return Crash(int(worker), at=begin, back=until)
    return Window(int(worker), factor=slow, start=begin, end=HUGE if until is None else until)


def _change(
    sender: str, receiver: str, start: str, end: str, bandwidth: str, latency: str
) -> Change:
    """What a row says."""
    own: dict[str, float | None] = {
        "start": math.nan,
        "end": math.inf,
        "bandwidth": None,
        "latency": None,
    }
    for name, cell in zip(own, (start, end, bandwidth, latency), strict=True):
        try:
            own[name] = float(cell) if cell else own[name]
        except ValueError:
            raise InvalidSettingError("Change", name, "a number", cell) from None
    return Change(_rank_in("sender", sender), _rank_in("receiver", receiver), **own)  # type: ignore[arg-type]


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
    """What a row says."""
    if not all(cell.isascii() and cell.isdigit() and len(cell) < 10 for cell in (worker, sample)):
        raise ValueError("two numbers 0, 1, ... in every row")
    return int(worker), int(sample)


@dataclass(frozen=True)
class PartitionTable:
    """The samples that a table gives to each worker, a row `worker,sample` each.

    A sample may be at several workers, or at none, where nobody trains on it. Samples count from 0
    in the order of the training set, which for files is that of the file.

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
            wrong = min(strange)
            got = f"{'none' if wrong < workers else 'some'} for worker {wrong} in {self.file}"
            raise ValueError(
                f"partition: expected samples for each of {workers} workers, got {got}"
            )
        return [samples[owners == rank] for rank in range(workers)]
