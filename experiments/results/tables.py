"""A paper's table: settings as rows and columns, estimates over seeds in the cells."""

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from laggard.experiments.config.axes import axis_label
from laggard.experiments.config.errors import suggest
from laggard.experiments.config.grid import printable_labels
from laggard.experiments.results.formats import format_estimate, format_setting
from laggard.experiments.results.measures import (
    AXES,
    MEASURES,
    goal,
    groups,
    is_seed,
    measure_runs,
)
from laggard.experiments.results.origins import describe_origins
from laggard.experiments.results.result import Result
from laggard.experiments.results.results import (
    Results,
    as_results,
    common_question,
    dotted_items,
)
from laggard.experiments.results.selection import Best, best
from laggard.experiments.results.statistics import (
    Estimate,
    difference,
    interval,
    mean,
    time_to_reach,
)

EXPERIMENT = "experiment"
"""The label of results of several configs: the name of their config."""
Setting = tuple[Any, ...]
Cell = tuple[Setting, Setting, str]
"""The settings of the row and of the column, and the measure."""


@dataclass(frozen=True, repr=False)
class Table:
    """Estimates by setting; a notebook shows it as a table.

    Attributes:
        rows: keys whose settings are rows.
        columns: the key whose settings are columns, if any.
        values: the measures.
        cells: the estimate of each cell, row by row.
        titles: the title of each measure.
        notes: the explanation: n, intervals, chosen settings.
        question: the question that the configs ask, if they share one.
    """

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: tuple[str, ...]
    cells: Mapping[Cell, Estimate]
    titles: Mapping[str, str]
    notes: tuple[str, ...]
    question: str = ""

    def __repr__(self) -> str:
        return text(self)

    def _repr_markdown_(self) -> str:
        return markdown(self)

    @property
    def records(self) -> pd.DataFrame:
        """A row per cell: the keys, `measure`, `value`, the ends `low` and `high` of its 95 %
        interval, and the other fields of `Estimate`.
        """
        records = []
        for (row, column, value), estimate in self.cells.items():
            record = dict(zip((*self.rows, *self.columns), (*row, *column), strict=True))
            record["measure"] = value
            record["value"] = estimate.value
            record["low"], record["high"] = interval(estimate, MEASURES[value].is_share)
            records.append({**record, **estimate._asdict()})
        return pd.DataFrame(records)

    @property
    def frame(self) -> pd.DataFrame:
        """The printed table as text, indexed by settings; `attrs` holds `question` and `notes`."""
        heading, *body = self.lines()
        frame = pd.DataFrame(body, columns=heading)
        frame.attrs = {"question": self.question, "notes": self.notes}
        if self.rows:
            return frame.set_index(list(self.rows))
        return frame

    def lines(self) -> list[list[str]]:
        """The heading and the rows as text."""
        rows = dict.fromkeys(row for row, _, _ in self.cells)
        columns = dict.fromkeys((column, value) for _, column, value in self.cells)
        show_n = len({estimate.n for estimate in self.cells.values()}) > 1
        lines = [[*self.rows, *(self._heading(column, value) for column, value in columns)]]
        for row in rows:
            line = [format_setting(setting) for setting in row]
            for column, value in columns:
                cell = ""
                if (row, column, value) in self.cells:
                    estimate = self.cells[row, column, value]
                    measure = MEASURES[value]
                    cell = format_estimate(
                        estimate, measure.scale, measure.unit, show_n, measure.is_share
                    )
                line.append(cell)
            lines.append(line)
        return lines

    def _heading(self, column: Setting, value: str) -> str:
        settings = []
        for key, setting in zip(self.columns, column, strict=True):
            settings.append(f"{key} = {format_setting(setting)}")
        heading = ", ".join(settings)
        title = self.titles[value]
        if heading and len(self.values) == 1:
            return heading  # a note has the title
        return ": ".join(filter(None, (heading, title)))


# ------------------------------------------------------------------------------------------------
# building a table


def tabulate(
    results: Sequence[Result] | Result,
    rows: Sequence[str] | str | None = None,
    columns: str | None = None,
    value: Sequence[str] | str | None = None,
    target: float | None = None,
    over: Sequence[str] | str | None = None,
    by: str | None = None,
    against: Mapping[str, Any] | None = None,
) -> Table:
    """The table that `laggard table` prints, at the best setting of the keys `over` if given.

    Raises:
        ValueError: as in `table` and `best`.
    """
    labelled = label_results(as_results(results))
    over = _list_of_names(over)
    if not over and by is not None:
        raise ValueError("`by`: expected keys to choose the best of (`best`)")
    if target is not None:
        goal(labelled, target)
    chosen = None
    if over:
        chosen = best(labelled, over, by, target)
    values = _list_of_names(value)
    return table(labelled, _list_of_names(rows), columns, values, target, chosen, against)


