"""Distributions under which machines differ permanently: two-level gamma, measured seconds."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np

from laggard.simulator.errors import InvalidSettingError, Positive, Settings
from laggard.simulator.timing.distributions.distribution import Distribution, Seconds, Variation
from laggard.simulator.timing.distributions.standard import Gamma
from laggard.simulator.timing.distributions.trace_file import Rows, read_rows
from laggard.units import TimeUnit


@dataclass(frozen=True)
class TwoLevelGamma(Settings):
    """Every machine has a mean drawn once from a gamma distribution; its mini-batches are gamma
    around that mean.

    m_i ~ Gamma(mean, machine_cv) and X ~ Gamma(m_i, batch_cv), each given by its mean and its
    coefficient of variation: mean `mean`, variance mean^2 (M + B + M B) over machines and
    mini-batches, with M = machine_cv^2 and B = batch_cv^2. As machine_cv goes to 0 it becomes
    `Gamma`.

    Source: Ali et al. (2000), coefficients of variation V_machine and V_task; Hakimi et al. (2019),
    arXiv 1907.11612 (DANA), V_machine and V_batch.

    Attributes:
        mean: the mean over machines (s).
        machine_cv: standard deviation over mean of the machines' means.
        batch_cv: standard deviation over mean of one machine's mini-batches.
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
        # a tiny mean may be rounded to 0
        return Gamma(max(mean, np.finfo(float).tiny), self.batch_cv)

    def draw(self, rng: np.random.Generator, n: int) -> Seconds:
        """Durations of `n` machines, one each."""
        means = Gamma(self.mean, self.machine_cv).draw(rng, n)
        return means * Gamma(1.0, self.batch_cv).draw(rng, n)


Order = Literal["sequential", "bootstrap", "replay"]


@dataclass(frozen=True)
class Trace(Settings):
    """Measured seconds, a column of a table.

    `mean` and `std` are those of the column.

    Attributes:
        file: CSV in any dialect, compressed or not, or Parquet; its first row names the columns.
        column: the name; by default `seconds`, or else the only column of numbers that is not
            `worker`.
        worker: the name of the column of ranks, or `columns` where each worker has a column. Every
            worker then uses the rows of its own rank alone, and each rank must have some. Names of
            workers are ranked in natural order. Columns `worker0`, `worker1`, ... need no key.
        order: `sequential`, every worker goes through its rows cyclically from a random one;
            `replay`, the same from the first one; or `bootstrap`, rows at random.
        unit: the unit of the column: s, ms, us or ns. By default the unit at the end of its name,
            as in `duration_ms`, or else seconds.
    """

    file: str
    column: str | None = None
    order: Order = "sequential"
    worker: str | None = None
    unit: TimeUnit | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        assert self.seconds.size, "read now, so that a bad file raises at once"

    @cached_property
    def _rows(self) -> Rows:
        return read_rows(Path(self.file), self.column, self.worker, self.unit)

    @property
    def seconds(self) -> Seconds:
        """The column `(rows,)`.

        Raises:
            InvalidSettingError: the file cannot be read, has no such column, or has a row without a
                valid duration or rank.
        """
        return self._rows.seconds

    @property
    def by_rank(self) -> Mapping[int, Seconds]:
        """The rows of each rank; empty if the table has no ranks."""
        return self._rows.by_rank

    @property
    def mean(self) -> float:
        return float(self.seconds.mean())

    @property
    def std(self) -> float:
        return float(self.seconds.std())

    def check_workers(self, workers: int) -> None:
        """Raise `InvalidSettingError` if one of the `workers` has no rows."""
        missing = next((rank for rank in range(workers) if rank not in self.by_rank), None)
        if self.by_rank and missing is not None:
            expected = f"rows of each rank below workers = {workers}"
            got = f"none of rank {missing} in {self.file}"
            raise InvalidSettingError("Trace", "worker", expected, got)

    def of_worker(self, rank: int) -> Distribution:
        """The distribution of worker `rank`: its own rows, or all if the table has no ranks."""
        if self.by_rank:
            return Measured(self.by_rank[rank], self.order, repr(self))
        return self

    def machine(self, rng: np.random.Generator) -> Distribution:
        """The rows as one worker uses them."""
        return Measured(self.seconds, self.order, repr(self)).machine(rng)

    def draw(self, rng: np.random.Generator, n: int) -> Seconds:
        return self.machine(rng).draw(rng, n)


class Measured:
    """Measured seconds `(rows,)`, in one of a trace's orders; `said` names the trace in errors."""

    def __init__(self, seconds: Seconds, order: Order, said: str) -> None:
        self._seconds = seconds
        self._order = order
        self._said = said
        self._row = 0  # the next one, unless rows are drawn

    def __repr__(self) -> str:
        return self._said

    @property
    def mean(self) -> float:
        return float(self._seconds.mean())

    @property
    def std(self) -> float:
        return float(self._seconds.std())

    def machine(self, rng: np.random.Generator) -> Distribution:
        """The rows in one worker's order, from its first row on."""
        own = Measured(self._seconds, self._order, self._said)
        if self._order == "sequential":
            own._row = int(rng.integers(self._seconds.size))
        return own

    def draw(self, rng: np.random.Generator, n: int) -> Seconds:
        """The next `n` rows, or `n` at random."""
        if self._order == "bootstrap":
            return rng.choice(self._seconds, n)
        rows = (self._row + np.arange(n)) % self._seconds.size
        self._row = int(rows[-1] + 1)
        return self._seconds[rows]
