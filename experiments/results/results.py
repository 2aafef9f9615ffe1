"""Many runs as one: their tables joined, with the parameters as columns, read when they are
needed.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from laggard.experiments.config.errors import printable, suggest
from laggard.experiments.results.index import folder_of_runs, read_index
from laggard.experiments.results.result import MANIFEST, Result, ResultError
from laggard.experiments.results.store import INDEX, open_run
from laggard.experiments.results.views import Views

if TYPE_CHECKING:
    import pandas as pd
    from pyarrow.dataset import Expression


class Results(Views, Sequence[Result]):
    """The runs of a sweep, or any others: a sequence of `Result`, whose tables are one each over
    all runs.

    A table has a column `run` (the run's id), one per swept key, and those of the run's own table.
    Nothing but manifests is read before it is asked for; a file is held against its manifest when
    it is first read.

    A run that is given twice under the same labels counts once: it is no other seed.

    Attributes:
        planned: how many runs the sweep has, finished or not.

    Raises:
        ResultError: on reading a file that is missing or not as its run left it; names the file.
    """

    def __init__(self, runs: Iterable[Result], planned: int | None = None) -> None:
        once = {(of.manifest["run"], repr((sorted(of.labels.items()), of.only))): of for of in runs}
        self._runs = tuple(once.values())
        self.planned = len(self._runs) if planned is None else planned

    @overload
    def __getitem__(self, index: int) -> Result: ...
    @overload
    def __getitem__(self, index: slice) -> "Results": ...
    def __getitem__(self, index: int | slice) -> "Result | Results":
        return Results(self._runs[index]) if isinstance(index, slice) else self._runs[index]

    def __len__(self) -> int:
        return len(self._runs)

    def __repr__(self) -> str:
        return f"Results({len(self)} of {self.planned} runs, swept: {', '.join(self.keys) or 'nothing'})"

    @cached_property
    def names(self) -> list[str]:
        """The entries of the column `run`: each run's id, with a number where an id occurs
        twice.
        """
        ids = [result.manifest["run"] for result in self]
        counts, met, found = Counter(ids), Counter[str](), []
        for run in ids:
            met[run] += 1
            found.append(run if counts[run] == 1 else f"{run}.{met[run]}")
        return found

    @cached_property
    def keys(self) -> list[str]:
        """The swept keys, of runs and of members, in the order of the sweep."""
        within = [key for result in self for key in result.swept]
        return list(dict.fromkeys([*(key for result in self for key in result.labels), *within]))

    @cached_property
    def metrics(self) -> "pd.DataFrame":
        """A row per run, evaluation and member: as `Result.metrics`."""
        return self.scan("metrics")

    @cached_property
    def updates(self) -> "pd.DataFrame":
        """A row per run and gradient that has ended: as `Result.updates`."""
        return self.scan("updates")

    @cached_property
    def messages(self) -> "pd.DataFrame":
        """A row per run and message, where they were recorded: as `Result.messages`."""
        return self.scan("messages")

    @cached_property
    def workers(self) -> "pd.DataFrame":
        """A row per run and worker: as `Result.workers`."""
        return self.scan("workers")

    @cached_property
    def nodes(self) -> "pd.DataFrame":
        """A row per run, evaluation, node and member, where nodes have models of their own: as
        `Result.nodes`.
        """
        return self.scan("nodes")

    @cached_property
    def final(self) -> "pd.DataFrame":
        """A row per run and member: its metrics at the end, `status` (finished, stalled, diverged),
        and `diverged_at` (updates), NaN where it did not.
        """
        import numpy as np

        last = self.metrics.drop_duplicates(["run", "member"], keep="last").reset_index(drop=True)
        moments = {
            (name, entry["member"]): entry["updates"]
            for name, result in zip(self.names, self, strict=True)
            for entry in result.manifest["diverged"]
        }
        status = {
            name: result.manifest["status"] for name, result in zip(self.names, self, strict=True)
        }
        members = list(zip(last["run"], last["member"], strict=True))
        ended = ["diverged" if member in moments else status[member[0]] for member in members]
        return last.assign(
            status=ended, diverged_at=[moments.get(member, np.nan) for member in members]
        )

    @cached_property
    def parameters(self) -> "pd.DataFrame":
        """A row per run, indexed by `run`: every dotted key of the configs in which the runs
        differ.

        What members of an ensemble differ in is no parameter of a run: `metrics` has a column for
        that.
        """
        import pandas as pd

        each = [dict(dotted_items({**result.config.as_dict(), "sweep": {}})) for result in self]
        within = {"sweep", "question", *(key for result in self for key in result.swept)}
        every = dict.fromkeys(key for settings in each for key in settings if key not in within)
        differ = [
            key for key in every if len({repr(settings.get(key, "")) for settings in each}) > 1
        ]
        rows = [[settings.get(key) for key in differ] for settings in each]
        return pd.DataFrame(rows, columns=differ, index=pd.Index(self.names, name="run"))

    def scan(
        self,
        table: str,
        columns: Sequence[str] | None = None,
        where: "Expression | Mapping[str, Any] | None" = None,
    ) -> "pd.DataFrame":
        """One table over all runs, or the part of it that is wanted: nothing else is read into
        memory.

        Runs that a mapping `where` rules out by their coordinates are not read, and so not checked;
        of those that an expression rules out, the names and types of the columns are.

        Args:
            table: metrics, updates, workers or nodes, or another that the runs have.
            columns: those wanted; by default all.
            where: a value, or a list of values, for each of some columns; or an expression of
                `pyarrow.dataset`.

        Raises:
            ValueError: no such table, or no such column.
        """
        from laggard.experiments.results.scanning import scan_table

        return scan_table(self, table, columns, where)

    def where(self, **values: Any) -> "Results":
        """The runs and members at these values of dotted keys, swept or not:
        `where(**{"learning.lr": [0.1, 0.2]})`.

        Raises:
            ValueError: no run has such a key.
        """
        kept: Iterable[Result] = self
        for key, value in values.items():
            wanted = list(value) if isinstance(value, list | tuple | set) else [value]
            if key not in self.keys and not any(
                key in dict(dotted_items(result.config.as_dict())) for result in self
            ):
                hint = suggest(key, self.keys) or f"swept keys: {', '.join(self.keys) or 'none'}"
                raise ValueError(f"{key}: no run has such a key; {hint}")
            kept = [part for result in kept if (part := _at(result, key, wanted)) is not None]
        return Results(kept)


def load_results(path: str | Path) -> Results:
    """The runs of the sweep last started in a folder `<out>/<name>`, with their coordinates.

    Sweeps of other grids that were started there before are in its folders `sweep-...`, with
    figures of their own. In a folder without a sweep they are all finished runs below it; a run's
    own folder holds just that run. Manifests
    are read at once, and every other file when it is first asked for, and held against its hash
    then: what was damaged is refused by name at that moment.

    Raises:
        ResultError: as in `store.open_run`, or where no run of the sweep is finished.
    """
    path = Path(path)
    if not (path / INDEX).is_file():
        # a dot marks unfinished runs
        below = sorted(run.parent for run in path.glob(f"[!.]*/{MANIFEST}"))
        return Results([open_run(run) for run in below] if below else [open_run(path)])
    entries = read_index(path / INDEX)
    home = folder_of_runs(path)
    finished = [(run, labels) for run, labels in entries if (home / run / MANIFEST).is_file()]
    if not finished:
        raise ResultError(f"{path}: none of its {len(entries)} runs is finished")
    found = []
    for run, labels in finished:
        result = open_run(home / run)
        if result.manifest["run"] != run:
            raise ResultError(
                f"{home / run / MANIFEST}: the manifest of another run, {result.manifest['run']}"
            )
        found.append(replace(result, labels=labels))
    return Results(found, len(entries))


def load_one(path: str | Path) -> Result:
    """The one finished run at `path`.

    Raises:
        ResultError: there is none, or there are several.
    """
    result, *others = load_results(path)
    if others:
        raise ResultError(
            f"{path}: holds {1 + len(others)} runs: name the folder of one, such as {result.path}"
        )
    return result


def common_question(results: Iterable[Result]) -> str:
    """The question that the configs of all results share; empty where there is none."""
    asked = {result.config.question for result in results} - {""}
    return printable(asked.pop()) if len(asked) == 1 else ""


def _at(result: Result, key: str, wanted: Sequence[Any]) -> Result | None:
    """The members of a result at which `key` has one of the values `wanted`, if there are any."""
    if key in result.labels:
        return result if result.labels[key] in wanted else None
    if key in result.swept:
        members = result.members
        left = members.loc[members[key].isin(wanted), "member"].tolist()
        return replace(result, only=tuple(left)) if left else None
    settings = dict(dotted_items(result.config.as_dict()))
    return result if key in settings and settings[key] in wanted else None


def dotted_items(document: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    """Dotted keys and their values."""
    for key, value in document.items():
        if isinstance(value, Mapping) and value:
            yield from dotted_items(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
