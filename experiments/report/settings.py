"""The table of a report: the ranking of settings, with the curves of each row."""

import math
from typing import NamedTuple

from laggard.experiments.figures.lines import Line
from laggard.experiments.results.formats import format_setting
from laggard.experiments.results.measures import MEASURES, groups
from laggard.experiments.results.ranking import LR, is_tuned, rank
from laggard.experiments.results.results import Results
from laggard.experiments.results.statistics import interval
from laggard.experiments.results.tables import Setting, Table, tabulate

MAX_SETTINGS = 300
"""Settings that a page shows."""
LEADS = {
    "time_to": "First to {target}",
    "accuracy": "Highest test accuracy",
    "loss": "Lowest test loss",
}
"""The description of the first row of a page's table, by the measure that orders it."""


class Row(NamedTuple):
    """A setting in the table of a page.

    Attributes:
        name: its settings.
        settings: the text of each key's setting.
        group: the setting that has its colour, such as the method.
        cells: for each measure the text, and the number by which the column is sorted.
        low, high: the 95 % interval of the first measure.
        is_best: whether its learning rate is the best of the other settings.
    """

    name: str
    settings: list[str]
    group: str
    cells: list[tuple[str, float]]
    low: float
    high: float
    is_best: bool

    @property
    def has_value(self) -> bool:
        """Whether the first measure has a value: some seed reached the target."""
        return math.isfinite(self.cells[0][1])


class Ranking(NamedTuple):
    """The table of a page: the ranking, and the settings of other learning rates below it.

    Attributes:
        keys: the keys of the settings.
        choices: the settings of each key, as its select lists them.
        titles: the titles of the measures.
        lead: the description of the first row; empty if rows have no order.
        rows: the settings.
        notes: the explanation of the rows.
    """

    keys: list[str]
    choices: dict[str, list[str]]
    titles: list[str]
    lead: str
    rows: list[Row]
    notes: list[str]

    @property
    def short_keys(self) -> list[str]:
        """The last parts of the keys, or the keys where these are not distinct."""
        last = [key.rpartition(".")[2] for key in self.keys]
        if len(set(last)) < len(last):
            return self.keys
        return last

    @property
    def is_tuned(self) -> bool:
        """Whether some rows have a learning rate that is not the best."""
        return not all(row.is_best for row in self.rows)


def settings_table(results: Results) -> Ranking:
    """The ranking of the settings, and below it those at learning rates that are not the best."""
    ranked = rank(results)
    rows = _setting_rows(ranked, is_best=True)
    if is_tuned(results):
        best = [row.settings for row in rows]
        every = _setting_rows(tabulate(results, value=ranked.values), is_best=False)
        rows += [row for row in every if row.settings not in best]
    notes = list(ranked.notes)
    if len(rows) > MAX_SETTINGS:
        notes.insert(0, f"{len(rows) - MAX_SETTINGS} more settings are not shown; `table` has all")
        rows = rows[:MAX_SETTINGS]
    keys = list(ranked.rows)
    choices: dict[str, list[str]] = {}
    for key in keys:
        settings = dict.fromkeys(format_setting(value) for value in results.final[key])
        choices[key] = list(settings)
    first = ranked.values[0]
    lead = ""
    if first in LEADS and len(rows) > 1:
        title = ranked.titles[first]
        lead = LEADS[first].format(target=title.removeprefix("time to "))
    titles = [ranked.titles[value] for value in ranked.values]
    return Ranking(keys, choices, titles, lead, rows, notes)


def _setting_rows(table: Table, is_best: bool) -> list[Row]:
    column = _column_of_names(table)
    _, *lines = table.lines()
    settings = dict.fromkeys(row for row, _, _ in table.cells)
    rows = []
    for setting, line in zip(settings, lines, strict=True):
        estimates = [table.cells[setting, (), value] for value in table.values]
        texts = line[len(table.rows) :]
        numbers = [estimate.value for estimate in estimates]
        low, high = interval(estimates[0], MEASURES[table.values[0]].is_share)
        cells = list(zip(texts, numbers, strict=True))
        texts = line[: len(table.rows)]
        group = texts[column] if texts else ""
        rows.append(Row(_name(table, setting), texts, group, cells, low, high, is_best))
    return rows


def _column_of_names(table: Table) -> int:
    """The index of the first key whose settings are names, else of the first key."""
    for index in range(len(table.rows)):
        if any(isinstance(setting[index], str) for setting, _, _ in table.cells):
            return index
    return 0


def _name(table: Table, setting: Setting) -> str:
    labels = [row_label(key, value) for key, value in zip(table.rows, setting, strict=True)]
    return ", ".join(filter(None, labels))


def row_label(key: str, value: object) -> str:
    """A setting by the last part of its key; a name alone; empty where a run has none."""
    text = format_setting(value)
    if isinstance(value, str):
        return text
    if text == "-":
        return ""
    return f"{key.rpartition('.')[2]} = {text}"


def setting_lines(results: Results, ranking: Ranking) -> list[Line]:
    """The line of each row of the table: the curves of its seeds."""
    final = results.final.assign(place=range(len(results.final)))
    metrics = results.metrics.assign(run=results.metrics["run"].astype(str))
    curves = dict(iter(metrics.groupby(["run", "member"])))
    by_settings = {}
    for setting, members in groups(final, ranking.keys):
        texts = tuple(map(format_setting, setting))
        pairs = zip(members["run"].astype(str), members["member"], strict=True)
        by_settings[texts] = [curves[pair] for pair in pairs]
    lines = []
    for row in ranking.rows:
        others = []
        for key, text in zip(ranking.keys, row.settings, strict=True):
            if key != LR and text != row.group:
                others.append(text)
        dash = next(iter(others), "")
        name = row.name or results[0].config.name
        lines.append(Line(row.group, name, by_settings[tuple(row.settings)], dash))
    return lines