def _list_of_names(names: Sequence[str] | str | None) -> list[str]:
    if isinstance(names, str):
        return [names]
    return list(names or ())


def table(
    results: Sequence[Result],
    rows: Sequence[str] | None = None,
    columns: str | None = None,
    values: Sequence[str] | None = None,
    target: float | None = None,
    chosen: Best | None = None,
    against: Mapping[str, Any] | None = None,
) -> Table:
    """Estimates over the seeds of each setting: mean and 95 % interval by t, with n.

    Where not every seed reaches the target of a `time_to` (`updates_to`, ...), the cell is a
    `statistics.time_to_reach`. Diverged members count in n and in `diverged`; they never reach a
    target, and no mean of an accuracy or a loss includes them. One seed has no interval.

    At chosen settings the interval is the wider one of two: that over seeds, each at the setting
    that the others chose, and that over all seeds at the setting that is best on all. The first
    alone is too narrow where several settings are nearly as good.

    Args:
        rows: keys whose settings are rows. Default: every swept key that is not a seed and not in
            `columns`.
        columns: a key whose settings are columns.
        values: keys of `MEASURES`. Default: accuracy or loss, with a target time_to and updates_to,
            and staleness.
        target: the target, as in `measure_runs`.
        chosen: the choice of the best settings, if any was made; its results replace `results`.
            Chosen keys are rows too, or are noted.
        against: settings of some keys, as in `{"method": "sync"}`: cells are then differences from
            those, of pairs that agree in all other keys, in the seed too.

    Raises:
        ValueError: a key or value is unknown, or a swept key is in neither `rows` nor `columns`,
            so that its settings would be taken for repetitions.
    """
    over: tuple[str, ...] = ()
    if chosen:
        over = chosen.over
        results = chosen.results
    results = label_results(as_results(results))
    reference = dict(against or {})
    across = (columns,) if columns else ()
    swept = [key for key in results.keys if not is_seed(key)]
    down = list(rows or ())
    if not rows:
        # chosen keys have one setting left per row, but several where there are columns
        hidden = (*across, *over) if columns else across
        down = [key for key in swept if key not in hidden]
    _check_settings(results, [*down, *reference], across, [key for key in swept if key not in over])
    values = values or _default_measures(results, target)
    cells: dict[Cell, Estimate] = {}
    for value in values:
        measured = measure_runs(results, value, target)
        overall = measured
        if chosen:
            measured = chosen.relabel(measured)
            overall = measure_runs(chosen.overall, value, target)
        if reference:
            measured = _paired_differences(measured, reference, results.keys, over)
            overall = _paired_differences(overall, reference, results.keys, over)
        widths = dict(groups(overall, [*down, *across]))
        for setting, members in groups(measured, [*down, *across]):
            estimate = _estimate(members, value, bool(reference))
            if setting in widths:
                other = _estimate(widths[setting], value, bool(reference))
                if math.isfinite(estimate.half):  # a median or a bound has no interval
                    # `fmax` leaves out NaN: over all seeds there may be no interval.
                    estimate = estimate._replace(half=float(np.fmax(estimate.half, other.half)))
            row = setting[: len(down)]
            column = setting[len(down) :]
            cells[row, column, value] = estimate
    titles = _titles(results, values, target)
    notes = _table_notes(results, cells.values(), values)
    if columns and len(values) == 1:
        notes.insert(0, titles[values[0]])
    if reference:
        shown = ", ".join(f"{key} = {format_setting(value)}" for key, value in reference.items())
        notes.insert(0, f"differences from {shown}, of pairs with equal seeds")
    if chosen:
        notes = [*chosen.notes, *notes]
        if not set(over) <= set(down):
            notes = [*chosen.choices, *notes]
    return Table(
        rows=tuple(down),
        columns=across,
        values=tuple(values),
        cells=_order_cells(cells, values),
        titles=titles,
        notes=tuple(notes),
        question=common_question(results),
    )


