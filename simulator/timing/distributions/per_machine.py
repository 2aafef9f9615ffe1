"""Distributions under which machines differ permanently: two-level gamma, measured seconds."""

import csv
import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np

from laggard.simulator.errors import InvalidSettingError, Positive, Settings
from laggard.simulator.timing.distributions.distribution import Distribution, Seconds, Variation
from laggard.simulator.timing.distributions.standard import Gamma


@dataclass(frozen=True)
class TwoLevelGamma(Settings):
    """Every machine has a mean drawn once from a gamma distribution; its mini-batches are gamma around that mean.

    m_i ~ Gamma(mean, machine_cv) and X ~ Gamma(m_i, batch_cv), each given by its mean and its coefficient of
    variation: mean `mean`, variance mean^2 (M + B + M B) over machines and mini-batches, with M = machine_cv^2 and
    B = batch_cv^2. As machine_cv goes to 0 it becomes `Gamma`.

    Source: Ali et al. (2000), coefficients of variation V_machine and V_task; Hakimi et al. (2019), arXiv 1907.11612
    (DANA), V_machine and V_batch.

    Attributes:
        mean: seconds.
        machine_cv: standard deviation over mean, of machines.
        batch_cv: the same of one machine's mini-batches.
    """

    mean: Positive
    machine_cv: Variation
    batch_cv: Variation

    @property
    def std(self) -> float:
        machine, batch = self.machine_cv**2, self.batch_cv**2
        return self.mean * math.sqrt(machine + batch + machine * batch)

    def machine(self, rng: np.random.Generator) -> Distribution:
        """One machine's distribution: gamma around a mean that is drawn here."""
        (mean,) = Gamma(self.mean, self.machine_cv).draw(rng, 1).tolist()
        return Gamma(max(mean, np.finfo(float).tiny), self.batch_cv)  # a tiny mean may be rounded to 0

    def draw(self, rng: np.random.Generator, n: int) -> Seconds:
        """Durations of `n` machines, one each."""
        means = Gamma(self.mean, self.machine_cv).draw(rng, n)
        return means * Gamma(1.0, self.batch_cv).draw(rng, n)


@dataclass(frozen=True)
class Trace(Settings):
    """Measured seconds, a CSV column of them.

    `mean` and `std` are those of the column.

    Attributes:
        file: its first row names the columns.
        column: the name; by default the first column of numbers.
        order: `sequential`, every worker goes through the rows cyclically from a random one, or
            `bootstrap`, rows at random.
    """

    file: str
    column: str | None = None
    order: Literal["sequential", "bootstrap"] = "sequential"

    def __post_init__(self) -> None:
        super().__post_init__()
        assert self.seconds.size, "read now, so that a bad file raises at once"

    @cached_property
    def seconds(self) -> Seconds:
        """The column `(rows,)`.

        Raises:
            InvalidSettingError: the file cannot be read, has no such column, or has a row without a valid duration.
        """
        return np.array(read_seconds(Path(self.file), self.column))

    @property
    def mean(self) -> float:
        return float(self.seconds.mean())

    @property
    def std(self) -> float:
        return float(self.seconds.std())

    def machine(self, rng: np.random.Generator) -> Distribution:
        """The rows as one worker uses them."""
        return Replay(self, int(rng.integers(self.seconds.size))) if self.order == "sequential" else self

    def draw(self, rng: np.random.Generator, n: int) -> Seconds:
        if self.order == "bootstrap":
            return rng.choice(self.seconds, n)
        return self.machine(rng).draw(rng, n)


class Replay:
    """The seconds of a trace from one row on, cyclically."""

    def __init__(self, trace: Trace, row: int) -> None:
        self.mean, self.std = trace.mean, trace.std
        self._trace, self._row = trace, row

    def __repr__(self) -> str:
        return repr(self._trace)

    def draw(self, rng: np.random.Generator, n: int) -> Seconds:
        """The next `n` rows."""
        seconds = self._trace.seconds
        rows = (self._row + np.arange(n)) % seconds.size
        self._row = int(rows[-1] + 1)
        return seconds[rows]


def read_seconds(path: Path, column: str | None) -> list[float]:
    """The durations in one column of a CSV file.

    Raises:
        InvalidSettingError: a line is not valid; the message names it.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as lines:
            reader = csv.reader(lines)
            rows = [(reader.line_num, row) for row in reader if any(cell.strip() for cell in row)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or error
        raise InvalidSettingError("Trace", "file", "a CSV file that can be read", f"{path}: {reason}") from None
    if len(rows) < 2 or any(_seconds(cell) is not None for cell in rows[0][1]):
        raise InvalidSettingError("Trace", "file", "a row of names and rows of numbers below it", str(path))
    names = [cell.strip() for cell in rows[0][1]]
    numbers = [name for name, cell in zip(names, rows[1][1], strict=False) if _seconds(cell) is not None]
    name = column if column is not None else next(iter(numbers), None)
    if name not in names:
        raise InvalidSettingError("Trace", "column", f"one of {', '.join(names)}, of numbers", column)
    return [_duration(path, line, row, names.index(name)) for line, row in rows[1:]]


def _duration(path: Path, line: int, row: list[str], place: int) -> float:
    cell = row[place] if place < len(row) else ""
    seconds = _seconds(cell)
    if seconds is None or not 0 < seconds < math.inf:
        raise InvalidSettingError(
            "Trace", "file", "seconds > 0 in every row", f"{cell.strip()!r} in line {line} of {path}"
        )
    return seconds


def _seconds(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None
