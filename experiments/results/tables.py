"""A paper's table: settings as rows and columns, estimates over seeds in the cells; four
formats.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from laggard.experiments.config.axes import axis_label
from laggard.experiments.config.errors import suggest
from laggard.experiments.config.grid import printable_labels
from laggard.experiments.results.formats import format_setting, markdown, text
from laggard.experiments.results.measures import (
    AXES,
    MEASURES,
    as_results,
    goal,
    groups,
    is_seed,
    measure_runs,
)
from laggard.experiments.results.result import Result, describe_versions
from laggard.experiments.results.results import Results, common_question
from laggard.experiments.results.selection import Best, best
from laggard.experiments.results.statistics import (
    Estimate,
    format_estimate,
    interval,
    mean,
    time_to_reach,
)

Setting = tuple[Any, ...]


@dataclass(frozen=True, repr=False)
class Table:
    """Estimates by setting; a notebook shows it as a table.

    Attributes:
        rows: the keys whose settings are rows.
        columns: the key whose settings are columns, if any.
        values: what is estimated.
        cells: (setting of `rows`, setting of `columns`, value) -> estimate.
        titles: what each value is called.
        notes: how to read it: n, intervals, what was chosen.
        question: that it answers, if its results know.
    """

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: tuple[str, ...]
    cells: Mapping[tuple[Setting, Setting, str], Estimate]
    titles: Mapping[str, str]
    notes: tuple[str, ...]
    question: str = ""

    def __repr__(self) -> str:
        return text(self)

    def _repr_markdown_(self) -> str:
        return markdown(self)

    @property
    def records(self) -> pd.DataFrame:
        """A row per cell: the keys, `measure`, `value`, its 95 % interval `low` to `high`, and
        `Estimate`'s fields.
        """
        rows = []
        for (row, column, value), estimate in self.cells.items():
            keys = zip((*self.rows, *self.columns), (*row, *column), strict=True)
            low, high = interval(estimate, MEASURES[value].unit == "%")
            numbers = {"value": estimate.value, "low": low, "high": high, **estimate._asdict()}
            rows.append({**dict(keys), "measure": value, **numbers})
        return pd.DataFrame(rows)

    @property
    def frame(self) -> pd.DataFrame:
        """What is printed, as texts: settings as the index; `attrs` has the `question` and the
        `notes`.
        """
        heading, *body = self.lines()
        found = pd.DataFrame(body, columns=heading)
        found.attrs = {"question": self.question, "notes": self.notes}
        return found.set_index(list(self.rows)) if self.rows else found

    def lines(self) -> list[list[str]]:
        """The heading and the rows, as texts."""
        across = list(dict.fromkeys((column, value) for _, column, value in self.cells))
        counted = len({estimate.n for estimate in self.cells.values()}) > 1
        heading = [*self.rows] + [self._heading(column, value) for column, value in across]
        body = []
        for row in dict.fromkeys(row for row, _, _ in self.cells):
            found = [self.cells.get((row, column, value)) for column, value in across]
            shown = [
                format_estimate(cell, MEASURES[value].scale, MEASURES[value].unit, counted)
                if cell
                else ""
                for cell, (_, value) in zip(found, across, strict=True)
            ]
            body.append([*map(format_setting, row), *shown])
        return [heading, *body]

    def _heading(self, column: Setting, value: str) -> str:
        where = ", ".join(
            f"{key} = {format_setting(at)}" for key, at in zip(self.columns, column, strict=True)
        )
        title = self.titles[value]
        return (
            where
            if where and len(self.values) == 1
            else ": ".join(part for part in (where, title) if part)
        )


def tabulate(
    results: Sequence[Result] | Result,
    rows: Sequence[str] | None = None,
    columns: str | None = None,
    value: Sequence[str] | None = None,
    target: float | None = None,
    over: Sequence[str] | None = None,
    by: str | None = None,
    select_seeds: Sequence[int] | None = None,
) -> Table:
    """What `laggard table` prints: the `table` of results, at the best setting of the keys `over`
    where there are any.

    Raises:
        ValueError: as in `table` and `best`.
    """
    labelled, chosen = label_results(as_results(results)), None
    rows, value, over = ([of] if isinstance(of, str) else of for of in (rows, value, over))
    if not over and (by, select_seeds) != (None, None):
        raise ValueError(
            "by, select_seeds: say how a best setting is chosen: expected keys of which (--best)"
        )
    if target is not None:
        goal(labelled, target)
    if over:
        chosen = best(labelled, over, by, target, select_seeds)
        labelled = chosen.results
    return table(labelled, rows, columns, value, target, chosen)


def table(
    results: Sequence[Result],
    rows: Sequence[str] | None = None,
    columns: str | None = None,
    values: Sequence[str] | None = None,
    target: float | None = None,
    chosen: Best | None = None,
) -> Table:
    """Estimates over the seeds of each setting: mean and 95 % interval by t, n stated.

    Where not every seed reaches the target of a `time_to` (`updates_to`, ...), the cell is a
    `statistics.duration`. Members that diverged count in n and in `diverged`; they never reach a
    target, and no mean of an accuracy or a loss includes them. One seed has no interval.

    Args:
        rows: keys whose settings are rows; by default every swept key that is no seed and not in
            `columns`.
        columns: a key whose settings are columns.
        values: of `MEASURES`; by default accuracy or loss, with a target time_to and updates_to,
            and staleness.
        target: as in `measure_runs`.
        chosen: how `results` were chosen, if they were: what was chosen is a row's key too, or is
            noted.

    Raises:
        ValueError: no such key or value, or a swept key in neither `rows` nor `columns`: its
            settings do not repeat.
    """
    results = label_results(as_results(results))
    over = chosen.over if chosen else ()
    keys, across = [key for key in results.keys if not is_seed(key)], (columns,) if columns else ()
    down = tuple(
        rows or [key for key in keys if key not in across and not (columns and key in over)]
    )
    varied = [
        key for key in keys if key not in over and results.final[key].nunique(dropna=False) > 1
    ]
    _check_settings(down, across, varied, results.keys)
    values = tuple(values or _standard_values(results, target))
    cells = {
        (setting[: len(down)], setting[len(down) :], value): _estimate(members, value)
        for value in values
        for setting, members in groups(measure_runs(results, value, target), [*down, *across])
    }
    notes = _table_notes(
        results, cells, values, titles := _titles(results, values, target), bool(columns)
    )
    if chosen:
        notes = [*([] if set(over) <= set(down) else chosen.choices), *chosen.notes, *notes]
    return Table(
        down,
        across,
        values,
        _order_cells(cells, values),
        titles,
        tuple(notes),
        common_question(results),
    )


def label_results(results: Results) -> Results:
    """Results of a sweep, as they are; others each labelled with the keys in which their configs
    differ.

    Keys that only some of the configs have follow from others, and are left out where those are
    enough.
    """
    if len(results) < 2 or any(result.labels for result in results):
        return results
    every = results.parameters
    shared = every.dropna(axis="columns")
    differ = every if shared.astype(str).duplicated().any() else shared
    records = [
        {key: axis_label(value) for key, value in row.items()} for row in differ.to_dict("records")
    ]
    rows = [
        printable_labels({key: value for key, value in row.items() if value == value})
        for row in records
    ]
    labelled = [replace(result, labels=row) for result, row in zip(results, rows, strict=True)]
    return Results(labelled, planned=results.planned)


def _check_settings(
    down: Sequence[str], across: Sequence[str], keys: Sequence[str], swept: Sequence[str]
) -> None:
    for key in (*down, *across):
        if key not in swept:
            hint = suggest(key, swept) or f"swept keys: {', '.join(swept) or 'none'}"
            raise ValueError(f"{key}: no swept key; {hint}")
    if twice := set(down) & set(across):
        raise ValueError(f"{', '.join(twice)}: expected as rows or as columns, not both")
    if left := [key for key in keys if key not in (*down, *across)]:
        remedy = (
            f"make it rows or columns, fix it by --where {left[0]}=VALUE, or take --best {left[0]}"
        )
        raise ValueError(f"{left[0]}: was swept too, and its settings are no repetitions: {remedy}")


def _order_cells(
    cells: Mapping[Any, Estimate], values: Sequence[str]
) -> dict[tuple[Setting, Setting, str], Estimate]:
    """Row by row, column by column, as they were first met."""
    rows, columns = (list(dict.fromkeys(at[place] for at in cells)) for place in (0, 1))
    every = [(row, column, value) for row in rows for column in columns for value in values]
    return {at: cells[at] for at in every if at in cells}


def _standard_values(results: Results, target: float | None) -> list[str]:
    measure = next(
        (name for name in ("accuracy", "loss") if MEASURES[name].column in results.metrics), "time"
    )
    try:
        goal(results, target)
        reaching = ["time_to", "updates_to"] if measure != "time" else []
    except ValueError:
        reaching = []
    return [measure, *reaching, "staleness"]


def _estimate(members: pd.DataFrame, value: str) -> Estimate:
    diverged = int(members["diverged"].sum())
    if value.endswith("_to"):
        return time_to_reach(members["value"], members["followed"], members["never"], diverged)
    return mean(members["value"].to_numpy(float), diverged)


def _titles(results: Results, values: Sequence[str], target: float | None) -> dict[str, str]:
    if not any(value.endswith("_to") for value in values):
        return {value: MEASURES[value].title for value in values}
    column, least = goal(results, target)
    to = f"{100 * least:.6g} %" if column == "test_accuracy" else f"loss {least:g}"
    return {value: MEASURES[value].title.format(target=to) for value in values}


def _table_notes(
    results: Results,
    cells: Mapping[Any, Estimate],
    values: Sequence[str],
    titles: Mapping[str, str],
    columns: bool,
) -> list[str]:
    counts = {estimate.n for estimate in cells.values()}
    notes = [titles[values[0]]] if columns and len(values) == 1 else []
    if counts == {1}:
        notes.append("n = 1 seed: no interval")
    else:
        n = f"n = {counts.pop()} seeds; " if len(counts) == 1 else "n seeds; "
        notes.append(f"{n}mean ± half the width of its 95 % interval (t)")
    if {estimate.kind for estimate in cells.values()} & {"median", "more", "never"}:
        notes.append(
            "k of n: only so many reached the target; median by Kaplan-Meier, > t where it lies beyond all seen"
        )
    if any(estimate.diverged for estimate in cells.values()) and any(
        MEASURES[of].column not in AXES for of in values
    ):
        notes.append("diverged members are in n, and in no mean of an accuracy or a loss")
    if versions := describe_versions(results):
        notes.append(versions)
    if len(results) < results.planned:
        notes.append(f"{len(results)} of {results.planned} runs are finished")
    return notes