def _paired_differences(
    measured: pd.DataFrame, against: Mapping[str, Any], keys: Sequence[str], over: Sequence[str]
) -> pd.DataFrame:
    """Members at other settings than `against`, minus the members that agree in all else.

    Raises:
        ValueError: no member has that setting, or none has a partner.
    """
    is_reference = pd.Series(data=True, index=measured.index)
    for key, value in against.items():
        is_reference &= measured[key] == value
    shown = ", ".join(f"{key}={format_setting(value)}" for key, value in against.items())
    if not is_reference.any():
        raise ValueError(f"`against` {shown}: no run has that setting")
    shared = [key for key in keys if key not in against and key not in over]
    others = measured[~is_reference]
    pair = ["value", "diverged"]
    references = measured.loc[is_reference, [*shared, *pair]]
    if not shared:
        references = references.assign(pair=0)
        others = others.assign(pair=0)
        shared = ["pair"]
    types = dict.fromkeys(shared, object)
    pairs = others.astype(types).merge(
        references.astype(types), on=shared, how="inner", suffixes=("", "_of_reference")
    )
    if not len(pairs):
        problem = "no run at another setting has the same seed and other keys"
        raise ValueError(f"`against` {shown}: {problem}")
    return pairs.assign(
        value=pairs["value"] - pairs["value_of_reference"],
        diverged=pairs["diverged"] | pairs["diverged_of_reference"],
    )


def label_results(results: Results) -> Results:
    """Add to results with equal labels the keys in which their configs differ.

    Runs outside a sweep have no labels, and sweeps of two configs may have equal ones. The results
    of one sweep stay as they are.
    """
    places_by_labels: dict[str, list[int]] = {}
    for place, result in enumerate(results):
        places_by_labels.setdefault(repr(result.labels), []).append(place)
    if len(places_by_labels) == len(results):
        return results
    labelled = list(results)
    for places in places_by_labels.values():
        differences = _differing_settings([results[place] for place in places])
        for place, settings in zip(places, differences, strict=True):
            result = results[place]
            labelled[place] = replace(result, labels={**result.labels, **settings})
    return Results(labelled, planned=results.planned)


def _differing_settings(group: Sequence[Result]) -> list[dict[str, Any]]:
    """For each result, the keys in which the configs differ, with its values.

    Keys that only some of the configs have usually follow from others: they are left out where the
    rest tells the runs apart.
    """
    parameters = Results(group).parameters
    for key in dict.fromkeys(key for result in group for key in result.swept):
        parameters[key] = [_setting_of_run(result, key) for result in group]
    shared = parameters.dropna(axis="columns")
    # a table without columns has no duplicates
    if len(shared.columns) and not shared.astype(str).duplicated().any():
        parameters = shared
    differences = []
    for row in parameters.to_dict("records"):
        labels = {key: axis_label(value) for key, value in row.items()}
        present = {key: label for key, label in labels.items() if label == label}  # not NaN
        differences.append(printable_labels(present))
    return differences


def _setting_of_run(result: Result, key: str) -> Any:
    """The value of a dotted key; None where members of the run differ in it, or it has none."""
    if key in result.swept:
        return None
    return dict(dotted_items(result.config.as_dict())).get(key)


def _check_settings(
    results: Results, down: Sequence[str], across: Sequence[str], swept: Sequence[str]
) -> None:
    for key in (*down, *across):
        if key not in results.keys:
            hint = suggest(key, results.keys) or f"swept keys: {', '.join(results.keys) or 'none'}"
            raise ValueError(f"{key}: not a swept key; {hint}")
        if key in down and key in across:
            raise ValueError(f"{key}: expected as rows or as columns, not both")
    for key in swept:
        varies = results.final[key].nunique(dropna=False) > 1
        if varies and key not in (*down, *across):
            problem = "was swept too, so its settings do not repeat"
            remedy = "make it `rows` or `columns`, fix it by `where`, or choose its `best`"
            raise ValueError(f"{key}: {problem}: {remedy}")


def _order_cells(cells: Mapping[Cell, Estimate], values: Sequence[str]) -> dict[Cell, Estimate]:
    """The cells row by row and column by column, in order of first appearance."""
    rows = dict.fromkeys(row for row, _, _ in cells)
    columns = dict.fromkeys(column for _, column, _ in cells)
    return {cell: cells[cell] for cell in product(rows, columns, values) if cell in cells}


def _default_measures(results: Results, target: float | None) -> list[str]:
    values = ["time", "staleness"]
    for name in ("loss", "accuracy"):
        if MEASURES[name].column in results.metrics:
            values[0] = name
    if values[0] == "time":
        return values
    try:
        goal(results, target)
    except ValueError:
        return values
    return [values[0], "time_to", "updates_to", "staleness"]


def _estimate(members: pd.DataFrame, value: str, is_difference: bool) -> Estimate:
    diverged = int(members["diverged"].sum())
    if is_difference:
        return difference(members["value"].to_numpy(float), diverged)
    if value.endswith("_to"):
        return time_to_reach(members["value"], members["followed"], members["never"], diverged)
    return mean(members["value"].to_numpy(float), diverged)


