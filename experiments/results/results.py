"""Many runs as one: their tables joined, with the swept keys as columns, read on first use."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from laggard.experiments.config.errors import printable, suggest
from laggard.experiments.results.files import ResultError
from laggard.experiments.results.result import Result, Shown, open_run
from laggard.experiments.results.store import (
    INDEX,
    MANIFEST,
    OPTIONAL,
    TABLES,
    folder_of_runs,
    read_index,
)
from laggard.simulator.recording.messages import MESSAGE_COLUMNS
from laggard.simulator.recording.outcome import NOTE_COLUMNS

if TYPE_CHECKING:
    import pandas as pd
    from pyarrow.dataset import Expression


class Results(Shown, Sequence[Result]):
    """The runs of a sweep, or any others: a sequence of `Result` with joint tables.

    A table has a column `run` (the run's id), one per swept key, and those of the run's own table.
    Keys in which the members of an ensemble differ are columns of the tables with a row per member:
    `metrics`, `final`, `nodes` and `notes`.
    Only manifests are read at once; another file is read and checked when it is first used. A run
    given twice under the same labels counts once.

    Attributes:
        planned: the number of runs of the sweep, finished or not.

    Raises:
        ResultError: a file is missing or was changed; names the file.
    """

    def __init__(self, runs: Iterable[Result], planned: int | None = None) -> None:
        distinct = {}
        for result in runs:
            labels = repr((sorted(result.labels.items()), result.only))
            distinct[result.manifest["run"], labels] = result
        self._runs = tuple(distinct.values())
        self.planned = len(self._runs) if planned is None else planned

    @overload
    def __getitem__(self, index: int) -> Result: ...
    @overload
    def __getitem__(self, index: slice) -> "Results": ...
    def __getitem__(self, index: int | slice) -> "Result | Results":
        if isinstance(index, slice):
            return Results(self._runs[index])
        return self._runs[index]

    def __len__(self) -> int:
        return len(self._runs)

    def __repr__(self) -> str:
        swept = ", ".join(self.keys) or "nothing"
        return f"Results({len(self)} of {self.planned} runs, swept: {swept})"

    @cached_property
    def names(self) -> list[str]:
        """The entries of the column `run`: each run's id, numbered where it occurs twice."""
        ids = [result.manifest["run"] for result in self]
        total = Counter(ids)
        count = Counter[str]()
        names = []
        for run in ids:
            count[run] += 1
            name = run if total[run] == 1 else f"{run}.{count[run]}"
            names.append(name)
        return names

    @cached_property
    def keys(self) -> list[str]:
        """The swept keys, of runs and of members, in the order of the sweep."""
        of_runs = [key for result in self for key in result.labels]
        of_members = [key for result in self for key in result.swept]
        return list(dict.fromkeys(of_runs + of_members))

    @cached_property
    def metrics(self) -> "pd.DataFrame":
        """A row per run, evaluation and member; see `Result.metrics`."""
        return self.scan("metrics")

    @cached_property
    def updates(self) -> "pd.DataFrame":
        """A row per run and gradient that has ended; see `Result.updates`."""
        return self.scan("updates")

    @cached_property
    def messages(self) -> "pd.DataFrame":
        """A row per run and message, where they were recorded; see `Result.messages`."""
        return self._optional_table("messages", MESSAGE_COLUMNS)

    @cached_property
    def workers(self) -> "pd.DataFrame":
        """A row per run and worker; see `Result.workers`."""
        return self.scan("workers")

    @cached_property
    def nodes(self) -> "pd.DataFrame":
        """A row per run, evaluation, node and member; see `Result.nodes`."""
        return self.scan("nodes")

    @cached_property
    def notes(self) -> "pd.DataFrame":
        """A row per run, number that the method noted and member; see `Result.notes`."""
        return self._optional_table("notes", NOTE_COLUMNS)

    @cached_property
    def final(self) -> "pd.DataFrame":
        """A row per run and member: its last metrics, `status` (finished, stalled, diverged), and
        `diverged_at` (updates; NaN where it did not diverge).
        """
        last = self.metrics.drop_duplicates(["run", "member"], keep="last").reset_index(drop=True)
        status = {}
        diverged_at = {}
        for name, result in zip(self.names, self, strict=True):
            status[name] = result.manifest["status"]
            for entry in result.manifest["diverged"]:
                diverged_at[name, entry["member"]] = entry["updates"]
        statuses = []
        updates = []
        for run, member in zip(last["run"], last["member"], strict=True):
            if (run, member) in diverged_at:
                statuses.append("diverged")
                updates.append(diverged_at[run, member])
            else:
                statuses.append(status[run])
                updates.append(float("nan"))
        return last.assign(status=statuses, diverged_at=updates)

    @cached_property
    def parameters(self) -> "pd.DataFrame":
        """A row per run, indexed by `run`: the dotted keys in which the runs' configs differ.

        Keys in which members of an ensemble differ are columns of tables by member instead.
        """
        import pandas as pd

        settings = [_run_settings(result) for result in self]
        swept = {key for result in self for key in result.swept}
        keys = dict.fromkeys(key for row in settings for key in row)
        varied = []
        for key in keys:
            values = {repr(row.get(key, "")) for row in settings}
            if len(values) > 1 and key not in swept:
                varied.append(key)
        rows = [[row.get(key) for key in varied] for row in settings]
        return pd.DataFrame(rows, columns=varied, index=pd.Index(self.names, name="run"))

    def scan(
        self,
        table: str,
        columns: Sequence[str] | str | None = None,
        where: "Expression | Mapping[str, Any] | None" = None,
    ) -> "pd.DataFrame":
        """One table over all runs, or the wanted part of it; nothing else is read into memory.

        Runs that a mapping `where` rules out by their labels are neither read nor checked; of those
        that an expression rules out, only names and types of columns are read.

        Args:
            table: metrics, updates, workers or nodes, or another that the runs have.
            columns: the wanted columns, or the only one. Default: all.
            where: a value, or a list of values, for some columns; or an expression of
                `pyarrow.dataset`.

        Raises:
            ValueError: the table or a column is unknown.
        """
        from laggard.experiments.results.scanning import RunTable, scan

        if not self:
            raise ValueError(f"{table}: there are no runs")
        if isinstance(columns, str):
            columns = [columns]
        file = f"{table}.parquet"
        tables = []
        for name, result in zip(self.names, self, strict=True):
            if file in result.tables:
                check = partial(result.file, file)
                part = RunTable(result.path / file, name, result.labels, result.only, check)
                tables.append(part)
        if not tables:
            stored = [name.removesuffix(".parquet") for result in self for name in result.tables]
            known = list(dict.fromkeys([*TABLES, *stored]))
            hint = f"they have {', '.join(known)}"
            if file not in OPTIONAL:  # otherwise the name is right, and no run has the table
                hint = suggest(table, known) or hint
            raise ValueError(f"{table}: no run has such a table; {hint}")
        return scan(tables, self.keys, columns, where)

    def _optional_table(self, table: str, columns: Iterable[str]) -> "pd.DataFrame":
        """The joint table; empty where no run has it, as that of a single run is."""
        if self and not any(f"{table}.parquet" in result.tables for result in self):
            import pandas as pd

            return pd.DataFrame(columns=list(dict.fromkeys(["run", *self.keys, *columns])))
        return self.scan(table)

    def where(self, **values: Any) -> "Results":
        """The runs and members at these values of dotted keys, swept or not, as in
        `where(**{"learning.lr": [0.1, 0.2]})`.

        Raises:
            ValueError: no run has such a key.
        """
        selected = list(self)
        for key, value in values.items():
            self._check_key(key)
            wanted = [value]
            if isinstance(value, list | tuple | set):
                wanted = list(value)
            parts = [_select(result, key, wanted) for result in selected]
            selected = [part for part in parts if part is not None]
        return Results(selected)

    def _check_key(self, key: str) -> None:
        if key in self.keys:
            return
        if not any(key in _all_settings(result) for result in self):
            hint = suggest(key, self.keys) or f"swept keys: {', '.join(self.keys) or 'none'}"
            raise ValueError(f"{key}: no run has such a key; {hint}")


def load_results(path: str | Path) -> Results:
    """The runs of the last sweep in a folder `<out>/<name>`, with their labels.

    Earlier sweeps of other grids are in its folders `sweep-...`. In a folder without a sweep these
    are all finished runs below it; in a run's own folder it is that run. Only manifests are read at
    once; another file is read and checked when it is first used.

    Raises:
        ResultError: as in `open_run`, or no run of the sweep is finished.
    """
    path = Path(path)
    if not (path / INDEX).is_file():
        # a dot marks unfinished runs
        runs = sorted(manifest.parent for manifest in path.glob(f"[!.]*/{MANIFEST}"))
        return Results(map(open_run, runs or [path]))
    entries = read_index(path / INDEX)
    folder = folder_of_runs(path)
    results = []
    for run, labels in entries:
        manifest = folder / run / MANIFEST
        if not manifest.is_file():
            continue
        result = open_run(folder / run)
        if result.manifest["run"] != run:
            other = result.manifest["run"]
            raise ResultError(f"{manifest}: the manifest of another run, {other}")
        results.append(replace(result, labels=labels))
    if not results:
        raise ResultError(f"{path}: none of its {len(entries)} runs is finished")
    return Results(results, len(entries))


def load_one(path: str | Path) -> Result:
    """The only finished run at `path`.

    Raises:
        ResultError: there is none, or there are several.
    """
    result, *others = load_results(path)
    if others:
        number = 1 + len(others)
        raise ResultError(f"{path}: holds {number} runs: name the folder of one: {result.path}")
    return result


def as_results(results: Sequence[Result] | Result) -> Results:
    """The same runs as `Results`.

    Raises:
        TypeError: it is the path of a folder.
    """
    if isinstance(results, Results):
        return results
    if isinstance(results, Result):
        return Results([results])
    if isinstance(results, str | Path):
        got = type(results).__name__
        remedy = f"use load_results({str(results)!r})"
        raise TypeError(f"expected results, got {got}: {remedy}")
    return Results(results)


def common_question(results: Iterable[Result]) -> str:
    """The question that all configs share; empty where there is none."""
    questions = {result.setting("question") for result in results} - {""}
    if len(questions) == 1:
        return printable(questions.pop())
    return ""


def _select(result: Result, key: str, wanted: Sequence[Any]) -> Result | None:
    """The result restricted to members with a wanted value of `key`; None if there are none."""
    if key in result.swept and key not in result.labels:
        members = result.members
        matches = members.loc[members[key].isin(wanted), "member"]
        return replace(result, only=tuple(matches.tolist())) if len(matches) else None
    settings = {**_all_settings(result), **result.labels}
    return result if key in settings and settings[key] in wanted else None


def _run_settings(result: Result) -> dict[str, Any]:
    """Dotted keys of a run's config and their values, without the sweep and the question."""
    document = result.config.as_dict()
    del document["sweep"], document["question"]
    return dict(dotted_items(document))


def _all_settings(result: Result) -> dict[str, Any]:
    return dict(dotted_items(result.config.as_dict()))


def dotted_items(document: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    """Dotted keys and their values."""
    for key, value in document.items():
        if isinstance(value, Mapping) and value:
            yield from dotted_items(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
