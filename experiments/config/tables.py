"""Tables that a config names, as CSV or Parquet: what happened to workers over time, and who has which samples."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from laggard.simulator.errors import HUGE, InvalidSettingError
from laggard.simulator.timing.recorded import Recorded
from laggard.simulator.timing.slowdowns import Crash, Window

SLOWDOWN_COLUMNS = ("worker", "from", "to", "factor")
PARTITION_COLUMNS = ("worker", "sample")
COLUMN_OF = {"worker": "worker", "start": "from", "at": "from", "end": "to", "back": "to", "factor": "factor"}
DOWN = "down"


class SlowdownTable(Recorded):
    """What happened to workers, a row of a table each: so many times as slow from one moment to another, or down.

    Rows act as windows and crashes would in the list of slowdowns: factors multiply where they overlap.

    Attributes:
        file: CSV or Parquet with the columns `worker`, `from` and `to` in seconds, where an empty `to` is for ever, and
            `factor`: a number, or `down`.
    """

    def __init__(self, file: str) -> None:
        super().__init__(read_slowdowns(Path(file)))


def read_slowdowns(path: Path) -> list[Window | Crash]:
    """The rows of a table of slowdowns.

    Raises:
        InvalidSettingError: the file cannot be read, lacks a column, or has a row that says no slowdown.
    """
    found = []
    for number, cells in enumerate(read_cells(path, SLOWDOWN_COLUMNS), 1):
        try:
            found.append(_event(*cells))
        except ValueError as error:
            expected = str(error)
            if isinstance(error, InvalidSettingError):
                expected = f"{error.expected} as {COLUMN_OF[error.field]}"
            got = f"{','.join(cells)!r} in row {number} of {path}"
            raise InvalidSettingError("SlowdownTable", "file", expected, got) from None
    return found


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


@dataclass(frozen=True)
class PartitionTable:
    """The samples that a table gives to each worker, a row `worker,sample` each.

    A sample may be at several workers, or at none, where nobody trains on it. Samples count from 0 in the order of the
    training set, which for files is that of the file.

    Attributes:
        file: CSV or Parquet with the columns `worker` and `sample`: ranks, and places in the training set.
    """

    file: str

    def __post_init__(self) -> None:
        self.rows  # noqa: B018  # read now, so that a broken file is refused when a config is read

    @cached_property
    def rows(self) -> np.ndarray:
        """The workers and the samples, `(2, rows)`."""
        cells = read_cells(Path(self.file), PARTITION_COLUMNS, "PartitionTable")
        for number, row in enumerate(cells, 1):
            if not all(cell.isascii() and cell.isdigit() and len(cell) < 10 for cell in row):
                got = f"{','.join(row)!r} in row {number} of {self.file}"
                raise InvalidSettingError("PartitionTable", "file", "two numbers 0, 1, ... in every row", got)
        if len(set(cells)) < len(cells):
            raise InvalidSettingError("PartitionTable", "file", "every row once", f"some twice in {self.file}")
        return np.array(cells, dtype=np.int64).T

    def shards(self, labels: np.ndarray, workers: int, rng: np.random.Generator) -> list[np.ndarray]:
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
            raise ValueError(f"partition: expected samples for each of {workers} workers, got {got}")
        return [samples[owners == rank] for rank in range(workers)]


def read_cells(path: Path, columns: Sequence[str], owner: str = "SlowdownTable") -> list[tuple[str, ...]]:
    """The cells of some columns of a CSV or Parquet table, as text, a row each; empty where there is nothing.

    Args:
        owner: what has the table, for errors.

    Raises:
        InvalidSettingError: the file cannot be read, lacks one of the columns, or has no row.
    """
    import pandas as pd

    try:
        if path.suffix == ".parquet":
            table = pd.read_parquet(path)
        else:
            plain = {"dtype": str, "keep_default_na": False, "compression": None}
            table = pd.read_csv(path, skipinitialspace=True, encoding="utf-8-sig", **plain)
    except (OSError, ValueError) as error:  # also pandas' and Arrow's own errors
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise InvalidSettingError(
            owner, "file", "a CSV or Parquet file that can be read", f"{path}: {reason}"
        ) from None
    if not set(columns) <= set(table.columns) or table.empty:
        got = f"{path} with {len(table)} rows of {', '.join(map(str, table.columns)) or 'nothing'}"
        raise InvalidSettingError(owner, "file", f"rows with the columns {', '.join(columns)}", got)
    texts = [["" if pd.isna(cell) else str(cell).strip() for cell in table[name]] for name in columns]
    return list(zip(*texts, strict=True))