def _titles(results: Results, values: Sequence[str], target: float | None) -> dict[str, str]:
    text = ""
    if any(value.endswith("_to") for value in values):
        column, limit = goal(results, target)
        text = f"loss {limit:g}"
        if column == "test_accuracy":
            text = f"{100 * limit:.6g} %"
    return {value: MEASURES[value].title.format(target=text) for value in values}


def _table_notes(
    results: Results, estimates: Collection[Estimate], values: Sequence[str]
) -> list[str]:
    counts = {estimate.n for estimate in estimates}
    kinds = {estimate.kind for estimate in estimates}
    n = "n seeds"
    if len(counts) == 1:
        (number,) = counts
        n = f"n = {number} seeds"
    notes = [f"{n}; mean ± half the width of its 95 % interval (t), or its ends in brackets"]
    if counts == {1}:
        notes = ["n = 1 seed: no interval"]
    if kinds & {"median", "more", "never"}:
        median = "median by Kaplan-Meier, > t where it is beyond all observed times"
        notes.append(f"k of n: number of seeds that reached the target; {median}")
    any_diverged = any(estimate.diverged for estimate in estimates)
    if any_diverged and any(MEASURES[value].column not in AXES for value in values):
        notes.append("diverged members are in n, and in no mean of an accuracy or a loss")
    origins = describe_origins(results)
    if origins:
        notes.append(origins)
    if len(results) < results.planned:
        notes.append(f"{len(results)} of {results.planned} runs are finished")
    return notes


# ------------------------------------------------------------------------------------------------
# formats: whatever a label holds stays text


def text(table: Table) -> str:
    """Aligned for a terminal, the question above and the notes below."""
    lines = table.lines()
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    rows = []
    if table.question:
        rows = [table.question, ""]
    for line in lines:
        cells = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
        rows.append("  ".join(cells).rstrip())
    return "\n".join([*rows, "", *table.notes])


def markdown(table: Table) -> str:
    """A table of GitHub's Markdown, the question above and the notes below."""
    heading, *body = table.lines()
    numbers = len(heading) - len(table.rows)
    rows = []
    if table.question:
        rows = [f"**{_escape_markdown(table.question)}**", ""]
    rows.append(_markdown_row(map(_escape_markdown, heading)))
    rows.append(_markdown_row(["---"] * len(table.rows) + ["---:"] * numbers))
    rows.extend(_markdown_row(map(_escape_markdown, line)) for line in body)
    rows.append("")
    rows.extend(f"{_escape_markdown(note)}  " for note in table.notes)
    return "\n".join(rows).rstrip()


def _markdown_row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escape_markdown(text: str) -> str:
    """Escape Markdown and HTML in a text; an underscore within a word needs no escape."""
    return re.sub(r"[\\`*\[\]<|~$&#]|(?<!\w)_|_(?!\w)", r"\\\g<0>", text)


def csv(table: Table) -> str:
    """A line per cell for other programs, in seconds and shares of 1."""
    records = table.records.rename(columns=_escape_formula)
    return str(records.map(_escape_formula).to_csv(index=False)).rstrip("\n")


def _escape_formula(cell: Any) -> Any:
    """A cell that a spreadsheet reads as text, not as a formula."""
    if isinstance(cell, str) and cell.startswith(("=", "+", "-", "@")):
        return f"'{cell}"
    return cell


def latex(table: Table) -> str:
    """A `tabular` with the rules of booktabs; the question and the notes are comments above it."""
    heading, *body = table.lines()
    alignment = "l" * len(table.rows) + "r" * (len(heading) - len(table.rows))
    lines = [f"% {note}" for note in (table.question, *table.notes) if note]
    lines += [f"\\begin{{tabular}}{{{alignment}}}", "\\toprule", _latex_row(heading), "\\midrule"]
    lines += [_latex_row(line) for line in body]
    lines += ["\\bottomrule", "\\end{tabular}"]
    return "\n".join(lines)


LATEX: dict[str, str | int | None] = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "|": r"\textbar{}",
    "[": "{[}",  # after the end of a row, `[` and `*` would be its options
    "*": "{*}",
    "±": r"$\pm$",
    ">": "$>$",
    "<": "$<$",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
}
"""Characters that LaTeX would interpret."""


def _latex_row(cells: Iterable[str]) -> str:
    escaped = [cell.translate(str.maketrans(LATEX)) for cell in cells]
    return f"{' & '.join(escaped)} \\\\"


FORMATS: dict[str, Callable[[Table], str]] = {
    "text": text,
    "markdown": markdown,
    "md": markdown,
    "csv": csv,
    "latex": latex,
}
